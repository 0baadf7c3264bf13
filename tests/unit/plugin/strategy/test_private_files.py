"""Files that spawned ranks leave to the process that has spawned them."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest
from torch.multiprocessing import ProcessRaisedException, start_processes

from lightning_gnnload.plugin.strategy.launcher import private_temporary_files


def fail(rank: int) -> None:
    raise ValueError("no luck")


def test_no_other_user_sees_the_names_of_pickled_errors() -> None:
    """The spawning process loads what lies under such a name, whoever has put it there."""
    before = tempfile.gettempdir()
    with private_temporary_files():
        context = start_processes(fail, nprocs=1, join=False, start_method="fork")
        [file] = map(Path, context.error_files)
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        with pytest.raises(ProcessRaisedException, match="no luck"):
            context.join()
    assert not file.parent.exists()
    assert tempfile.gettempdir() == before
