"""Mini-batches on the device that trains on them: made there, or brought from samplers and completed there.

A sampling thread gives its work to two side streams of its own: draws, and gathers, so that no draw waits behind the
gathers of the batch before. The host waits once a batch, when the draws are done, to learn how much was drawn; now and
then also for what was read from where. The consumer's stream waits for the batch's event, and the host for nothing. No
thread starts a batch before the consumer's stream has begun the step before the last one: however far the host runs
ahead of the device, no more than three batches lie there.
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
from lightning_gnnload.data.features import Reads, summed_reads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.errors import SeedError
from lightning_gnnload.pipeline.device_tables import DeviceTable
from lightning_gnnload.pipeline.source import BatchSource, Draws, timed
from lightning_gnnload.pipeline.stats import BatchCost
from lightning_gnnload.sample.device.samplers import UploadingSampler
from lightning_gnnload.sample.seeds.rows import SeedBatch

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.launch.device import Device, Event
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample

_COUNTED_EVERY = 64


class MadeOnDevice(NamedTuple):
    """A mini-batch that was made on a device, with its cost.

    ``batch`` must not be used before ``ready``. It comes with its ``maker``: a loader that kept one would keep the
    device's memory beyond the fit. ``convert_s``: when the conversion for the model began and ended.
    """

    payload: BatchCost
    batch: Any
    convert_s: tuple[float, float]
    ready: Event
    maker: FeatureFetcher

    def hand_over(self) -> Any:
        """Returns the batch for work in the current stream. The host does not wait."""
        return self.maker.hand_over(self.batch, self.ready)


class FeatureFetcher:
    """Gathers the features of mini-batches on a device, on side streams.

    Of ``source``, the workload and labels are used, not the stores. ``tables`` has ``"x"`` and the names of
    ``source.data.tables``; phases may share them, and then count their reads together.
    """

    def __init__(self, source: BatchSource, tables: Mapping[str, DeviceTable], device: Device) -> None:
        self.source = source
        self.tables = dict(tables)
        self.device = device
        self._handed: deque[Event] = deque(maxlen=2)  # when the device begins the last two steps that it was given

    def _complete(self, batch: MiniBatch) -> MiniBatch:
        """Returns the mini-batch with its features."""
        stores, tables = self.source.data.stores, dict[str, torch.Tensor]()
        node_tables = {name: store for name, store in self.source.data.tables.items() if isinstance(store, NodeTable)}
        positions = self._positions(batch.nodes, node_tables)
        for name, table in self.tables.items():
            ids = batch.nodes
            if name in positions:
                ids = ids[positions[name]] - node_tables[name].first
            tables[name] = table.gather(ids).view(ids.numel(), *stores[name].row_shape)
        return replace(batch, x=tables.pop("x", None), tables=tables, positions=positions)

    def _positions(self, nodes: torch.Tensor, tables: dict[str, NodeTable]) -> dict[str, torch.Tensor]:
        """Finds the nodes that have rows in tables of one node type: int64 ``[M]``, ascending, by table name. The host
        waits for their counts if there are such tables."""
        if not tables:
            return {}
        ranges = np.array([[table.nodes.start, table.nodes.stop] for table in tables.values()], np.int64)
        first, last = (self.device.put(bounds[:, None]) for bounds in ranges.T)
        are_there = (nodes >= first) & (nodes < last)
        counts = self.device.read(are_there.sum(1)).tolist()
        # Those that are not go behind the last.
        positions = torch.where(are_there, are_there.cumsum(1) - 1, len(nodes))
        numbers = torch.arange(len(nodes), device=nodes.device)
        return {
            name: nodes.new_empty(len(nodes) + 1).scatter_(0, position, numbers)[:count]
            for name, position, count in zip(tables, positions, counts, strict=True)
        }

    def hand_over(self, batch: Any, ready: Event) -> Any:
        """Returns the batch for work in the current stream, which waits until it is ready. The host does not."""
        ready.wait()
        keep_for(batch, self.device.current_stream())
        # Recorded after the wait: it happens when the device begins this step, not when the host hands it over.
        self._handed.append(self.device.record())
        return batch


class DeviceBatches(FeatureFetcher):
    """Makes mini-batches on a device, equal to those that ``source`` makes on the host. Thread-safe.

    ``draws`` samples, ``convert`` turns a MiniBatch into what the model expects, and at most ``max_threads`` threads
    (None: any number) may make mini-batches at once.

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

    @property
    def draws_there(self) -> bool:
        """Whether the device draws the mini-batches that it gathers for."""
        return not isinstance(self.draws, UploadingSampler)

    def make(self, request: BatchRequest) -> MadeOnDevice:
        """Makes one mini-batch, by work in the calling thread's side stream.

        Raises SeedError for seeds that are no nodes of the graph, DeviceMemoryError where the device has no room.
        """
        seeds = self.source.workload.seed_batch(request)
        (sample, _), batch, timing = timed(
            lambda: self._sample(seeds), lambda sampled: self._gathered(*sampled, seeds), request.rank
        )
        with self.device.side_stream("rows"):
            began = time.monotonic()
            converted = self.convert(batch)
            ready = self.device.record()
            # After the batch's event: who uses the batch does not wait for what is counted.
            reads = self._reads() if self._counts(request) else ()
        making = BatchCost(batch.num_seeds, batch.num_nodes, _num_edges(sample), timing, reads)
        return MadeOnDevice(making, converted, (began, time.monotonic()), ready, self)

    def _sample(self, seeds: SeedBatch) -> tuple[DeviceSample, Event]:
        """Draws a mini-batch, with the rows of its seeds: columns, then labels where there are some."""
        with self.device.side_stream():
            try:
                labels = self.source.labels_of(seeds)
            except SeedError:
                self.draws.sample(seeds.draw)  # raises it of the seeds, not of the labels
                raise
            # A copy made by one call, as the consumer's thread appends meanwhile. The device waits, the host goes on.
            if len(handed := tuple(self._handed)) == 2:
                handed[0].wait()
            rows = [*seeds.columns.values(), *([] if labels is None else [labels])]
            sample = self.draws.sample(seeds.draw, [row.contiguous() for row in rows])
            return sample, self.device.record()

    def _gathered(self, sample: DeviceSample, end_of_draw: Event, seeds: SeedBatch) -> MiniBatch:
        """Gathers the features of a mini-batch, in a stream of their own: the next one is drawn meanwhile."""
        with self.device.side_stream("rows"):
            end_of_draw.wait()
            sample.record_stream(self.device.current_stream())
            return self._complete(self._batch_of(sample, seeds))

    def _counts(self, request: BatchRequest) -> bool:
        """Whether to count reads with this batch: the host waits for the counts, so only every 64th batch and the last
        do."""
        is_last = request.step == self.source.plan(request.num_ranks).num_steps - 1
        return is_last or request.step % _COUNTED_EVERY == _COUNTED_EVERY - 1

    def _reads(self) -> Reads:
        return summed_reads([table.reads() for table in self.tables.values()])

    def _batch_of(self, sample: DeviceSample, seeds: SeedBatch) -> MiniBatch:
        blocks = [
            Block(hop.indptr, hop.indices, hop.num_dst, hop.num_src, hop.edge_ids, hop.edge_weights, hop.edge_types)
            for hop in reversed(sample.hops)
        ]
        columns, key = dict(zip(seeds.columns, sample.rows, strict=False)), seeds.draw.key
        labels = sample.rows[len(columns) :]
        return MiniBatch(
            sample.nodes,
            len(seeds.draw.seeds),
            blocks,
            y=labels[0] if labels else None,
            epoch=key.epoch,
            step=key.step,
            rows=sample.queries,
            seed_columns=columns,
            seed_form=seeds.form,
        )


def keep_for(batch: Any, stream: torch.Stream) -> None:
    """Keeps the memory of a mini-batch, of any format, from being reused before ``stream`` is done with it."""
    if isinstance(batch, tuple | list):
        for part in batch:
            keep_for(part, stream)
    else:  # a tensor, a MiniBatch, a Data of PyG or a block of DGL
        if not hasattr(batch, "srcdata") or batch.device.type == "cuda":  # of no other device does DGL keep blocks
            batch.record_stream(stream)
        for frame in ("srcdata", "dstdata", "edata"):  # DGL's own takes care of the structure alone
            for column in dict(getattr(batch, frame, {})).values():
                column.record_stream(stream)


def _num_edges(sample: DeviceSample) -> int:
    """Counts the edges of all blocks; hops that share one array (``expand="new"``) count once."""
    return sum({hop.indices.data_ptr(): hop.num_edges for hop in sample.hops}.values())
