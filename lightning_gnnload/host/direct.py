"""DirectFile: whole pages of a file, past the system's page cache."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable

import numpy as np

from lightning_gnnload.errors import FeatureFileError
from lightning_gnnload.host.pages import buffer_memory

PAGE = 4096
"""The unit of offsets, sizes and addresses, in bytes: no disk of today asks for a larger one."""


class DirectFile:
    """A file of which whole pages are read and written past the page cache, where its file system can do so.

    Where it cannot, they go through the cache and are dropped from it, so that they take no memory for long. Any number
    of threads may read and write at once.

    Args:
        opener: opens the file with these further flags of ``os.open``; returns its descriptor.
        name: for messages.
    """

    def __init__(self, opener: Callable[[int], int], name: str) -> None:
        self.name = name
        self.fd = -1
        direct = getattr(os, "O_DIRECT", 0)
        try:
            self.fd = opener(direct)
            with mmap.mmap(-1, PAGE) as page:
                os.preadv(self.fd, [page], 0)  # some file systems open the file, and refuse the read
        except OSError as error:
            if not direct or error.errno != errno.EINVAL:
                self.close()
                raise
            self.close()
            direct, self.fd = 0, opener(0)
        self.is_direct = direct != 0

    def read(self, offset: int, memory: np.ndarray, needed: int) -> None:
        """Reads whole pages into ``memory``, uint8, of which the first ``needed`` bytes must be there.

        Raises FeatureFileError: the file ends before, or cannot be read.
        """
        count = 0
        try:
            while count < needed:
                num_bytes = os.preadv(self.fd, [memory[count:].data], offset + count)
                count += num_bytes
                if num_bytes == 0 or num_bytes % PAGE:  # the end of the file
                    break
        except OSError as error:
            raise FeatureFileError(f"{self.name} cannot be read: {error}.") from error
        if count < needed:
            raise FeatureFileError(
                f"{self.name} was cut off: it ends at byte {offset + count}, but {offset + needed} are needed."
            )
        if not self.is_direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, offset, count, os.POSIX_FADV_DONTNEED)

    def write(self, offset: int, memory: np.ndarray) -> None:
        """Writes whole pages. Raises OSError."""
        count = 0
        while count < len(memory):
            count += os.pwritev(self.fd, [memory[count:].data], offset + count)

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def whole_pages(num_bytes: int) -> int:
    """Rounds up to whole pages.

    Example:
        >>> whole_pages(0), whole_pages(1), whole_pages(4096)
        (0, 4096, 4096)
    """
    return -(-num_bytes // PAGE) * PAGE


def page_buffer(num_bytes: int) -> np.ndarray:
    """Allocates a buffer that a :class:`DirectFile` can fill, uint8, of at least so many bytes; pages that are never
    touched take no memory."""
    return np.frombuffer(buffer_memory(num_bytes), np.uint8)
