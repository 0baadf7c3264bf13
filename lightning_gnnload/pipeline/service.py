"""SamplerService: the loop of a sampler rank.

A sampler only reacts. A trainer opens a stream (a phase's mini-batches from one step to another); the sampler makes
its share of them, in order, and publishes each in a slot. A stream has a fixed number of slots out; the trainer
sends back the slots it is done with, which is all the back-pressure there is. So Lightning's loops decide
everything, and no loop logic is written twice.

Threads: one reads the sockets; the caller's thread and ``num_threads - 1`` more sample. All state is guarded by
``_changed``; sampling itself holds no lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from lightning_gnnload.errors import QueueProtocolError
from lightning_gnnload.pipeline import wire
from lightning_gnnload.pipeline.failure import Failure
from lightning_gnnload.pipeline.slots import FIRST_SLOT_BYTES, Slot
from lightning_gnnload.pipeline.source import BatchRequest, BatchSource, Payload
from lightning_gnnload.pipeline.streams import SharedSlot, Stream, StreamSpec, Trainer

_log = logging.getLogger(__name__)
_POLL_S = 0.5
_GOODBYE_S = 2.0


class SamplerService:
    """Serves the trainers of one machine until all have said goodbye.

    Args:
        job: name that the ranks of this job share.
        sampler: which of the machine's samplers this is, of ``num_samplers``; it makes the steps that are
            ``sampler`` modulo ``num_samplers``.
        rank: this process's global rank, for messages.
        num_trainers: trainers of this machine.
        world_size: trainers of all machines.
        queue_depth: slots that each stream may have out.
        num_threads: sampling threads.
        open_source: finds the mini-batches of a stream; called once for each stream that is opened.
        connect_timeout_s: how long to wait for the trainers.

    Source: GNNLab (EuroSys'22), section 5.2 (samplers, trainers and a queue); the bound is DSP (PPoPP'23), section 5.
    """

    def __init__(
        self,
        job: str,
        *,
        sampler: int,
        num_samplers: int,
        rank: int,
        num_trainers: int,
        world_size: int,
        queue_depth: int,
        num_threads: int,
        open_source: Callable[[StreamSpec], BatchSource],
        connect_timeout_s: float,
    ) -> None:
        self.sampler = sampler
        self.num_samplers = num_samplers
        self.rank = rank
        self.num_trainers = num_trainers
        self.world_size = world_size
        self.queue_depth = queue_depth
        self.num_threads = num_threads
        self._open_source = open_source
        self._opening = threading.Lock()
        self._connect_by = time.monotonic() + connect_timeout_s
        self._listener = wire.listen(job, sampler)
        self._changed = threading.Condition()
        self._trainers: list[Trainer] = []
        self._slot_bytes = FIRST_SLOT_BYTES
        self._failure: Failure | None = None
        self._error: BaseException | None = None
        self._outcome: dict[str, Any] = {}
        self._stopping = False

    def serve(self) -> dict[str, Any]:
        """Samples until every trainer has said goodbye; returns the outcome that trainer 0 sent with its own.

        Raises:
            TrainerFailedError, TrainerDiedError: a trainer ended otherwise; the other trainers have been told.
            Exception: what the sampler itself raised; the trainers have been told.
        """
        threads = [threading.Thread(target=self._read, name="gnnload-read", daemon=True)]
        threads += [
            threading.Thread(target=self._work, name=f"gnnload-sample_{number}", daemon=True)
            for number in range(1, self.num_threads)
        ]
        for thread in threads:
            thread.start()
        try:
            self._work()
        finally:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            for thread in threads:
                thread.join()
            self._close()
        if self._error is not None:
            raise self._error
        if self._failure is not None:
            raise self._failure.error()
        return self._outcome

    @property
    def has_all_trainers(self) -> bool:
        return len(self._trainers) == self.num_trainers

    # The sampling threads.

    def _work(self) -> None:
        stage = "serve"
        try:
            while (job := self._next_job()) is not None:
                stream, step, slot = job
                stage = "setup"
                source = self._source_of(stream)
                stage = f"sample ({stream.spec.phase}, epoch {stream.spec.epoch}, step {step})"
                request = BatchRequest(stream.spec.epoch, step, stream.trainer.rank, self.world_size)
                payload = replace(source.make(request, slot.memory), made_by=self.rank)
                stage = "publish"
                self._publish(stream, step, slot, payload)
        except BaseException as error:  # a thread that ended in silence would leave the trainers waiting
            self._end(error, stage)

    def _next_job(self) -> tuple[Stream, int, SharedSlot] | None:
        """The most urgent step that has a slot; waits for one. None when there is nothing more to do."""
        with self._changed:
            while True:
                if self._failure is not None or self._error is not None or self._stopping or self._all_said_bye():
                    return None
                ready = [
                    stream
                    for trainer in self._trainers
                    for stream in trainer.streams.values()
                    if stream.next_step < stream.spec.stop and stream.num_out < self.queue_depth
                ]
                if ready:
                    # Evaluation interrupts training, so it comes first; then the step that is needed first.
                    stream = min(ready, key=lambda s: (s.spec.phase == "train", s.next_step))
                    step = stream.next_step
                    stream.next_step += self.num_samplers
                    stream.num_out += 1
                    return stream, step, self._take_slot(stream)
                self._changed.wait(_POLL_S)
                if not self.has_all_trainers and time.monotonic() > self._connect_by:
                    missing = f"{self.num_trainers - len(self._trainers)} of {self.num_trainers} trainers"
                    self._fail(Failure("trainer", -1, True, "start", f"{missing} did not connect in time."))

    def _source_of(self, stream: Stream) -> BatchSource:
        with self._opening:
            if stream.source is None:
                stream.source = self._open_source(stream.spec)
            return stream.source

    def _take_slot(self, stream: Stream) -> SharedSlot:
        trainer = stream.trainer
        if trainer.free:
            slot = trainer.free.pop()
        else:
            slot = SharedSlot(len(trainer.slots), Slot.shared(self._slot_bytes))
            trainer.slots.append(slot)
        slot.stream = stream
        return slot

    def _publish(self, stream: Stream, step: int, slot: SharedSlot, payload: Payload) -> None:
        with self._changed:
            self._slot_bytes = max(self._slot_bytes, slot.memory.num_bytes)
            if stream.closed:
                self._return(slot)
                return
            fds = [] if slot.sent_before else [slot.memory.fd]
            slot.sent_before = True
            try:
                stream.trainer.channel.send(
                    "batch",
                    fds,
                    stream=stream.number,
                    step=step,
                    slot=slot.number,
                    slot_bytes=slot.memory.num_bytes,
                    payload=payload.to_json(),
                )
            except OSError:
                self._return(slot)  # the trainer is gone: the reading thread finds out why

    def _return(self, slot: SharedSlot) -> None:
        if slot.stream is None:
            raise QueueProtocolError(f"slot {slot.number} was freed twice")
        slot.stream.num_out -= 1
        slot.stream.trainer.free.append(slot)
        slot.stream = None
        self._changed.notify_all()

    # The reading thread.

    def _read(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        peers: dict[wire.Channel, Trainer | None] = {}  # None: it has not introduced itself yet
        try:
            while not self._stopping:
                for key, _ in selector.select(_POLL_S):
                    if key.fileobj is self._listener:
                        if (newcomer := self._accept()) is not None:
                            peers[newcomer] = None
                            selector.register(newcomer, selectors.EVENT_READ)
                        continue
                    channel = cast(wire.Channel, key.fileobj)
                    if not self._hear(channel, peers):
                        selector.unregister(channel)
                        if (trainer := peers.pop(channel)) is None:
                            channel.close()
                        else:
                            self._ended(trainer)
        except Exception as error:
            self._end(error, "read")
        finally:
            selector.close()
            for channel in [channel for channel, trainer in peers.items() if trainer is None]:
                channel.close()

    def _hear(self, channel: wire.Channel, peers: dict[wire.Channel, Trainer | None]) -> bool:
        """Handles one message; False when the peer has ended, or is turned away."""
        trainer = peers[channel]
        try:
            message, fds = channel.receive()
        except EOFError:
            return False
        except QueueProtocolError as error:
            if trainer is not None:
                raise
            _log.warning("turned away: %s", str(error))
            return False
        for fd in fds:
            os.close(fd)  # trainers send none
        if trainer is None and message["kind"] != "hello":
            _log.warning("turned away: it began with %.200r, not with hello", message)
            return False
        with self._changed:
            if trainer is None:
                peers[channel] = self._welcome(channel, message)
            else:
                self._handle(trainer, message)
            self._changed.notify_all()
        return True

    def _accept(self) -> wire.Channel | None:
        try:
            return wire.accept(self._listener)
        except QueueProtocolError as error:
            _log.warning("turned away: %s", str(error))  # a stranger must not be able to end the job
            return None

    def _welcome(self, channel: wire.Channel, message: wire.Message) -> Trainer:
        if message["version"] != wire.PROTOCOL_VERSION:
            raise QueueProtocolError(
                f"trainer rank {message['rank']} speaks version {message['version']} of the protocol, and this sampler "
                f"version {wire.PROTOCOL_VERSION}: install one release for all ranks."
            )
        trainer = Trainer(channel, message["rank"])
        self._trainers.append(trainer)
        with contextlib.suppress(OSError):  # it is gone already: its end will be read next
            channel.send("welcome", version=wire.PROTOCOL_VERSION, rank=self.rank)
        return trainer

    def _handle(self, trainer: Trainer, message: wire.Message) -> None:
        kind = message["kind"]
        if kind == "open":
            spec = StreamSpec(**{name: message[name] for name in StreamSpec.__dataclass_fields__})
            first = spec.start + (self.sampler - spec.start) % self.num_samplers
            trainer.streams[message["stream"]] = Stream(trainer, message["stream"], spec, first)
        elif kind == "close":
            stream = trainer.streams.pop(message["stream"], None)
            if stream is not None:
                stream.closed = True
        elif kind == "free":
            if not 0 <= message["slot"] < len(trainer.slots):
                raise QueueProtocolError(
                    f"trainer rank {trainer.rank} freed slot {message['slot']}, of {len(trainer.slots)}"
                )
            self._return(trainer.slots[message["slot"]])
        elif kind == "bye":
            trainer.said_bye = True
            self._outcome = message["outcome"] or self._outcome
        elif kind == "failed":
            trainer.said_bye = True
            self._fail(Failure.from_message(message))
        else:
            raise QueueProtocolError(f"trainer rank {trainer.rank} sent {kind!r}, which only samplers may")

    def _ended(self, trainer: Trainer) -> None:
        with self._changed:
            if not trainer.said_bye:
                self._fail(Failure("trainer", trainer.rank, True, "train", "Its connection closed without a goodbye."))
            self._changed.notify_all()

    def _all_said_bye(self) -> bool:
        return self.has_all_trainers and all(trainer.said_bye for trainer in self._trainers)

    # The end.

    def _end(self, error: BaseException, stage: str) -> None:
        with self._changed:
            if self._failure is None:
                self._error = error
                self._fail(Failure.of(error, role="sampler", rank=self.rank, stage=stage))

    def _fail(self, failure: Failure) -> None:
        """The first failure counts. Trainers hear of it at once, as a batch in the making may take long yet."""
        with self._changed:
            if self._failure is None:
                self._failure = failure
                self._tell()
            self._changed.notify_all()

    def _tell(self) -> None:
        assert self._failure is not None
        for trainer in self._trainers:
            with contextlib.suppress(OSError):  # it is gone itself
                trainer.channel.send("failed", **self._failure.to_json())

    def _close(self) -> None:
        self._listener.close()
        if self._failure is not None:
            self._tell()  # again, for those who came after
        for trainer in self._trainers:
            trainer.channel.finish()
        for trainer in self._trainers:
            trainer.channel.drain(_GOODBYE_S)
            trainer.channel.close()
            for slot in trainer.slots:
                slot.memory.close()
            for held in (trainer.slots, trainer.free, trainer.streams):
                held.clear()  # slots and streams know each other, and would outlast this until a garbage collection
