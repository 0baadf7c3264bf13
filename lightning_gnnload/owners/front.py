"""Front: where an owner's clients reach it, and what is said to each of them."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from lightning_gnnload.errors import AddressError, FrameError, StrangerError
from lightning_gnnload.host.tcp import Frame
from lightning_gnnload.owners.address import Address
from lightning_gnnload.owners.connection import (
    ANSWER,
    FAILURE,
    HELLO,
    MOST_TASK_BYTES,
    MOST_WORDS_BYTES,
    REFUSAL,
    TASK,
    FrameStream,
)
from lightning_gnnload.owners.owner import Owner

_CLIENT_S = 60.0
"""A client that begins a request, or an answer, and neither sends nor reads for so long, is gone."""
AnyFront = TypeVar("AnyFront", bound="Front")
Listener = TypeVar("Listener")


class Front(ABC):
    """Serves an owner's clients, one request of each at a time, until it is closed.

    A client that does not read its answer waits for itself alone, and is asked for no further request.

    Args:
        owner: who answers.
        most_clients: connections that are served; who opens another is turned away.
        on_stranger: is told of who was turned away, and why; for a log.
    """

    address: Address
    """Where it listens."""

    def __init__(self, owner: Owner, most_clients: int, on_stranger: Callable[[str], object]) -> None:
        self._owner, self._most_clients, self._on_stranger = owner, most_clients, on_stranger
        # Guards what follows, which threads of connections share.
        self._lock = threading.Lock()
        self._clients: dict[FrameStream, threading.Thread] = {}
        self._is_closed = False

    @abstractmethod
    def close(self) -> None:
        """Ends all connections. Safe to call twice."""

    def __enter__(self: AnyFront) -> AnyFront:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, stream: FrameStream, peer: str) -> None:
        """Answers a client's requests, in this thread, until it leaves or the front is closed."""
        with self._lock:
            is_welcome = not self._is_closed and len(self._clients) < self._most_clients
            if is_welcome:
                self._clients[stream] = threading.current_thread()
        try:
            if is_welcome:
                self._talk(stream)
            elif not self._is_closed:
                self._on_stranger(f"{peer} was turned away: {self._most_clients} connections are open.")
        except StrangerError as error:
            self._on_stranger(f"{peer} was turned away: {error}")
        except (OSError, MemoryError):
            pass  # the client is gone, late or mad, or will ask again: nobody else's business
        except Exception as error:
            # What begins to come comes whole, or the connection ends.
            self._on_stranger(f"{peer} got half an answer: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._clients.pop(stream, None)
            stream.close()

    def _talk(self, stream: FrameStream) -> None:
        hello = json.dumps(self._owner.hello).encode()
        stream.send(Frame(HELLO, 0, len(hello)), _CLIENT_S, hello)
        while True:
            code, number, num_bytes = stream.receive(None)
            if code != TASK or num_bytes > MOST_TASK_BYTES:
                raise FrameError(f"a frame of code {code} and {num_bytes} bytes is no request.")
            task = np.empty(num_bytes, np.uint8)
            stream.receive_into(task, _CLIENT_S)
            try:
                reply = self._owner.answer(task)
            except Exception as error:
                words = f"{type(error).__name__}: {error}".encode()[:MOST_WORDS_BYTES]
                stream.send(Frame(_code(error), number, len(words)), _CLIENT_S, words)
                continue
            stream.send(Frame(ANSWER, number, num_left := reply.num_bytes), _CLIENT_S)
            for piece in reply.pieces:
                stream.send_on(piece, _CLIENT_S)
                num_left -= len(piece)
            if num_left:
                raise FrameError(f"an answer has {-num_left} bytes more than was announced.")

    def _stop_clients(self) -> list[threading.Thread]:
        """Has all connections end, and returns their threads."""
        with self._lock:
            self._is_closed = True
            clients = dict(self._clients)
        for stream in clients:
            stream.stop()  # and its thread closes it
        return list(clients.values())


def listen_at(
    address: Address, begin: Callable[[], Listener], errors: tuple[type[Exception], ...] = (OSError,)
) -> Listener:
    """Returns what ``begin`` returns, which listens at an address. AddressError: it cannot, by one of ``errors``."""
    try:
        return begin()
    except errors as error:
        raise AddressError(
            f"nobody can listen at {address}: {error}. Give an address of this machine and a port that is free, or "
            "port 0 for any."
        ) from error


def _code(error: Exception) -> int:
    """Of a frame that tells a client of an error: this owner's machine alone failed, for now: files, memory,
    connections; else what was asked for is refused, or the program is at fault, alike with any other owner."""
    return FAILURE if isinstance(error, OSError | MemoryError) else REFUSAL
