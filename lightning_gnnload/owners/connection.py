"""Connection: a way to one owner, by which a thread asks, and then receives what it asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.errors import ExchangeError, FrameError
from lightning_gnnload.host.pages import scratch_rows
from lightning_gnnload.host.tcp import Buffer, Frame

HELLO, TASK, ANSWER, REFUSAL, FAILURE = range(5)
"""Codes of frames. A refusal is of a request that no owner could answer; a failure is this owner's alone."""
MOST_TASK_BYTES = 1 << 28
"""Of one request: an owner takes no memory for more."""
MOST_ANSWER_BYTES = 1 << 33
"""Of one answer, likewise, but for rows, whose bytes are known beforehand."""
MOST_WORDS_BYTES = 1 << 16
"""Of what an owner says of itself, or of an error."""
_SCATTER_BYTES = 1 << 20
"""Rows that come are put in their places piece by piece: one of this size is still in the cache then."""


class OwnerFailedError(ConnectionError):
    """An owner could not do what another, or the same a little later, may well do. It never reaches a user."""


class FrameStream(Protocol):
    """The interface of what carries frames between an owner and a client who know one secret: :class:`.TcpStream`, and
    :class:`.FlightStream`. Time limits are seconds for each MiB. All raise OSError where the other end is gone or late.
    """

    def send(self, frame: Frame, timeout_s: float, content: Buffer = b"") -> None:
        """Sends a frame; what its bytes are beyond ``content`` follows by :meth:`send_on`."""

    def send_on(self, content: Buffer, timeout_s: float) -> None:
        """Sends further bytes of a frame."""

    def receive(self, timeout_s: float | None) -> Frame:
        """Waits for the next frame; None waits for ever."""

    def receive_into(self, memory: bytearray | np.ndarray, timeout_s: float) -> None:
        """Receives the next bytes of a frame, all of ``memory``."""

    def stop(self) -> None:
        """Ends the connection, and what another thread waits for on it. Safe to call twice."""

    def close(self) -> None:
        """Safe to call twice."""


class Connection:
    """A connection to an owner, which one thread at a time uses: :meth:`send`, then one of the two that receive.

    ``hello`` is what the owner said about itself. All methods raise OSError where the owner is gone, late, or could not
    serve, and ExchangeError where it refuses what was asked for. After an OSError the connection is of no use.

    Args:
        stream: to the owner; closed if it does not say first who it is.
        connect_s: seconds to wait for that.
        deadline_s: seconds to wait for each answer to begin, and for each MiB of it.
    """

    hello: Mapping[str, Any]

    def __init__(self, stream: FrameStream, connect_s: float, deadline_s: float) -> None:
        self._stream, self._deadline_s = stream, deadline_s
        self._number = 0
        try:
            code, _, num_bytes = stream.receive(connect_s)
            if code != HELLO or num_bytes > MOST_WORDS_BYTES:
                raise FrameError(f"an owner begins by a frame of code {code} and {num_bytes} bytes.")
            hello = json.loads(self._read(num_bytes))
            if not isinstance(hello, dict):
                raise FrameError("an owner says of itself what is no description.")
        except ValueError as error:
            self.close()
            raise FrameError(f"an owner says of itself what is no description: {error}") from error
        except BaseException:
            self.close()
            raise
        self.hello = hello

    def send(self, task: np.ndarray) -> None:
        """Sends a request: a message's bytes, uint8."""
        if len(task) > MOST_TASK_BYTES:
            raise ExchangeError(
                f"a request has {len(task)} bytes, but owners take {MOST_TASK_BYTES}. Ask for fewer nodes at once: a "
                "smaller batch_size."
            )
        self._number = (self._number + 1) % 2**32
        self._stream.send(Frame(TASK, self._number, len(task)), self._deadline_s, task)

    def receive(self) -> np.ndarray:
        """Receives a message's bytes, uint8."""
        answer = np.empty(self.begin(), np.uint8)
        self.read(answer)
        return answer

    def receive_rows(self, out: np.ndarray, positions: np.ndarray | None) -> None:
        """Receives rows to ``out`` uint8 ``[*, row_bytes]``, contiguous: in their order, or at ``positions`` int64."""
        num_rows, row_bytes = len(out) if positions is None else len(positions), out.shape[1]
        if (num_bytes := self._receive_head()) != num_rows * row_bytes:
            raise FrameError(f"{num_bytes} bytes were announced, but {num_rows} rows of {row_bytes} asked for.")
        if positions is None:
            self.read(out.reshape(-1))
        else:
            self.read_rows(out, positions)

    def begin(self) -> int:
        """Waits for an answer, which is then read piece by piece; returns its bytes."""
        if (num_bytes := self._receive_head()) > MOST_ANSWER_BYTES:
            raise FrameError(f"an answer of {num_bytes} bytes is announced.")
        return num_bytes

    def read(self, memory: np.ndarray) -> None:
        """Reads the next bytes of the answer, no more than are left, to ``memory``, uint8 ``[bytes]``, contiguous."""
        self._stream.receive_into(memory, self._deadline_s)

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

    def close(self) -> None:
        """Safe to call twice."""
        self._stream.close()

    def _receive_head(self) -> int:
        code, number, num_bytes = self._stream.receive(self._deadline_s)
        if number != self._number or code not in (ANSWER, REFUSAL, FAILURE):
            raise FrameError(f"a frame of code {code} answers request {number}, but {self._number} was sent.")
        if code == ANSWER:
            return num_bytes
        if num_bytes > MOST_WORDS_BYTES:
            raise FrameError(f"a refusal of {num_bytes} bytes is announced.")
        words = self._read(num_bytes).decode(errors="replace")
        raise ExchangeError(words) if code == REFUSAL else OwnerFailedError(words)

    def _read(self, num_bytes: int) -> bytearray:
        content = bytearray(num_bytes)
        self._stream.receive_into(content, self._deadline_s)
        return content
