"""RemoteChannel: the connection between a sampler and a trainer of another machine, over TCP.

The messages are those of :mod:`.wire`. Where one carries memory on one machine, its bytes follow it here, and come into
memory of the receiver. A thread receives, so that mini-batches come while the trainer trains, and one sends, so that a
slow trainer keeps nobody else waiting. What may be on its way is bounded as ever: a sampler makes the steps that it is
asked for.
"""

from __future__ import annotations

import math
import os
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_gnnload.errors import (
    CacheShareError,
    FrameError,
    QueueProtocolError,
    SlotMemoryError,
    StrangerError,
    ThreadLimitError,
)
from lightning_gnnload.host import tcp
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.host.tcp import Frame, TcpStream
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.pipeline.queue.slot_copies import SlotCopies
from lightning_gnnload.pipeline.queue.wire import MAX_MESSAGE_BYTES, Channel, Message, QueueChannel, readable

_PURPOSE = "queue of mini-batches"
_HELLO_S = 5.0
_SILENCE_S = 60.0  # for each MiB of what has begun to come, or to go
_MESSAGE, _END = 1, 2  # kinds of frames
_CLOCK = struct.Struct("<d")  # when the frame was sent, by the sender's clock; before the message
_MOST_UNREAD = 256  # messages; then the peer's wait in the network
_MOST_STRANGERS = 64
_FLUSH_S = 1.0


@dataclass(frozen=True)
class RemoteSamplers:
    """The samplers of other machines: their global ranks, as many of each machine as ``num_each`` says, and how to
    connect to one; None: it does not listen yet."""

    ranks: Sequence[int] = ()
    num_each: int = 0
    connect: Callable[[int], Channel | None] = lambda rank: None


NO_REMOTE = RemoteSamplers()


class _BrokenError(EOFError):
    """The connection is of no more use in either direction."""


@dataclass(frozen=True)
class _Item:
    """A message to send, and the bytes that follow it."""

    message: bytes
    content: Sequence[np.ndarray]


