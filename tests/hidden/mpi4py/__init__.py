"""In the place of the package of that name, where it is installed: Lightning imports it to see who has started it, and
it starts a daemon then, which is a process that a test leaves behind."""

raise ImportError("mpi4py is hidden from tests")
