"""The ranks of a machine that open a cache, or a table, together: a group of peers, connected through the first."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lightning_gnnload.data import sockets
from lightning_gnnload.data.heartbeat import HEARTBEAT
from lightning_gnnload.data.memfd import MemoryFile
from lightning_gnnload.errors import CacheDisagreementError, CacheShareError

_RETRY_S = 0.02
_LOOK_S = 1.0  # how often peers say that they are busy, and who waits looks who does
_LAST_WORDS_S = 2.0  # how long a peer may take to read why this one failed
_MAX_TEXT = 4000  # a message holds it, though JSON writes 12 bytes for some characters


@dataclass(frozen=True)
class Membership:
    """Names a group of peers, and says which of them this rank is.

    Args:
        name: of what they share, for messages; no two that are open at once have the same.
        index: which one this process is, in ``[0, count)``. Peer 0 decides, the others follow.
        count: how many there are.
        timeout_s: how long to wait until all have come.
        silence_s: how long another one may get nowhere from then on: neither give what is due, nor show by its pulse
            that it works on that.
        key: of the job, and known to its ranks alone: with it, nobody else finds where they meet, or knows that before.
        ranks: their global ranks, for messages.

    Raises:
        CacheShareError: an index that is not one of ``count``.
    """

    name: str
    index: int
    count: int
    timeout_s: float = 300.0
    silence_s: float = 1800.0
    key: str = field(default="", repr=False)
    ranks: Sequence[int] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise CacheShareError(f"sharer {self.index} of {self.count}: the index must lie in [0, {self.count}).")

    @contextmanager
    def connect(self) -> Iterator[PeerGroup]:
        """Waits for all, and ends for all if one fails: what is raised inside, the others hear of.

        Raises:
            CacheShareError: one is late, or two have one name; later, one fails, is gone, or gets nowhere.
        """
        peers = _RootPeer(self) if self.index == 0 else _LeafPeer(self)
        try:
            with HEARTBEAT.waiting():
                peers.rendezvous()
            with HEARTBEAT.heard_by(peers.say_busy):
                yield peers
        except BaseException as error:  # interrupts, too: the others learn why this rank left
            peers.abort(error)
            raise
        finally:
            peers.close()


class PeerValue(NamedTuple):
    """What one peer gave in an exchange: facts, and a descriptor or -1, which is the receiver's to close."""

    fields: dict[str, Any]
    fd: int


class PeerChannel(sockets.MessageChannel):
    """The connection between peer 0 and one other peer."""

    kinds: ClassVar = {
        "join": {"index": int, "count": int},
        "busy": {},  # the sender works on what it is to give next, or waits for others to
        "given": {"index": int, "fields": dict},
        "failed": {"text": str},
        # of a kept channel: the next window's rows, in a memory file
        "moves": {},
    }
    error = CacheShareError


