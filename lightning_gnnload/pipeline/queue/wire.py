"""Messages between samplers and trainers: which kinds there are, what the queue needs of a connection, and the
connection on one machine. :mod:`.remote` has the one between machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.host import sockets
from lightning_gnnload.host.sockets import MAX_MESSAGE_BYTES, Message, readable

__all__ = [
    "KINDS",
    "MAX_MESSAGE_BYTES",
    "PROTOCOL_VERSION",
    "Channel",
    "Listener",
    "LocalListener",
    "Message",
    "QueueChannel",
    "connect_to_sampler",
    "listen_to_trainers",
    "readable",
]

PROTOCOL_VERSION = 11

KINDS: dict[str, dict[str, type]] = {
    # trainer -> sampler
    "hello": {"version": int, "trainer": int, "rank": int, "device": str},  # that can read others' memory, or none
    "open": {
        "stream": int,
        "phase": str,
        "loader": int,
        "reload": int,
        "epoch": int,
        "start": int,
        "stop": int,
        "gathers": bool,
        "data": str,
    },
    "deal": {"slots": list, "stream": int, "steps": list},  # slots it is done with, and steps to make
    "close": {"stream": int},
    "refuse": {"slot": int, "text": str},  # its memory cannot be opened: the mini-batch must come in another one
    "bye": {"num_bytes": int},  # of a sealed value, whose descriptor comes along; 0 where there is none
    # the machine's first trainer -> sampler: a call that each rank must make, under a launcher that counts samplers too
    "collective": {"name": str},
    # trainer 0 -> sampler, when that is idle: a mini-batch to train, parameters to do it with, a gradient's receipt
    "task": {"stream": int, "slice": int},
    "parameters": {"copy": int, "version": int, "global_step": int, "due_ms": float, "fresh_due_ms": float},
    "settled": {"copy": int},
    # sampler -> trainer
    "welcome": {"version": int, "rank": int, "pid": int},
    "opening": {},  # it gets on with what comes before a stream's first mini-batch: it fills a cache, say
    "opened": {"stream": int, "threads": int},  # it is done with that, and samples with so many threads
    # with a descriptor where the slot's memory is new; a handle where that is a device's. The mini-batch lies in the
    # slot's first num_bytes, in pieces (begin, end, begin, end ...)
    "batch": {
        "stream": int,
        "step": int,
        "slot": int,
        "slot_bytes": int,
        "num_bytes": int,
        "pieces": list,
        "memory_handle": dict,
        "payload": dict,
    },
    "missed": {"rank": int},  # a trainer of another machine whose connection has ended, which is no failure by itself
    # sampler -> trainer 0, when it is idle
    "standby": {"digest": str},
    "offer": {"room": int},
    "begun": {"stream": int, "slice": int, "version": int},
    "gradient": {"stream": int, "slice": int, "copy": int, "version": int, "make_ms": float, "train_ms": float},
    "withdrawn": {"text": str},
    # either way: what ended the sender, or a peer that it saw end
    "failed": {"role": str, "rank": int, "died": bool, "stage": str, "text": str, "is_final": bool},
}


class Channel(Protocol):
    """What the queue needs of the connection between a sampler and a trainer.

    A message carries descriptors of memory, which is the sender's or, between machines, a copy of it. Any thread may
    send; one receives.
    """

    @property
    def peer_pid(self) -> int:
        """The process at the other end; 0 where that runs on another machine."""

    @property
    def clock_s(self) -> float:
        """What to add to a moment of the other end's ``time.monotonic`` for the same moment here."""

    def fileno(self) -> int:
        """A descriptor that is readable while :meth:`receive` need not wait."""

    def has_room(self) -> bool:
        """Whether a short message can be sent without waiting for the peer to read."""

    def send(self, message_type: str, fds: Sequence[int] = (), **fields: Any) -> None:
        """Sends a message whole or not at all. Raises OSError: the peer is gone."""

    def receive(self) -> tuple[Message, list[int]]:
        """Waits for the next message; returns it and its descriptors, which the caller must close. EOFError: the peer
        has closed its end, or is gone. QueueProtocolError: it is no message."""

    def finish(self) -> None:
        """Closes the sending half, so that all that was sent arrives before the end of the stream."""

    def drain(self, timeout_s: float) -> bool:
        """Discards what still comes until the peer closes, too; returns whether it has."""

    def close(self) -> None: ...


class Listener(Protocol):
    """Where a sampler accepts trainers."""

    def fileno(self) -> int: ...

    def setblocking(self, flag: bool, /) -> None: ...

    def accept(self) -> Channel:
        """Raises BlockingIOError: nobody waits. QueueProtocolError: who connected may not; it is cut off."""

    def close(self) -> None: ...


class QueueChannel(sockets.MessageChannel):
    """One end of the connection between a sampler and a trainer of one machine."""

    kinds = KINDS
    error = QueueProtocolError
    clock_s: ClassVar[float] = 0.0  # one clock for all processes of a machine


class LocalListener:
    """The socket by which trainers of this machine reach a sampler."""

    def __init__(self, bound: sockets.Listener) -> None:
        self._socket = bound

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool, /) -> None:
        self._socket.setblocking(flag)

    def accept(self) -> QueueChannel:
        return QueueChannel.accept(self._socket)

    def close(self) -> None:
        self._socket.close()


def listen_to_trainers(job: str, sampler: int) -> LocalListener:
    """Opens the socket that trainers of this machine connect to. QueueProtocolError: another process listens there."""
    try:
        return LocalListener(sockets.open_listener(_name(job, sampler)))
    except OSError as error:
        # Without the job's name, which is a secret.
        raise QueueProtocolError(
            f"sampler {sampler} cannot listen: {error}. Another job of this user runs under the same name."
        ) from error


def connect_to_sampler(job: str, sampler: int) -> QueueChannel | None:
    """Connects to a sampler; None where nobody of this user listens, not yet or not any more."""
    return QueueChannel.connect(_name(job, sampler))


def _name(job: str, sampler: int) -> str:
    return f"{job}-sampler-{sampler}"
