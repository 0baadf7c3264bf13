"""Mini-batches on the device that trains on them: made there, or brought from samplers and completed there.

A sampling thread gives its work to a side stream of its own: draws, then gathers. The host waits there once a batch,
when the draws are done, to learn how much was drawn; now and then also for what was read from where. The consumer's
stream waits for the batch's event, and the host for nothing. No thread starts a batch before the consumer's stream has
begun the step before the last one: however far the host runs ahead of the device, no more than three batches lie there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.features import Reads, byte_rows, summed_reads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.pipeline.device_tables import DeviceTable
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.source import BatchSource, Draws, timed
from lightning_gnnload.pipeline.stats import Making
from lightning_gnnload.sample.rows import SeedBatch

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device, Event
    from lightning_gnnload.ops.cuda.sample import DeviceSample
    from lightning_gnnload.pipeline.queue import BatchQueue

_COUNTED_EVERY = 64


class MadeOnDevice(NamedTuple):
    """A mini-batch that was made on a device, with its cost.

    Attributes:
        payload: what it took.
        batch: what the model expects; not for use before ``ready``.
        convert_s: when turning it into that began and ended.
        ready: when the device is done with it.
        maker: what made it. It comes with the batch, as a loader that kept one would keep the device's memory beyond
            the fit.
    """

    payload: Making
    batch: Any
    convert_s: tuple[float, float]
    ready: Event
    maker: FeatureFetcher

    def hand_over(self) -> Any:
        """Returns the batch for work in the current stream. The host does not wait."""
        return self.maker.hand_over(self.batch, self.ready)


class FeatureFetcher:
    """Gathers the features of mini-batches on a device, on side streams.

    Args:
        source: the phase's mini-batches; its workload and labels are used, not its stores.
        tables: by name: ``"x"`` and those of ``source.data.tables``. Phases may share them; what they read is then
            counted together, by whichever comes to count.
        device: where mini-batches come to lie.
    """

    def __init__(self, source: BatchSource, tables: Mapping[str, DeviceTable], device: Device) -> None:
        self.source = source
        self.tables = dict(tables)
        self.device = device
        self._handed: deque[Event] = deque(maxlen=2)  # when the device begins the last two steps that it was given

    def _complete(self, batch: MiniBatch) -> MiniBatch:
        """Returns the mini-batch with its features."""
        stores, tables = self.source.data.stores, dict[str, torch.Tensor]()
        of_some = {name: each for name, each in self.source.data.tables.items() if isinstance(each, NodeTable)}
        positions = self._positions(batch.nodes, of_some)
        for name, table in self.tables.items():
            ids = batch.nodes
            if name in positions:
                ids = ids[positions[name]] - of_some[name].first
            tables[name] = table.gather(ids).view(ids.numel(), *stores[name].row_shape)
        return replace(batch, x=tables.pop("x", None), tables=tables, positions=positions)

    def _positions(self, nodes: torch.Tensor, tables: dict[str, NodeTable]) -> dict[str, torch.Tensor]:
        """Finds which of the nodes tables of some nodes have rows for, int64 ``[M]``, ascending, by their names. Where
        there are such tables, the host waits to learn how many these are."""
        if not tables:
            return {}
        ranges = np.array([[table.nodes.start, table.nodes.stop] for table in tables.values()], np.int64)
        first, last = (self.device.put(ends[:, None]) for ends in ranges.T)
        are_there = (nodes >= first) & (nodes < last)
        counts = self.device.read(are_there.sum(1)).tolist()
        # Those that are not go behind the last.
        places = torch.where(are_there, are_there.cumsum(1) - 1, len(nodes))
        numbers = torch.arange(len(nodes), device=nodes.device)
        return {
            name: nodes.new_empty(len(nodes) + 1).scatter_(0, place, numbers)[:count]
            for name, place, count in zip(tables, places, counts, strict=True)
        }

    def hand_over(self, batch: Any, ready: Event) -> Any:
        """Returns the batch for work in the current stream, which waits until it is ready. The host does not."""
        ready.wait()
        if self.device.torch_device.type == "cuda":
            keep_for(batch, torch.cuda.current_stream(self.device.torch_device))
        # Recorded after the wait: it happens when the device begins this step, not when the host hands it over.
        self._handed.append(self.device.record())
        return batch


class DeviceBatches(FeatureFetcher):
    """Makes mini-batches on a device, equal to those that ``source`` makes on the host. Thread-safe.

    Args:
        source: as :class:`FeatureFetcher` has it.
        draws: draws them.
        tables: as :class:`FeatureFetcher` has them.
        device: likewise.
        convert: makes of a MiniBatch what the model expects.
        max_threads: how many threads may make mini-batches at once; None for any number.

    Source: TurboGNN, section III-C: sampling, gathering and training overlap on one device; there as processes.
    """

    def __init__(
        self,
        source: BatchSource,
        draws: Draws,
        tables: Mapping[str, DeviceTable],
        device: Device,
        *,
        convert: Callable[[MiniBatch], Any],
        max_threads: int | None = None,
    ) -> None:
        super().__init__(source, tables, device)
        self.draws = draws
        self.convert = convert
        self.max_threads = max_threads

    def make(self, request: BatchRequest) -> MadeOnDevice:
        """Makes one mini-batch, by work in the calling thread's side stream.

        Raises:
            SeedError: a seed is not a node of the graph.
            DeviceMemoryError: the device has no room for it.
        """
        seeds = self.source.workload.seed_batch(request)
        with self.device.side_stream():
            # A copy made by one call, as the consumer's thread appends meanwhile. The device waits, the host goes on.
            if len(handed := tuple(self._handed)) == 2:
                handed[0].wait()
            sample, batch, timing = timed(
                lambda: self.draws.sample(seeds.draw),
                lambda sample: self._complete(self._batch_of(sample, seeds)),
                request.rank,
            )
            began = time.monotonic()
            converted = self.convert(batch)
            ready = self.device.record()
            # After the batch's event: who uses the batch does not wait for what is counted.
            reads = self._reads() if self._counts(request) else ()
        making = Making(batch.num_seeds, batch.num_nodes, _num_edges(sample), timing, reads)
        return MadeOnDevice(making, converted, (began, time.monotonic()), ready, self)

    def _counts(self, request: BatchRequest) -> bool:
        """Whether to count the reads since the last count with this batch: not with each, as the host waits for it."""
        is_last = request.step == self.source.plan(request.num_ranks).num_steps - 1
        return is_last or request.step % _COUNTED_EVERY == _COUNTED_EVERY - 1

    def _reads(self) -> Reads:
        return summed_reads([table.reads() for table in self.tables.values()])

    def _batch_of(self, sample: DeviceSample, seeds: SeedBatch) -> MiniBatch:
        blocks = [
            Block(hop.indptr, hop.indices, hop.num_dst, hop.num_src, hop.edge_ids, hop.edge_weights, hop.edge_types)
            for hop in reversed(sample.hops)
        ]
        labels, key = self.source.labels_of(seeds), seeds.draw.key
        return MiniBatch(
            sample.nodes,
            len(seeds.draw.seeds),
            blocks,
            y=None if labels is None else self._put(labels),
            epoch=key.epoch,
            step=key.step,
            rows=sample.queries,
            seed_columns={name: self._put(rows) for name, rows in seeds.columns.items()},
        )

    def _put(self, rows: torch.Tensor) -> torch.Tensor:
        if not rows.numel():
            return rows.to(self.device.torch_device)
        return self.device.put(byte_rows(rows)).view(rows.dtype).view(rows.shape)


class _Fetched(NamedTuple):
    """A mini-batch of ``step``, complete once the device is ``ready``."""

    step: int
    batch: MiniBatch
    payload: Payload
    ready: Event


class DevicePrefetcher(FeatureFetcher):
    """Copies a trainer's mini-batches from the queue to its device ahead of time, and gathers their features there.

    All of that is work of a side stream. The next mini-batch, if it has come, is begun before one is handed over, so
    that it arrives while that one is trained on. The host waits only where it is two steps ahead of the device, so that
    no more than three mini-batches lie there. Used by one thread.

    Args:
        source: as :class:`FeatureFetcher` has it.
        tables: likewise.
        device: likewise.

    Source: GNNLab (EuroSys'22), section 5.2: trainers extract, in a pipeline with training.
    """

    def __init__(self, source: BatchSource, tables: Mapping[str, DeviceTable], device: Device) -> None:
        super().__init__(source, tables, device)
        self._ahead: dict[int, _Fetched] = {}  # by stream
        self._copied: deque[tuple[Event, MiniBatch]] = deque()

    def take(self, queue: BatchQueue, stream: int, step: int, stop: int) -> tuple[MiniBatch, Payload] | None:
        """Takes the next mini-batch, as :meth:`.BatchQueue.take`, for work in the current stream; steps end before
        ``stop``."""
        fetched = self._ahead.pop(stream, None)
        if fetched is None or fetched.step != step:
            fetched = self._fetch(queue, stream, step)
        if fetched is None:
            return None
        if step + 1 < stop and queue.has_come(stream, step + 1):
            following = self._fetch(queue, stream, step + 1)
            assert following is not None, "it has come"
            self._ahead[stream] = following
        # Read before this batch is handed over, and waited for last: by then the device has all the work there is.
        handed = tuple(self._handed)
        batch = self.hand_over(fetched.batch, fetched.ready)
        if len(handed) == 2:
            handed[0].synchronize()
        return batch, fetched.payload

    def forget(self, stream: int) -> None:
        """Drops what was fetched ahead of a stream that nobody reads any more."""
        self._ahead.pop(stream, None)

    def _fetch(self, queue: BatchQueue, stream: int, step: int) -> _Fetched | None:
        # One thread has one side stream, so copies end in the order in which they began.
        while self._copied and self._copied[0][0].is_done():
            self._copied.popleft()  # which gives its slot back
        with self.device.side_stream():
            # In the side stream, as a copy from a sampler's device is work of the current one.
            taken = queue.take(stream, step)
            if taken is None:
                return None
            batch, payload = taken
            if batch.nodes.device != self.device.torch_device:  # else it came from a sampler's device
                there = batch.to(self.device.torch_device, non_blocking=True)
                self._copied.append((self.device.record(), batch))
                batch = there
            return _Fetched(step, self._complete(batch), payload, self.device.record())


def keep_for(batch: Any, stream: torch.cuda.Stream) -> None:
    """Keeps the memory of a mini-batch, of any format, from being reused before ``stream`` is done with it."""
    if isinstance(batch, tuple | list):
        for part in batch:
            keep_for(part, stream)
    else:  # a tensor, a MiniBatch, a Data of PyG or a block of DGL
        batch.record_stream(stream)
        for frame in ("srcdata", "dstdata", "edata"):  # DGL's own takes care of the structure alone
            for column in dict(getattr(batch, frame, {})).values():
                column.record_stream(stream)


def _num_edges(sample: DeviceSample) -> int:
    """Counts the edges of all blocks; hops that share one array (``expand="new"``) count once."""
    return sum({hop.indices.data_ptr(): hop.num_edges for hop in sample.hops}.values())
