"""What a test may leave behind: nothing.

:func:`footprint` lists what this process holds, :func:`leaks` what a test added to it. Both read /proc, which
takes a fraction of a millisecond. Where another run of the tests could be the cause (shared memory, sockets),
an entry counts only if this run made it: a run marks its processes by an environment variable.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "gnnload"  # of the names that the package gives its threads, sockets and memory files
GRACE_S = 10.0  # how long threads and processes that are told to stop may take, and what cleans up after killed ones
RUN_MARK = "GNNLOAD_TEST_RUN"

# Python's own name them so, and joblib's loky gives all of a process that imports it names of the other kind.
SEMAPHORES = ("sem.mp-", "sem.loky-")

# Written by libraries on import, by Lightning or by pytest; restored like all others, but no fault of ours.
FOREIGN_ENVIRONMENT = re.compile(
    r"PYTEST_\w+|PL_\w+|MASTER_(ADDR|PORT)|(LOCAL_|NODE_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|OMP_NUM_THREADS|KMP_\w+"
    r"|CUBLAS_WORKSPACE_CONFIG|CUDA_(DEVICE_ORDER|MODULE_LOADING)|CRC32C_SW_MODE|TF_CPP_MIN_LOG_LEVEL|TORCH\w*|TRITON_\w+"
    r"|DGL\w*|RAY_\w+|GRPC_\w+|COLUMNS|LINES"
)
# Processes that Python and torch start once and keep until the end.
LASTING_PROCESS = re.compile(
    r"multiprocessing\.(resource_tracker|forkserver)|torch_shm_manager|compile_worker|tests.forkserver"
)

HIDDEN = Path(__file__).parent / "hidden"  # packages that stand in the place of installed ones

# What lasts for the life of a process, from when it is first needed: the thread that holds leases of mapped graphs, and
# nothing of those that are gone; and what a script hands to the ranks that it starts.
LASTING = ("gnnload-leases", "gnnload-store")


@dataclass(frozen=True)
class Footprint:
    """Names of what this process and its children hold, by kind."""

    environment: dict[str, str]
    threads: frozenset[str]
    children: frozenset[str]
    shared_memory: frozenset[str]
    sockets: frozenset[str]
    memory_files: frozenset[str]
    on_interrupt: Any
    has_group: bool


def mark_run(worker: str = "") -> None:
    """Makes the processes of this run known by their environment. Called once, before the first test.

    Each worker of a parallel run has a mark of its own, which begins with the run's: to the others it is another run.
    """
    # Not overwritten: a run inside a run belongs to it.
    mark = os.environ.setdefault(RUN_MARK, uuid.uuid4().hex)
    if worker:
        os.environ[RUN_MARK] = f"{mark}-{worker}"


def hide_packages() -> None:
    """Lets this process find what is in :data:`HIDDEN` instead of packages of the same name. Those that it starts get
    the folder by PYTHONPATH."""
    sys.path.insert(0, str(HIDDEN))


def our_threads() -> list[threading.Thread]:
    """Lists the package's threads, but for those that last."""
    ours = (thread for thread in threading.enumerate() if thread.name.startswith(PREFIX))
    return [thread for thread in ours if thread.name not in LASTING]


def restore_loaders() -> None:
    """Undoes what Lightning does to torch's classes of loaders while it asks for one, and leaves where that raises."""
    if (data := sys.modules.get("torch.utils.data")) is None:
        return
    classes = [data.DataLoader, data.BatchSampler]
    for cls in classes:
        classes += cls.__subclasses__()
        for name in ("__init__", "__setattr__", "__delattr__"):
            if (own := vars(cls).get(f"__old{name}")) is not None:
                setattr(cls, name, own)
                delattr(cls, f"__old{name}")


def has_group() -> bool:
    """Whether torch has a process group; without importing it."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def num_fds() -> int:
    """Counts this process's descriptors, without those of what earlier tests have left to be collected."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def footprint() -> Footprint:
    """Lists what this process holds now."""
    return Footprint(
        environment=dict(os.environ),
        threads=frozenset(f"{t.name} ({t.ident})" for t in our_threads()),
        children=frozenset(_children()),
        shared_memory=frozenset(_entries("/dev/shm")),
        sockets=frozenset(_abstract_sockets()),
        memory_files=frozenset(_memory_files()),
        on_interrupt=signal.getsignal(signal.SIGINT),
        has_group=has_group(),
    )


def leaks(before: Footprint, grace_s: float = GRACE_S) -> list[str]:
    """Lists what was added since ``before`` and stays for ``grace_s`` seconds. Restores the environment, what SIGINT
    does (after a KeyboardInterrupt in a fit, Lightning has it ignored), and that there is no process group (Lightning
    leaves that of a strategy to the next one)."""
    if has_group() and not before.has_group:
        sys.modules["torch.distributed"].destroy_process_group()
    if signal.getsignal(signal.SIGINT) != before.on_interrupt:
        signal.signal(signal.SIGINT, before.on_interrupt)
    lines = _restore_environment(before.environment)
    added = _added(before)
    deadline = time.monotonic() + grace_s
    while added and time.monotonic() < deadline:
        gc.collect()  # what only a reference cycle keeps, as Lightning's Trainer makes them, is no leak
        multiprocessing.active_children()  # joins the finished ones
        time.sleep(0.02)
        added = _added(before)
    return lines + added


