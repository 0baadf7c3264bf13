"""ComingAnswer: an answer that is read from its connection as it comes, each piece to where it belongs."""

from __future__ import annotations

import numpy as np

from lightning_gnnload.errors import FrameError
from lightning_gnnload.owners.address import Address
from lightning_gnnload.owners.connection import Connection
from lightning_gnnload.owners.directory import Directory


class ComingAnswer:
    """An answer whose first bytes have come. Its connection is lent to it until all have, or until it is closed. One
    thread at a time reads.

    Args:
        directory: that has lent the connection.
        connection: on which the answer comes.
        address: of its owner.
        num_bytes: that the owner has announced.
    """

    def __init__(self, directory: Directory, connection: Connection, address: Address, num_bytes: int) -> None:
        self._directory, self._address = directory, address
        self._connection: Connection | None = connection
        self.num_left = num_bytes
        self._finish_if_whole()

    def read(self, memory: np.ndarray) -> None:
        """Reads the next bytes to ``memory``, uint8, contiguous. OSError: the owner is gone, or late; FrameError: there
        are not so many. After either, the answer is closed."""
        connection = self._take(memory.size)
        if connection is None:
            return
        try:
            connection.read(memory.reshape(-1))
        except OSError as error:
            self._lose(error)
            raise
        self._finish_if_whole()

    def read_rows(self, out: np.ndarray, positions: np.ndarray) -> None:
        """Reads the next rows to ``out`` uint8 ``[*, row_bytes]``, contiguous, at ``positions`` int64. Raises as
        :meth:`read` does; some rows may have been written then."""
        connection = self._take(len(positions) * out.shape[1])
        if connection is None:
            return
        try:
            connection.read_rows(out, positions)
        except OSError as error:
            self._lose(error)
            raise
        self._finish_if_whole()

    def close(self) -> None:
        """Leaves what has not come. Safe to call twice, and from another thread."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()

    def _take(self, num_bytes: int) -> Connection | None:
        """Returns the connection on which so many bytes come; None where these are none, and it may be given back."""
        if not num_bytes:
            return None
        if num_bytes > self.num_left or self._connection is None:
            self.close()
            raise FrameError(f"{num_bytes} bytes of an answer are read, of which {self.num_left} are left.")
        self.num_left -= num_bytes
        return self._connection

    def _lose(self, error: Exception) -> None:
        self.close()
        self._directory.report(self._address, error)

    def _finish_if_whole(self) -> None:
        if self.num_left == 0 and self._connection is not None:
            connection, self._connection = self._connection, None
            self._directory.give_back(connection, self._address)
