"""The guards themselves: each sees the leak it is for, and a clean test passes quickly."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests import guards
from tests.integration.scripts import launch


@contextmanager
def leaked_thread() -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="gnnload-prefetch-0")
    thread.start()
    yield
    stop.set()
    thread.join()


@contextmanager
def leaked_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield
    process.communicate(b"\n")


@contextmanager
def unreaped_process() -> Iterator[None]:
    process = subprocess.Popen(["true"])
    yield
    process.wait()


@contextmanager
def leaked_shared_memory() -> Iterator[None]:
    path = Path(f"/dev/shm/gnnload_guard_{os.getpid()}")
    path.touch()
    yield
    path.unlink()


@contextmanager
def leaked_semaphore() -> Iterator[None]:
    lock = multiprocessing.get_context("spawn").Lock()
    yield
    del lock
    gc.collect()


@contextmanager
def leaked_socket() -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"\0gnnload-guard-{os.getpid()}")
        yield


@contextmanager
def leaked_memory_file() -> Iterator[None]:
    descriptor = os.memfd_create("gnnload-slot")
    yield
    os.close(descriptor)


@pytest.mark.parametrize(
    ("leak", "named"),
    [
        (leaked_thread, "gnnload-prefetch-0"),
        (leaked_process, "input()"),
        (unreaped_process, "child process"),
        (leaked_shared_memory, "gnnload_guard_"),
        (leaked_semaphore, "sem."),  # joblib, if a test has loaded it, gives all semaphores another prefix
        (leaked_socket, "@gnnload-guard-"),
        (leaked_memory_file, "memfd:gnnload-slot"),
    ],
)
def test_a_leak_is_named(leak: Callable, named: str) -> None:
    before = guards.footprint()
    with leak():
        (line,) = guards.leaks(before, grace_s=0.05)
    assert named in line
    assert guards.leaks(before) == []


def test_a_semaphore_of_another_run_is_none_of_ours() -> None:
    before = guards.footprint()
    code = "import multiprocessing as m; lock = m.get_context('spawn').Lock(); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {guards.RUN_MARK: "another"},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        new = guards.footprint().shared_memory - before.shared_memory
        lines = guards.leaks(before, grace_s=0.05)
        process.communicate(b"\n")
    assert any(name.startswith("sem.mp-") for name in new)
    assert [line for line in lines if "shared memory" in line] == []


@pytest.mark.parametrize("prefix", guards.SEMAPHORES)
def test_a_semaphore_that_no_process_has_is_none_of_ours(prefix: str) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    before = guards.footprint()
    path = Path(f"/dev/shm/{prefix}{ended.pid}-{os.getpid()}")
    path.touch()
    try:
        assert guards.leaks(before, grace_s=0.05) == []
    finally:
        path.unlink()


def test_a_process_group_is_ended() -> None:
    before = guards.footprint()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    assert guards.leaks(before) == []
    assert not torch.distributed.is_initialized()


def test_a_changed_environment_is_named_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNLOAD_A", "old")
    before = guards.footprint()
    os.environ["GNNLOAD_A"] = "new"
    os.environ["GNNLOAD_B"] = "1"
    os.environ["PL_GLOBAL_SEED"] = "1"  # Lightning's, so restored without a word
    lines = guards.leaks(before)
    assert len(lines) == 2
    assert "GNNLOAD_A was 'old', is 'new'" in lines[0]
    assert "GNNLOAD_B was None, is '1'" in lines[1]
    assert dict(os.environ) == before.environment


def test_a_leaked_process_is_ended() -> None:
    before = guards.footprint()
    process = subprocess.Popen(["sleep", "30"])
    guards.kill(guards.new_children(before))
    assert process.wait(timeout=5) == -signal.SIGKILL


def test_an_orphan_of_this_run_is_found() -> None:
    # The shell ends at once: its child is nobody's among our children, and known only by its environment.
    seconds = f"30.{os.getpid()}"
    subprocess.run(["sh", "-c", f"sleep {seconds} >/dev/null 2>&1 &"], check=True)
    (orphan,) = [process for process in guards.orphans() if seconds in process]
    guards.kill([orphan])
    deadline = time.monotonic() + 5
    while orphan in guards.orphans():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_guards_are_cheap() -> None:
    # The best of several: other processes of the machine may interrupt any one of them.
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        assert guards.leaks(guards.footprint()) == []
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.05


def test_an_ignored_interrupt_is_heeded_again() -> None:
    before = guards.footprint()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Lightning does when a fit is interrupted
    assert guards.leaks(before) == []
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


IMPORTS = """
try:
    import mpi4py
except ImportError as error:
    print(error)
"""


def test_lightning_starts_no_daemon_by_importing_mpi4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is installed: behind all other folders, as those of packages are."""
    from lightning_fabric.plugins.environments import mpi

    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise AssertionError('imported, and so the daemon is started')")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(mpi, "_MPI4PY_AVAILABLE", True)
    assert not mpi.MPIEnvironment.detect()


@pytest.mark.parametrize("anew", [True, False])
def test_nor_do_ranks(tmp_path: Path, anew: bool) -> None:
    (tmp_path / "imports.py").write_text(IMPORTS)
    job = launch.run(tmp_path / "imports.py", folder=tmp_path / "job", anew=anew)
    assert job.output == "mpi4py is hidden from tests\n"
