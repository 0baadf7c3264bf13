"""Mini-batches for a device: drawn by its kernels, or drawn on the host and copied there.

Before those of a device are used, one of them is compared with the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.slab import EDGE_COLUMNS
from lightning_gnnload.errors import (
    CudaUnavailableError,
    DeviceMemoryError,
    GnnLoadError,
    KernelCompileError,
)
from lightning_gnnload.ops import Draw
from lightning_gnnload.sample.base import Sampler, draw_here
from lightning_gnnload.sample.parts.sampler import PartSampler, place_seeds
from lightning_gnnload.sample.workload import Workload

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.launch.device import Device
    from lightning_gnnload.ops.cuda.plans.planned import PlannedBatches
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
    from lightning_gnnload.ops.cuda.sampling.topology import Topology

NUM_SEEDS = 64
"""The number of seeds in the mini-batch that is compared."""


def can_sample(sampler: Sampler) -> str | None:
    """Says why no device can draw as ``sampler`` does; None where one can."""
    if not sampler.declares("draw_on"):
        return f"{type(sampler).__name__} has no kernels for a device"
    return None


def draws_by_tables(sampler: Sampler, graph: Graph) -> bool:
    """Tells whether a device needs the graph's alias tables to draw as ``sampler`` does."""
    if sampler.weighting == "optional":
        return graph.has("edge_weight") and can_sample_parts(sampler) is None and sampler.needs_host(graph) is None
    return sampler.weighting == "always"


def why_on_host(workload: Workload) -> str | None:
    """Says why mini-batches of this workload are drawn on the host although the sampler has kernels for a device, or
    None."""
    graph, sampler = workload.graph, workload.sampler
    if (reason := sampler.needs_host(graph)) is not None:
        return reason
    has_types_or_times = graph.types is not None or graph.clock is not None
    if isinstance(sampler, PartSampler) and (has_types_or_times or workload.kind.needs):
        return "parts with types or times, or rows with nodes of their own, have no kernels for a device"
    if workload.kind.needs and sampler.weighting == "always":
        return f"{sampler!r} draws by time, or for each row by itself, which has no kernels for a device"
    is_timed = graph.edge_type is not None and graph.edge_time is not None
    if graph.types is None and (is_timed or "edge_type" in (sampler.columns or ())):
        return f"{sampler!r} draws by edge types without names, which has no kernels for a device"
    return None


class DeviceSampler:
    """Runs a sampler's kernels on a device; it draws what ``sampler`` draws on the CPU, number for number. Thread-safe.

    ``topology`` needs alias tables where it draws by weight (:func:`draws_by_tables`).
    """

    def __init__(self, sampler: Sampler, topology: Topology, device: Device) -> None:
        self.sampler = sampler
        self.topology = topology
        self.device = device
        self._idle: list[PlannedBatches] = []

    def sample(self, draw: Draw, rows: Sequence[torch.Tensor] = ()) -> DeviceSample:
        """Samples one mini-batch by work in the current stream, for which the host waits; ``rows``, contiguous tensors
        of the host of whatever belongs to its seeds, come along.

        Raises SeedError for a seed that is no node or repeats, DeviceMemoryError where the device has no memory for it,
        DeviceShareError where another rank that held lists is gone.
        """
        from lightning_gnnload.ops.cuda.plans.planned import PlannedBatches

        self.sampler.check_draw(self.topology, draw)
        memory = self.topology.memory
        if memory is not None:
            memory.check()
        # A thread's work is done when the host has waited: any stream may go on with it next. What a failed batch
        # leaves is dropped.
        # Popped without asking whether there is one: list.pop and append are atomic, a check and a pop are not.
        several = draw.queries is not None and not draw.queries.are_one
        try:
            batches = self._idle.pop()
        except IndexError:
            batches = None
        # A hash table serves both; who has several queries once mostly has them always.
        if batches is None or (several and batches.workspace.table != "hash"):
            table: Literal["auto", "hash"] = "hash" if several else "auto"
            batches = PlannedBatches(self.device, self.topology, self.sampler.draw_on, table)
        sample = batches.draw(draw, rows)
        # Again: what was read while its owner died is not known.
        if memory is not None:
            memory.check()
        self._idle.append(batches)
        return sample


def can_sample_parts(sampler: Sampler) -> str | None:
    """Like :func:`can_sample`, for a sampler that may be a PartSampler."""
    if not isinstance(sampler, PartSampler):
        return can_sample(sampler)
    if "edge_ids" in (sampler.columns or ()):
        return "edge ids of a part are turned into those of the whole graph on the host"
    return can_sample(sampler.sampler)


