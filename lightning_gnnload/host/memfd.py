"""MemoryFile: memory that processes of a machine share, and that is gone with the last of them."""

from __future__ import annotations

import fcntl
import mmap
import os

import numpy as np

from lightning_gnnload.errors import CacheShareError
from lightning_gnnload.host.memory import free_bytes
from lightning_gnnload.host.pages import advise_huge

_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_SEAL_FUTURE_WRITE = 0x0010  # linux/fcntl.h; Python 3.13 is the first to name it


class MemoryFile:
    """Maps a memfd, which has no name in any folder: a killed process leaves nothing behind.

    Its size is sealed, so no reader loses a page. ``fd`` is for other processes, and is closed with this object.
    ``array`` is its content, uint8 ``[num_bytes]``: writable for its maker, and for others if ``open_to_all``.
    """

    array: np.ndarray

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls, name: str, num_bytes: int, *, open_to_all: bool = False) -> MemoryFile:
        """Allocates zeroed memory, at once, so that no later write can fail; ``name`` shows in ``/proc``."""
        # Asked for more than there is, Linux may kill a process rather than refuse.
        if num_bytes > (free := free_bytes()):
            raise CacheShareError(
                f"{num_bytes / 2**20:.1f} MiB of memory are to be shared as {name!r}, but the machine has "
                f"{free / 2**20:.1f} MiB of free memory. Make the cache smaller (ratio, capacity_bytes)."
            )
        file = cls(os.memfd_create(f"gnnload-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        try:
            os.posix_fallocate(file.fd, 0, max(num_bytes, 1))
            # Mapped before it is sealed: F_SEAL_FUTURE_WRITE forbids new writable maps, and leaves this one alone.
            file._map(num_bytes, writable=True)
            fcntl.fcntl(file.fd, fcntl.F_ADD_SEALS, _SIZE_SEALS | (0 if open_to_all else _SEAL_FUTURE_WRITE))
        except OSError as error:
            file.close()
            raise CacheShareError(
                f"{num_bytes / 2**20:.1f} MiB of memory are to be shared as {name!r}, which the machine does not give "
                f"({error}). Make the cache smaller (ratio, capacity_bytes)."
            ) from error
        return file

    @classmethod
    def adopt(cls, fd: int, num_bytes: int, *, open_to_all: bool = False) -> MemoryFile:
        """Maps the memory of another process, and owns the descriptor from now on; an error closes it.

        Raises CacheShareError: it is of another size, or could still shrink.
        """
        file = cls(fd)
        try:
            seals, size = fcntl.fcntl(fd, fcntl.F_GET_SEALS), os.fstat(fd).st_size
            if seals & _SIZE_SEALS != _SIZE_SEALS or size != max(num_bytes, 1):
                raise CacheShareError(
                    f"another rank shared {size} bytes with seals {seals:#x}, but {num_bytes} sealed bytes are needed. "
                    f"Run one release of the package in all ranks."
                )
            file._map(num_bytes, writable=open_to_all)
        except (OSError, ValueError) as error:  # a negative descriptor is the latter
            file.close()
            raise CacheShareError(f"another rank shared what is no memory ({error}).") from error
        except BaseException:
            file.close()
            raise
        return file

    def close(self) -> None:
        """Closes the descriptor; the memory stays until the last array over it is gone."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        # For objects that an error has left without an owner.
        self.close()

    def _map(self, num_bytes: int, *, writable: bool) -> None:
        access = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
        memory = mmap.mmap(self.fd, max(num_bytes, 1), flags=mmap.MAP_SHARED, prot=access)
        advise_huge(memory)
        self.array = np.frombuffer(memory, np.uint8, num_bytes)
