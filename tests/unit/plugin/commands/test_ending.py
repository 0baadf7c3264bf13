"""What a command that is told to end leaves behind: nothing but a status that says so."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload.plugin.commands import build, cli
from lightning_gnnload.plugin.commands.cli import heeding_signals
from lightning_gnnload.storage import folders
from lightning_gnnload.storage.folders import new_folder, staging_folder
from lightning_gnnload.storage.output import OutputFile

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def tell(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)  # a handler runs between two steps of the interpreter


@pytest.fixture(autouse=True)
def handlers() -> Any:
    """Those of a process that a shell starts; the tests' own process may be one that ignores Ctrl-C."""
    defaults = dict.fromkeys(SIGNALS, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield defaults
    now = {number: signal.signal(number, handler) for number, handler in before.items()}
    assert now == defaults


def write_folder(place: Path) -> None:
    with new_folder(place / "graph", "graph", overwrite=False) as folder:
        (folder / "part").write_bytes(b"half")
        tell(signal.SIGTERM)


def write_file(place: Path) -> None:
    with OutputFile(place / "rows.npz") as file:
        file.write({"prediction": [1.0, 2.0]})
        file._flush()
        tell(signal.SIGTERM)


@pytest.mark.parametrize("write", [write_folder, write_file])
def test_what_was_being_written_is_removed(write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heeding_signals("gnnload write", lambda: write(tmp_path)) == 143
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err == "gnnload write: ended by SIGTERM\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_the_status_is_the_signals(number: signal.Signals) -> None:
    assert heeding_signals("x", lambda: tell(number) or 0) == 128 + number

    def catches() -> int:
        try:
            tell(number)
        except KeyboardInterrupt:
            return 130
        return 0

    assert heeding_signals("x", catches) == 128 + number


def test_signals_while_it_tidies_up_leave_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_AT_ONCE_S", 0.0)  # each is heeded, as if a second lay between them
    removed, left = shutil.rmtree, list(SIGNALS)

    def interrupted(place: Path, **options: Any) -> None:
        (place / "a").unlink(missing_ok=True)
        if left:
            tell(left.pop())
        removed(place, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)

    def command() -> int:
        with staging_folder(tmp_path / "out") as place:
            (place / "a").touch()
            (place / "b").touch()
            tell(signal.SIGTERM)
        return 0

    assert heeding_signals("x", command) == 143
    assert not left
    assert not list(tmp_path.iterdir())


def test_a_signal_before_the_folder_is_locked_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(place: Path, operation: int) -> Any:
        assert place.is_dir()
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "folder_lock", told)
    with pytest.raises(KeyboardInterrupt), staging_folder(tmp_path / "out"):
        pass
    assert not list(tmp_path.iterdir())


def test_signals_that_come_together_are_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd sends SIGTERM and SIGHUP; who presses Ctrl-C twice does not mean to interrupt what tidies up."""
    monkeypatch.setattr(cli, "_AT_ONCE_S", 60.0)  # however slow the machine is
    tidied = []

    def command() -> int:
        try:
            tell(signal.SIGTERM)
        finally:
            tell(signal.SIGHUP)
            tidied.append(True)
        return 0

    assert heeding_signals("x", command) == 143
    assert tidied


def test_who_ignores_a_signal_goes_on() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        assert heeding_signals("x", lambda: tell(signal.SIGHUP) or 0) == 0
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_a_trainer_ends_by_sigterm_in_its_own_way() -> None:
    """Its handler calls the one before it: that must not raise in the midst of a step."""

    def command() -> int:
        before = signal.getsignal(signal.SIGTERM)
        assert callable(before)
        signal.signal(signal.SIGTERM, lambda number, frame: before(number, frame))
        tell(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
        went_on.append(True)
        sys.exit(0)

    went_on: list[bool] = []
    assert heeding_signals("x", command) == 143
    assert went_on


def test_what_nobody_told_is_passed_on() -> None:
    with pytest.raises(SystemExit) as ended:
        heeding_signals("x", lambda: sys.exit(2))
    assert ended.value.code == 2
    assert heeding_signals("x", lambda: 2) == 2


def test_the_command_line_heeds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "check_target", lambda *_, **__: tell(signal.SIGTERM))
    monkeypatch.setattr(sys, "argv", ["gnnload", "build", "graph.yaml", str(tmp_path / "out")])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 143
