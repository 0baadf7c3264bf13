"""Places a graph on the devices of all ranks of a machine, whose kernels read lists of each other in place.

A rank keeps the offsets of all lists, so that only entries that were drawn cross to it: a sector of 32 bytes each. DSP
also sends tasks to the owners of lists; docs/design.md says why nothing is sent here.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from lightning_gnnload.cache.device.linked_memory import LinkedMemory
from lightning_gnnload.cache.device.shards import Shards
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import DeviceMemoryError
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.runtime import Runtime
from lightning_gnnload.ops.cuda.sampling.topology import Topology
from lightning_gnnload.sample.device.graph_placement import GraphPlacement
from lightning_gnnload.sample.device.hotness import expected_reads
from lightning_gnnload.sample.device.list_shards import ListShards
from lightning_gnnload.sample.device.placement import budget_beside_model, place

_SAMPLED = 1 << 13  # entries of each array that ranks compare, to know that they place the same graph


@dataclass(frozen=True)
class SharedLists:
    """The memory of a topology's shards over several ranks: a :class:`.ShardMemory`."""

    shards: Shards
    runtime: Runtime

    @property
    def addresses(self) -> Sequence[int]:
        return self.shards.addresses

    def write(self, offset: int, values: torch.Tensor) -> None:
        # `values` may be freed before they are copied: torch reuses their memory in the order of this stream.
        address = self.addresses[self.shards.own_shard]
        self.runtime.copy(address + offset, values.data_ptr(), values.nbytes)

    def check(self) -> None:
        self.shards.check()

    def close(self) -> None:
        self.shards.close()


def place_together(
    graph: Graph,
    device: Device,
    peers: PeerGroup,
    runtime: Runtime,
    *,
    weighted: bool = False,
    budget_bytes: int | None = None,
    hotness: np.ndarray | None = None,
    progress: bool = False,
) -> Topology:
    """Puts a graph where the devices of all ranks of a machine read it; mini-batches are the same wherever it lies.

    Where it does not fit into every device, the ranks whose devices read each other's memory place it once, in the room
    that these have together: the most read lists first, and copies of them in each, if room is left. What is in no
    shard is read from the host's memory. Else each rank places it for itself, as :func:`.place` does with the same
    arguments; ``Topology.about`` then says why. Peer 0 ranks the lists for all.

    Every step is collective. ``Topology.memory`` is to be closed by all ranks, when no kernel reads it any more.

    Raises DeviceMemoryError and SamplerConfigError as :func:`.place`, CacheShareError where another rank failed, is
    gone, or has another graph.

    Source: DSP (PPoPP'23), sections 3.1 and 3.2: shards of the topology over linked GPUs, of which each samples from
    all.
    """
    budget_bytes = budget_beside_model(device) if budget_bytes is None else budget_bytes
    placement = GraphPlacement.of(graph, device, budget_bytes, weighted=weighted, hotness=hotness, progress=progress)
    _agree(placement, peers)
    budgets = _budgets(budget_bytes, peers, runtime)
    placement = replace(placement, budget_bytes=budgets[peers.membership.index])
    memory = LinkedMemory(device, peers, runtime, "the graph's shard")
    try:
        topology, reason = _place_in_shards(placement, budgets, memory, peers, runtime)
    except BaseException as error:
        peers.abort(error)  # before close(), which waits for other ranks, which wait for this one
        memory.shards.close()
        raise
    if topology is not None:
        return topology
    memory.shards.close()
    topology = place(
        graph, device, weighted=weighted, budget_bytes=placement.budget_bytes, hotness=hotness, progress=progress
    )
    return replace(topology, about=f"{topology.about}{reason and f' Not shared, as {reason}.'}")


def _place_in_shards(
    placement: GraphPlacement, budgets: Sequence[int], memory: LinkedMemory, peers: PeerGroup, runtime: Runtime
) -> tuple[Topology | None, str]:
    """Returns the topology, or None and why no rank of the machine shares it; empty where each has room for all."""
    graph = placement.graph
    if all(placement.num_bytes <= budget for budget in budgets):
        return None, ""
    rooms = [placement.room(budget) for budget in budgets]
    if min(rooms) < 0:
        return None, f"the device of rank {rooms.index(min(rooms))} has no room for the offsets of all lists"
    memory.probe()
    if len(memory.access.groups()) < memory.count:
        try:
            num_bytes = memory.take(placement.shard_bytes(min(rooms[memory.rank], graph.num_edges)))
        except DeviceMemoryError as error:
            refusal = str(error.__cause__ or "that of another rank").rstrip(".")
            return None, f"a device refused the memory of its shard ({refusal})"
    if len(memory.access.groups()) == memory.count:  # opening memory may have shown it
        return None, f"no devices read each other's memory ({'; '.join(memory.access.reasons[:3])})"
    rooms = [value.fields["room"] for value in peers.all_gather({"room": max(placement.shard_edges(num_bytes), 0)})]
    ranked = expected_reads(graph, placement.visits()) if memory.leads else None
    reads = peers.broadcast(None if ranked is None else ranked.view(np.int64)).view(np.float64)
    lists = ListShards.deal(graph, [rooms[rank] for rank in memory.group], memory.shards.own_shard, reads)
    topology = placement.in_shards(lists, SharedLists(memory.shards, runtime), reads)
    # Other ranks read on their own streams once all have agreed, and no event of this one orders these.
    placement.device.record().synchronize()
    peers.agree({})
    return replace(topology, about=f"{topology.about}."), ""


def _agree(placement: GraphPlacement, peers: PeerGroup) -> None:
    graph = placement.graph
    peers.agree(
        {
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "columns of edges": {name: str(array.dtype) for name, array in placement.edge_columns.items()},
            "checksum of offsets": _checksum([graph.indptr, graph.run_ptr]),
            # Graphs of nearest neighbours have the same offsets, whatever their edges.
            "checksum of edges": _checksum(placement.edge_columns.values()),
        },
        due="place the same graph",
    )


def _checksum(arrays: Iterable[np.ndarray | None]) -> int:
    """Returns one of entries at even distances: few, as each may be a page to read from a file."""
    checksum = 0
    for array in arrays:
        if array is not None:
            checksum = zlib.crc32(array[:: max(1, len(array) // _SAMPLED)].tobytes(), checksum)
    return checksum


def _budgets(budget_bytes: int, peers: PeerGroup, runtime: Runtime) -> list[int]:
    """Returns what each rank may take; ranks of one device share what that has."""
    mine = {"device": runtime.identity(runtime.device), "budget": budget_bytes}
    values = [value.fields for value in peers.all_gather(mine)]
    num_ranks = Counter(value["device"] for value in values)
    return [value["budget"] // num_ranks[value["device"]] for value in values]
