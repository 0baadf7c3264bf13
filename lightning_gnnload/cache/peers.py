"""The ranks of a machine that open a cache, or a table, together: a group of peers, connected through the first."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lightning_gnnload.errors import CacheDisagreementError, CacheShareError
from lightning_gnnload.host import sockets
from lightning_gnnload.host.heartbeat import HEARTBEAT
from lightning_gnnload.host.memfd import MemoryFile

_RETRY_S = 0.02
_LOOK_S = 1.0  # between two signs of life, and between two looks for them
_LAST_WORDS_S = 2.0  # that a peer may take to read why this one failed
_MAX_TEXT = 4000  # characters: JSON may write 12 bytes for one, and they still fit into a message


@dataclass(frozen=True)
class Membership:
    """Names a group of peers, and says which of them this rank is.

    All must come within ``timeout_s``. From then on a peer may be silent for ``silence_s``: neither send what is due,
    nor show by its heartbeat that it works on it. ``key`` is the job's secret: without it nobody can find or guess the
    socket where peers meet. Raises CacheShareError for an index outside ``[0, count)``.
    """

    name: str  # of what they share; no two groups of a machine that are open at once have the same
    index: int  # of this process; peer 0 decides, the others follow
    count: int
    timeout_s: float = 300.0
    silence_s: float = 1800.0
    key: str = field(default="", repr=False)
    ranks: Sequence[int] = ()  # global ranks of the peers, for messages

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise CacheShareError(f"sharer {self.index} of {self.count}: the index must lie in [0, {self.count}).")

    @contextmanager
    def connect(self) -> Iterator[PeerGroup]:
        """Waits for all peers, and ends the group for all if one fails: the others receive what is raised inside.
        Raises CacheShareError where a peer is late, fails, is gone or hangs, or where two groups have one name."""
        peers = _RootPeer(self) if self.index == 0 else _LeafPeer(self)
        try:
            with HEARTBEAT.waiting():
                peers.rendezvous()
            with HEARTBEAT.heard_by(peers.say_busy):
                yield peers
        except BaseException as error:  # interrupts, too, so that the others learn why this rank left
            peers.abort(error)
            raise
        finally:
            peers.close()


class PeerValue(NamedTuple):
    """What one peer sent in an exchange: fields, and a descriptor or -1, which the receiver closes."""

    fields: dict[str, Any]
    fd: int


class PeerChannel(sockets.MessageChannel):
    """The connection between peer 0 and another peer."""

    kinds: ClassVar = {
        "join": {"index": int, "count": int},
        "busy": {},  # a sign of life: the sender works on its next value, or waits for others
        "given": {"index": int, "fields": dict},
        "failed": {"text": str},
        "moves": {},  # of a detached channel: the next window's rows, in a memory file
    }
    error = CacheShareError


class PeerGroup:
    """A connected group of peers. ``channels`` are by index: peer 0 has one to every other peer, each of these one to
    peer 0."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.channels: dict[int, PeerChannel] = {}
        self._said_busy_at = -math.inf

    def rendezvous(self) -> None:
        """Connects this peer to the others."""
        raise NotImplementedError

    def all_gather(self, fields: dict[str, Any], fd: int = -1) -> list[PeerValue]:
        """Returns what each peer sends, in order, in all peers alike; this peer's descriptor comes back as a duplicate.
        Raises CacheShareError where a peer failed or is gone."""
        raise NotImplementedError

    def agree(
        self, fields: dict[str, Any], *, due: str = "open the same cache over the same table", advice: str = ""
    ) -> None:
        """Raises CacheDisagreementError where peers differ in some field; the message says what is ``due`` of all, and
        ends with ``advice``."""
        statements = [value.fields for value in self.all_gather(fields)]
        for index, stated in enumerate(statements):
            # Compared with peer 0 alone: one difference is enough for a message that a user can act on.
            if stated != statements[0]:
                differing = {name for name in stated | statements[0] if stated.get(name) != statements[0].get(name)}
                differences = ", ".join(
                    f"{n}: {statements[0].get(n)!r} and {stated.get(n)!r}" for n in sorted(differing)
                )
                raise CacheDisagreementError(
                    f"{self._sharer(0)} and {self._sharer(index)} of {self.membership.name!r} differ ({differences}). "
                    f"All ranks of a machine must {due}.{advice and ' '}{advice}"
                )

    def broadcast(self, values: np.ndarray | None) -> np.ndarray:
        """Returns peer 0's numbers, int64 ``[M]``, in all peers; the others pass None. Raises CacheShareError as
        :meth:`all_gather`."""
        file = None if values is None else numbers_file(values)
        gathered = self.all_gather({}, -1 if file is None else file.fd)
        if file is not None:
            file.close()
        received = numbers_in(gathered[0].fd)
        return received if values is None else values

    def abort(self, error: BaseException) -> None:
        """Tells the others that this peer failed, which ends the group for all."""
        text = str(error) if isinstance(error, CacheShareError) else f"{type(error).__name__}: {error}"
        for channel in self.channels.values():
            with contextlib.suppress(OSError):  # it is gone itself
                channel.send("failed", text=text[:_MAX_TEXT])

    def say_busy(self, but: Collection[int] = ()) -> None:
        """Sends a sign of life to the others, except ``but``, once a second at most."""
        if time.monotonic() < self._said_busy_at + _LOOK_S:
            return
        self._said_busy_at = time.monotonic()
        for index, channel in self.channels.items():
            # A peer that is busy itself reads nothing, and a full socket would block this one.
            if index not in but and channel.has_room():
                with contextlib.suppress(OSError):  # it is gone: the next exchange raises
                    channel.send("busy")

    def detach(self) -> dict[int, PeerChannel]:
        """Hands the channels over to the caller, who has to close them."""
        channels, self.channels = self.channels, {}
        return channels

    def close(self) -> None:
        """Ends the group; nobody waits for another from here on."""
        # Closing a socket with unread data resets it, and the peer would lose the reason of a failure.
        channels = self.detach()
        for channel in channels.values():
            channel.finish()
        for channel in channels.values():
            channel.drain(_LAST_WORDS_S)
            channel.close()

    def _next_value(self, awaited: Sequence[int]) -> tuple[int, PeerValue]:
        """Waits for the next value of some peers, and returns whose it is. Raises CacheShareError where one is silent
        too long."""
        silent_s = dict.fromkeys(awaited, 0.0)
        with HEARTBEAT.waiting():
            while True:
                began = time.monotonic()
                ready = sockets.readable([self.channels[index] for index in awaited], _LOOK_S)
                # Capped: after a SIGSTOP of the whole job the clock has advanced, though nobody was silent.
                looked_s = min(time.monotonic() - began, _LOOK_S)
                # Waiting is not hanging: those who wait for this peer must not blame it for the one that it waits for.
                self.say_busy(but=awaited)
                for index in awaited:
                    silent_s[index] += looked_s
                    if self.channels[index] in ready:
                        silent_s[index] = 0.0
                        if (value := self._receive(index)) is not None:
                            return index, value
                    if silent_s[index] > self.membership.silence_s:
                        raise CacheShareError(
                            f"{self._sharer(index)} of {self.membership.name!r} has got nowhere for "
                            f"{self.membership.silence_s:g} s: it is stopped, or hangs. Look at its output."
                        )

    def _receive(self, index: int) -> PeerValue | None:
        """Receives a peer's next value; None for a sign of life."""
        try:
            message, fds = self.channels[index].receive()
        except EOFError:
            raise CacheShareError(
                f"{self._sharer(index)} of {self.membership.name!r} is gone. Its own output says why, or it was killed."
            ) from None
        fd = fds[0] if fds else -1
        if message["kind"] == "busy" and not fds:
            return None
        if message["kind"] != "given":
            _close(fd)
            text = message.get("text", f"it sent {message['kind']!r} when it had to give something")
            raise CacheShareError(f"{self._sharer(index)} of {self.membership.name!r} failed: {text}")
        return PeerValue(message["fields"], fd)

    def _sharer(self, index: int) -> str:
        ranks = self.membership.ranks
        return f"sharer {index} (rank {ranks[index]})" if ranks else f"sharer {index}"

    @property
    def _socket_name(self) -> str:
        return f"{self.membership.key}-sharers-{self.membership.name}"


