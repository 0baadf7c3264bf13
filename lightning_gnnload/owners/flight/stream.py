"""FlightStream: frames over one call of Arrow Flight, whose ends have proved to each other that they know one secret.

A message is a batch of one column of bytes. The first of a frame has the frame's head as its metadata, and others
follow until the frame is whole; where they are cut is the sender's choice.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyarrow import flight

from lightning_gnnload.errors import FrameError, StrangerError
from lightning_gnnload.host import threads
from lightning_gnnload.host.tcp import Buffer, Frame
from lightning_gnnload.owners.flight.proof import NONCE_BYTES, is_proof

SCHEMA = pa.schema([("bytes", pa.uint8())])
_HEAD = struct.Struct("<IIQ")
EMPTY = np.empty(0, np.uint8)
NOTHING = pa.py_buffer(b"")
_first_pid: int | None = None


class FlightStream:
    """A :class:`.FrameStream` over a call, as its owner has it. One thread at a time uses it.

    gRPC gives an owner no means to end a call in its midst: time limits are for the other end, :class:`.FlightCall`.

    Args:
        writer: of the call.
        reader: likewise.
    """

    def __init__(
        self,
        writer: flight.FlightStreamWriter | flight.MetadataRecordBatchWriter,
        reader: flight.FlightStreamReader | flight.MetadataRecordBatchReader,
    ) -> None:
        self._writer, self._reader = writer, reader
        self._head: bytes | None = None
        self._rest = EMPTY
        self._is_stopped = False

    def welcome(self, secret: bytes) -> None:
        """Has the client prove that it knows the secret now, not before. StrangerError: it does not."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._begin(0.0)
        self._write(NOTHING, nonce, 0.0)
        if not is_proof(self._message(0.0)[1], secret, "asks", nonce):
            raise StrangerError("who called may have overheard who knows the secret, but does not know it.")

    def send(self, frame: Frame, timeout_s: float, content: Buffer = b"") -> None:
        self._head = _HEAD.pack(*frame)
        if len(content) or not frame.num_bytes:
            self.send_on(content, timeout_s)

    def send_on(self, content: Buffer, timeout_s: float) -> None:
        # A copy, since gRPC still holds it when it has taken it, and the caller has the memory back: in Arrow's own
        # memory, whose pages are there before.
        data = pa.allocate_buffer(len(content))
        np.frombuffer(data, np.uint8)[:] = np.frombuffer(content, np.uint8)
        head, self._head = self._head, None
        self._write(data, head, timeout_s)

    def receive(self, timeout_s: float | None) -> Frame:
        if len(self._rest):
            raise FrameError(f"{len(self._rest)} bytes are left of a frame: do client and owner run the same version?")
        self._rest, head = self._message(timeout_s or 0.0)
        if len(head) != _HEAD.size:
            raise FrameError("a message begins by no head: do client and owner run the same version?")
        return Frame(*_HEAD.unpack(head))

    def receive_into(self, memory: bytearray | np.ndarray, timeout_s: float) -> None:
        out, begin = np.frombuffer(memory, np.uint8), 0
        while begin < len(out):
            piece = self.receive_some(len(out) - begin, timeout_s)
            out[begin : begin + len(piece)] = piece
            begin += len(piece)

    def receive_some(self, most: int, timeout_s: float, unit: int = 1) -> np.ndarray:
        """Receives further bytes of a frame: a view, uint8, of as many as one message has, ``most`` at most, and a
        multiple of ``unit``."""
        while not len(self._rest):
            self._rest, head = self._message(timeout_s)
            if head:
                raise FrameError("a frame begins within another: do client and owner run the same version?")
        if len(self._rest) < unit <= most:
            unit_bytes = np.empty(unit, np.uint8)
            self.receive_into(unit_bytes, timeout_s)
            return unit_bytes
        end = min(len(self._rest), most) // unit * unit
        piece, self._rest = self._rest[:end], self._rest[end:]
        return piece

    def stop(self) -> None:
        """Has the call end before its next message. Safe to call twice."""
        self._is_stopped = True

    def close(self) -> None:
        self._rest = EMPTY

    def _begin(self, timeout_s: float) -> None:
        with self._within(timeout_s):
            self._writer.begin(SCHEMA)

    def _write(self, data: pa.Buffer, metadata: bytes | None, timeout_s: float) -> None:
        column = pa.Array.from_buffers(pa.uint8(), data.size, [None, data])
        batch = pa.RecordBatch.from_arrays([column], schema=SCHEMA)
        self._check()
        with self._within(timeout_s):
            if metadata is None:
                self._writer.write_batch(batch)
            else:
                self._writer.write_with_metadata(batch, pa.py_buffer(metadata))

    def _message(self, timeout_s: float) -> tuple[np.ndarray, bytes]:
        """Waits for a message: its bytes, which are a view, and its metadata."""
        with self._within(timeout_s):
            is_ours = self._reader.schema == SCHEMA
            chunk = self._reader.read_chunk()
        self._check()
        if not is_ours or chunk.data is None:
            raise FrameError("a message is none of ours: do client and owner run the same version?")
        column = chunk.data.column(0)
        metadata = b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
        if not len(column):
            return EMPTY, metadata
        try:
            # Arrow believes what a message says of its size.
            return np.frombuffer(column.buffers()[1], np.uint8, len(column), column.offset), metadata
        except (TypeError, ValueError) as error:
            raise FrameError(f"a message says that it has {len(column)} bytes, but has not: {error}") from error

    def _check(self) -> None:
        if self._is_stopped:
            raise ConnectionAbortedError("this owner ends.")

    @contextlib.contextmanager
    def _within(self, timeout_s: float) -> Iterator[None]:
        """Turns Flight's errors into those of a stream."""
        try:
            yield
        except StopIteration as error:
            raise ConnectionResetError("the other end has ended the call.") from error
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise ConnectionResetError(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}") from error


def check_grpc_process() -> None:
    """Raises ForkError in a fork of a process that has used gRPC, which would wait there for threads for ever."""
    global _first_pid
    _first_pid = _first_pid or os.getpid()
    threads.check_process(_first_pid, "Arrow Flight")