class PeerGroup:
    """A connected group of peers: the ranks of one machine that open a cache together.

    Attributes:
        membership: which of them this process is.
        channels: to the others, by index: of peer 0 to all, of another one to peer 0 alone.
    """

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.channels: dict[int, PeerChannel] = {}
        self._said_busy_at = -math.inf

    def rendezvous(self) -> None:
        """Connects this peer to the others."""
        raise NotImplementedError

    def all_gather(self, fields: dict[str, Any], fd: int = -1) -> list[PeerValue]:
        """Returns what each peer gives, in order, in all peers alike. The own descriptor comes back as a duplicate.

        Raises:
            CacheShareError: a peer failed, or is gone.
        """
        raise NotImplementedError

    def agree(self, fields: dict[str, Any], *, advice: str = "") -> None:
        """Raises CacheDisagreementError: the peers do not all say the same; the message ends with ``advice``."""
        given = [each.fields for each in self.all_gather(fields)]
        for index, stated in enumerate(given):
            if stated != given[0]:
                differing = {name for name in stated | given[0] if stated.get(name) != given[0].get(name)}
                said = ", ".join(f"{n}: {given[0].get(n)!r} and {stated.get(n)!r}" for n in sorted(differing))
                raise CacheDisagreementError(
                    f"{self._sharer(0)} and {self._sharer(index)} of {self.membership.name!r} differ ({said}). All "
                    f"ranks of a machine must open the same cache over the same table.{advice and ' '}{advice}"
                )

    def broadcast(self, values: np.ndarray | None) -> np.ndarray:
        """Returns peer 0's numbers, int64 ``[M]``, in all peers. The others give None.

        Raises:
            CacheShareError: a peer failed, or is gone.
        """
        file = None if values is None else numbers_file(values)
        given = self.all_gather({}, -1 if file is None else file.fd)
        if file is not None:
            file.close()
        received = numbers_in(given[0].fd)
        return received if values is None else values

    def abort(self, error: BaseException) -> None:
        """Tells the others that this peer fails, which ends the peer group for all."""
        text = str(error) if isinstance(error, CacheShareError) else f"{type(error).__name__}: {error}"
        for channel in self.channels.values():
            with contextlib.suppress(OSError):  # it is gone itself
                channel.send("failed", text=text[:_MAX_TEXT])

    def say_busy(self, but: Collection[int] = ()) -> None:
        """Tells the others that this peer gets on, once a second at most; ``but`` those."""
        if time.monotonic() < self._said_busy_at + _LOOK_S:
            return
        self._said_busy_at = time.monotonic()
        for index, channel in self.channels.items():
            # Who is busy itself reads none of these, and has room for so many only.
            if index not in but and sockets.has_room(channel):
                with contextlib.suppress(OSError):  # it is gone, which the next exchange will tell
                    channel.send("busy")

    def detach(self) -> dict[int, PeerChannel]:
        """Hands the channels over to the caller, who has to close them; :meth:`close` leaves them alone then."""
        channels, self.channels = self.channels, {}
        return channels

    def close(self) -> None:
        """Ends the group; nobody waits for another from here on."""
        # Closing with unread data would reset the connection, and the peer would lose our last words.
        channels = self.detach()
        for channel in channels.values():
            channel.finish()
        for channel in channels.values():
            channel.drain(_LAST_WORDS_S)
            channel.close()

    def _next_given(self, awaited: Sequence[int]) -> tuple[int, PeerValue]:
        """Waits for the next of some peers to give, and returns which one did, and what."""
        silent_s = dict.fromkeys(awaited, 0.0)
        with HEARTBEAT.waiting():
            while True:
                began = time.monotonic()
                ready = sockets.readable([self.channels[index] for index in awaited], _LOOK_S)
                # No more than was asked for: while the whole job is stopped, nobody keeps silent.
                looked_s = min(time.monotonic() - began, _LOOK_S)
                # To wait is no fault: those who wait for this peer hear from it, and it blames whom it waits for.
                self.say_busy(but=awaited)
                for index in awaited:
                    silent_s[index] += looked_s
                    if self.channels[index] in ready:
                        silent_s[index] = 0.0
                        if (given := self._receive(index)) is not None:
                            return index, given
                    if silent_s[index] > self.membership.silence_s:
                        raise CacheShareError(
                            f"{self._sharer(index)} of {self.membership.name!r} has got nowhere for "
                            f"{self.membership.silence_s:g} s: it is stopped, or hangs. Look at its output."
                        )

    def _receive(self, index: int) -> PeerValue | None:
        """Receives what a peer gives next; None where it only says that it gets on."""
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
    def _meeting_place(self) -> str:
        return f"{self.membership.key}-sharers-{self.membership.name}"