class DevicePartSampler:
    """Runs a :class:`.PartSampler`'s kernels on a device, with the same result as on the CPU. Thread-safe. ``upload``
    puts a part's graph on the device, perhaps more than once."""

    def __init__(self, sampler: PartSampler, upload: Callable[[Graph], Topology], device: Device) -> None:
        self.sampler = sampler
        self.device = device
        self._place = upload
        self._parts: dict[int, DeviceSampler] = {}

    def open(self, index: int) -> None:
        """Puts a part on the device, which its first mini-batch does otherwise. DeviceMemoryError: nobody has room for
        it."""
        self._of(index)

    def sample(self, draw: Draw, rows: Sequence[torch.Tensor] = ()) -> DeviceSample:
        """Samples one mini-batch, by ids of the whole graph; ``rows`` come along. Raises what
        :meth:`.PartSampler.draw` raises, and DeviceMemoryError."""
        from lightning_gnnload.ops.cuda.tables.gather import gather_rows

        assert draw.queries is None, "why_on_host() says so"
        part, local = place_seeds(self.sampler.partition, draw.seeds, self.sampler.reach or 0)
        part_sample = self._of(part.index)
        sample = part_sample.sample(draw._replace(seeds=local), rows)
        assert part_sample.topology.names is not None, "a part has names"
        nodes = self.device.empty(len(sample.nodes), torch.int64)
        unheard = self.device.zeros(1, torch.int64)  # these ids were drawn here
        gather_rows(self.device, part_sample.topology.names, sample.nodes, nodes, unheard)
        return replace(sample, nodes=nodes)

    def _of(self, index: int) -> DeviceSampler:
        # Without a lock: threads that come at once may each make one, and either serves.
        if index not in self._parts:
            topology = self._place(self.sampler.partition.parts[index].graph)
            self._parts[index] = DeviceSampler(self.sampler.sampler, topology, self.device)
        return self._parts[index]


class UploadingSampler:
    """Draws on the host, and copies the result to the device where the features are. Thread-safe.

    Source: PaGraph (SoCC'20), section 4, and BGL (NSDI'23), section 3: the host samples, the GPU holds the cache.
    """

    def __init__(self, sampler: Sampler, graph: Graph, device: Device) -> None:
        self.sampler = sampler
        self.graph = graph
        self.device = device

    def sample(self, draw: Draw, rows: Sequence[torch.Tensor] = ()) -> DeviceSample:
        """Samples one mini-batch, copied in the current stream, for which the host does not wait; ``rows`` come
        along."""
        from lightning_gnnload.ops.cuda.plans.planned import with_rows
        from lightning_gnnload.ops.cuda.sampling.sample import DeviceHop, DeviceSample

        arena, layout = draw_here(self.sampler, self.graph, draw)
        memory = self.device.put(np.concatenate([arena[: layout.free_begin], arena[layout.free_end :]]))
        batch = MiniBatch.view(memory, layout.compact(), len(draw.seeds))
        hops = tuple(
            DeviceHop(hop.num_dst, hop.num_src, hop.indptr, hop.indices, hop.edge_ids, hop.edge_weight, hop.edge_type)
            for hop in reversed(batch.blocks)
        )
        return with_rows(self.device, DeviceSample(batch.nodes, hops, batch.rows), rows)


def check_device(draws: DeviceSampler | DevicePartSampler, workload: Workload, request: BatchRequest) -> None:
    """Compares a small mini-batch (the first 64 seeds of ``request``) drawn on the device with the host's, in some
    milliseconds. They must be equal; a difference is a fault of a driver, a compiler, a card, or ours.

    Raises CudaUnavailableError where they differ or the device fails; KernelCompileError and DeviceMemoryError
    likewise.
    """
    try:
        seeds, key, queries = workload.seed_batch(request).draw
        if queries is not None:
            queries = replace(queries, of_seed=queries.of_seed[:NUM_SEEDS])
        draw = Draw(seeds[:NUM_SEEDS], key, queries)
        arena, layout = draw_here(draws.sampler, workload.graph, draw)
    except GnnLoadError:
        return  # whoever makes that mini-batch says so, and how
    expected = MiniBatch.view(arena, layout, len(draw.seeds))
    try:
        sample = draws.sample(draw)
        differing = differences(draws.device, sample, expected)
    except (CudaUnavailableError, KernelCompileError, DeviceMemoryError):
        raise
    except Exception as error:  # what drivers and torch raise has many classes
        raise CudaUnavailableError(
            f"{draws.device.torch_device} cannot draw what the CPU draws ({type(error).__name__}: {error}). "
            f"sampling_device='cpu' goes on without the device."
        ) from error
    if differing:
        raise CudaUnavailableError(
            f"{draws.device.torch_device} drew another mini-batch than the CPU: {differing[0]} differs for seeds "
            f"{seeds[:3].tolist()}... of {draws.sampler!r} under {key}. Please report this with the device's name "
            f"and the versions that 'gnnload doctor' prints; sampling_device='cpu' goes on without the device."
        )


def differences(device: Device, sample: DeviceSample, expected: MiniBatch) -> list[str]:
    """Names the arrays in which a device's mini-batch differs from the host's. The host waits for each."""
    return [name for name, *both in _pairs(sample, expected) if not _are_equal(device, *both)]


def _are_equal(device: Device, mine: torch.Tensor | None, hosts: torch.Tensor | None) -> bool:
    if mine is None or hosts is None:
        return mine is hosts
    return np.array_equal(device.read(mine), hosts.numpy())


def _pairs(sample: DeviceSample, expected: MiniBatch) -> Iterator[tuple[str, torch.Tensor | None, torch.Tensor | None]]:
    yield "nodes", sample.nodes, expected.nodes
    yield "queries of nodes", sample.queries, expected.rows
    for number, (hop, block) in enumerate(zip(sample.hops, reversed(expected.blocks), strict=True)):
        yield f"indptr of hop {number}", hop.indptr, block.indptr
        yield f"indices of hop {number}", hop.indices, block.indices
        for column in EDGE_COLUMNS:
            yield f"{column.plural} of hop {number}", getattr(hop, column.plural), getattr(block, column.name)
