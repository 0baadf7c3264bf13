"""The front of an owner that clients reach by Arrow Flight (gRPC), and the connection to it.

A request is one DoExchange: its bytes go up in one batch, the answer's come down in batches of a MiB, as fast as the
client reads. Each call carries a number used once and an HMAC of it, and gets an HMAC of the same number back, by which
both sides prove that they know the secret, which never travels. Without TLS, who overhears a call can repeat it, and
read the answer. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from lightning_gnnload import ops
from lightning_gnnload.errors import AddressError, ExchangeError, FrameError, GnnLoadError, StrangerError
from lightning_gnnload.host.threads import check_process, start_thread
from lightning_gnnload.owners.address import GRPC, GRPC_TLS, Address
from lightning_gnnload.owners.connection import (
    MOST_ANSWER_BYTES,
    MOST_TASK_BYTES,
    Connection,
    OwnerFailedError,
    is_refused,
)
from lightning_gnnload.owners.owner import Owner, Reply

_SCHEMA = pa.schema([("bytes", pa.uint8())])
_ASK, _HELLO = b"ask", b"hello"
_ANSWER, _REFUSAL, _FAILURE = range(3)
"""What an answer is. A refusal is of a request that no owner could answer; a failure is this owner's alone."""
_HEAD = struct.Struct("<IQ")
"""Beside an answer's first batch: what it is, and how many bytes it has in all."""
# ``NONCE HMAC`` of each call, and ``HMAC`` of its answer, in hexadecimal digits.
_HEADER = "gnnload-proof"
_NONCE_BYTES = 32
_MOST_WORDS_BYTES = 1 << 16
_MOST_CALLS = 256
"""That are answered at once; others wait."""
_CLOSE_S = 2.0
_EMPTY = np.empty(0, np.uint8)
_first_pid: int | None = None


