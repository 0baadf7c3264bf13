"""Placement: puts the in-neighbour lists where a device finds them: in its own memory, as far as there is room.

Shapes: N graph nodes, E edges.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import DeviceMemoryError
from lightning_gnnload.host.memory import in_units, reserve_bytes
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling.topology import Topology
from lightning_gnnload.sample.device.graph_placement import GraphPlacement

MODEL_SHARE = 0.5
"""The share of a device's free memory left to its model, its mini-batches and a cache, where it trains as well."""


def budget_beside_model(device: Device) -> int:
    """Returns how many bytes a topology may take of a device that trains as well."""
    return int(device.free_bytes() * (1 - MODEL_SHARE))


def budget_alone(device: Device) -> int:
    """Returns how many bytes a topology may take of a device that only samples."""
    free = device.free_bytes()
    return max(free - reserve_bytes(free), 0)


def place(
    graph: Graph,
    device: Device,
    *,
    weighted: bool = False,
    budget_bytes: int | None = None,
    hotness: np.ndarray | None = None,
    progress: bool = False,
) -> Topology:
    """Puts a graph where a device's sampling kernels read it; the batches are the same wherever it lies.

    The first of these that fits ``budget_bytes`` (None: :func:`budget_beside_model`): everything on the device; the
    offsets and the most read lists on the device, and all lists in page-locked host memory; everything in page-locked
    host memory. ``Topology.about`` says what lies where. ``weighted`` adds alias tables, 8 bytes an edge. ``hotness``
    has expected visits ``[N]``; None estimates them by :func:`.expected_visits` where not all lists fit. Copies in
    chunks, as arrays may be mapped from files larger than the host's memory, and waits for the copies.

    Raises DeviceMemoryError where the host cannot page-lock the rest, SamplerConfigError for a bad hotness or missing
    weights.

    Source: DSP (PPoPP'23), sections 3.1 and 6: hot nodes' adjacency lists on the device, others read over the bus.
    """
    budget_bytes = budget_beside_model(device) if budget_bytes is None else budget_bytes
    placement = GraphPlacement.of(graph, device, budget_bytes, weighted=weighted, hotness=hotness, progress=progress)
    topology, refusal = None, ""
    for way in (placement.whole, placement.hot):
        try:
            topology = topology or way()
        except DeviceMemoryError as error:
            refusal = f" ({error})"  # what the device says is free, it need not give
    try:
        topology = topology or placement.mapped()
    except DeviceMemoryError as error:
        raise DeviceMemoryError(
            f"the graph takes {in_units(placement.num_bytes)}, of which {device.torch_device} may hold "
            f"{in_units(budget_bytes)}, and the host cannot page-lock the rest ({error}). Free memory of the host, "
            f"raise its limit of locked memory (ulimit -l), or sample on the CPU: "
            f"GraphDataModule(sampling_device='cpu')."
        ) from error
    device.record().synchronize()  # whatever stream reads it
    return replace(topology, about=f"{topology.about}{refusal}.")
