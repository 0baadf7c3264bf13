"""Messages between samplers and trainers of one machine: which kinds there are, and where each sampler listens."""

from __future__ import annotations

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.host import sockets
from lightning_gnnload.host.sockets import MAX_MESSAGE_BYTES, Listener, Message, readable

__all__ = [
    "KINDS",
    "MAX_MESSAGE_BYTES",
    "PROTOCOL_VERSION",
    "Listener",
    "Message",
    "QueueChannel",
    "accept",
    "connect_to_sampler",
    "listen_to_trainers",
    "readable",
]

PROTOCOL_VERSION = 10

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
    # with a descriptor where the slot's memory is new; a handle where that is a device's
    "batch": {"stream": int, "step": int, "slot": int, "slot_bytes": int, "memory_handle": dict, "payload": dict},
    # sampler -> trainer 0, when it is idle
    "standby": {"digest": str},
    "offer": {"room": int},
    "begun": {"stream": int, "slice": int, "version": int},
    "gradient": {"stream": int, "slice": int, "copy": int, "version": int, "make_ms": float, "train_ms": float},
    "withdrawn": {"text": str},
    # either way: what ended the sender, or a peer that it saw end
    "failed": {"role": str, "rank": int, "died": bool, "stage": str, "text": str, "is_final": bool},
}


class QueueChannel(sockets.MessageChannel):
    """One end of the connection between a sampler and a trainer."""

    kinds = KINDS
    error = QueueProtocolError


def listen_to_trainers(job: str, sampler: int) -> Listener:
    """Opens the socket that trainers of this machine connect to. QueueProtocolError: another process listens there."""
    try:
        return sockets.open_listener(_name(job, sampler))
    except OSError as error:
        # Without the job's name, which is a secret.
        raise QueueProtocolError(
            f"sampler {sampler} cannot listen: {error}. Another job of this user runs under the same name."
        ) from error


def accept(listener: Listener) -> QueueChannel:
    """Accepts a connection. QueueProtocolError: the process runs under another user; it is cut off."""
    return QueueChannel.accept(listener)


def connect_to_sampler(job: str, sampler: int) -> QueueChannel | None:
    """Connects to a sampler; None where nobody of this user listens, not yet or not any more."""
    return QueueChannel.connect(_name(job, sampler))


def _name(job: str, sampler: int) -> str:
    return f"{job}-sampler-{sampler}"
