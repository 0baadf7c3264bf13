"""TrainerConnections: the connections of trainers to a sampler, and the messages that come over them."""

from __future__ import annotations

import logging
import math
import os
import selectors
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import cast

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline.queue import wire
from lightning_gnnload.pipeline.queue.streams import TrainerPeer

_log = logging.getLogger(__name__)
_POLL_S = 0.5  # how late the end can be noticed, as nothing is sent here to tell of it
_REPORT_S = 60.0
_AT_ONCE = 256  # connections that are accepted before messages are read again


class TrainerConnections:
    """Accepts the trainers' connections, reads their messages, and refuses processes that are no trainers.

    Nobody is accepted any more once all trainers are there, so strangers then cost nothing. ``ranks`` maps a trainer's
    local index to its global rank. ``welcome`` makes the trainer of a connection and its first message (hello);
    ``hear`` gets each further message with its file descriptors, which it then owns; ``ended`` is called when a
    trainer's connection has ended.
    """

    def __init__(
        self,
        listener: wire.Listener,
        *,
        ranks: Mapping[int, int],
        welcome: Callable[[wire.Channel, wire.Message], TrainerPeer],
        hear: Callable[[TrainerPeer, wire.Message, list[int]], None],
        ended: Callable[[TrainerPeer], None],
    ) -> None:
        self.listener = listener
        self._ranks = ranks
        self._welcome = welcome
        self._hear = hear
        self._ended = ended
        self._selector = selectors.DefaultSelector()
        self._peers: dict[wire.Channel, TrainerPeer | None] = {}  # None: it has not introduced itself yet
        self._refusals = _Refusals()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Accepts connections and passes messages on until ``is_over``.

        Raises:
            QueueProtocolError: a trainer sent what it must not.
        """
        self.listener.setblocking(False)
        self._selector.register(self.listener, selectors.EVENT_READ)
        try:
            while not is_over():
                self._refusals.report()
                for key, _ in self._selector.select(_POLL_S):
                    if key.fileobj is self.listener:
                        self._accept()
                    else:
                        self._read(cast(wire.Channel, key.fileobj))
        finally:
            self._selector.close()
            self._refusals.report(is_last=True)
            # The trainers' connections stay open: the service says its last words over them.
            for channel in [channel for channel, trainer in self._peers.items() if trainer is None]:
                channel.close()

    def _accept(self) -> None:
        # Faster than strangers can connect, so that trainers get a place.
        with suppress(BlockingIOError):
            for _ in range(_AT_ONCE):
                try:
                    newcomer = self.listener.accept()
                except QueueProtocolError as error:
                    # Who merely finds the address must not end the job.
                    self._refusals.note(str(error))
                    continue
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
            self._refuse(channel, str(error))
            return
        if trainer is not None:
            self._hear(trainer, message, fds)
            return
        for fd in fds:
            os.close(fd)  # they send none with a hello
        if message["kind"] != "hello":
            self._refuse(channel, f"it began with {message!r:.200}, not with hello")
        elif self._ranks.get(message["trainer"]) != message["rank"]:
            self._refuse(channel, f"no trainer of this sampler says {message!r:.200}; their ranks are {self._ranks}")
        elif message["trainer"] in self._here():
            self._refuse(channel, f"trainer rank {message['rank']} is connected already")
        else:
            self._peers[channel] = self._welcome(channel, message)
            if len(self._here()) == len(self._ranks):
                self._selector.unregister(self.listener)

    def _here(self) -> set[int]:
        return {trainer.index for trainer in self._peers.values() if trainer is not None}

    def _refuse(self, channel: wire.Channel, reason: str) -> None:
        self._refusals.note(reason)
        self._forget(channel)

    def _forget(self, channel: wire.Channel) -> None:
        self._selector.unregister(channel)
        trainer = self._peers.pop(channel)
        if trainer is None:
            channel.close()
            return
        if len(self._here()) + 1 == len(self._ranks):  # all were here, so that it was not registered
            self._selector.register(self.listener, selectors.EVENT_READ)
        self._ended(trainer)


class _Refusals:
    """Logs refused connections: the first one at once, later ones as a count once a minute."""

    def __init__(self) -> None:
        self._count = 0
        self._reason = ""
        self._reported_at = -math.inf

    def note(self, reason: str) -> None:
        self._count += 1
        self._reason = reason
        self.report()

    def report(self, *, is_last: bool = False) -> None:
        if self._count and (is_last or time.monotonic() > self._reported_at + _REPORT_S):
            more = f" ({self._count - 1} more were, before)" if self._count > 1 else ""
            _log.warning("turned away: %s%s", self._reason, more)
            self._count, self._reported_at = 0, time.monotonic()
