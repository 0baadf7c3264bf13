"""Connection: one way to one owner, by which a thread asks, and then receives what it asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

MOST_TASK_BYTES = 1 << 28
"""Of one request: an owner takes no memory for more."""
MOST_ANSWER_BYTES = 1 << 33
"""Of one answer, likewise, but for rows, whose bytes are known beforehand."""


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

    @abstractmethod
    def close(self) -> None:
        """Safe to call twice."""
