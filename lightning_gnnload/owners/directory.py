"""Directory: which owners there are, which of them answer, and the connections to them that nobody uses just now."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import (
    ExchangeError,
    GnnLoadError,
    OwnerLostError,
    PartitionMismatchError,
    StrangerError,
)
from lightning_gnnload.owners.address import Address
from lightning_gnnload.owners.connection import Connection
from lightning_gnnload.owners.owner import identity
from lightning_gnnload.owners.ways import open_connection

Addresses = Sequence[str] | Callable[[], Sequence[str]]
"""Where owners listen, as text; or a function that tells it anew whenever an owner is missed."""
Result = TypeVar("Result")

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
"""After an owner's first failure it is left alone for so long; the pause doubles from one to the other."""
_CONNECT_S = 5.0
_FORGET_S = 2 * (_LONGEST_PAUSE_S + _CONNECT_S)
"""Who asks again so long after others gave up is as patient as if nothing had been."""


@dataclass
class _Peer:
    """What is known of an owner: ``parts``, None before it has been met; its idle connections; and how often in a row
    it failed, until when it is left alone, and why."""

    address: Address
    parts: frozenset[int] | None = None
    idle: list[Connection] = field(default_factory=list)
    num_failures: int = 0
    not_before: float = -math.inf
    error: Exception | None = None
    rank: float = field(default_factory=random.random)  # clients spread over owners of the same part

    def has(self, part: int | None) -> bool:
        """Whether it may have the part."""
        return part is None or self.parts is None or part in self.parts