def kill(processes: Iterable[str]) -> None:
    """Ends what was named, so that it neither disturbs the next test nor keeps Python from exiting."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process.split()[0]), signal.SIGKILL)


def new_children(before: Footprint) -> frozenset[str]:
    """Lists the children that are there now and were not before."""
    return frozenset(_children()) - before.children


def orphans() -> list[str]:
    """Lists the processes of this run and of its workers that are left, whoever their parents are now."""
    mark = f"{RUN_MARK}={os.environ[RUN_MARK]}".encode()
    left = []
    for pid in map(int, filter(str.isdigit, _entries("/proc"))):
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if pid != os.getpid() and any(variable.startswith(mark) for variable in variables):
                left.append(_describe(pid))
    return [process for process in left if not LASTING_PROCESS.search(process)]


def _added(before: Footprint) -> list[str]:
    now = footprint()
    found = [
        ("thread still running; stop and join it when its owner closes", now.threads - before.threads),
        ("child process still there; end and wait for it", now.children - before.children),
        ("shared memory still there; unlink it", filter(_is_ours, now.shared_memory - before.shared_memory)),
        ("abstract socket still bound; close it", filter(_socket_is_ours, now.sockets - before.sockets)),
        ("memory file still open; close its descriptor and maps", now.memory_files - before.memory_files),
    ]
    return [f"{what}: {name}" for what, names in found for name in sorted(names)]


def _restore_environment(before: dict[str, str]) -> list[str]:
    after = dict(os.environ)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    for name in changed:
        # pytest sets and removes its own between the phases of a test.
        if name.startswith("PYTEST_"):
            continue
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]
    return [
        f"environment changed (use monkeypatch): {name} was {before.get(name)!r}, is {after.get(name)!r}"
        for name in sorted(changed)
        if not FOREIGN_ENVIRONMENT.fullmatch(name)
    ]


def _children() -> list[str]:
    """Lists direct children that matter, by pid. The kernel lists them by the thread that started them."""
    pids: set[str] = set()
    for thread in _entries("/proc/self/task"):
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            pids.update(Path(f"/proc/self/task/{thread}/children").read_text().split())
    described = [_describe(int(pid)) for pid in pids]
    return [process for process in described if not LASTING_PROCESS.search(process)]


def _describe(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = "ended"
    return f"{pid} ({command[:120] or 'ended, but not waited for'})"


def _entries(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def _abstract_sockets() -> list[str]:
    """Lists ``"name inode"`` of each socket that bears our prefix: two columns of /proc/net/unix."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
        columns = [line.split() for line in lines if f"@{PREFIX}" in line]
        return [f"{fields[-1]} {fields[-2]}" for fields in columns]
    return []


def _memory_files() -> list[str]:
    links = []
    for descriptor in _entries("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            link = os.readlink(f"/proc/self/fd/{descriptor}")
            if f"memfd:{PREFIX}" in link and not any(name in link for name in LASTING):
                links.append(f"{link} (descriptor {descriptor})")
    return links


def _is_ours(entry: str) -> bool:
    """Tells whether this user made it, and no living process of another run: names often hold the maker's pid, or it
    maps what it made. CUDA's driver keeps files of its own, by which processes open each other's memory, to the end."""
    if entry.startswith("cuda.shm."):
        return False
    with contextlib.suppress(OSError):
        if os.stat(f"/dev/shm/{entry}").st_uid != os.getuid():
            return False
        makers = _who_maps(f"/dev/shm/{entry}")
        if entry.startswith(SEMAPHORES) and not makers:
            return False  # of killed processes, which may be another run's: their tracker of resources unlinks it
        named = re.findall(r"(?<![^\W_])\d+(?![^\W_])", entry)[:2]  # not the digits of a name drawn at random
        return not any(map(_of_another_run, makers | {int(number) for number in named}))
    return False  # gone


def _who_maps(file: str) -> set[int]:
    # By its inode: the C library maps a semaphore under a passing name, which the process that made it shows for ever.
    inode = f" {os.stat(file).st_ino} "
    found = set()
    for pid in filter(str.isdigit, _entries("/proc")):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
            if any(inode in line and "/dev/shm/" in line for line in lines):
                found.add(int(pid))
    return found


def _socket_is_ours(socket: str) -> bool:
    inode = socket.rsplit(" ", 1)[1]
    for pid in filter(str.isdigit, _entries("/proc")):
        with contextlib.suppress(OSError):
            for descriptor in _entries(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") == f"socket:[{inode}]" and not _of_another_run(int(pid)):
                    return True
    return False


def _of_another_run(pid: int) -> bool:
    if pid == os.getpid():
        return False
    with contextlib.suppress(OSError):
        mark = f"{RUN_MARK}={os.environ.get(RUN_MARK)}".encode()
        return mark not in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
