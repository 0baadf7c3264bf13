"""How a rank finds the processes of the others: by what they were started with, or else by who started them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lightning_gnnload.host import processes
from lightning_gnnload.plugin.strategy import launcher
from lightning_gnnload.plugin.strategy.launcher import ScriptLauncher, Siblings


@contextmanager
def looping(**variables: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sh", "-c", "while :; do :; done"], env=os.environ | variables) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def siblings(monkeypatch: pytest.MonkeyPatch) -> Siblings:
    """As rank 0 has them, which started the others."""
    monkeypatch.setattr(ScriptLauncher, "_children", object())
    monkeypatch.delenv(launcher._PARENT, raising=False)
    return Siblings()


def settles(siblings: Siblings, local_rank: int, busy: bool) -> None:
    deadline = time.monotonic() + 20
    while siblings.is_busy(local_rank) != busy:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("variable", ["LOCAL_RANK", "SLURM_LOCALID"])
def test_a_rank_is_busy_by_itself_and_not_by_others(siblings: Siblings, variable: str) -> None:
    with looping(**{variable: "61"}) as process, looping(**{variable: "6"}):
        settles(siblings, 61, True)
        process.send_signal(signal.SIGSTOP)
        settles(siblings, 61, False)
        assert processes.is_stopped(process.pid)
        siblings.wake(61)
        settles(siblings, 61, True)


def test_a_rank_that_is_not_there_yet_is_as_busy_as_what_may_start_it(siblings: Siblings) -> None:
    settles(siblings, 62, False)
    with looping():
        settles(siblings, 62, True)


def test_rank_0_of_a_script_is_as_busy_as_itself(siblings: Siblings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which launched the others: what these do is none of its progress."""
    monkeypatch.setenv(launcher._PARENT, "x")
    child = "while :; do :; done & sleep 60; wait"
    with subprocess.Popen(["sh", "-c", child], start_new_session=True) as process:
        try:
            siblings._launcher = process.pid
            settles(siblings, 1, True)
            settles(siblings, 0, False)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