class _RootPeer(PeerGroup):
    """The group in peer 0, which is connected to all others and sends every value on to all."""

    def rendezvous(self) -> None:
        name, count = self.membership.name, self.membership.count
        deadline = time.monotonic() + self.membership.timeout_s
        try:
            listener = sockets.open_listener(self._socket_name)
        except OSError as error:
            raise CacheShareError(
                f"sharer 0 cannot listen as {name!r}: {error}. Another cache of this name is being opened."
            ) from error
        with listener:
            while len(self.channels) < count - 1:
                # Never 0, which would make the socket nonblocking instead of timing out.
                listener.settimeout(max(deadline - time.monotonic(), 1e-3))
                try:
                    self._join(listener)
                except TimeoutError:
                    missing = map(self._sharer, sorted(set(range(1, count)) - self.channels.keys()))
                    raise CacheShareError(
                        f"{', '.join(missing)} of {name!r} did not come within {self.membership.timeout_s:g} s. Look "
                        f"at their output, or give them more time."
                    ) from None

    def all_gather(self, fields: dict[str, Any], fd: int = -1) -> list[PeerValue]:
        # A duplicate: callers close every descriptor that they receive, without asking whose it was.
        received = {0: PeerValue(fields, os.dup(fd) if fd >= 0 else -1)}
        try:
            while awaited := [index for index in self.channels if index not in received]:
                index, value = self._next_value(awaited)
                received[index] = value
            ordered = [received[index] for index in sorted(received)]
            for channel in self.channels.values():
                for number, value in enumerate(ordered):
                    _send(channel, number, value)
        except BaseException:
            for value in received.values():
                _close(value.fd)
            raise
        return ordered

    def _join(self, listener: sockets.Listener) -> None:
        """Admits one peer and turns strangers away, who must not end the group. Raises TimeoutError where none
        comes."""
        try:
            channel = PeerChannel.accept(listener)
        except CacheShareError:
            return  # unlogged, or strangers could fill the log
        try:
            # A silent stranger must not hold up the peers that are still to come.
            message, fds = channel.receive() if sockets.readable([channel], _LAST_WORDS_S) else ({}, [])
        except (EOFError, CacheShareError):
            message, fds = {}, []
        for fd in fds:
            os.close(fd)
        index = message.get("index", 0)
        if message.get("kind") != "join" or index in self.channels or not 0 < index < self.membership.count:
            channel.close()
            return
        # Before the check, so that abort() tells this peer as well.
        self.channels[index] = channel
        if message["count"] != self.membership.count:
            raise CacheShareError(
                f"{self._sharer(index)} takes part in {message['count']}, sharer 0 in {self.membership.count}."
            )


