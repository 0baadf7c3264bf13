"""TrainerConnections: the connections of trainers to a sampler, and the messages that come over them."""

from __future__ import annotations

import logging
import os
import selectors
import socket
from collections.abc import Callable
from typing import cast

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline import wire
from lightning_gnnload.pipeline.streams import TrainerPeer

_log = logging.getLogger(__name__)
_POLL_S = 0.5  # how late the end can be noticed, as nothing is sent here to tell of it


class TrainerConnections:
    """Accepts the trainers' connections, reads their messages, and refuses processes that are no trainers.

    Args:
        listener: what trainers connect to.
        welcome: called with a connection and its first message, a hello; makes the trainer.
        hear: called with each further message, and its file descriptors, which are then its own.
        ended: called when the trainer's connection has ended.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        welcome: Callable[[wire.Channel, wire.Message], TrainerPeer],
        hear: Callable[[TrainerPeer, wire.Message, list[int]], None],
        ended: Callable[[TrainerPeer], None],
    ) -> None:
        self.listener = listener
        self._welcome = welcome
        self._hear = hear
        self._ended = ended
        self._selector = selectors.DefaultSelector()
        self._peers: dict[wire.Channel, TrainerPeer | None] = {}  # None: it has not introduced itself yet

    def run(self, is_over: Callable[[], bool]) -> None:
        """Accepts connections and passes messages on until ``is_over``.

        Raises:
            QueueProtocolError: a trainer sent what it must not.
        """
        self._selector.register(self.listener, selectors.EVENT_READ)
        try:
            while not is_over():
                for key, _ in self._selector.select(_POLL_S):
                    if key.fileobj is self.listener:
                        self._accept()
                    else:
                        self._read(cast(wire.Channel, key.fileobj))
        finally:
            self._selector.close()
            # The trainers' connections stay open: the service says its last words over them.
            for channel in [channel for channel, trainer in self._peers.items() if trainer is None]:
                channel.close()

    def _accept(self) -> None:
        try:
            newcomer = wire.accept(self.listener)
        except QueueProtocolError as error:
            # Names in the abstract namespace have no permissions: who merely finds this one must not end the job.
            _log.warning("turned away: %s", str(error))
            return
        self._peers[newcomer] = None
        self._selector.register(newcomer, selectors.EVENT_READ)

    def _read(self, channel: wire.Channel) -> None:
        trainer = self._peers[channel]
        try:
            message, fds = channel.receive()
        except EOFError:
            self._forget(channel)
            return
        except QueueProtocolError as error:
            # A trainer that breaks the protocol ends the job; a stranger that does is no reason to.
            if trainer is not None:
                raise
            _log.warning("turned away: %s", str(error))
            self._forget(channel)
            return
        if trainer is not None:
            self._hear(trainer, message, fds)
            return
        for fd in fds:
            os.close(fd)  # they send none with a hello
        if message["kind"] == "hello":
            self._peers[channel] = self._welcome(channel, message)
        else:
            _log.warning("turned away: it began with %.200r, not with hello", message)
            self._forget(channel)

    def _forget(self, channel: wire.Channel) -> None:
        self._selector.unregister(channel)
        trainer = self._peers.pop(channel)
        if trainer is None:
            channel.close()
        else:
            self._ended(trainer)
