"""DeviceBatches: the mini-batches of a phase, made on the device that trains on them.

A sampling thread gives its work to a side stream of its own: draws, then gathers. The host waits there once a batch,
when the draws are done, to learn how much was drawn; now and then also for what was read from where. The consumer's
stream waits for the batch's event, and the host for nothing. No thread starts a batch before the consumer's stream has
begun the step before the last one: however far the host runs ahead of the device, no more than three batches lie there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.features import Reads, bytes_of
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.pipeline.source import BatchSource, Draws, timed
from lightning_gnnload.pipeline.stats import Making
from lightning_gnnload.pipeline.tables import summed_reads

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device, Event
    from lightning_gnnload.ops.cuda.sample import DeviceSample

_COUNTED_EVERY = 64


class Rows(Protocol):
    """A table whose rows a device gathers: :class:`.DeviceFeatures`."""

    def gather(self, ids: torch.Tensor) -> torch.Tensor:
        """Row ``ids[b]`` as ``[B, F]``, by work in the current stream."""

    def reads(self) -> Reads:
        """Since the last call, from where. The host may wait; raises what went wrong unnoticed."""

    def close(self) -> None:
        """No gather may be under way."""


class MadeOnDevice(NamedTuple):
    """A mini-batch, as its maker left it.

    Attributes:
        payload: what it took.
        batch: what the model expects; not for use before ``ready``.
        convert_s: when turning it into that began and ended.
        ready: when the device is done with it.
        maker: hands it over. A loader keeps none, as it outlives the fit, and the device's memory with it.
    """

    payload: Making
    batch: Any
    convert_s: tuple[float, float]
    ready: Event
    maker: DeviceBatches


class DeviceBatches:
    """Makes mini-batches on a device, equal to those that ``source`` makes on the host. Thread-safe.

    Args:
        source: the phase's mini-batches; its workload and labels are used, not its stores.
        draws: draws them.
        rows: the tables, by name: ``"x"`` and those of ``source.data.tables``. Phases may share them; what they read is
            then counted together, by whichever comes to count.
        device: where they come to lie.
        convert: makes of a MiniBatch what the model expects.
        max_threads: that may make mini-batches at once; None for any number.

    Source: TurboGNN, section III-C: sampling, gathering and training overlap on one device; there as processes.
    """

    def __init__(
        self,
        source: BatchSource,
        draws: Draws,
        rows: Mapping[str, Rows],
        device: Device,
        *,
        convert: Callable[[MiniBatch], Any],
        max_threads: int | None = None,
    ) -> None:
        self.source = source
        self.draws = draws
        self.rows = dict(rows)
        self.device = device
        self.convert = convert
        self.max_threads = max_threads
        self._handed: deque[Event] = deque(maxlen=2)

    def make(self, request: BatchRequest) -> MadeOnDevice:
        """One mini-batch, by work in the calling thread's side stream.

        Raises:
            SeedError: a seed is not a node of the graph.
            DeviceMemoryError: the device has no room for it.
        """
        workload = self.source.workload
        seeds, key = workload.seeds_of(request), workload.key_of(request)
        with self.device.side_stream():
            if len(handed := tuple(self._handed)) == 2:
                handed[0].wait()
            sample, batch, timing = timed(
                lambda: self.draws.sample(seeds, key),
                lambda sample: self._gathered(sample, seeds, key),
                request.rank,
            )
            began = time.monotonic()
            converted = self.convert(batch)
            ready = self.device.record()
            reads = self._reads() if self._counts(request) else ()
        making = Making(len(seeds), batch.num_nodes, _num_edges(sample), timing, reads)
        return MadeOnDevice(making, converted, (began, time.monotonic()), ready, self)

    def hand_over(self, made: MadeOnDevice) -> Any:
        """The batch, for work in the current stream. The host does not wait."""
        made.ready.wait()
        if self.device.torch_device.type == "cuda":
            keep_for(made.batch, torch.cuda.current_stream(self.device.torch_device))
        self._handed.append(self.device.record())
        return made.batch

    def _counts(self, request: BatchRequest) -> bool:
        """Whether this batch tells what was read since one last did: not every one, as the host waits for it."""
        is_last = request.step == self.source.plan(request.num_ranks).num_steps - 1
        return is_last or request.step % _COUNTED_EVERY == _COUNTED_EVERY - 1

    def _reads(self) -> Reads:
        return summed_reads([rows.reads() for rows in self.rows.values()])

    def _gathered(self, sample: DeviceSample, seeds: np.ndarray, key: DrawKey) -> MiniBatch:
        stores = self.source.data.stores
        tables = {
            name: rows.gather(sample.nodes).view(sample.nodes.numel(), *stores[name].row_shape)
            for name, rows in self.rows.items()
        }
        return MiniBatch(
            sample.nodes,
            len(seeds),
            [
                Block(hop.indptr, hop.indices, hop.num_dst, hop.num_src, hop.edge_ids, hop.edge_weights)
                for hop in reversed(sample.hops)
            ],
            tables.pop("x", None),
            self._labels(seeds),
            key.epoch,
            key.step,
            tables,
        )

    def _labels(self, seeds: np.ndarray) -> torch.Tensor | None:
        labels = self.source.labels_of(seeds)
        if labels is None or not labels.numel():
            return None if labels is None else labels.to(self.device.torch_device)
        return self.device.put(bytes_of(labels)).view(labels.dtype).view(labels.shape)


def keep_for(batch: Any, stream: torch.cuda.Stream) -> None:
    """The memory of a mini-batch, of any format, is not given to others before ``stream`` is done with it."""
    if isinstance(batch, tuple | list):
        for part in batch:
            keep_for(part, stream)
    else:  # a tensor, a MiniBatch, a Data of PyG or a block of DGL
        batch.record_stream(stream)
        for frame in ("srcdata", "dstdata", "edata"):  # DGL's own takes care of the structure alone
            for column in dict(getattr(batch, frame, {})).values():
                column.record_stream(stream)


def _num_edges(sample: DeviceSample) -> int:
    """Edges of all blocks; hops that share one array (``expand="new"``) count once."""
    return sum({hop.indices.data_ptr(): hop.num_edges for hop in sample.hops}.values())
