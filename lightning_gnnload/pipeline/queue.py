"""BatchQueue: the trainer's end of the queue between the ranks, and the loader that reads from it."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.errors import PeerError, QueueProtocolError, QueueStalledError
from lightning_gnnload.pipeline import wire
from lightning_gnnload.pipeline.failure import Failure
from lightning_gnnload.pipeline.loader import Convert, EpochLoader
from lightning_gnnload.pipeline.loans import Loans
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource, Payload
from lightning_gnnload.pipeline.stats import Delivery, Fill
from lightning_gnnload.pipeline.streams import StreamSpec

_POLL_S = 1.0
_GOODBYE_S = 2.0
_LAST_GOODBYE_S = 3.0  # in failure: a batch in the making ends first


class _Sampler:
    """One sampler, as a trainer sees it."""

    def __init__(self, channel: wire.Channel, rank: int) -> None:
        self.channel = channel
        self.rank = rank
        self.slots: dict[int, Slot] = {}
        self.loans: Loans[int] = Loans()  # by slot number


class BatchQueue:
    """Connections of one trainer to all samplers of its machine.

    Used by one thread. The batches that it hands out may go to any, and end in any.

    Args:
        job: name that the ranks of this job share.
        trainer: local index of this trainer.
        rank: its global rank.
        num_samplers: samplers of this machine.
        queue_depth: slots that a stream may have out at each sampler.
        connect_timeout_s: how long to wait for a sampler to start.
        stall_timeout_s: how long to wait for a mini-batch while all samplers live.
        pinned: page-lock the slots on this side, for asynchronous copies to a CUDA device.

    Raises:
        SamplerDiedError: a sampler did not start.
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
        pinned: bool = False,
    ) -> None:
        self.queue_depth = queue_depth
        self.stall_timeout_s = stall_timeout_s
        self.pinned = pinned
        self._samplers: list[_Sampler] = []
        self._streams = itertools.count()
        self._inbox: dict[tuple[int, int], tuple[_Sampler, int, Payload]] = {}
        self._open: set[int] = set()
        for index in range(num_samplers):
            channel = wire.connect(job, index, connect_timeout_s)
            channel.send("hello", version=wire.PROTOCOL_VERSION, trainer=trainer, rank=rank)
            if not wire.readable([channel], connect_timeout_s):
                raise self._stalled(index, "start", connect_timeout_s)
            message, _ = self._receive(_Sampler(channel, -1))
            if message["kind"] != "welcome" or message["version"] != wire.PROTOCOL_VERSION:
                raise QueueProtocolError(
                    f"sampler {index} answered {message!r:.200} instead of welcome. Do all ranks run one release?"
                )
            self._samplers.append(_Sampler(channel, message["rank"]))

    def open(self, spec: StreamSpec) -> int:
        """Asks all samplers for a stream; returns its number."""
        stream = next(self._streams)
        self._open.add(stream)
        for sampler in self._samplers:
            self._send(sampler, "open", stream=stream, **vars(spec))
        return stream

    def take(self, stream: int, step: int) -> tuple[MiniBatch, Payload]:
        """The mini-batch of a step, in the slot it was written to; waits for it.

        The slot goes back when the last tensor over it is gone, with the next call. Someone who hoards batches
        (predictions that are views of one) gets copies once the slots run low, so that the samplers never starve.

        Raises:
            PeerError: a sampler or another trainer ended; the message says which rank, in which stage, and why.
            QueueStalledError: no batch came within ``stall_timeout_s``.
        """
        deadline = time.monotonic() + self.stall_timeout_s
        self._return_slots()
        while (stream, step) not in self._inbox:
            self._pump(_POLL_S)
            self._return_slots()
            if time.monotonic() > deadline:
                raise self._stalled(
                    self._samplers[step % len(self._samplers)].rank, f"step {step}", self.stall_timeout_s
                )
        sampler, slot, payload = self._inbox.pop((stream, step))
        batch = payload.view(sampler.loans.lend(sampler.slots[slot], slot))
        if len(sampler.loans) >= self.queue_depth:
            batch = batch.clone()
            self._return_slots()
        return batch, payload

    def fill(self, stream: int) -> Fill:
        """How full the queue is. Receives what has come, so that it counts."""
        self._return_slots()
        while self._pump(0):
            pass
        ready = sum(number == stream for number, _ in self._inbox)
        held = sum(len(sampler.loans) for sampler in self._samplers)
        return Fill(ready, held, self.queue_depth * len(self._samplers))

    def close_stream(self, stream: int) -> None:
        """Tells the samplers to make no more of it, and gives back what came unasked."""
        self._open.discard(stream)
        for sampler in self._samplers:
            with suppress(OSError):  # a sampler that is gone makes no more anyway
                sampler.channel.send("close", stream=stream)
        for key in [key for key in self._inbox if key[0] == stream]:
            sampler, slot, _ = self._inbox.pop(key)
            self._free(sampler, slot)

    def failure_behind(self, timeout_s: float = 1.0) -> PeerError | None:
        """After a collective has failed: the reason, if a sampler knows it (another trainer's end, say)."""
        deadline = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline:
                self._pump(0.1)
        except PeerError as error:
            return error
        return None

    def goodbye(self, outcome: dict[str, Any] | None = None, failure: Failure | None = None) -> None:
        """Parts from the samplers, in peace or in failure."""
        for sampler in self._samplers:
            with suppress(OSError):
                if failure is None:
                    sampler.channel.send("bye", outcome=outcome or {})
                else:
                    sampler.channel.send("failed", **failure.to_json())
            sampler.channel.finish()
        for sampler in self._samplers:
            sampler.channel.drain(_GOODBYE_S if failure is None else _LAST_GOODBYE_S)
            if failure is not None and not wire.readable([sampler.channel], 0):
                _kill(sampler.channel.peer_pid)  # it is stopped, or amid something long, and the job is over
            sampler.channel.close()
            for slot in sampler.slots.values():
                slot.close()
            sampler.slots.clear()  # a strategy keeps its queue, which must not keep the mappings

    def _pump(self, timeout_s: float) -> bool:
        """Receives a message of each sampler that sent one, waiting for some at most so long; whether there was one."""
        by_channel = {sampler.channel: sampler for sampler in self._samplers}
        readable = wire.readable(list(by_channel), timeout_s)
        for channel in readable:
            sampler = by_channel[channel]
            message, fds = self._receive(sampler)
            if message["kind"] != "batch":
                raise QueueProtocolError(f"sampler rank {sampler.rank} sent {message['kind']!r} in mid-stream")
            slot = message["slot"]
            if fds:
                if slot in sampler.slots:
                    os.close(fds[0])
                    raise QueueProtocolError(f"sampler rank {sampler.rank} sent the memory of slot {slot} twice")
                sampler.slots[slot] = Slot(message["slot_bytes"], fds[0], pinned=self.pinned)
            elif slot not in sampler.slots:
                raise QueueProtocolError(f"sampler rank {sampler.rank} named slot {slot}, whose memory it never sent")
            elif message["slot_bytes"] > sampler.slots[slot].num_bytes:
                sampler.slots[slot].remap()
            if message["stream"] in self._open:
                self._inbox[message["stream"], message["step"]] = (
                    sampler,
                    slot,
                    Payload.from_json(message["payload"]),
                )
            else:  # it was on its way when the stream was closed
                self._free(sampler, slot)
        return bool(readable)

    def _receive(self, sampler: _Sampler) -> tuple[wire.Message, list[int]]:
        try:
            message, fds = sampler.channel.receive()
        except EOFError:
            raise Failure(
                "sampler", sampler.rank, True, "sample", "Its connection closed without a goodbye."
            ).error() from None
        if message["kind"] == "failed":
            raise Failure.from_message(message).error()
        return message, fds

    def _send(self, sampler: _Sampler, kind: str, **fields: Any) -> None:
        try:
            sampler.channel.send(kind, **fields)
        except OSError:
            while True:  # its last words, which say why, are still to be read
                self._receive(sampler)

    def _return_slots(self) -> None:
        for sampler in self._samplers:
            for slot in sampler.loans.returned():
                self._free(sampler, slot)

    def _free(self, sampler: _Sampler, slot: int) -> None:
        with suppress(OSError):  # the queue was closed, or the sampler is gone: there is nobody to tell
            sampler.channel.send("free", slot=slot)

    def _stalled(self, sampler: int, doing: str, timeout_s: float) -> QueueStalledError:
        return QueueStalledError(
            f"nothing came from sampler rank {sampler} for {timeout_s:.0f} s ({doing}), although it is connected. "
            f"It may be stopped, or swapping. If a batch really takes so long, "
            f"raise FactoredStrategy(stall_timeout_s=...)."
        )


