"""BatchQueue: the trainer's end of the queue between samplers and trainers."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Container
from functools import partial
from typing import Any

import numpy as np

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.errors import PeerError
from lightning_gnnload.host.heartbeat import Patience
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.host.threads import check_process
from lightning_gnnload.pipeline.device_slots import DeviceReader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.queue.depth import LEAST, QueueDepth, depth_within
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.pipeline.queue.remote import NO_REMOTE, RemoteSamplers
from lightning_gnnload.pipeline.queue.sampler_peer import SamplerPeer
from lightning_gnnload.pipeline.queue.sampler_pool import SamplerPool
from lightning_gnnload.pipeline.queue.scheduler import BatchTime, Scheduler, WorkerState
from lightning_gnnload.pipeline.queue.streams import StreamSpec
from lightning_gnnload.pipeline.queue.wire import Message
from lightning_gnnload.pipeline.stats import QueueFill

_POLL_S = 1.0  # how often a wait looks for slots that came back, and for samplers that stalled
_FORGETS = 0.95  # what is left, one step later, of how long this thread did not listen


class BatchQueue:
    """The trainer's end of the queue: yields one trainer's mini-batches from all samplers that serve it.

    The trainer assigns a stream's steps to the samplers as they need more (:class:`.Scheduler`). When a sampler is
    lost, the others get what was due from it: mini-batches are pure functions, so trainers need not agree, and a step
    that comes twice is the same twice. Used by one thread; its batches may go to any.

    Args:
        job: name that the ranks of this job share.
        trainer: local index of this trainer, of ``num_trainers`` of this machine.
        rank: its global rank.
        num_samplers: samplers of this machine; ``first_sampler_rank`` is the global rank of the first.
        queue_depth: slots of a stream at each sampler; one more where the step that is needed next finds none.
        connect_timeout_s: how long to wait for an idle sampler to start.
        stall_timeout_s: how long to wait for a mini-batch that is due.
        takeover: go on without a sampler that is lost; otherwise its loss is raised (also SamplerDiedError here).
        has_ended: whether a sampler's process has ended, so that it need not be waited for.
        is_busy: whether a sampler that has not connected is at work: it is waited for up to ``setup_timeout_s``.
        on_late: called with the index of a sampler that did not start in time.
        known_gone: ranks of samplers whose loss was reported in an earlier launch.
        pinned: page-lock the slots on this side, for asynchronous copies to a CUDA device.
        reader: this trainer's device, if samplers may send mini-batches in the memory of theirs.
        queue_memory_bytes: bound of all queues of the machine; lets the depth follow the waits (:class:`.QueueDepth`).
        remote: samplers of other machines, whose indexes follow those of this one.

    Attributes:
        handlers: for messages that others add to ``wire.KINDS``; called with the sampler's index, the message, and file
            descriptors that the handler then owns.
        lost: called with the index of a sampler that is lost. A sampler that comes back is not announced.
        on_wait: called each second in which a mini-batch is waited for; what it raises ends the wait.
    """

    def __init__(
        self,
        job: str,
        *,
        trainer: int,
        rank: int,
        num_samplers: int,
        queue_depth: int,
        connect_timeout_s: float,
        stall_timeout_s: float,
        first_sampler_rank: int = 0,
        num_trainers: int = 1,
        takeover: bool = True,
        has_ended: Callable[[int], bool] = lambda sampler: False,
        is_busy: Callable[[int], bool] = lambda sampler: False,
        setup_timeout_s: float = 1800.0,
        on_late: Callable[[int], None] = lambda sampler: None,
        known_gone: Container[int] = (),
        pinned: bool = False,
        reader: DeviceReader | None = None,
        queue_memory_bytes: int | None = None,
        remote: RemoteSamplers = NO_REMOTE,
    ) -> None:
        self.num_samplers = num_samplers + len(remote.ranks)
        # Each machine's samplers have all parts of a graph, and count from 0 which they have.
        self.num_owners = math.gcd(num_samplers, remote.num_each)
        self.queue_depth = queue_depth
        self.num_trainers = num_trainers
        self.queue_memory_bytes = queue_memory_bytes
        self.stall_timeout_s = stall_timeout_s
        self.pinned = pinned
        self.reader = reader
        self.handlers: dict[str, Callable[[int, Message, list[int]], None]] = {}
        self.lost: list[Callable[[int], None]] = []
        self.on_wait: Callable[[], None] = lambda: None
        self._depths: dict[tuple[str, int], QueueDepth] = {}  # by phase and loader, from epoch to epoch
        self._slot_bytes = 0  # of the largest
        self._numbers = itertools.count()
        self._streams: dict[int, Scheduler[SamplerPeer]] = {}
        self._inbox: dict[tuple[int, int], tuple[SamplerPeer, int, Payload]] = {}
        self._listened_at = time.monotonic()
        self._blind_s = 0.0  # how long this thread has lately gone without listening
        self._pid = os.getpid()
        self._pool = SamplerPool(
            job,
            trainer=trainer,
            num_trainers=num_trainers,
            rank=rank,
            sampler_ranks=range(first_sampler_rank, first_sampler_rank + num_samplers),
            takeover=takeover,
            stall_timeout_s=stall_timeout_s,
            known_gone=known_gone,
            device="" if reader is None else reader.name,
            remote=remote,
        )
        self._pool.on_message = self._handle
        self._pool.on_lost = self._take_over
        self._pool.on_welcome = self._announce_streams

        def patience(index: int) -> Patience:
            # What a process of another machine does cannot be seen from here.
            is_at_work = partial(is_busy, index) if index < num_samplers else lambda: False
            return Patience(connect_timeout_s, setup_timeout_s, is_at_work)

        try:
            self._pool.await_all(patience, has_ended, on_late)
        except BaseException:
            self._pool.close()
            raise

    # Streams.

    def open(self, spec: StreamSpec, owners: np.ndarray | None = None) -> int:
        """Asks the samplers for a stream, and returns its number. ``owners``, int64, has for each step of the epoch the
        one of ``num_owners`` samplers that holds its part of the graph; one that counts so on any machine makes it,
        unless they are lost or late. None: any sampler does."""
        self._check_process()
        self._pool.reconnect()
        number = next(self._numbers)
        self._streams[number] = Scheduler(spec, self._pool.num_trainers, owners)
        self._depth(number).begin()
        # One that has just come back has not said welcome yet: when it does, _announce_streams() tells it.
        for peer in self._pool.alive:
            self._announce(number, peer)
        self._deal()
        return number

    def take(self, number: int, step: int) -> tuple[MiniBatch, Payload] | None:
        """Waits for the mini-batch of a stream's step, and returns it in its slot; None where no sampler is left to
        make it. Steps are taken in order.

        The slot goes back with the next call after its last tensor is gone. A consumer that keeps batches (predictions
        that are views of one) gets copies once the slots run low, so that samplers never starve. From a sampler's
        device, the batch is a copy on this trainer's, for later work of the current stream.

        Raises PeerError when another trainer ended, or without ``takeover`` a sampler (with its rank, stage and
        reason); QueueStalledError without ``takeover`` when nothing came within ``stall_timeout_s``.
        """
        self._check_process()
        scheduler = self._streams[number]
        scheduler.next_step = step
        self._pool.free_returned()
        asked_s, fill = time.monotonic(), self._fill(number)
        if (number, step) not in self._inbox:
            self._pool.finish_copies()  # samplers may be waiting for these slots
        while (number, step) not in self._inbox:
            if not self._pool.alive:
                return None
            self.on_wait()
            # Tensors may have gone in other threads: the sampler may need their slots to make this step.
            self._deal(awaited=number)
            self._listen(min(_POLL_S, self.stall_timeout_s, scheduler.poll_s))
        self._blind_s *= _FORGETS
        self._adapt(number, fill, asked_s, time.monotonic() - asked_s)
        peer, slot, payload = self._inbox.pop((number, step))
        scheduler.next_step = step + 1
        batch = peer.lend(slot, payload)
        # The consumer has as many of this sampler's slots as a stream may have out: kept, this one would starve it.
        if peer.num_lent >= self._depth(number).depth:
            batch = batch.clone()
            self._deal()
        return batch, payload

    def has_come(self, number: int, step: int) -> bool:
        """Whether a step can be taken without waiting."""
        return (number, step) in self._inbox

    def skip(self, number: int, step: int) -> None:
        """Skips a step, whose mini-batch nobody needs; its slot goes back now, or when the batch comes."""
        self._check_process()
        self._streams[number].next_step = step + 1
        if (number, step) in self._inbox:
            peer, slot, _ = self._inbox.pop((number, step))
            peer.free(slot)

    def fill(self, number: int) -> QueueFill:
        """Returns how full a stream's queue is. Handles the messages that have come first, so that they count."""
        self._check_process()
        while self._listen(0):
            pass
        self._deal()
        return self._fill(number)

    def close_stream(self, number: int) -> None:
        """Tells the samplers to make no more of it, and gives back what came unasked."""
        if self._pid != os.getpid():
            return  # what a fork drops, its parent goes on with
        del self._streams[number]
        # Also to those that sample no more, and to those yet to say welcome; who does not know the stream ignores it.
        for peer in self._pool.peers:
            peer.send("close", stream=number)
        for key in [key for key in self._inbox if key[0] == number]:
            peer, slot, _ = self._inbox.pop(key)
            peer.free(slot)

    def _check_process(self) -> None:
        check_process(self._pid, "The queue of mini-batches")

    # Depth.

    def _fill(self, number: int) -> QueueFill:
        alive = self._pool.alive
        ready = [stream for stream, _ in self._inbox].count(number)
        num_lent = sum([peer.num_lent for peer in alive])
        return QueueFill(ready, num_lent, self._depth(number).depth * len(alive))

    def _depth(self, number: int) -> QueueDepth:
        spec = self._streams[number].spec
        return self._depths.setdefault((spec.phase, spec.loader), QueueDepth(self.queue_depth))

    def _adapt(self, number: int, fill: QueueFill, asked_s: float, wait_s: float) -> None:
        """Lets the depth follow what a step has seen."""
        stream, alive = self._streams[number], self._pool.alive
        # At a stream's end there are no more steps to make ahead.
        if self.queue_memory_bytes is None or not alive or stream.spec.stop - stream.next_step < fill.slots:
            return
        depth = self._depth(number)
        before = depth.depth
        after = depth.after_step(
            ready=fill.ready,
            is_full=fill.ready + fill.lent >= fill.slots - 1,
            asked_s=asked_s,
            wait_s=wait_s,
            num_samplers=len(alive),
            least=LEAST + max(peer.num_lent for peer in alive),
            most=depth_within(self.queue_memory_bytes, self._slot_bytes, self.num_trainers * self.num_samplers),
        )
        if after > before:
            self._deal()

    # Messages.

    @property
    def alive(self) -> list[int]:
        """Indices of the samplers that make mini-batches."""
        return [peer.index for peer in self._pool.alive]

    @property
    def gone(self) -> list[int]:
        """Ranks of the samplers that have no process any more."""
        return self._pool.gone

    @property
    def report(self) -> PeerError | None:
        """The error that the last failed sampler reported, with its traceback."""
        return self._pool.report

    def send(self, index: int, message: str, fds: tuple[int, ...] = (), **fields: Any) -> None:
        """Sends a message to a sampler; does nothing for one that is gone."""
        self._pool.peers[index].send(message, fds, **fields)

    def pump(self, timeout_s: float) -> bool:
        """Handles one message of each sampler that sent any, waits for the first up to ``timeout_s``, and returns
        whether there was one.

        Raises PeerError when another trainer has ended (without ``takeover``: or a sampler), QueueProtocolError for a
        message that is none.
        """
        has_heard = self._listen(timeout_s)
        self._deal()
        return has_heard

    def failure_behind(self, timeout_s: float = 1.0) -> PeerError | None:
        """Finds the reason why a collective has failed, if it can be known (another trainer's end, say)."""
        return self._pool.failure_behind(timeout_s)

    def goodbye(self, outcome: MemoryFile | None = None, failure: Failure | None = None) -> None:
        """Tells the samplers that the job ends, with its outcome (which it closes) or with a failure."""
        self._pool.goodbye(outcome, failure)

    def _handle(self, peer: SamplerPeer, message: Message, fds: list[int]) -> bool:
        if message["kind"] == "batch":
            self._keep(peer, message, fds)
        elif message["kind"] == "opening":
            pass  # that it was heard is all there is to it
        elif message["kind"] == "opened":
            scheduler = self._streams.get(message["stream"])
            if scheduler is not None and peer in scheduler.workers:
                scheduler.workers[peer].num_threads, scheduler.workers[peer].has_opened = (
                    max(message["threads"], 1),
                    True,
                )
        elif message["kind"] in self.handlers:
            self.handlers[message["kind"]](peer.index, message, fds)
        else:
            return False
        return True

    def _keep(self, peer: SamplerPeer, message: Message, fds: list[int]) -> None:
        # Also for a batch that nobody wants any more: a slot's memory is sent once, and must not be missed.
        if not peer.fill(message, fds, pinned=self.pinned, reader=self.reader):
            return
        self._slot_bytes = max(self._slot_bytes, message["slot_bytes"])
        clock_s = 0.0 if peer.channel is None else peer.channel.clock_s
        number, step, payload = message["stream"], message["step"], Payload.from_json(message["payload"], clock_s)
        if number in self._streams:
            self._streams[number].came(peer, step, began_s=payload.timing.began_s, made_s=payload.timing.made_s)
        if self._has(number, step):
            peer.free(message["slot"])
        else:
            self._inbox[number, step] = (peer, message["slot"], payload)

    def _has(self, number: int, step: int) -> bool:
        """Whether a step's mini-batch has come, or is no longer needed."""
        stream = self._streams.get(number)
        return stream is None or step < stream.next_step or (number, step) in self._inbox

    def _listen(self, timeout_s: float) -> bool:
        """Handles one message of each sampler that sent any, and gives up samplers that are silent with steps due."""
        blind_s = time.monotonic() - self._listened_at
        self._blind_s = max(self._blind_s, blind_s)
        for peer in self._pool.alive:
            # A step may take long, and this process may have been stopped with the whole job: little of that counts.
            peer.heard_at += max(blind_s - _POLL_S, 0)
        try:
            has_heard = self._pool.pump(timeout_s)
        finally:
            self._listened_at = time.monotonic()
        for peer in self._pool.alive:
            if (
                self._listened_at - peer.heard_at > self.stall_timeout_s
                and (overdue := self._due_from(peer)) is not None
            ):
                self._pool.lose_stalled(peer, overdue)
        return has_heard

    def _deal(self, awaited: int = -1) -> None:
        """Asks the samplers for what they have room for; the next step of stream ``awaited`` is waited for."""
        self._pool.free_returned()
        now = time.monotonic()
        for number, scheduler in self._streams.items():
            depth = self._depth(number).depth
            room = {
                peer: depth - len(worker.due) - peer.num_filled(number) for peer, worker in scheduler.workers.items()
            }
            dealt: dict[SamplerPeer, list[int]] = {}
            owing = [peer for peer in room if self._due_from(peer) is not None]
            for peer, step in scheduler.deal(room, now=now, blind_s=self._blind_s, is_awaited=number == awaited):
                dealt.setdefault(peer, []).append(step)
            for peer, steps in dealt.items():
                if peer not in owing:
                    peer.heard_at = now
                peer.deal(number, steps)
        for peer in self._pool.peers:
            peer.deal()

    # Samplers that come and go.

    def _take_over(self, lost: SamplerPeer) -> None:
        for number, scheduler in self._streams.items():
            worker = scheduler.workers.pop(lost, None)
            for step in () if worker is None else worker.due:
                if not self._has(number, step):
                    scheduler.give_back(step)
        for key in [key for key, (peer, slot, _) in self._inbox.items() if peer is lost and peer.is_on_device(slot)]:
            lost.free(self._inbox.pop(key)[1])  # its device's memory ends with it, unseen: they are made again
            self._streams[key[0]].give_back(key[1])
        for callback in self.lost:
            callback(lost.index)

    def _announce_streams(self, peer: SamplerPeer) -> None:
        """Announces the open streams to a sampler that joins later and may have to take over steps."""
        for number in self._streams:
            self._announce(number, peer)

    def _announce(self, number: int, peer: SamplerPeer) -> None:
        scheduler = self._streams[number]
        if self._due_from(peer) is None:
            peer.heard_at = time.monotonic()
        batch_time = peer.batch_times.setdefault((scheduler.spec.phase, scheduler.spec.loader), BatchTime())
        scheduler.workers[peer] = WorkerState(batch_time, owner=peer.index % self.num_owners)
        peer.send("open", stream=number, **vars(scheduler.spec))

    def _due_from(self, peer: SamplerPeer) -> str | None:
        """Returns what is due from a sampler, for messages, or None."""
        workers = {
            number: scheduler.workers[peer] for number, scheduler in self._streams.items() if peer in scheduler.workers
        }
        if due := [(self._has(number, step), step) for number, worker in workers.items() for step in worker.due]:
            return f"step {min(due)[1]}"
        # Others may wait for it, though it is asked for no step: samplers that share a cache fill it together.
        return None if all(worker.has_opened for worker in workers.values()) else "opening"
