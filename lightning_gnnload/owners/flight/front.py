"""The front of an owner that clients reach by Arrow Flight."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa
from pyarrow import flight

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.host.tcp import end_connections, listen
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.owners.address import GRPC, GRPC_TLS, Address
from lightning_gnnload.owners.connection import FrameStream
from lightning_gnnload.owners.flight.proof import Doorman
from lightning_gnnload.owners.flight.stream import FlightStream, check_grpc_process
from lightning_gnnload.owners.front import Front, listen_at
from lightning_gnnload.owners.owner import Owner

_MOST_CLIENTS = 512
_PRESENT_S, _CLOSE_S = 0.1, 5.0
"""How long calls may take to end by themselves, and with their connections."""


class FlightFront(Front):
    """Serves an owner's clients over Arrow Flight: a call each, which takes two threads.

    gRPC sends as fast as a client reads, and keeps no more than it may send at once.

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
        check_grpc_process()
        super().__init__(owner, _MOST_CLIENTS, on_stranger)
        self._secret = secret
        address = Address(GRPC_TLS if certificate else GRPC, host, port)
        # By a socket of ours first, as Flight does not say what hinders it.
        listen_at(address, lambda: listen(host, port).close())
        self._server = listen_at(
            address,
            lambda: _Server(
                self._serve,
                str(address),
                tls_certificates=[certificate] if certificate else None,
                middleware={"doorman": Doorman(secret, on_stranger)},
            ),
            (OSError, pa.ArrowException),
        )
        self.address = Address(address.scheme, host, self._server.port)

    def close(self) -> None:
        give_up_at = time.monotonic() + _CLOSE_S
        threads = self._stop_clients()
        # It listens no more, and then waits for calls, which wait for their clients: gRPC has no means to end them.
        end = start_thread("gnnload-owner-end", self._server.shutdown)
        end.join(_PRESENT_S)
        while end.is_alive() and time.monotonic() < give_up_at:
            end_connections(self.address.port)
            end.join(_PRESENT_S)
        for thread in threads:
            thread.join(_CLOSE_S)

    def _talk(self, stream: FrameStream) -> None:
        assert isinstance(stream, FlightStream)
        stream.welcome(self._secret)
        super()._talk(stream)


class _Server(flight.FlightServerBase):
    def __init__(self, serve: Callable[[FlightStream, str], None], location: str, **settings: object) -> None:
        super().__init__(location, **settings)
        self._serve = serve

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        # To Python, each call comes in a new thread of gRPC's: what such a thread keeps for itself, as memory for rows,
        # goes with it, after Python has forgotten it, and torch's tensors cannot. So it waits for one of Python's own.
        is_over = threading.Event()
        try:
            start_thread("gnnload-owner-flight", self._run, FlightStream(writer, reader), context.peer(), is_over)
            is_over.wait()
            words = "this call is over"
        except GnnLoadError as error:
            words = str(error)
        # Always one of Flight's own: of any other exception, pyarrow (26) keeps 2 KiB for ever.
        raise flight.FlightUnavailableError(words)

    def _run(self, stream: FlightStream, peer: str, is_over: threading.Event) -> None:
        try:
            self._serve(stream, peer)
        finally:
            is_over.set()