class _RootPeer(PeerGroup):
    """The group in peer 0, which is connected to all others and passes on to all what each gives."""

    def rendezvous(self) -> None:
        name, count = self.membership.name, self.membership.count
        deadline = time.monotonic() + self.membership.timeout_s
        try:
            listener = sockets.open_listener(self._meeting_place)
        except OSError as error:
            raise CacheShareError(
                f"sharer 0 cannot listen as {name!r}: {error}. Another cache of this name is being opened."
            ) from error
        with listener:
            while len(self.channels) < count - 1:
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
        # A duplicate, as the caller closes what it receives, from whomever.
        given = {0: PeerValue(fields, os.dup(fd) if fd >= 0 else -1)}
        try:
            while awaited := [index for index in self.channels if index not in given]:
                index, value = self._next_given(awaited)
                given[index] = value
            ordered = [given[index] for index in sorted(given)]
            for channel in self.channels.values():
                for number, each in enumerate(ordered):
                    _send(channel, number, each)
        except BaseException:
            for each in given.values():
                _close(each.fd)
            raise
        return ordered

    def _join(self, listener: socket.socket) -> None:
        """Admits a peer. Strangers are turned away, as they must not end the group. Raises TimeoutError: none comes."""
        try:
            channel = PeerChannel.accept(listener)
        except CacheShareError:
            return  # unlogged: how many come is the strangers' choice
        try:
            # A stranger that stays silent must not hold up those who still come.
            message, fds = channel.receive() if sockets.readable([channel], _LAST_WORDS_S) else ({}, [])
        except (EOFError, CacheShareError):
            message, fds = {}, []
        for fd in fds:
            os.close(fd)
        index = message.get("index", 0)
        if message.get("kind") != "join" or index in self.channels or not 0 < index < self.membership.count:
            channel.close()
            return
        # Before the check, so that this peer hears of the failure, too.
        self.channels[index] = channel
        if message["count"] != self.membership.count:
            raise CacheShareError(
                f"{self._sharer(index)} takes part in {message['count']}, sharer 0 in {self.membership.count}."
            )


class _LeafPeer(PeerGroup):
    """The group in every other peer, which is connected to peer 0 alone."""

    def rendezvous(self) -> None:
        deadline = time.monotonic() + self.membership.timeout_s
        while (channel := PeerChannel.connect(self._meeting_place)) is None:
            if time.monotonic() > deadline:
                raise CacheShareError(
                    f"{self._sharer(0)} of {self.membership.name!r} did not come within "
                    f"{self.membership.timeout_s:g} s. Look at its output, or give it more time."
                )
            time.sleep(_RETRY_S)
        self.channels[0] = channel
        with contextlib.suppress(OSError):  # it is gone again, which the first exchange will tell
            channel.send("join", index=self.membership.index, count=self.membership.count)

    def all_gather(self, fields: dict[str, Any], fd: int = -1) -> list[PeerValue]:
        _send(self.channels[0], self.membership.index, PeerValue(fields, fd))
        given: list[PeerValue] = []
        try:
            given.extend(self._next_given([0])[1] for _ in range(self.membership.count))
        except BaseException:
            for each in given:
                _close(each.fd)
            raise
        return given


def numbers_file(values: np.ndarray) -> MemoryFile:
    """Puts numbers, int64 ``[M]``, into memory that others may read, as a message holds far fewer."""
    file = MemoryFile.create("numbers", values.nbytes)
    file.array.view(np.int64)[:] = values
    return file


def numbers_in(fd: int) -> np.ndarray:
    """Returns a copy of the numbers in a :func:`numbers_file`, and closes its descriptor.

    Raises:
        CacheShareError: it is none of ours, or not there.
    """
    if fd < 0:
        raise CacheShareError("sharer 0 gave no numbers where some were due.")
    # Rounded down, as a file for no numbers has one byte. The map outlives the descriptor.
    file = MemoryFile.adopt(fd, os.fstat(fd).st_size // 8 * 8)
    file.close()
    return file.array.view(np.int64).copy()


def _send(channel: PeerChannel, giver: int, given: PeerValue) -> None:
    # One that is gone is noticed by who reads from it next; a failure that it told of before is still to be read.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        channel.send("given", [given.fd] if given.fd >= 0 else [], index=giver, fields=given.fields)


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
