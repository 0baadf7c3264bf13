"""The front of an owner that clients reach by TCP, and the connection to it."""

from __future__ import annotations

import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from lightning_gnnload.errors import GnnLoadError, StrangerError
from lightning_gnnload.host.tcp import TcpStream, listen, stop_listening
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.owners.address import TCP, TLS, Address
from lightning_gnnload.owners.connection import Connection
from lightning_gnnload.owners.front import Front, listen_at
from lightning_gnnload.owners.owner import Owner

PURPOSE = "owner"
_GREETING_S = 5.0
_MOST_STRANGERS, _MOST_CLIENTS = 64, 1024


class TcpFront(Front):
    """Serves an owner's clients over TCP: a thread a connection.

    Connections that have not proved yet that they know the secret are few, and short: the oldest makes room for a new
    one.

    Args:
        owner: who answers.
        host: of the one address to listen at.
        port: 0: any that is free.
        secret: as :func:`.find_secret` returns it.
        tls: None: without.
        on_stranger: is told of who was turned away, and why; for a log.

    Raises:
        AddressError: the address is taken, or none of this machine's.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, load_partition, partition_graph
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), train=range(8))
        >>> _ = partition_graph(ring, "parts", 2, hops=0, progress=False)
        >>> with TcpFront(Owner(load_partition("parts")), "127.0.0.1", 0, b"a secret of ours") as front:
        ...     front.address.host
        '127.0.0.1'
    """

    def __init__(
        self,
        owner: Owner,
        host: str,
        port: int,
        secret: bytes,
        *,
        tls: ssl.SSLContext | None = None,
        on_stranger: Callable[[str], object] = lambda why: None,
    ) -> None:
        super().__init__(owner, _MOST_CLIENTS, on_stranger)
        self._secret, self._tls = secret, tls
        self._strangers: deque[Any] = deque()
        address = Address(TLS if tls else TCP, host, port)
        self._listener = listen_at(address, lambda: listen(host, port))
        self.address = Address(address.scheme, host, self._listener.getsockname()[1])
        self._thread = start_thread("gnnload-owner", self._accept)

    def close(self) -> None:
        """Ends all connections, and waits for their threads. Safe to call twice."""
        threads = [self._thread, *self._stop_clients()]
        stop_listening(self._listener)
        with self._lock:
            strangers = list(self._strangers)
        for stranger in strangers:
            TcpStream(stranger).stop()  # and its thread closes it
        for thread in threads:
            thread.join(_GREETING_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                threading.Event().wait(0.05)  # out of descriptors, say: others may close theirs
                continue
            with self._lock:
                self._strangers.append(connection)
                if len(self._strangers) > _MOST_STRANGERS:
                    TcpStream(self._strangers.popleft()).stop()
            try:
                start_thread(f"gnnload-owner-{peer[0]}-{peer[1]}", self._welcome, connection, f"{peer[0]}:{peer[1]}")
            except GnnLoadError as error:
                self._forget(connection)
                connection.close()
                self._on_stranger(f"{peer[0]}: {error}")

    def _welcome(self, connection: Any, peer: str) -> None:
        try:
            stream = TcpStream.welcome(connection, self._secret, PURPOSE, _GREETING_S, self._tls)
        except (OSError, StrangerError) as error:
            self._on_stranger(f"{peer} was turned away: {error}")
            return
        finally:
            self._forget(connection)
        self._serve(stream, peer)

    def _forget(self, connection: Any) -> None:
        with self._lock:
            if connection in self._strangers:
                self._strangers.remove(connection)


class TcpConnection(Connection):
    """A connection to a :class:`TcpFront`. It waits ``connect_s`` seconds for the greeting, ``deadline_s`` for each
    answer to begin, and for each MiB of it.

    Raises:
        StrangerError: the owner has another secret.
        OSError: no owner listens there, or it is late.
    """

    def __init__(
        self,
        address: Address,
        secret: bytes,
        connect_s: float,
        deadline_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        stream = TcpStream.connect(address.host, address.port, secret, PURPOSE, connect_s, tls)
        super().__init__(stream, connect_s, deadline_s)
