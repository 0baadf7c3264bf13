"""PyG's and RelBench's own tests, with our classes in the place of PyG's: see :mod:`tests.pyg_suite.__main__`."""
