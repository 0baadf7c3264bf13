"""What ranks are handed, and that nobody else gets it."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from lightning_gnnload.errors import LaunchError
from lightning_gnnload.plugin import handover
from lightning_gnnload.plugin.module.gather_group import run_name
from tests.forked import in_child
from tests.runif import RunIf
from tests.strangers import as_stranger
from tests.unit.plugin.module.test_gather_group import At


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where ranks of other launchers share a secret; no process of this test has been handed another one."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("GNNLOAD_HANDOVER", raising=False)
    monkeypatch.setattr(handover, "_current", None)
    handover._shared.cache_clear()
    yield tmp_path / "lightning_gnnload_runs"
    handover._shared.cache_clear()


def told(name: str) -> str:
    """What a process that ends at once is told, and tells; it runs its exit handlers, unlike a fork of pytest."""

    def tell() -> None:
        os.write(1, handover.secret_of(name).encode())

    status, printed = in_child(tell)
    assert status == 0
    return printed


def test_each_start_has_a_secret_and_a_store_of_its_own() -> None:
    def meet() -> None:
        # In a process of its own, which keeps the stores open to its end.
        with handover.for_spawned() as first, handover.for_spawned() as second:
            assert len({first.secret, second.secret}) == 2
            assert len(first.secret) == 32
            assert in_child(lambda: first.store().set("key", "value")) == (0, "")
            assert first.store().get("key") == b"value"
            assert not second.store().check(["key"])
            assert first.is_launcher_alive
        assert not first.is_launcher_alive

    assert in_child(meet) == (0, "")


def test_a_store_is_not_opened_once_its_process_is_gone() -> None:
    with handover.for_spawned() as handed:
        pass
    with pytest.raises(LaunchError, match="cannot be opened"):
        handed.store()


@RunIf(root=True)
def test_another_user_can_open_neither_store_nor_file(folder: Path) -> None:
    handover.secret_of("run")
    [file] = folder.iterdir()
    with handover.for_spawned() as handed:
        for path in (handed.store_file, file):
            status, printed = as_stranger(lambda path=path: os.open(path, os.O_RDONLY))
            assert status == 1
            assert "PermissionError" in printed


def test_children_are_told_by_their_environment_alone() -> None:
    def begin() -> None:
        with handover.passed_by_environment():
            told = os.environ["GNNLOAD_HANDOVER"]
        assert handover.create() is handover.create()
        assert "GNNLOAD_HANDOVER" not in os.environ
        mine, handover._current = handover._current, None
        assert handover.current() is None
        os.environ["GNNLOAD_HANDOVER"] = told
        assert handover.current() == mine

    assert in_child(begin) == (0, "")


def test_the_runs_name_begins_with_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same port and place, another user's guess is another name."""
    with handover.for_spawned() as first, handover.for_spawned() as second:
        names = []
        for each in (first, first, second):
            monkeypatch.setattr(handover, "_current", each)
            names.append(run_name(At(0, 1234), 0))
    assert names[0] == names[1] != names[2]
    assert first.secret not in names[0]


def test_ranks_of_another_launcher_share_a_secret(folder: Path) -> None:
    mine = handover.secret_of("run")
    assert told("run") == mine
    assert told("another") != mine
    [file] = [path for path in folder.iterdir() if path.read_text() == mine]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_next_run_of_a_name_has_another_secret() -> None:
    """Although processes that were killed have left the file."""
    assert told("run") != told("run")


def test_the_last_to_end_removes_the_file(folder: Path) -> None:
    def end_in_order() -> None:
        # Not all that this process would do at its end: a fork lacks the threads that others wait for.
        with mock.patch.object(handover.atexit, "register") as register:
            handover.secret_of("run")
        function, *arguments = register.call_args.args
        function(*arguments)

    assert in_child(end_in_order) == (0, "")
    assert list(folder.iterdir()) == []
    mine = handover.secret_of("run")
    in_child(end_in_order)  # it was not the last
    handover._shared.cache_clear()
    assert handover.secret_of("run") == mine


def test_what_killed_runs_left_is_removed(folder: Path) -> None:
    def be_killed() -> None:
        handover.secret_of("killed")
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(be_killed)[0] == -signal.SIGKILL
    assert len(list(folder.iterdir())) == 1
    mine = handover.secret_of("run")
    assert [path.read_text() for path in folder.iterdir()] == [mine]


@pytest.mark.parametrize("spoil", ["open", "link", "file"])
def test_a_folder_that_others_can_use_is_not_taken(
    folder: Path, spoil: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if spoil == "open":
        folder.mkdir()
        folder.chmod(0o770)
    elif spoil == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.touch()
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    handover.secret_of("run")
    assert len(list((tmp_path / "cache" / "lightning_gnnload_runs").iterdir())) == 1
    monkeypatch.setattr(handover, "_folders", lambda: [folder])
    handover._shared.cache_clear()
    with pytest.raises(LaunchError, match=rf"{folder}: .*Set XDG_RUNTIME_DIR"):
        handover.secret_of("run")