def _kill(pid: int) -> None:
    if pid != os.getpid():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class QueueLoader(EpochLoader):
    """Stands in for a SampledLoader on a trainer: the same mini-batches, made by the samplers.

    Args:
        queue: this trainer's end of the queue.
        source: the phase's mini-batches; only their number is used here.
        phase: ``"train"``, ``"val"``, ``"test"`` or ``"predict"``.
        loader: which of the phase's loaders this is.
        num_ranks: trainers that share each step.
        rank: this trainer.
        convert: makes of a MiniBatch what the model expects.
        reload: counts how often Lightning asked for the loaders anew.
        limit: how many steps will be read at most, once that is known.
    """

    def __init__(
        self,
        queue: BatchQueue,
        source: BatchSource,
        *,
        phase: str,
        loader: int,
        num_ranks: int,
        rank: int,
        convert: Convert,
        reload: int,
        limit: Callable[[], float],
    ) -> None:
        super().__init__(source, num_ranks, rank)
        self.queue = queue
        self.phase = phase
        self.loader = loader
        self.convert = convert
        self.reload = reload
        self.limit = limit

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        stop = int(min(len(self), self.limit()))
        stream = self.queue.open(StreamSpec(self.phase, self.loader, self.reload, epoch, start, stop))
        is_open = True
        try:
            for step in range(start, stop):
                fill = self.queue.fill(stream)
                asked_s = time.monotonic()
                batch, payload = self.queue.take(stream, step)
                taken_s = time.monotonic()
                converted = [self.convert(batch)]
                del batch  # else it would stay while the consumer works, and its slot with it
                convert_s = (taken_s, time.monotonic())
                self._note(Delivery.of(payload, step, asked_s=asked_s, taken_s=taken_s, convert_s=convert_s, fill=fill))
                if step == stop - 1:
                    # Lightning asks a sized loader for no batch after the last: there is no later moment.
                    self.queue.close_stream(stream)
                    is_open = False
                yield converted.pop()
        finally:
            if is_open:
                self.queue.close_stream(stream)
