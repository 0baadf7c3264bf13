"""FlightCall: a client's end of a call of Arrow Flight."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight

from lightning_gnnload.errors import StrangerError
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.owners.address import Address
from lightning_gnnload.owners.flight.proof import Caller, Callers, prove
from lightning_gnnload.owners.flight.stream import NOTHING, FlightStream, check_grpc_process

_OPTIONS = [("grpc.http2.max_frame_size", (1 << 24) - 1)]
"""A message comes as one frame: of frames of 16 KiB, as is usual, 5 MB take a millisecond more."""


class FlightCall(FlightStream):
    """A call of an owner, which the client ends where something takes too long: gRPC itself limits whole calls alone.

    Args:
        address: of the owner.
        secret: the one that it has.
        timeout_s: of connecting; and of what comes later, a quarter of it is how exactly time limits are kept.
        authority: content of the PEM file that vouches for the owner's certificate; None: the system's own.

    Raises:
        StrangerError: the owner has another secret.
        OSError: no owner listens there, or it is late.
        ForkError: this process is a fork of one that has used Arrow Flight.
    """

    def __init__(self, address: Address, secret: bytes, timeout_s: float, authority: bytes | None = None) -> None:
        check_grpc_process()
        caller = Caller(secret)
        self._client = flight.FlightClient(
            str(address), middleware=[Callers(caller)], tls_root_certs=authority, generic_options=_OPTIONS
        )
        self._tick_s = timeout_s / 4
        self._deadline: float | None = None
        self._is_late = False
        # Guards the deadline: no call is cancelled that is waited for no longer.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        try:
            with self._within(timeout_s):
                super().__init__(*self._client.do_exchange(flight.FlightDescriptor.for_command(b"")))
            self._thread = start_thread("gnnload-flight", self._watch)
        except BaseException:
            self._client.close()
            raise
        try:
            self._begin(timeout_s)
            _, nonce = self._message(timeout_s)
            # Nothing that came is looked at before it is known who sent it.
            if not caller.has_met_owner:
                raise StrangerError("the other end does not know the secret: it is not who this process looks for.")
            self._write(NOTHING, prove(secret, "asks", nonce), timeout_s)
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        super().stop()
        self._reader.cancel()

    def close(self) -> None:
        super().close()
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        self._reader.cancel()
        # Else Arrow tells of it on stderr.
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.close()
        self._client.close()

    @contextlib.contextmanager
    def _within(self, timeout_s: float) -> Iterator[None]:
        self._deadline = time.monotonic() + timeout_s
        try:
            with super()._within(timeout_s):
                yield
        except ConnectionResetError as error:
            if self._is_late:
                raise TimeoutError(f"the owner sent nothing for {timeout_s} s.") from error
            if isinstance(error.__cause__, flight.FlightUnauthenticatedError):
                raise StrangerError("the other end does not take this secret: give both ends the same one.") from error
            raise
        finally:
            with self._lock:
                self._deadline = None

    def _watch(self) -> None:
        while not self._closed.wait(self._tick_s):
            with self._lock:
                if self._deadline is not None and time.monotonic() > self._deadline:
                    self._is_late, self._deadline = True, None
                    self._reader.cancel()
