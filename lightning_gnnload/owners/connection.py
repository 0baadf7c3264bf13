"""Connection: one way to one owner, by which a thread asks, and then receives what it asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.host.pages import scratch_rows

MOST_TASK_BYTES = 1 << 28
"""Of one request: an owner takes no memory for more."""
MOST_ANSWER_BYTES = 1 << 33
"""Of one answer, likewise, but for rows, whose bytes are known beforehand."""

_SCATTER_BYTES = 1 << 20
"""Rows that come are put in their places piece by piece: one of this size is still in the cache then."""


class OwnerFailedError(ConnectionError):
    """An owner could not do what another, or the same a little later, may well do. It never reaches a user."""


def is_refused(error: Exception) -> bool:
    """Returns whether an owner's error is of what was asked for, or a fault of the program: alike with any other owner.
    Else this owner's machine alone failed, for now: files, memory, connections."""
    return not isinstance(error, OSError | MemoryError)


class Connection(ABC):
    """A connection to an owner, which one thread at a time uses: :meth:`send`, then one of the two that receive.

    ``hello`` is what the owner said about itself. All methods raise OSError where the owner is gone, late, or could not
    serve, and ExchangeError where it refuses what was asked for. After an OSError the connection is of no use.
    """

    hello: Mapping[str, Any]

    @abstractmethod
    def send(self, task: np.ndarray) -> None:
        """Sends a request: a message's bytes, uint8."""

    @abstractmethod
    def receive(self) -> np.ndarray:
        """Receives a message's bytes, uint8."""

    @abstractmethod
    def receive_rows(self, out: np.ndarray, positions: np.ndarray | None) -> None:
        """Receives rows to ``out`` uint8 ``[*, row_bytes]``, contiguous: in their order, or at ``positions`` int64."""

    def begin(self) -> int:
        """Waits for an answer, which is then read piece by piece; returns its bytes.

        A connection that cannot read piece by piece receives all of it first.
        """
        self._rest = self.receive()
        return len(self._rest)

    def read(self, memory: np.ndarray) -> None:
        """Reads the next bytes of the answer, no more than are left, to ``memory``, uint8 ``[bytes]``, contiguous."""
        memory[:], self._rest = self._rest[: len(memory)], self._rest[len(memory) :]

    def read_rows(self, out: np.ndarray, positions: np.ndarray) -> None:
        """Reads the next rows of the answer as :meth:`receive_rows` receives them, at ``positions``."""
        row_bytes = out.shape[1]
        most = max(_SCATTER_BYTES // max(row_bytes, 1), 1)
        with scratch_rows(min(most, len(positions)), row_bytes, torch.uint8) as scratch:
            memory = scratch.numpy()
            in_order = np.arange(len(memory))
            for begin in range(0, len(positions), most):
                at = positions[begin : begin + most]
                self.read(memory[: len(at)].reshape(-1))
                ops.gather_rows(memory[: len(at)], in_order[: len(at)], out, at)

    @abstractmethod
    def close(self) -> None:
        """Safe to call twice."""