class RemoteChannel:
    """One end of a connection over TCP, as the queue needs it (:class:`.wire.Channel`).

    ``open_stream`` connects, or accepts, and makes sure that the peer knows the secret; it runs in a thread of this
    channel, as it takes the time of some messages. Until then, what is sent waits, and nothing comes.

    Source: GNNLab (EuroSys'22), section 5.2, has the queue in a machine's memory; BGL (NSDI'23), section 3.1, samplers
    on machines of their own.
    """

    peer_pid = 0

    def __init__(self, open_stream: Callable[[], TcpStream]) -> None:
        self.clock_s = 0.0
        self._behind_s = math.inf  # the least that any frame took, clocks included
        self._open_stream = open_stream
        self._stream: TcpStream | None = None
        self._changed = threading.Condition()
        self._inbox: deque[tuple[Message, list[int]]] = deque()
        self._outbox: deque[_Item] = deque()
        self._end: Exception | None = None  # why nothing more comes
        self._is_sending = False
        self._is_finished = False
        self._is_closed = False
        self._copies = SlotCopies()  # of received slots
        self._sources = SlotCopies()  # of sent ones
        self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # readable while there is something to receive
        self._num_threads = 0
        try:
            for name, work in (("gnnload-receive", self._receive_all), ("gnnload-send", self._send_all)):
                self._num_threads += 1
                start_thread(name, work)
        except ThreadLimitError:
            self._num_threads -= 1
            self.close()
            raise

    @property
    def is_opening(self) -> bool:
        """Whether it is not known yet who is at the other end."""
        return self._stream is None and self._end is None

    def fileno(self) -> int:
        return self._news

    def has_room(self) -> bool:
        with self._changed:
            return not self._outbox and not self._is_sending

    def send(self, message_type: str, fds: Sequence[int] = (), **fields: Any) -> None:
        """Sends a message, and the bytes of the memory that goes with it; returns before they are sent. They must not
        change before the peer has answered for them."""
        data = QueueChannel.encoded(message_type, **fields)
        with self._changed:
            if self._is_closed or self._is_finished or self._end is not None:
                raise BrokenPipeError("the connection has ended")
            self._outbox.append(_Item(data, self._content(message_type, fds, fields)))
            self._changed.notify_all()

    def receive(self) -> tuple[Message, list[int]]:
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._end is not None or self._is_closed)
            if self._inbox:
                item = self._inbox.popleft()
                if not self._inbox and self._end is None:
                    os.eventfd_read(self._news)
                self._changed.notify_all()
                return item
            raise self._end or EOFError()

    def finish(self) -> None:
        with self._changed:
            self._is_finished = True
            self._changed.notify_all()

    def drain(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while readable([self], max(deadline - time.monotonic(), 0)):
            try:
                _, fds = self.receive()
            except (EOFError, QueueProtocolError):
                return True
            for fd in fds:
                os.close(fd)
        return False

    def close(self) -> None:
        """Closes the connection, after what was sent before has left, for which a moment is waited."""
        with self._changed:
            if self._is_closed:
                return
            self._is_finished = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._end is not None or self._stream is None or self._has_left(), _FLUSH_S)
            self._is_closed = True
            stream, inbox = self._stream, list(self._inbox)
            self._inbox.clear()
            self._changed.notify_all()
        for _, fds in inbox:
            for fd in fds:
                os.close(fd)
        if stream is not None:
            stream.stop()  # ends what the threads wait for
        self._free_when_over()

    def _has_left(self) -> bool:
        return not self._outbox and not self._is_sending

    def _free_when_over(self) -> None:
        """Frees what both threads and :meth:`close` use, when the last of them is through."""
        with self._changed:
            if not self._is_closed or self._num_threads or self._news < 0:
                return
            if self._stream is not None:
                self._stream.close()
            os.close(self._news)
            self._news = -1
            self._copies.close()
            self._sources.close()

    def _end_thread(self, end: Exception | None) -> None:
        """Notes that a thread ends; ``end``: no more can come or go."""
        with self._changed:
            self._num_threads -= 1
            if end is not None:
                self._end = self._end or end
                os.eventfd_write(self._news, 1)
            if self._stream is not None and isinstance(end, _BrokenError):
                self._stream.stop()  # for the other thread
            self._changed.notify_all()
        self._free_when_over()

    # Sending.

    def _content(self, message_type: str, fds: Sequence[int], fields: dict[str, Any]) -> Sequence[np.ndarray]:
        """The bytes that go with a message."""
        if message_type == "batch" and not fields["memory_handle"]:
            fd = fds[0] if fds else None
            return self._sources.source(fields["slot"], fields["slot_bytes"], fields["pieces"], fd)
        if message_type == "bye" and fds:
            return [MemoryFile.adopt(os.dup(fds[0]), fields["num_bytes"]).array]
        if fds:
            raise QueueProtocolError(f"the memory of a {message_type!r} message stays on its machine")
        return ()

    def _send_all(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self.is_opening or self._is_closed)
            stream = self._stream
        end: Exception | None = None
        try:
            while stream is not None and (item := self._next_item()) is not None:
                num_bytes = _CLOCK.size + len(item.message) + sum(map(len, item.content))
                head = _CLOCK.pack(time.monotonic()) + item.message
                stream.send(Frame(_MESSAGE, len(item.message), num_bytes), _SILENCE_S, head)
                for piece in item.content:
                    stream.send_on(piece, _SILENCE_S)
            if stream is not None:
                stream.send(Frame(_END, 0, 0), _SILENCE_S)
        except OSError as error:
            end = _BrokenError(str(error))
        finally:
            with self._changed:
                self._outbox.clear()
                self._is_sending = False
            self._end_thread(end)

    def _next_item(self) -> _Item | None:
        with self._changed:
            self._is_sending = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._outbox or self._is_finished or self._is_closed)
            if self._is_closed or not self._outbox:
                return None
            self._is_sending = True
            return self._outbox.popleft()

    # Receiving.

    def _receive_all(self) -> None:
        end: Exception = EOFError()
        try:
            stream = self._open_stream()
            with self._changed:
                self._stream = stream
                goes_on = not self._is_closed  # meanwhile
                self._changed.notify_all()
            while goes_on:
                goes_on = self._receive_one(stream)
        except (QueueProtocolError, StrangerError, FrameError, SlotMemoryError, CacheShareError) as error:
            end = QueueProtocolError(str(error))
        except OSError as error:
            end = _BrokenError(str(error))
        finally:
            self._end_thread(end)

    def _receive_one(self, stream: TcpStream) -> bool:
        frame = stream.receive(None)  # a sampler may have nothing to say for hours
        if frame.code == _END:
            return False
        if frame.code != _MESSAGE or frame.number > MAX_MESSAGE_BYTES:
            raise QueueProtocolError(f"{frame} came; a message has at most {MAX_MESSAGE_BYTES} bytes.")
        clock, data = bytearray(_CLOCK.size), bytearray(frame.number)
        stream.receive_into(clock, _SILENCE_S)
        self._compare_clocks(*_CLOCK.unpack(clock))
        stream.receive_into(data, _SILENCE_S)
        message = QueueChannel.checked(bytes(data), truncated=False)
        num_bytes = frame.num_bytes - len(clock) - len(data)
        fds = self._receive_content(stream, message, num_bytes)
        with self._changed:
            self._changed.wait_for(lambda: len(self._inbox) < _MOST_UNREAD or self._is_closed)
            if self._is_closed:
                for fd in fds:
                    os.close(fd)
                return False
            if not self._inbox:
                os.eventfd_write(self._news, 1)
            self._inbox.append((message, fds))
            self._changed.notify_all()
        return True

    def _receive_content(self, stream: TcpStream, message: Message, num_bytes: int) -> list[int]:
        """Receives the bytes that follow a message; returns descriptors of new memory."""
        message_type = message["kind"]
        is_batch = message_type == "batch" and not message["memory_handle"]
        if not is_batch and num_bytes != (message["num_bytes"] if message_type == "bye" else 0):
            raise QueueProtocolError(f"{num_bytes} bytes follow {message!r:.200}")
        if is_batch:
            sizes = (message["slot"], message["slot_bytes"], message["num_bytes"], message["pieces"])
            targets, fds = self._copies.target(*sizes)
        elif num_bytes:
            file = MemoryFile.create("outcome", num_bytes)
            targets, fds = [file.array], [os.dup(file.fd)]
        else:
            return []
        try:
            if num_bytes != sum(map(len, targets)):
                raise QueueProtocolError(f"{num_bytes} bytes follow {message!r:.200}")
            for target in targets:
                stream.receive_into(target, _SILENCE_S)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return fds

    def _compare_clocks(self, sent_s: float) -> None:
        # Clocks of two machines begin when these do. The frame that took the least time says best how far apart they
        # are: by less than that time, which is all that is lost.
        behind_s = time.monotonic() - sent_s
        if math.isfinite(behind_s) and behind_s < self._behind_s:
            self._behind_s = self.clock_s = behind_s


