"""Memory that processes share by a descriptor."""

from __future__ import annotations

import os

from lightning_gnnload.host.memfd import MemoryFile


def test_programs_that_are_started_inherit_none_of_it() -> None:
    made = MemoryFile.create("test", 100)
    adopted = MemoryFile.adopt(os.dup(made.fd), 100)
    assert not os.get_inheritable(made.fd)
    made.array[:3] = 1, 2, 3
    assert adopted.array[:3].tolist() == [1, 2, 3]
    made.close()
    adopted.close()
