"""Handover: a secret and a store that the process which starts a machine's ranks passes to them, and to nobody else.

The secret keeps other users from guessing the names by which ranks meet; the ranks form their process groups in the
store. Processes that others start (torchrun, SLURM, another strategy's launcher) get none: such ranks share a secret by
a file that only their user can read, and meet at torch's own store.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.distributed import FileStore, Store

from lightning_gnnload.errors import LaunchError

_VARIABLE = "GNNLOAD_HANDOVER"
_SECRET_BYTES = 16


@dataclass(frozen=True)
class Handover:
    """``secret`` begins all names that ranks of one machine share. ``store_file`` is the path of a memory file of the
    starting process, gone with it, that only its own user's processes can open."""

    secret: str = field(repr=False)
    store_file: str

    @property
    def is_launcher_alive(self) -> bool:
        """Whether the process lives that started the ranks."""
        return os.path.exists(self.store_file)

    @functools.cache  # noqa: B019  once for the life of the process: torch's store opens the file again for each call
    def store(self) -> Store:
        """Opens the store, for the life of this process. Raises LaunchError: this process may not open it."""
        try:
            fd = os.open(self.store_file, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise LaunchError(
                f"the store that this rank's launcher holds cannot be opened: {error}. Ranks must run under the user "
                f"who starts them, with the same privileges, and not outlive the process that does."
            ) from error
        return FileStore(f"/proc/self/fd/{fd}", -1)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function in a spawned process, which gets this as an argument instead of by its environment."""
        global _current
        _current = self
        return function(*args, **kwargs)


_current: Handover | None = None


@contextmanager
def for_spawned() -> Iterator[Handover]:
    """Makes one for ranks that start and end within the context."""
    fd = _new_file()
    try:
        yield _of(fd)
    finally:
        os.close(fd)


def create() -> Handover:
    """Makes one for this process and the ranks that it starts, once, for the life of this process."""
    global _current
    if _current is None:
        _current = _of(_new_file())
    return _current


def _new_file() -> int:
    # In no folder, where a killed process would leave it.
    return os.memfd_create("gnnload-store", os.MFD_CLOEXEC)


def _of(fd: int) -> Handover:
    return Handover(secrets.token_hex(_SECRET_BYTES), f"/proc/{os.getpid()}/fd/{fd}")


@contextmanager
def passed_by_environment() -> Iterator[None]:
    """Passes :func:`create`'s to processes started meanwhile, by their environment, which other users cannot read."""
    mine = create()
    os.environ[_VARIABLE] = f"{mine.secret} {mine.store_file}"
    try:
        yield
    finally:
        del os.environ[_VARIABLE]


def current() -> Handover | None:
    """This process's handover, whether it got or made it; None where something else started it."""
    if _current is None and _VARIABLE in os.environ:
        return Handover(*os.environ[_VARIABLE].split(" ", 1))
    return _current


def secret_of(run: str) -> str:
    """A secret that the ranks of ``run``, a name alike in all of them, share on this machine, and nobody else knows.
    Raises LaunchError: there is no folder for it that is this user's alone."""
    info = current()
    return _shared(run)[0] if info is None else info.secret


def is_first(run: str, event: str) -> bool:
    """Whether this is the first rank of a run, on this machine, that asks about ``event``. It has called
    :func:`secret_of`."""
    if (info := current()) is not None:
        return info.store().add(f"first-{event}", 1) == 1
    # Each appends a line, which the system does one after another, and looks whose came first.
    with open(_shared(run)[1], "a+b") as file:
        file.write(f"{event} {os.getpid()}\n".encode())
        file.flush()
        file.seek(2 * _SECRET_BYTES)
        lines = [line.split() for line in file.read().decode().splitlines()]
    return next(pid for name, pid in lines if name == event) == str(os.getpid())


@functools.cache
def _shared(run: str) -> tuple[str, Path]:
    digest = hashlib.blake2b(run.encode(), digest_size=8).hexdigest()
    reasons = []
    for folder in _folders():
        try:
            _keep_private(folder)
            name = f"{platform.node()}-{digest}"
            return _read(folder, name), folder / name
        except OSError as error:
            reasons.append(f"{folder}: {error}")
    raise LaunchError(
        f"ranks need a folder of user {os.getuid()} alone, by which they find each other, and there is none "
        f"({'; '.join(reasons)}). Set XDG_RUNTIME_DIR to one, alike in all ranks."
    )


def _folders() -> list[Path]:
    roots = [Path(os.environ.get(name, "")) for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME")]
    with contextlib.suppress(RuntimeError):  # this user has no home
        roots.append(Path.home() / ".cache")
    # The last, as any user may take this name in advance.
    return [
        *(root / "lightning_gnnload_runs" for root in roots if root.is_absolute()),
        Path(tempfile.gettempdir()) / f"lightning_gnnload_runs-{os.getuid()}",
    ]


def _keep_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError("it is not this user's alone")


def _read(folder: Path, name: str) -> str:
    """Reads the secret in a file, which the first process writes there, and the last one to end removes."""
    path = folder / name
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # Locks end with their processes, killed ones too: who gets this one finds a file that nobody uses.
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(fd, 0)
                os.pwrite(fd, secrets.token_hex(_SECRET_BYTES).encode(), 0)
            fcntl.flock(fd, fcntl.LOCK_SH)
            # Between the two locks another process may have rewritten or removed it; from here on, none does.
            if os.fstat(fd).st_nlink:
                _remove_unused(folder, but=name)
                atexit.register(_remove, path, fd, os.getpid())
                return os.pread(fd, 2 * _SECRET_BYTES, 0).decode()
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _remove(path: Path, fd: int, pid: int) -> None:
    if os.getpid() == pid:  # a fork has the same lock
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _remove_unused(folder: Path, but: str) -> None:
    """Removes what killed runs of this machine left; other machines may share the folder, but no locks."""
    for path in folder.glob(f"{platform.node()}-*"):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if path.name != but:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
            finally:
                os.close(fd)