class RemoteListener:
    """Where a sampler accepts trainers of other machines: a port of one address, by TLS where ``tls`` has a
    certificate. Who does not prove within seconds to know ``secret`` is cut off."""

    def __init__(self, host: str, secret: bytes, tls: ssl.SSLContext | None = None) -> None:
        self._listener = tcp.listen(host, 0)
        self._secret = secret
        self._tls = tls
        self._strangers: list[RemoteChannel] = []  # or trainers that have not proved anything yet

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return host, port

    def fileno(self) -> int:
        return self._listener.fileno()

    def setblocking(self, flag: bool, /) -> None:
        self._listener.setblocking(flag)

    def accept(self) -> RemoteChannel:
        connection, _ = self._listener.accept()
        self._strangers = [channel for channel in self._strangers if channel.is_opening]
        if len(self._strangers) >= _MOST_STRANGERS:
            connection.close()
            raise QueueProtocolError(f"{_MOST_STRANGERS} processes are connected that have not shown the secret")
        channel = RemoteChannel(lambda: TcpStream.welcome(connection, self._secret, _PURPOSE, _HELLO_S, self._tls))
        self._strangers.append(channel)
        return channel

    def close(self) -> None:
        self._listener.close()


def connect_to_remote(host: str, port: int, secret: bytes, tls: ssl.SSLContext | None = None) -> RemoteChannel:
    """Connects to a sampler of another machine, by TLS if that is given. If it cannot be reached, has another secret or
    a certificate that ``tls`` does not take, :meth:`receive` says so."""

    def open_stream() -> TcpStream:
        try:
            return TcpStream.connect(host, port, secret, _PURPOSE, _HELLO_S, tls)
        except ssl.SSLCertVerificationError as error:
            raise StrangerError(
                f"the certificate of the sampler at {host}:{port} is not to be trusted: {error.verify_message}."
            ) from error

    return RemoteChannel(open_stream)