class _LeafPeer(PeerGroup):
    """The group in every other peer, which is connected to peer 0 alone."""

    def rendezvous(self) -> None:
        deadline = time.monotonic() + self.membership.timeout_s
        # Ranks start in any order: peer 0 may not listen yet.
        while (channel := PeerChannel.connect(self._socket_name)) is None:
            if time.monotonic() > deadline:
                raise CacheShareError(
                    f"{self._sharer(0)} of {self.membership.name!r} did not come within "
                    f"{self.membership.timeout_s:g} s. Look at its output, or give it more time."
                )
            time.sleep(_RETRY_S)
        self.channels[0] = channel
        with contextlib.suppress(OSError):  # it is gone again: the first exchange raises
            channel.send("join", index=self.membership.index, count=self.membership.count)

    def all_gather(self, fields: dict[str, Any], fd: int = -1) -> list[PeerValue]:
        _send(self.channels[0], self.membership.index, PeerValue(fields, fd))
        received: list[PeerValue] = []
        try:
            received.extend(self._next_value([0])[1] for _ in range(self.membership.count))
        except BaseException:
            for value in received:
                _close(value.fd)
            raise
        return received


def numbers_file(values: np.ndarray) -> MemoryFile:
    """Copies numbers, int64 ``[M]``, into a memory file, as a message has room for far fewer."""
    file = MemoryFile.create("numbers", values.nbytes)
    file.array.view(np.int64)[:] = values
    return file


def numbers_in(fd: int) -> np.ndarray:
    """Returns a copy of the numbers in a :func:`numbers_file`, and closes its descriptor. Raises CacheShareError where
    it is no such file."""
    if fd < 0:
        raise CacheShareError("sharer 0 gave no numbers where some were due.")
    # Rounded down, as a file for no numbers has one byte. The map outlives the descriptor.
    file = MemoryFile.adopt(fd, os.fstat(fd).st_size // 8 * 8)
    file.close()
    return file.array.view(np.int64).copy()


def _send(channel: PeerChannel, index: int, value: PeerValue) -> None:
    # A peer that is gone shows at the next receive(), which first returns the reason that it may have sent.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        channel.send("given", [value.fd] if value.fd >= 0 else [], index=index, fields=value.fields)


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
