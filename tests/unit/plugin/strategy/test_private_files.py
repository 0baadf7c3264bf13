"""Files that spawned ranks leave to the process that has spawned them."""

from __future__ import annotations

import os
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


def test_what_a_killed_launcher_left_goes_with_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def killed() -> None:
        with private_temporary_files():
            os._exit(0)  # as by SIGKILL: nothing is tidied up

    if (pid := os.fork()) == 0:
        killed()
    os.waitpid(pid, 0)
    assert len(list(tmp_path.iterdir())) == 1
    with private_temporary_files():
        [mine] = tmp_path.iterdir()
        with private_temporary_files():  # another job's does not take this one away
            pass
        assert mine.is_dir()
    assert not list(tmp_path.iterdir())
