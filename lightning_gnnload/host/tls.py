"""TlsSocket: a connection by TLS in which one thread may send while another one receives."""

from __future__ import annotations

import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any


class TlsSocket:
    """A connected socket by TLS, with the methods of one in the clear that a stream needs.

    OpenSSL lets one thread at a time into a connection, and Python before 3.13 does not see to that. So nobody waits in
    there: a thread that must wait does so for the socket, without the lock. Time limits are each thread's own.

    Source: OpenSSL's manual, openssl-threads(7): an SSL object is for one thread at a time.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._inside = threading.Lock()
        self._limits = threading.local()

    def settimeout(self, seconds: float | None) -> None:
        """Limits how long each further call of this thread may take; None: not at all."""
        self._limits.seconds = seconds

    def sendall(self, content: Any, flags: int = 0) -> None:
        """Sends all of it. ``flags`` say how a socket in the clear would: they are of no meaning here."""
        view, deadline = memoryview(content), self._deadline()
        while len(view):
            view = view[self._repeat(partial(self._socket.send, view), deadline) :]

    def recv_into(self, memory: bytearray | memoryview) -> int:
        """Receives some bytes, and returns how many; 0 at the connection's end."""
        return self._repeat(partial(self._socket.recv_into, memory), self._deadline())

    def setsockopt(self, *option: int) -> None:
        """As a socket's."""
        self._socket.setsockopt(*option)

    def fileno(self) -> int:
        """As a socket's."""
        return self._socket.fileno()

    def shutdown(self, how: int) -> None:
        """Ends the connection for all threads."""
        # Not by the method of its class, which would leave other threads one in the clear for a moment.
        socket.socket.shutdown(self._socket, how)

    def close(self) -> None:
        """As a socket's."""
        self._socket.close()

    def _deadline(self) -> float:
        seconds = getattr(self._limits, "seconds", None)
        return math.inf if seconds is None else time.monotonic() + seconds

    def _repeat(self, step: Callable[[], int], deadline: float) -> int:
        """Does a step that does not wait, once the connection is ready for it. TimeoutError: it is not in time."""
        while True:
            try:
                with self._inside:
                    return step()
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            poll = select.poll()
            poll.register(self._socket, event)
            if not poll.poll(None if deadline == math.inf else max(deadline - time.monotonic(), 0) * 1e3):
                raise TimeoutError("the other end did not answer in time.")