class Directory:
    """Finds owners of a partition's parts, and lends connections to them. Thread-safe; begins anew in a fork.

    Args:
        partition: whose owners these are: others are refused.
        addresses: of the owners.
        secret: that they know.
        deadline_s: an owner that is silent for so long counts as gone.
        patience_s: no owner of a part answers for so long, whoever asks: OwnerLostError.
    """

    def __init__(
        self, partition: Partition, addresses: Addresses, secret: bytes, deadline_s: float, patience_s: float
    ) -> None:
        self._identity = identity(partition)
        self._addresses, self._secret = addresses, secret
        self._deadline_s, self._patience_s = deadline_s, patience_s
        self._begin()

    def _begin(self) -> None:
        # A fork has its parent's sockets, which it must not use, and perhaps a lock that nobody opens.
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._peers: dict[Address, _Peer] = {}
        self._missed: dict[int | None, tuple[float, float]] = {}

    def call(self, part: int | None, use: Callable[[Connection], Result]) -> Result:
        """Has ``use`` done over a connection to an owner of the part: again, and by another owner, until one has done
        it.

        Raises:
            OwnerLostError: none answers for ``patience_s``, or those that there are do not have the part.
            StrangerError, PartitionMismatchError, ExchangeError: all refuse, for good.
        """
        result, connection, address = self.call_and_keep(part, use)
        self.give_back(connection, address)
        return result

    def call_and_keep(
        self, part: int | None, use: Callable[[Connection], Result]
    ) -> tuple[Result, Connection, Address]:
        """Does what :meth:`call` does, and lends the connection on, with its owner's address."""
        give_up_at = time.monotonic() + self._patience_s
        while True:
            connection, address = self.lend(part, give_up_at)
            try:
                result = use(connection)
            except OSError as error:
                connection.close()
                self.report(address, error)
            except BaseException:
                connection.close()
                raise
            else:
                return result, connection, address

    def lend(self, part: int | None, give_up_at: float | None = None) -> tuple[Connection, Address]:
        """Waits for a connection to an owner of the part, None: to any. It is given back, or closed and reported.
        Raises as :meth:`call` does."""
        if self._pid != os.getpid():
            self._begin()
        give_up_at = time.monotonic() + self._patience_s if give_up_at is None else give_up_at
        while True:
            for peer in self._candidates(part):
                with self._lock:
                    connection = peer.idle.pop() if peer.idle else None
                try:
                    connection = connection or self._open(peer)
                except (OSError, StrangerError, PartitionMismatchError, ExchangeError) as error:
                    self.report(peer.address, error)
                    continue
                if peer.has(part):
                    return connection, peer.address
                self.give_back(connection, peer.address)  # it was met for the first time, and has others
            self._wait(part, min(give_up_at, self._missed_since(part) + self._patience_s))

    def give_back(self, connection: Connection, address: Address) -> None:
        """Takes a connection on which nothing is under way."""
        with self._lock:
            peer = self._peers.get(address)
            if peer is not None:
                peer.num_failures, peer.error = 0, None
                for part in (None, *(peer.parts or ())):
                    self._missed.pop(part, None)
                peer.idle.append(connection)
                return
        connection.close()

    def report(self, address: Address, error: Exception) -> None:
        """Notes that an owner did not answer. What other connections it had is closed."""
        with self._lock:
            if (peer := self._peers.get(address)) is None:
                return
            idle, peer.idle = peer.idle, []
            pause_s = min(_SHORTEST_PAUSE_S * 2**peer.num_failures, _LONGEST_PAUSE_S)
            # At random, so that clients who lost an owner together do not come back together.
            peer.not_before = time.monotonic() + pause_s * random.uniform(0.5, 1.5)
            peer.num_failures, peer.error = min(peer.num_failures + 1, 30), error
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Closes idle connections; lent ones when they are given back. Safe to call twice."""
        if self._pid == os.getpid():
            with self._lock:
                peers, self._peers = self._peers, {}
                self._missed = {}
            _close_all(peers.values())

    def _candidates(self, part: int | None) -> list[_Peer]:
        """Returns who may be asked now: first those that have not failed."""
        if not self._peers:
            self._look()
        now = time.monotonic()
        with self._lock:
            peers = [peer for peer in self._peers.values() if peer.has(part) and peer.not_before <= now]
        return sorted(peers, key=lambda peer: (peer.num_failures, peer.rank))

    def _look(self) -> None:
        """Reads the addresses anew."""
        texts = self._addresses() if callable(self._addresses) else self._addresses
        addresses = [Address.parse(text) for text in ([texts] if isinstance(texts, str) else texts)]
        with self._lock:
            gone = [self._peers.pop(address) for address in set(self._peers) - set(addresses)]
            for address in addresses:
                self._peers.setdefault(address, _Peer(address))
        _close_all(gone)

    def _missed_since(self, part: int | None) -> float:
        """Returns since when nobody has been found who has the part: requests that wait for one another, or for a
        thread, have one patience in common."""
        now = time.monotonic()
        with self._lock:
            since, last = self._missed.get(part, (now, now))
            if now > last + _FORGET_S:
                since = now
            self._missed[part] = since, now
        return since

    def _wait(self, part: int | None, give_up_at: float) -> None:
        """Waits until somebody may be asked again. Raises where that is in vain."""
        with self._lock:
            peers = [peer for peer in self._peers.values() if peer.has(part)]
            errors = [peer.error for peer in peers]
            pause_s = min([peer.not_before for peer in peers], default=math.inf) - time.monotonic()
        is_told_anew = callable(self._addresses)
        if errors and not is_told_anew and all(map(_is_final, errors)):
            raise errors[0]  # type: ignore[misc]  # None is not final
        if time.monotonic() >= give_up_at or not (errors or is_told_anew):
            raise self._lost(part)
        time.sleep(max(min(pause_s, _LONGEST_PAUSE_S, give_up_at - time.monotonic()), 0.001))
        if is_told_anew:
            self._look()

    def _lost(self, part: int | None) -> OwnerLostError:
        states = "; ".join(f"{peer.address}: {peer.error or 'it has other parts'}" for peer in self._peers.values())
        words, option = ("", "") if part is None else (f" of part {part}", f" --parts {part}")
        return OwnerLostError(
            f"no owner{words} is left that answers ({states or 'none is known'}). Start one anywhere, gnnload own "
            f"FOLDER{option}, at an address that this job knows, and go on from the last checkpoint."
        )

    def _open(self, peer: _Peer) -> Connection:
        connect_s = min(self._deadline_s, _CONNECT_S)
        try:
            connection = open_connection(peer.address, self._secret, connect_s, self._deadline_s)
        except StrangerError as error:
            raise StrangerError(f"{peer.address}: {error}") from error
        try:
            peer.parts = self._checked(peer.address, connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _checked(self, address: Address, connection: Connection) -> frozenset[int]:
        for name, value in self._identity.items():
            if (theirs := connection.hello.get(name)) != value:
                error = ExchangeError if name == "protocol" else PartitionMismatchError
                raise error(
                    f"the owner at {address} has another partition than this process, or another version of this "
                    f"package: its {name} is {theirs!r}, not {value!r}. Copy one folder, made once, to all machines."
                )
        parts = connection.hello.get("parts")
        if not isinstance(parts, list) or not all(type(part) is int for part in parts):
            raise ExchangeError(f"the owner at {address} does not say which parts it has.")
        return frozenset(parts)


def _is_final(error: Exception | None) -> bool:
    """Returns whether who answered so would answer so again."""
    return isinstance(error, GnnLoadError) and not isinstance(error, OSError)


def _close_all(peers: Iterable[_Peer]) -> None:
    for peer in peers:
        for connection in peer.idle:
            connection.close()