class FlightFront:
    """Serves an owner's clients over Arrow Flight, a thread a call; arguments as of :class:`.TcpFront`.

    Args:
        owner: who answers.
        host: of the one address to listen at.
        port: 0: any that is free.
        secret: as :func:`.find_secret` returns it.
        certificate: of this owner, and its key, as contents of PEM files; None: without TLS.
        on_stranger: is told of who was turned away, and why; for a log.

    Raises:
        AddressError: the address is taken, or none of this machine's.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, load_partition, partition_graph
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), train=range(8))
        >>> _ = partition_graph(ring, "parts", 2, hops=0, progress=False)
        >>> with FlightFront(Owner(load_partition("parts")), "127.0.0.1", 0, b"a secret of ours") as front:
        ...     front.address.scheme
        'grpc'
    """

    def __init__(
        self,
        owner: Owner,
        host: str,
        port: int,
        secret: bytes,
        *,
        certificate: tuple[bytes, bytes] | None = None,
        on_stranger: Callable[[str], object] = lambda why: None,
    ) -> None:
        _check_process()
        address = Address(GRPC_TLS if certificate else GRPC, host, port)
        try:
            self._server = _Server(
                owner,
                str(address),
                tls_certificates=[certificate] if certificate else None,
                middleware={"doorman": _Doorman(secret, on_stranger)},
            )
        except (OSError, pa.ArrowException) as error:
            raise AddressError(
                f"nobody can listen at {address}: {error}. Give an address of this machine and a port that is free, or "
                "port 0 for any."
            ) from error
        self.address = Address(address.scheme, host, self._server.port)

    def close(self) -> None:
        """Ends all calls. Safe to call twice."""
        self._server.close()

    def __enter__(self) -> FlightFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(flight.FlightServerBase):
    def __init__(self, owner: Owner, location: str, **settings: object) -> None:
        super().__init__(location, **settings)
        self._owner = owner
        self._calls = threading.BoundedSemaphore(_MOST_CALLS)
        self._is_closed = False

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        # To Python, each call comes in a new thread of gRPC's: what such a thread keeps for itself, as memory for rows,
        # goes with it, after Python has forgotten it, and torch's tensors cannot. So it waits for one of Python's own.
        end: Future[None] = Future()
        with self._calls:
            start_thread("gnnload-owner-flight", self._run, end, descriptor, reader, writer)
            end.result()

    def close(self) -> None:
        """Ends calls after their present pieces. One whose client does not read is left to end by itself."""
        self._is_closed = True
        start_thread("gnnload-owner-end", self.shutdown).join(_CLOSE_S)

    def _run(self, end: Future[None], *call: Any) -> None:
        try:
            self._serve(*call)
        except BaseException as error:
            end.set_exception(error)
        else:
            end.set_result(None)

    def _serve(
        self,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        task = _task(reader)
        outcome, reply = _ANSWER, Reply(0, ())
        try:
            if descriptor.command == _HELLO:
                reply = _whole(json.dumps(self._owner.hello).encode())
            else:
                reply = self._owner.answer(task)
        except Exception as error:
            outcome = _REFUSAL if is_refused(error) else _FAILURE
            reply = _whole(f"{type(error).__name__}: {error}".encode()[:_MOST_WORDS_BYTES])
        writer.begin(_SCHEMA)
        pieces = iter(reply.pieces)
        # Copies, since gRPC still holds a piece when it has taken it, and its memory is the next one's.
        first = next(pieces, _EMPTY).copy()
        writer.write_with_metadata(_batch(first), pa.py_buffer(_HEAD.pack(outcome, reply.num_bytes)))
        for piece in pieces:
            if self._is_closed:
                raise flight.FlightUnavailableError("this owner ends")
            writer.write_batch(_batch(piece.copy()))


class _Doorman(flight.ServerMiddlewareFactory):
    """Turns calls without a proof away, before anything of them is read."""

    def __init__(self, secret: bytes, on_stranger: Callable[[str], object]) -> None:
        self._secret, self._on_stranger = secret, on_stranger

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> _Proven:
        nonce, _, proof = str(headers.get(_HEADER, [""])[0]).partition(" ")
        # Compared as bytes: of strings, compare_digest takes ASCII alone.
        if len(nonce) != 2 * _NONCE_BYTES or not hmac.compare_digest(
            proof.encode(errors="replace"), _proof(self._secret, "connects", nonce).encode()
        ):
            self._on_stranger("a call was turned away: who made it does not know the secret")
            raise flight.FlightUnauthenticatedError("the secret is not known here")
        return _Proven(_proof(self._secret, "listens", nonce))


class _Proven(flight.ServerMiddleware):
    def __init__(self, proof: str) -> None:
        self._proof = proof

    def sending_headers(self) -> dict[str, str]:
        return {_HEADER: self._proof}


class FlightConnection(Connection):
    """A connection to a :class:`FlightFront`. It waits ``connect_s`` seconds for what the owner says of itself,
    ``deadline_s`` for each answer to begin, and for each MiB of it.

    Args:
        address: of the owner.
        secret: the one that it has.
        authority: content of the PEM file that vouches for the owner's certificate; None: the system's own.

    Raises:
        StrangerError: the owner has another secret.
        OSError: no owner listens there, or it is late.
        ForkError: this process is a fork of one that has used Arrow Flight.
    """

    def __init__(
        self,
        address: Address,
        secret: bytes,
        connect_s: float,
        deadline_s: float,
        authority: bytes | None = None,
    ) -> None:
        _check_process()
        self._call = _Call(secret)
        self._exchange: tuple[flight.FlightStreamWriter, flight.FlightStreamReader] | None = None
        self._client = flight.FlightClient(str(address), middleware=[_Calls(self._call)], tls_root_certs=authority)
        self._watch = _Watch(connect_s, min(connect_s, deadline_s) / 4)
        try:
            self._begin(_HELLO, _EMPTY)
            self.hello = json.loads(self.receive().tobytes())
            if not isinstance(self.hello, dict):
                raise FrameError(f"{address} says of itself what is no description.")
        except ValueError as error:
            self.close()
            raise FrameError(f"{address} says of itself what is no description: {error}") from error
        except BaseException:
            self.close()
            raise
        self._watch.limit_s = deadline_s

    def send(self, task: np.ndarray) -> None:
        if len(task) > MOST_TASK_BYTES:
            raise ExchangeError(
                f"a request has {len(task)} bytes, but owners take {MOST_TASK_BYTES}. Ask for fewer nodes at once: a "
                "smaller batch_size."
            )
        self._begin(_ASK, task)

    def receive(self) -> np.ndarray:
        with self._answer() as (num_bytes, pieces):
            if num_bytes > MOST_ANSWER_BYTES:
                raise FrameError(f"an answer of {num_bytes} bytes is announced.")
            return _joined(num_bytes, pieces)

    def receive_rows(self, out: np.ndarray, positions: np.ndarray | None) -> None:
        num_rows, row_bytes = len(out) if positions is None else len(positions), out.shape[1]
        with self._answer() as (num_bytes, pieces):
            if num_bytes != num_rows * row_bytes:
                raise FrameError(f"{num_bytes} bytes were announced, but {num_rows} rows of {row_bytes} asked for.")
            begin = 0
            for piece in pieces:
                end = begin + len(piece) // max(row_bytes, 1)
                if end > num_rows or len(piece) % max(row_bytes, 1):
                    raise FrameError(f"{len(piece)} bytes came of {num_rows - begin} rows of {row_bytes}.")
                rows = piece.reshape(-1, row_bytes) if row_bytes else np.empty((0, 0), np.uint8)
                if positions is None:
                    out[begin:end] = rows
                else:
                    ops.gather_rows(rows, np.arange(len(rows)), out, positions[begin:end])
                begin = end
            if begin * row_bytes != num_bytes:
                raise FrameError(f"{num_bytes} bytes were announced, and {begin * row_bytes} came.")

    def close(self) -> None:
        self._watch.close()
        self._end()
        self._client.close()

    def _begin(self, command: bytes, task: np.ndarray) -> None:
        with _errors(self._watch):
            self._exchange = self._client.do_exchange(flight.FlightDescriptor.for_command(command))
            writer, reader = self._exchange
            self._watch.begin(reader)
            writer.begin(_SCHEMA)
            # A copy, since gRPC may hold it when the caller has the memory back.
            writer.write_batch(_batch(task.copy()))
            writer.done_writing()

    @contextlib.contextmanager
    def _answer(self) -> Iterator[tuple[int, Iterator[np.ndarray]]]:
        """Reads the head of an answer, then its pieces, each to be copied before the next. Raises what it refuses."""
        assert self._exchange is not None, "send comes first"
        _, reader = self._exchange
        try:
            with _errors(self._watch):
                chunk = reader.read_chunk()
            # Nothing that came is looked at before it is known who sent it.
            if not self._call.is_proven:
                raise StrangerError("the other end does not know the secret: it is not who this process looks for.")
            if chunk.app_metadata is None or chunk.app_metadata.size != _HEAD.size or reader.schema != _SCHEMA:
                raise FrameError("an answer begins by no head: do client and owner run the same version?")
            outcome, num_bytes = _HEAD.unpack(chunk.app_metadata)
            pieces = self._pieces(chunk, reader)
            if outcome != _ANSWER:
                words = _joined(min(num_bytes, _MOST_WORDS_BYTES), pieces).tobytes().decode(errors="replace")
                raise ExchangeError(words) if outcome == _REFUSAL else OwnerFailedError(words)
            yield num_bytes, pieces
        finally:
            self._end()

    def _pieces(self, chunk: flight.FlightStreamChunk, reader: flight.FlightStreamReader) -> Iterator[np.ndarray]:
        with _errors(self._watch):
            while True:
                if chunk.data is not None and chunk.data.num_rows:
                    yield _bytes_of(chunk.data.column(0))
                self._watch.go_on()
                try:
                    chunk = reader.read_chunk()
                except StopIteration:
                    return

    def _end(self) -> None:
        self._watch.end()
        if self._exchange is not None:
            writer, reader = self._exchange
            self._exchange = None
            reader.cancel()
            # Else Arrow tells of it on stderr.
            with contextlib.suppress(pa.ArrowException, OSError):
                writer.close()


class _Call(flight.ClientMiddleware):
    """Proves the calls of one connection, one after the other, and looks at what the owner proves."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._nonce = secret, ""
        self.is_proven = False

    def sending_headers(self) -> dict[str, str]:
        self._nonce, self.is_proven = secrets.token_hex(_NONCE_BYTES), False
        return {_HEADER: f"{self._nonce} {_proof(self._secret, 'connects', self._nonce)}"}

    def received_headers(self, headers: dict[str, list[str]]) -> None:
        proof = str(headers.get(_HEADER, [""])[0]).encode(errors="replace")
        # They come twice, before the answer and behind it: what was proved once stays so.
        self.is_proven |= hmac.compare_digest(proof, _proof(self._secret, "listens", self._nonce).encode())


class _Calls(flight.ClientMiddlewareFactory):
    def __init__(self, call: _Call) -> None:
        self._call = call

    def start_call(self, info: flight.CallInfo) -> _Call:
        return self._call


class _Watch:
    """Cancels a call of which nothing comes for ``limit_s``, found every ``tick_s``; gRPC itself limits whole calls."""

    def __init__(self, limit_s: float, tick_s: float) -> None:
        self.limit_s, self._tick_s = limit_s, tick_s
        self.is_late = False
        self._reader: flight.FlightStreamReader | None = None
        self._since = 0.0
        self._closed = threading.Event()
        # Guards the reader: none is cancelled that the connection has ended.
        self._lock = threading.Lock()
        self._thread = start_thread("gnnload-flight", self._run)

    def begin(self, reader: flight.FlightStreamReader) -> None:
        with self._lock:
            self._reader, self._since, self.is_late = reader, time.monotonic(), False

    def go_on(self) -> None:
        self._since = time.monotonic()

    def end(self) -> None:
        with self._lock:
            self._reader = None

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._tick_s):
            with self._lock:
                if self._reader is not None and time.monotonic() - self._since > self.limit_s:
                    self.is_late = True
                    self._reader.cancel()
                    self._reader = None


@contextlib.contextmanager
def _errors(watch: _Watch) -> Iterator[None]:
    """Turns Flight's errors into those of a :class:`.Connection`."""
    try:
        yield
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        if isinstance(error, GnnLoadError):
            raise
        if watch.is_late:
            raise TimeoutError(f"the owner sent nothing for {watch.limit_s} s.") from error
        if isinstance(error, flight.FlightUnauthenticatedError):
            raise StrangerError("the other end does not take this secret: give both ends the same one.") from error
        raise ConnectionResetError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
    except StopIteration as error:
        raise ConnectionResetError("the owner ended its answer before it began.") from error


def _task(reader: flight.MetadataRecordBatchReader) -> np.ndarray:
    """Reads a request, of which nothing is believed: its bytes, uint8, aligned."""
    if reader.schema != _SCHEMA:
        raise flight.FlightServerError("this is no request")
    column = reader.read_chunk().data.column(0)
    if len(column) > MOST_TASK_BYTES or column.null_count:
        raise flight.FlightServerError(f"a request has {MOST_TASK_BYTES} bytes at most")
    # A copy: off the wire, bytes begin anywhere, and the numbers in them are to lie where their dtypes want it.
    return _bytes_of(column).copy()


def _whole(content: bytes) -> Reply:
    return Reply(len(content), [np.frombuffer(content, np.uint8)])


def _joined(num_bytes: int, pieces: Iterator[np.ndarray]) -> np.ndarray:
    joined, begin = np.empty(num_bytes, np.uint8), 0
    for piece in pieces:
        if begin + len(piece) > num_bytes:
            raise FrameError(f"{num_bytes} bytes were announced, and more came.")
        joined[begin : begin + len(piece)] = piece
        begin += len(piece)
    if begin != num_bytes:
        raise FrameError(f"{num_bytes} bytes were announced, and {begin} came.")
    return joined


def _batch(data: np.ndarray) -> pa.RecordBatch:
    column = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays([column], schema=_SCHEMA)


def _bytes_of(column: pa.Array) -> np.ndarray:
    """Views a column, without a copy."""
    if not len(column):
        return _EMPTY
    return np.frombuffer(column.buffers()[1], np.uint8, len(column), column.offset)


def _proof(secret: bytes, role: str, nonce: str) -> str:
    # The role keeps an end from being given its own words back.
    return hmac.digest(secret, f"gnnload flight {role} {nonce}".encode(errors="replace"), "sha256").hex()


def _check_process() -> None:
    """Raises ForkError in a fork of a process that has used gRPC, which would wait there for threads for ever."""
    global _first_pid
    _first_pid = _first_pid or os.getpid()
    check_process(_first_pid, "Arrow Flight")
