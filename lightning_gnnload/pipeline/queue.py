"""BatchQueue: the trainer's end of the queue between samplers and trainers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Container, Iterable
from typing import Any

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.memfd import MemoryFile
from lightning_gnnload.errors import PeerError
from lightning_gnnload.pipeline.depth import LEAST, QueueDepth, depth_within
from lightning_gnnload.pipeline.device_slots import DeviceReader
from lightning_gnnload.pipeline.failure import Failure
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.sampler_peer import SamplerPeer
from lightning_gnnload.pipeline.sampler_pool import SamplerPool
from lightning_gnnload.pipeline.stats import QueueFill
from lightning_gnnload.pipeline.streams import ReadStream, StreamSpec
from lightning_gnnload.pipeline.wire import Message

_POLL_S = 1.0  # how often a wait looks for slots that came back, and for samplers that stalled


class BatchQueue:
    """The trainer's end of the queue: hands out one trainer's mini-batches from all samplers of its machine.

    The trainer shares a stream's steps out among the samplers. When it loses one, it shares what that one still owed
    out among the others: mini-batches are pure functions, so trainers need not agree, and a step that comes twice is
    the same twice. Used by one thread. The batches that it hands out may go to any, and end in any.

    Args:
        job: name that the ranks of this job share.
        trainer: local index of this trainer.
        rank: its global rank.
        num_samplers: samplers of this machine.
        queue_depth: slots that a stream may have out at each sampler; to begin with, where these follow the waits.
        connect_timeout_s: how long to wait for a sampler to start.
        stall_timeout_s: how long to wait for a mini-batch that a sampler owes.
        first_sampler_rank: global rank of the machine's first sampler; the others follow.
        num_trainers: trainers of this machine.
        takeover: go on without a sampler that is lost; else its loss is raised.
        has_ended: whether a sampler's process is known to have ended, so that it need not be waited for.
        on_late: called with the index of a sampler that did not start in time.
        known_gone: ranks of samplers whose loss has been told in an earlier launch.
        pinned: page-lock the slots on this side, for asynchronous copies to a CUDA device.
        reader: this trainer's device, where samplers may send mini-batches in the memory of theirs.
        queue_memory_bytes: lets the depth follow the waits (:class:`.QueueDepth`), while all queues of the machine take
            no more than this; None keeps it.

    Attributes:
        handlers: for kinds of messages that others add to ``wire.KINDS``; called with the sampler's index, the
            message, and file descriptors that the handler then owns.
        lost: called with the index of a sampler that is lost. A sampler that comes back is not announced.
        on_wait: called each second in which a mini-batch is waited for; what it raises ends the wait.

    Raises:
        SamplerDiedError: a sampler did not start, without ``takeover``.
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
        on_late: Callable[[int], None] = lambda sampler: None,
        known_gone: Container[int] = (),
        pinned: bool = False,
        reader: DeviceReader | None = None,
        queue_memory_bytes: int | None = None,
    ) -> None:
        self.num_samplers = num_samplers
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
        self._streams: dict[int, ReadStream] = {}
        self._inbox: dict[tuple[int, int], tuple[SamplerPeer, int, Payload]] = {}
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
        )
        self._pool.on_message = self._handle
        self._pool.on_lost = self._take_over
        self._pool.on_welcome = self._announce_streams
        try:
            self._pool.await_all(connect_timeout_s, has_ended, on_late)
        except BaseException:
            self._pool.close()
            raise

    # Streams.

    def open(self, spec: StreamSpec) -> int:
        """Asks the samplers for a stream; returns its number."""
        self._pool.call_lost()
        number = next(self._numbers)
        self._streams[number] = ReadStream(spec, spec.start)
        self._depth(number).begin()
        # One that has just come back has not said welcome yet: when it does, _announce_streams() tells it.
        for peer in self._pool.alive:
            self._announce(number, peer)
        self._share(number, [range(spec.start, spec.stop)], more_slots=0)
        return number

    def take(self, number: int, step: int) -> tuple[MiniBatch, Payload] | None:
        """Waits for the mini-batch of a stream's step, and returns it in its slot. Steps are taken in order.

        The slot goes back when the last tensor over it is gone, with the next call. Someone who hoards batches
        (predictions that are views of one) gets copies once the slots run low, so that the samplers never starve.

        From a sampler's device, it is a copy on this trainer's, which later work of the current stream may read.

        Returns:
            None where no sampler is left to make it.

        Raises:
            PeerError: another trainer ended, or without ``takeover`` a sampler; the message says which rank, in
                which stage, and why.
            QueueStalledError: without ``takeover``: nothing came within ``stall_timeout_s``.
        """
        self._streams[number].next_step = step
        self._pool.free_returned()
        asked_s = asked_at = time.monotonic()
        found = self._fill(number)
        if (number, step) not in self._inbox:
            self._pool.finish_copies()  # samplers may be waiting for these slots
        while (number, step) not in self._inbox:
            if not self._pool.alive:
                return None
            self.on_wait()
            looked_at = time.monotonic()
            self.pump(min(_POLL_S, self.stall_timeout_s))
            if time.monotonic() - looked_at > 2 * _POLL_S:
                asked_at = time.monotonic()  # this process was stopped, perhaps with the whole job: none was heard
            # Tensors may have gone in other threads: the sampler may need their slots to make this step.
            self._pool.free_returned()
            self._find_stalled(number, asked_at)
        self._adapt(number, found, asked_s, time.monotonic() - asked_s)
        peer, slot, payload = self._inbox.pop((number, step))
        self._streams[number].next_step = step + 1
        batch = peer.lend(slot, payload)
        # The consumer has as many of this sampler's slots as a stream may have out: kept, this one would starve it.
        if peer.num_lent >= self._depth(number).depth:
            batch = batch.clone()
            self._pool.free_returned()
        return batch, payload

    def has_come(self, number: int, step: int) -> bool:
        """Whether a step can be taken without waiting."""
        return (number, step) in self._inbox

    def skip(self, number: int, step: int) -> None:
        """Passes over a step, whose mini-batch nobody wants; its slot goes back now, or when the batch comes."""
        self._streams[number].next_step = step + 1
        if (number, step) in self._inbox:
            peer, slot, _ = self._inbox.pop((number, step))
            peer.free(slot)

    def fill(self, number: int) -> QueueFill:
        """Returns how full a stream's queue is. Handles the messages that have come first, so that they count."""
        self._pool.free_returned()
        while self.pump(0):
            pass
        return self._fill(number)

    def close_stream(self, number: int) -> None:
        """Tells the samplers to make no more of it, and gives back what came unasked."""
        del self._streams[number]
        # Also to those that sample no more, and to those yet to say welcome; who does not know the stream ignores it.
        for peer in self._pool.peers:
            peer.send("close", stream=number)
            peer.shares.pop(number, None)
            peer.opened.discard(number)
        for key in [key for key in self._inbox if key[0] == number]:
            peer, slot, _ = self._inbox.pop(key)
            peer.free(slot)

    # Depth.

    def _fill(self, number: int) -> QueueFill:
        alive = self._pool.alive
        ready = sum(stream == number for stream, _ in self._inbox)
        return QueueFill(ready, sum(peer.num_lent for peer in alive), self._depth(number).depth * len(alive))

    def _depth(self, number: int) -> QueueDepth:
        spec = self._streams[number].spec
        return self._depths.setdefault((spec.phase, spec.loader), QueueDepth(self.queue_depth))

    def _adapt(self, number: int, found: QueueFill, asked_s: float, wait_s: float) -> None:
        """Lets the depth follow what a step has found."""
        stream, alive = self._streams[number], self._pool.alive
        # At a stream's end there are no more steps to make ahead.
        if self.queue_memory_bytes is None or not alive or stream.spec.stop - stream.next_step < found.slots:
            return
        depth = self._depth(number)
        before = depth.depth
        after = depth.after_step(
            ready=found.ready,
            is_full=found.ready + found.held >= found.slots - 1,
            asked_s=asked_s,
            wait_s=wait_s,
            num_samplers=len(alive),
            least=LEAST + max(peer.num_lent for peer in alive),
            most=depth_within(self.queue_memory_bytes, self._slot_bytes, self.num_trainers * self.num_samplers),
        )
        for peer in alive if after != before else ():
            peer.send("depth", stream=number, slots=after - before)

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
        """The error that the last sampler that raised has reported, with its traceback."""
        return self._pool.report

    def send(self, index: int, kind: str, fds: tuple[int, ...] = (), **fields: Any) -> None:
        """Sends a message to a sampler; does nothing for one that is gone."""
        self._pool.peers[index].send(kind, fds, **fields)

    def pump(self, timeout_s: float) -> bool:
        """Handles one message of each sampler that sent any, waiting for the first at most so long.

        Returns:
            Whether there was one.

        Raises:
            PeerError: another trainer has ended, or without ``takeover`` a sampler.
            QueueProtocolError: a sampler sent what it must not.
        """
        return self._pool.pump(timeout_s)

    def failure_behind(self, timeout_s: float = 1.0) -> PeerError | None:
        """Finds the reason why a collective has failed, if it can be known (another trainer's end, say)."""
        return self._pool.failure_behind(timeout_s)

    def goodbye(self, outcome: MemoryFile | None = None, failure: Failure | None = None) -> None:
        """Says goodbye to the samplers, or tells them of a failure; sends them the outcome, and closes it."""
        self._pool.goodbye(outcome, failure)

    def _handle(self, peer: SamplerPeer, message: Message, fds: list[int]) -> bool:
        if message["kind"] == "batch":
            self._keep(peer, message, fds)
        elif message["kind"] == "opening":
            pass  # that it was heard is all there is to it
        elif message["kind"] == "opened":
            peer.opened.add(message["stream"])
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
        number, step = message["stream"], message["step"]
        if self._has(number, step):
            peer.free(message["slot"])
        else:
            self._inbox[number, step] = (peer, message["slot"], Payload.from_json(message["payload"]))

    def _has(self, number: int, step: int) -> bool:
        """Whether a step's mini-batch has come, or is not wanted any more."""
        stream = self._streams.get(number)
        return stream is None or step < stream.next_step or (number, step) in self._inbox

    # Samplers that come and go.

    def _share(self, number: int, owed: Iterable[range], *, more_slots: int) -> None:
        """Asks the living samplers for steps, each for its part of every range."""
        peers = self._pool.alive
        owed = list(owed)
        if not peers:
            self._streams[number].orphans += owed
        for place, peer in enumerate(peers):
            parts = [part for steps in owed if (part := steps[place :: len(peers)])]
            if parts:
                peer.shares.setdefault(number, []).extend(parts)
                # All at once, as the slots are for the first step of all: one that knew but some could fill them with
                # later ones, and the first would never be made.
                ranges = [[part.start, part.stop, part.step] for part in parts]
                peer.send("share", stream=number, ranges=ranges, slots=more_slots)

    def _take_over(self, lost: SamplerPeer) -> None:
        for key in [key for key, (peer, slot, _) in self._inbox.items() if peer is lost and peer.is_on_device(slot)]:
            lost.free(self._inbox.pop(key)[1])  # its device's memory ends with it, unseen: they are made again
        # An heir's slots may all hold what is needed later than what it inherits, or be held by the consumer, who may
        # have all but one of ``queue_depth``: with as many more, there is always one for the step that is needed next.
        for number in self._streams:
            self._share(number, self._owed(lost, number), more_slots=self._depth(number).depth)
        lost.shares.clear()
        for callback in self.lost:
            callback(lost.index)

    def _announce_streams(self, peer: SamplerPeer) -> None:
        """Announces the open streams to a sampler that comes in mid-stream, which may have to take steps over."""
        for number, stream in self._streams.items():
            self._announce(number, peer)
            orphans, stream.orphans = stream.orphans, []
            self._share(number, orphans, more_slots=0)

    def _announce(self, number: int, peer: SamplerPeer) -> None:
        peer.send("open", stream=number, **vars(self._streams[number].spec))
        if more := self._depth(number).depth - self.queue_depth:
            peer.send("depth", stream=number, slots=more)

    def _owed(self, peer: SamplerPeer, number: int) -> list[range]:
        """Returns what has not come of a sampler's shares, each range from its first such step."""
        owed = []
        for steps in peer.shares.get(number, ()):
            while steps and self._has(number, steps[0]):
                steps = steps[1:]
            if steps:
                owed.append(steps)
        return owed

    def _find_stalled(self, number: int, asked_at: float) -> None:
        """Gives up the samplers that owe something and have been silent for too long."""
        now = time.monotonic()
        for peer in self._pool.alive:
            # Nothing is read between two calls, however long a step takes: silence counts from when this one asked.
            if now - max(asked_at, peer.heard_at) <= self.stall_timeout_s:
                continue
            # It is not waiting for a slot: steps get theirs in order, and an heir gets more for what it inherits. Later
            # steps may have come from it all the same, made by its other threads.
            if owed := self._owed(peer, number):
                self._pool.lose_stalled(peer, f"step {min(steps[0] for steps in owed)}")
            elif number not in peer.opened:
                # Others may wait for it, though it is asked for no step: samplers that share a cache fill it together.
                self._pool.lose_stalled(peer, "opening")
