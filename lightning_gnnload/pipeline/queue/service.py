"""SamplerService: the loop of a sampler rank.

A sampler only reacts. A trainer opens a stream (a phase's mini-batches from one step to another) and deals its steps
out; the sampler makes those that it is asked for, in order, and publishes each in a slot. The trainer asks for no more
than it has room for, and sends back the slots it is done with, which is all the back-pressure there is. So Lightning's
loops decide everything, and no loop logic is written twice.

Threads: one reads the sockets; one opens streams, which may take long, while another one watches whether it gets on;
the caller's thread and ``num_threads - 1`` more sample. All state is guarded by ``_changed``; sampling and opening
themselves hold no lock.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from functools import partial

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import QueueProtocolError, ThreadLimitError
from lightning_gnnload.host import flags, processes
from lightning_gnnload.host.heartbeat import Patience
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.host.threads import start_thread
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.queue import wire
from lightning_gnnload.pipeline.queue.connections import TrainerConnections
from lightning_gnnload.pipeline.queue.failure import FINAL, Failure, stuck
from lightning_gnnload.pipeline.queue.sealed import adopt_sealed
from lightning_gnnload.pipeline.queue.setup_watch import watched
from lightning_gnnload.pipeline.queue.slot_copies import pieces_of
from lightning_gnnload.pipeline.queue.streams import SharedSlot, Stream, StreamSpec, TrainerPeer
from lightning_gnnload.pipeline.slots import FIRST_SLOT_BYTES
from lightning_gnnload.pipeline.source import BatchSource

_POLL_S = 0.5  # flags, and the time by which trainers must connect, wake nobody up
_GOODBYE_S = 2.0
_LAST_WORDS_S = 1.0  # for trainers to raise by themselves, where this sampler's end ends the job
_log = logging.getLogger(__name__)


class SamplerService:
    """The main loop of a sampler rank, which serves the trainers of one machine until all have parted.

    With a ``listener`` it serves the trainers of all other machines instead. Neither end can see then whether the other
    one's process lives. So a trainer whose connection ends is no failure, as the cable may have been pulled: the
    others are told, who name it if they fail themselves.

    Args:
        job: name that the ranks of this job share.
        sampler: which of the machine's samplers this is; ``rank`` is its global rank.
        num_trainers: trainers of this machine; ``first_trainer_rank`` is the global rank of the first.
        world_size: trainers of all machines.
        num_threads: sampling threads.
        open_source: finds the mini-batches of a stream. Called for each stream, even if no step is asked for here:
            samplers that share a cache fill it together.
        connect_timeout_s: how long to wait for idle trainers.
        setup_timeout_s: how long ``open_source`` may make no progress (beats of the process's pulse, or waiting for
            another process). After that, trainers are told and this process ends, as its thread cannot be ended.
        takeover: the others go on when sampling raises here; this rank samples no more, and ends with the trainers.
        is_busy: whether a trainer that has not connected is at work: it is waited for up to ``setup_timeout_s``.
        listener: where trainers of other machines connect, whose local indexes are their global ranks here. Without
            it, trainers of this machine do.

    Attributes:
        handlers: for messages that others add to ``wire.KINDS``; called in the reading thread, under the service's
            lock, with the trainer and the message.
        companions: functions that run beside sampling, each in its own thread, until ``is_over``.
        is_successor: another process served at this socket before, and was lost.

    Source: GNNLab (EuroSys'22), section 5.2 (samplers, trainers and a queue); the bound is DSP (PPoPP'23), section 5.
    """

    def __init__(
        self,
        job: str,
        *,
        sampler: int,
        rank: int,
        num_trainers: int,
        world_size: int,
        num_threads: int,
        open_source: Callable[[StreamSpec], BatchSource],
        connect_timeout_s: float,
        setup_timeout_s: float = 1800.0,
        first_trainer_rank: int = 0,
        takeover: bool = True,
        is_busy: Callable[[int], bool] = lambda trainer: False,
        listener: wire.Listener | None = None,
    ) -> None:
        self.job = job
        self.sampler = sampler
        self.rank = rank
        self.num_trainers = num_trainers
        self.world_size = world_size
        self.num_threads = num_threads
        self.setup_timeout_s = setup_timeout_s
        self.first_trainer_rank = first_trainer_rank
        self.takeover = takeover
        self.handlers: dict[str, Callable[[TrainerPeer, wire.Message], None]] = {}
        self.companions: list[Callable[[], None]] = []
        self._open_source = open_source
        self._never: set[int] = set()  # trainers that have not come yet
        self._patience = Patience(connect_timeout_s, setup_timeout_s, lambda: any(map(is_busy, self._never)))
        self._is_apart = listener is not None
        self._listener = wire.listen_to_trainers(job, sampler) if listener is None else listener
        # Over a lock that its owner may take again: _is_over() and _handle() are called under it, and fail the job.
        self._changed = threading.Condition()
        self._trainers: list[TrainerPeer] = []
        self._slot_bytes = FIRST_SLOT_BYTES
        self._breakdown: Failure | None = None
        self._failure: Failure | None = None
        self._error: BaseException | None = None
        self._outcome: MemoryFile | None = None
        self.is_successor = False
        self._has_met = False  # any trainer
        self._seen: set[int] = set()  # trainers that live, or did, without having connected
        self._first_bye = math.inf
        self._stopping = False

    def serve(self, *, is_successor: bool = False) -> MemoryFile | None:
        """Samples until every trainer has parted; returns the sealed outcome of trainer 0, if this sampler has received
        it.

        ``is_successor``: another process served at this socket, and was lost. Trainers reconnect when they notice, and
        some may have parted: it waits for those whose flags are up.

        Raises TrainerFailedError or TrainerDiedError where a trainer ended otherwise, and without ``takeover`` what
        sampling raised here; the other trainers have been told.
        """
        self.is_successor = is_successor
        threads: list[threading.Thread] = []
        try:
            threads.append(start_thread("gnnload-read", self._read))
            self._start_others(threads)
            self._work()
            # After a breakdown, too: this sampler still tells trainers of the failures that it sees.
            with self._changed:
                while not self._is_over():
                    self._changed.wait(_POLL_S)
        finally:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            for thread in threads:
                thread.join()
            self.close()
        if self._error is not None:
            raise self._error
        if self._failure is not None:
            raise self._failure.error()
        outcome, self._outcome = self._outcome, None  # whoever keeps the service keeps no descriptor of it
        return outcome

    def _start_others(self, threads: list[threading.Thread]) -> None:
        """Starts the other threads. Trainers are told if the system has none left."""
        works = {"gnnload-open": self._open_streams}
        works |= {f"gnnload-sample_{number}": self._work for number in range(1, self.num_threads)}
        works |= {f"gnnload-companion_{number}": companion for number, companion in enumerate(self.companions)}
        try:
            for name, work in works.items():
                threads.append(start_thread(name, work))
        except ThreadLimitError as error:
            self._end_with(error, "start")

    @property
    def has_all_trainers(self) -> bool:
        return len(self._trainers) >= self.num_trainers

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Waits for a moment without a mini-batch to make, for threads that use such time otherwise; returns whether it
        came before the time, or the service, was over."""
        with self._changed:
            idle = self._changed.wait_for(lambda: self.is_over or not (self._ready() or self._unopened()), timeout_s)
            return idle and not self.is_over

    def stream_of(self, rank: int, phase: str) -> Stream | None:
        """Returns the newest open stream of a phase that trainer ``rank`` reads, or None."""
        with self._changed:
            streams = [s for trainer in self._trainers if trainer.rank == rank for s in trainer.streams.values()]
            return max((s for s in streams if s.spec.phase == phase), key=lambda s: s.number, default=None)

    @property
    def is_over(self) -> bool:
        """Whether it samples no more."""
        return self._stopping or self._failure is not None or self._breakdown is not None

    # The sampling threads.

    def _work(self) -> None:
        stage = "serve"
        try:
            while (job := self._next_job()) is not None:
                stream, step, slot = job
                stage = f"sample ({stream.spec.phase}, epoch {stream.spec.epoch}, step {step})"
                request = BatchRequest(stream.spec.epoch, step, stream.trainer.rank, self.world_size)
                payload = stream.opened.make(request, slot.memory).made_elsewhere(self.rank)
                stage = "publish"
                self._publish(stream, step, slot, payload)
        except BaseException as error:  # a thread that ended in silence would leave the trainers waiting
            self._end_with(error, stage)

    def _next_job(self) -> tuple[Stream, int, SharedSlot] | None:
        """Waits for a step to make, and takes the most urgent one. None when there is nothing more to do."""
        with self._changed:
            while not self._is_over() and self._breakdown is None:
                if ready := self._ready():
                    # Evaluation interrupts training, so it comes first; then the step that is needed first.
                    stream = min(ready, key=lambda s: (s.spec.phase == "train", s.next_step))
                    step = stream.pop_step()
                    return stream, step, stream.trainer.take_slot(stream, step, self._slot_bytes)
                self._changed.wait(_POLL_S)
            return None

    def _ready(self) -> list[Stream]:
        """Returns the streams with a step that can be made now."""
        return [stream for trainer in self._trainers for stream in trainer.streams.values() if stream.is_ready]

    def _unopened(self) -> list[Stream]:
        """Returns the streams whose sources are yet to be opened."""
        return [stream for trainer in self._trainers for stream in trainer.streams.values() if stream.source is None]

    def _publish(self, stream: Stream, step: int, slot: SharedSlot, payload: Payload) -> None:
        with self._changed:
            # New slots begin at the size that others grew to, and seldom have to grow.
            self._slot_bytes = max(self._slot_bytes, slot.memory.num_bytes)
            if stream.closed:
                stream.trainer.take_back(slot)
                self._changed.notify_all()
                return
            memory = slot.memory.fd, slot.memory.memory_handle
            # The trainer keeps the memory open, and takes a second descriptor of it for an error.
            is_new, slot.sent = slot.sent != memory, memory
            try:
                stream.trainer.channel.send(
                    "batch",
                    [slot.memory.fd] if is_new else [],
                    stream=stream.number,
                    step=step,
                    slot=slot.number,
                    slot_bytes=slot.memory.num_bytes,
                    num_bytes=payload.header.end,
                    pieces=pieces_of(payload.header),
                    memory_handle=slot.memory.memory_handle if is_new else {},
                    payload=payload.to_json(),
                )
            except OSError:
                stream.trainer.take_back(slot)  # the trainer is gone: the reading thread finds out why

    # The thread that opens streams.

    def _open_streams(self) -> None:
        try:
            while (stream := self._next_unopened()) is not None:
                hangs = partial(self._end_process, f"{stream.spec.phase}, epoch {stream.spec.epoch}")
                with watched(self.setup_timeout_s, gets_on=self._report_opening, hangs=hangs):
                    source = self._open_source(stream.spec)
                with self._changed:
                    stream.source = source
                    with contextlib.suppress(OSError):  # it is gone: the reading thread finds out why
                        stream.trainer.channel.send("opened", stream=stream.number, threads=self.num_threads)
                    self._changed.notify_all()
        except BaseException as error:
            self._end_with(error, "setup")

    def _next_unopened(self) -> Stream | None:
        """Waits for a stream to open. None when there is nothing more to do."""
        with self._changed:
            while not self._is_over() and self._breakdown is None:
                if unopened := self._unopened():
                    return unopened[0]
                self._changed.wait(_POLL_S)
            return None

    def _report_opening(self) -> None:
        with self._changed:
            # Who has read nothing for minutes has many of these to read; to wait for it would keep all others waiting.
            for trainer in (peer for peer in self._trainers if peer.channel.has_room()):
                with contextlib.suppress(OSError):  # it is gone: the reading thread finds out why
                    trainer.channel.send("opening")

    def _end_process(self, doing: str, where: str) -> None:
        """Ends this process, of which a thread hangs that nothing can end. Trainers are told why."""
        with self._changed:
            self._breakdown = stuck(self.rank, doing, self.setup_timeout_s, where)
            self._tell(self._breakdown)
            self._changed.notify_all()
        _log.error("%s", self._breakdown.error())
        time.sleep(_LAST_WORDS_S)
        # With a status of 0 where the others go on, as torchrun and spawning parents end all ranks with one that fails.
        os._exit(0 if self.takeover else 1)

    # The reading thread.

    def _read(self) -> None:
        connections = TrainerConnections(
            self._listener,
            ranks={trainer: self.first_trainer_rank + trainer for trainer in range(self.num_trainers)},
            welcome=self._welcome,
            hear=self._hear,
            ended=self._ended,
        )
        try:
            connections.run(lambda: self._stopping)
        except Exception as error:
            self._fail_with(error, "read")

    def _welcome(self, channel: wire.Channel, message: wire.Message) -> TrainerPeer:
        if message["version"] != wire.PROTOCOL_VERSION:
            raise QueueProtocolError(
                f"trainer rank {message['rank']} speaks version {message['version']} of the protocol, and this sampler "
                f"version {wire.PROTOCOL_VERSION}: install one release for all ranks."
            )
        trainer = TrainerPeer(channel, message["trainer"], message["rank"], message["device"])
        # Under one lock, so that nothing (a heartbeat, a batch, a failure) goes to the trainer before the welcome.
        with self._changed:
            self._trainers.append(trainer)
            self._has_met = True
            with contextlib.suppress(OSError):  # it is gone already: its end will be read next
                channel.send("welcome", version=wire.PROTOCOL_VERSION, rank=self.rank, pid=os.getpid())
                if self._breakdown is not None:
                    channel.send("failed", **self._breakdown.to_json())
            self._changed.notify_all()
        return trainer

    def _hear(self, trainer: TrainerPeer, message: wire.Message, fds: list[int]) -> None:
        with self._changed:
            if message["kind"] == "bye" and message["num_bytes"]:
                self._outcome = adopt_sealed(fds.pop() if fds else -1, message["num_bytes"])
            for fd in fds:
                os.close(fd)
            self._handle(trainer, message)
            self._changed.notify_all()

    def _handle(self, trainer: TrainerPeer, message: wire.Message) -> None:
        message_kind = message["kind"]
        if message_kind in _HANDLERS:
            _HANDLERS[message_kind](self, trainer, message)
        elif message_kind in self.handlers:
            self.handlers[message_kind](trainer, message)
        else:
            raise _must_not(trainer, message)

    def _open(self, trainer: TrainerPeer, message: wire.Message) -> None:
        spec = StreamSpec(**{name: message[name] for name in StreamSpec.__dataclass_fields__})
        trainer.streams[message["stream"]] = Stream(trainer, message["stream"], spec)

    def _deal(self, trainer: TrainerPeer, message: wire.Message) -> None:
        stream = trainer.streams.get(message["stream"])
        if message["steps"] and stream is None:
            raise _must_not(trainer, message)
        for slot in message["slots"]:
            trainer.take_back(trainer.slot(slot))
        if stream is not None:
            stream.add(message["steps"])

    def _close_stream(self, trainer: TrainerPeer, message: wire.Message) -> None:
        stream = trainer.streams.pop(message["stream"], None)
        if stream is not None:
            # Threads may be making steps of it, which _publish() then drops.
            stream.closed = True

    def _refuse(self, trainer: TrainerPeer, message: wire.Message) -> None:
        trainer.refuse(trainer.slot(message["slot"]), message["text"])

    def _part(self, trainer: TrainerPeer, message: wire.Message) -> None:
        trainer.has_parted = True
        if message["kind"] == "bye":
            self._first_bye = min(self._first_bye, time.monotonic())
        else:
            self._fail(Failure.from_message(message))

    def _ended(self, trainer: TrainerPeer) -> None:
        with self._changed:
            if not trainer.has_parted and self._is_apart:
                self._miss(trainer)
            elif not trainer.has_parted:
                self._fail(Failure("trainer", trainer.rank, True, "train", "Its connection closed without a goodbye."))
            self._changed.notify_all()

    def _miss(self, trainer: TrainerPeer) -> None:
        """Goes on without a trainer of another machine, which may connect again."""
        for stream in trainer.streams.values():
            stream.closed = True  # threads may be making steps of it, which _publish() then drops
        self._trainers.remove(trainer)
        trainer.close()
        _log.warning("The connection of trainer rank %d has ended without a goodbye.", trainer.rank)
        for peer in self._trainers:
            with contextlib.suppress(OSError):  # it is gone itself
                peer.channel.send("missed", rank=trainer.rank)

    # The end.

    def _is_over(self) -> bool:
        """Whether all trainers have parted, or something ended the job. Called under the lock."""
        are_missing = self._some_are_missing()
        if self._failure is not None or self._error is not None or self._stopping:
            return True
        late = [trainer for trainer in self._trainers if not trainer.has_parted]
        if late and time.monotonic() > self._first_bye + _GOODBYE_S:
            self._wake(late)
        return not are_missing and not late

    def _some_are_missing(self) -> bool:
        """Whether trainers are yet to connect. Fails the job where they did not in time."""
        missing = set(range(self.num_trainers)) - {trainer.index for trainer in self._trainers}
        if not missing:
            return False
        if self._is_apart:
            return self._await_remote(missing)
        # They go on without this sampler, as it came too late for them, or have not noticed yet that it is back.
        living = {index for index in missing if flags.is_up(flags.trainer_alive(self.job, index))}
        self._seen |= living
        self._never = never = missing - self._seen
        if never and not self.is_successor and self._patience.is_over():
            text = f"{len(never)} of {self.num_trainers} trainers did not connect in time: {self._patience}."
            self._fail(Failure("trainer", self.first_trainer_rank + min(never), True, "start", text))
        # Those in `_seen` whose flags are down have parted since, and need no sampler.
        return bool(living if self.is_successor else living | never)

    def _await_remote(self, missing: set[int]) -> bool:
        """Whether to wait for trainers of other machines, of which nothing can be seen."""
        if not self._patience.is_over():
            return True
        if not self.is_successor and not self._has_met:
            text = f"no trainer of another machine connected in time: {self._patience}."
            self._fail(Failure("trainer", self.first_trainer_rank + min(missing), True, "start", text))
        # Those that are missing do without this sampler, or have parted from the process before it.
        return False

    def _wake(self, late: list[TrainerPeer]) -> None:
        """Continues trainers that are stopped (SIGSTOP) when others have parted: this sampler waits for them."""
        for trainer in late:
            if trainer.channel.peer_pid and processes.wake(trainer.channel.peer_pid):
                _log.warning("Trainer rank %d was stopped when others had parted: it is woken up.", trainer.rank)

    def _end_with(self, error: BaseException, stage: str) -> None:
        # An interrupt is meant for the whole job, and after a FINAL error nobody is to take over.
        if self.takeover and isinstance(error, Exception) and not isinstance(error, FINAL):
            self._break_down(error, stage)
        else:
            self._fail_with(error, stage)

    def _break_down(self, error: Exception, stage: str) -> None:
        """Ends sampling here; others take over. The service still reports trainers' failures, and ends with them."""
        with self._changed:
            if self._breakdown is None:
                self._breakdown = Failure.of(error, role="sampler", rank=self.rank, stage=stage)
                self._tell(self._breakdown)
            self._changed.notify_all()

    def _fail_with(self, error: BaseException, stage: str) -> None:
        with self._changed:
            # The first failure is the cause: what is raised here after it is not reported in its place.
            if self._failure is None:
                self._error = error
                self._fail(Failure.of(error, role="sampler", rank=self.rank, stage=stage))

    def _fail(self, failure: Failure) -> None:
        """Notes the first failure and tells the trainers at once, as a batch in the making may take long yet."""
        with self._changed:
            if self._failure is None:
                self._failure = failure
                self._tell(failure)
            self._changed.notify_all()

    def _tell(self, failure: Failure) -> None:
        for trainer in self._trainers:
            with contextlib.suppress(OSError):  # it is gone itself
                trainer.channel.send("failed", **failure.to_json())

    def close(self) -> None:
        """Closes the socket and all connections of a service that does not serve, or no longer does."""
        self._listener.close()
        if self._failure is not None:
            self._tell(self._failure)  # again, for those who came after
        # All hear of the end before any is waited for.
        for trainer in self._trainers:
            trainer.channel.finish()
        for trainer in self._trainers:
            trainer.channel.drain(_GOODBYE_S)
            trainer.close()


_HANDLERS: dict[str, Callable[[SamplerService, TrainerPeer, wire.Message], None]] = {
    "open": SamplerService._open,
    "deal": SamplerService._deal,
    "close": SamplerService._close_stream,
    "refuse": SamplerService._refuse,
    "bye": SamplerService._part,
    "failed": SamplerService._part,
}


def _must_not(trainer: TrainerPeer, message: wire.Message) -> QueueProtocolError:
    return QueueProtocolError(f"trainer rank {trainer.rank} sent {message!r:.200}, which it must not")
