"""What is told of other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from lightning_gnnload.host import processes

SLEEP = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"


def wait_until(stopped: bool, pid: int) -> None:
    deadline = time.monotonic() + 10
    while processes.is_stopped(pid) != stopped:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_stopped_process_is_known_and_woken() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert not processes.wake(process.pid)
            process.send_signal(signal.SIGSTOP)
            wait_until(True, process.pid)
            assert processes.wake(process.pid)
            wait_until(False, process.pid)
        finally:
            process.kill()
    assert not processes.is_stopped(process.pid)
    assert not processes.send_signal(process.pid, signal.SIGKILL)


def test_who_runs_or_waits_for_a_core_is_busy_and_who_sleeps_or_is_stopped_is_not() -> None:
    def settles(pid: int, busy: bool) -> None:
        deadline = time.monotonic() + 20
        while any(processes.is_busy(pid) != busy for _ in range(5)):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    loops = "while :; do :; done"
    # In a thread other than the first: an interpreter that has imported torch computes there.
    beside = "import threading; threading.Thread(target=exec, args=('while True: pass',)).start()"
    for command in (["sh", "-c", loops], [sys.executable, "-c", beside]):
        with subprocess.Popen(command) as process:
            try:
                settles(process.pid, True)
                process.send_signal(signal.SIGSTOP)
                wait_until(True, process.pid)
                settles(process.pid, False)
            finally:
                process.kill()
        assert not processes.is_busy(process.pid)
    with subprocess.Popen(["sleep", "60"]) as process:
        settles(process.pid, False)
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_process_that_is_to_end_is_woken_to_heed_it(number: int) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert not processes.wake_to_end(process.pid)
            process.send_signal(signal.SIGSTOP)
            wait_until(True, process.pid)
            process.send_signal(signal.SIGWINCH)  # nothing that ends it
            assert not processes.wake_to_end(process.pid)
            process.send_signal(number)
            assert processes.wake_to_end(process.pid)
            assert process.wait(10) == -number
        finally:
            process.kill()
    assert not processes.wake_to_end(process.pid)


def test_no_process_signals_itself() -> None:
    assert not processes.send_signal(os.getpid(), signal.SIGKILL)


def test_descendants_are_known_by_what_they_were_started_with() -> None:
    wanted, other = (os.environ | {"LOCAL_RANK": rank} for rank in ("7", "77"))
    with (
        subprocess.Popen([sys.executable, "-c", SLEEP], env=wanted, start_new_session=True) as forking,
        subprocess.Popen(["sleep", "60"], env=other) as unlike,
    ):
        try:
            deadline = time.monotonic() + 20
            # A rank, and the child that it forks.
            while len(found := processes.descendants(os.getpid(), {b"LOCAL_RANK=7"})) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert forking.pid in found
            assert unlike.pid not in found
        finally:
            os.killpg(forking.pid, signal.SIGKILL)
            unlike.kill()


@pytest.mark.parametrize(("state", "busy"), [("R", True), ("D", True), ("S", False), ("T", False)])
def test_who_waits_for_a_disk_is_busy(state: str, busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_stat", lambda _: [state, "1"])
    assert processes.is_busy(os.getpid()) is busy
