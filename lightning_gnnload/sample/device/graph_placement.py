"""GraphPlacement: the ways in which a graph can lie where one device's kernels read it.

Shapes: N graph nodes, E edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import DeviceMemoryError
from lightning_gnnload.host.memory import free_bytes, in_units
from lightning_gnnload.host.pages import mapped_file
from lightning_gnnload.host.progress import progress as progress_bar
from lightning_gnnload.ops.cuda.launch.device import Device, Mapped
from lightning_gnnload.ops.cuda.sampling.topology import DeviceLists, ShardMemory, Topology
from lightning_gnnload.sample.device.hotness import chunked_edges, expected_reads, expected_visits
from lightning_gnnload.sample.device.list_shards import ListShards

_CHUNK_BYTES = 32 << 20
_ALIGNMENT = 256  # bytes, of a column in a shard: as memory of a device begins
_TITLES = {"indices": "lists", "table": "alias tables", "edge_time": "times"}
_DTYPES = {np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64}


@dataclass(frozen=True)
class GraphPlacement:
    """One graph on one device, and the ways in which it can lie there."""

    graph: Graph
    edge_columns: dict[str, np.ndarray]
    device: Device
    budget_bytes: int
    hotness: np.ndarray | None
    progress: bool

    @classmethod
    def of(
        cls,
        graph: Graph,
        device: Device,
        budget_bytes: int,
        *,
        weighted: bool = False,
        hotness: np.ndarray | None = None,
        progress: bool = False,
    ) -> GraphPlacement:
        """Plans for what :func:`place` is given."""
        return cls(graph, _edge_columns(graph, weighted), device, budget_bytes, hotness, progress)

    @property
    def node_bytes(self) -> int:
        return _num_bytes(self.graph.indptr, self.graph.names, self.graph.run_ptr)

    @property
    def num_bytes(self) -> int:
        return self.node_bytes + _num_bytes(*self.edge_columns.values())

    def whole(self) -> Topology | None:
        if self.num_bytes > self.budget_bytes:
            return None
        return self._topology(
            self._copy,
            **{name: self._copy(_TITLES[name], array) for name, array in self.edge_columns.items()},
            about=f"Graph: all of it, {in_units(self.num_bytes)}, on {self._where}",
        )

    def hot(self) -> Topology | None:
        if self.node_bytes > self.budget_bytes:
            return None
        graph = self.graph
        room = self.room(self.budget_bytes)
        if room > 0:
            reads = expected_reads(graph, self.visits())
            lists = ListShards.deal(graph, [room], 0, reads)
            if lists.in_own.any():
                num_bytes = self.shard_bytes(lists.num_edges[0])
                return self.in_shards(lists, _OwnMemory(self.device.empty(num_bytes, torch.uint8)), reads)
        topology = self._topology(self._copy, **{name: self._map(array) for name, array in self.edge_columns.items()})
        about = f"Graph: offsets, {in_units(self.node_bytes)}, on {self._where}; {self._all_mapped}{self._why}"
        return replace(topology, about=about)

    def mapped(self) -> Topology:
        return self._topology(
            lambda _, array: self._map(array),
            **{name: self._map(array) for name, array in self.edge_columns.items()},
            about=(
                f"Graph: all of it, {in_units(self.num_bytes)}, in page-locked host memory, read by {self._where}"
                f"{self._why}"
            ),
        )

    def in_shards(self, lists: ListShards, memory: ShardMemory, reads: np.ndarray) -> Topology:
        """Fills this rank's shard. Lists in no shard are read from page-locked host memory, which is not needed where
        there are none. ``reads`` are expected reads, as in :meth:`.ListShards.deal`."""
        graph = self.graph
        all_lists = bool((lists.placed | (graph.in_degrees == 0)).all())
        columns: dict[str, Any] = {"location": self._copy("locations of lists", lists.location)}
        for name, array in self.edge_columns.items():
            columns[name] = self.device.empty(0, _DTYPES[array.dtype]) if all_lists else self._map(array)
            starts = [
                address + self._layout(num_edges)[0][name]
                for address, num_edges in zip(memory.addresses, lists.num_edges, strict=True)
            ]
            columns["shards" if name == "indices" else f"{name}_shards"] = self.device.put(np.array(starts, np.int64))
            self._write(name, lists, memory)
        topology = self._topology(self._copy, **columns)
        own_bytes = self.node_bytes + lists.location.nbytes + self.shard_bytes(lists.num_edges[lists.own_shard])
        return replace(topology, memory=memory, about=self._about(lists, reads, own_bytes, all_lists))

    def room(self, num_bytes: int) -> int:
        """Counts the edges for which a shard has room in so many bytes, beside what is kept by node; negative where
        there is no room for that."""
        return self.shard_edges(num_bytes - self.node_bytes - 8 * self.graph.num_nodes)

    def shard_edges(self, num_bytes: int) -> int:
        """Counts the edges of a shard of so many bytes; negative where there are none left for it."""
        return (num_bytes - _ALIGNMENT * (len(self.edge_columns) - 1)) // self._edge_bytes

    def shard_bytes(self, num_edges: int) -> int:
        """Returns what a shard of so many edges takes."""
        return self._layout(num_edges)[1]

    def visits(self) -> np.ndarray:
        """Returns how often each list is expected to be visited, float64 ``[N]``."""
        if self.hotness is not None:
            return self.hotness
        with progress_bar("Ranking lists", self.graph.num_edges, show=self.progress) as advance:
            return expected_visits(self.graph, advance=advance)

    @property
    def _where(self) -> str:
        return str(self.device.torch_device)

    @property
    def _why(self) -> str:
        return f", as {in_units(self.num_bytes)} are needed and {in_units(self.budget_bytes)} allowed there"

    @property
    def _all_mapped(self) -> str:
        return f"all lists, {in_units(self.num_bytes - self.node_bytes)}, in page-locked host memory"

    @property
    def _edge_bytes(self) -> int:
        return sum(array.itemsize for array in self.edge_columns.values())

    def _topology(self, put: Callable[[str, np.ndarray], Any], **columns: Any) -> Topology:
        """Makes a topology of what is held, by edge, and of what ``put`` places, by node."""
        graph = self.graph
        indptr = put("offsets", graph.indptr)
        return Topology(
            num_nodes=graph.num_nodes,
            num_edges=graph.num_edges,
            indptr=indptr,
            names=None if graph.names is None else put("names", graph.names),
            lists=self._lists(indptr if graph.run_ptr is None else put("runs", _signed(graph.run_ptr))),
            types=graph.types,
            max_degree=int(graph.in_degrees.max(initial=0)),
            has_weights=graph.edge_weight is not None,
            **columns,
        )

    def _lists(self, run_ptr: Any) -> DeviceLists | None:
        """Describes the lists by named type and time; None where times are in order within types by number alone."""
        graph = self.graph
        if graph.types is None and graph.edge_type is not None and graph.edge_time is not None:
            return None
        return DeviceLists.of(graph.link_lists, run_ptr, self.device)

    def _copy(self, name: str, array: np.ndarray) -> torch.Tensor:
        filled, step = self.device.empty(len(array), _DTYPES[array.dtype]), _CHUNK_BYTES // array.itemsize
        self._fill(
            name,
            (array[begin : begin + step] for begin in range(0, len(array), step)),
            len(array),
            lambda begin, values: filled[begin : begin + len(values)].copy_(values),
        )
        return filled

    def _write(self, name: str, lists: ListShards, memory: ShardMemory) -> None:
        """Copies a column of the lists in this rank's shard to it, those of one node beside each other."""
        edge_values, num_edges = self.edge_columns[name], lists.num_edges[lists.own_shard]
        offset = self._layout(num_edges)[0][name]
        self._fill(
            f"{_TITLES[name]} in the shard",
            (
                edge_values[chunk.begin : chunk.end][chunk.spread(lists.in_own)]
                for chunk in chunked_edges(self.graph.indptr)
            ),
            num_edges,
            lambda begin, values: memory.write(offset + begin * values.itemsize, values),
        )

    def _fill(
        self, name: str, chunks: Iterable[np.ndarray], count: int, write: Callable[[int, torch.Tensor], Any]
    ) -> None:
        end = 0
        with progress_bar(f"Placing {name}", count, show=self.progress) as advance:
            for chunk in chunks:
                begin, end = end, end + len(chunk)
                if len(chunk):
                    write(begin, self.device.put(chunk))
                    advance(len(chunk))

    def _layout(self, num_edges: int) -> tuple[dict[str, int], int]:
        """Returns where each column begins in a shard of so many edges, and where the last one ends."""
        offsets, end = {}, 0
        for name, array in self.edge_columns.items():
            offsets[name] = -(-end // _ALIGNMENT) * _ALIGNMENT
            end = offsets[name] + num_edges * array.itemsize
        return offsets, end

    def _about(self, lists: ListShards, reads: np.ndarray, own_bytes: int, all_lists: bool) -> str:
        served, degrees = max(float(reads.sum()), 1e-300), self.graph.in_degrees
        own_lists = lists.in_own & (degrees > 0)
        linked_lists = lists.placed & ~lists.in_own
        about = (
            f"Graph: offsets and the lists of {int(own_lists.sum())} of {self.graph.num_nodes} nodes, "
            f"{in_units(own_bytes)} for an expected {reads[own_lists].sum() / served:.0%} of reads, on {self._where}"
        )
        if (num_linked := len(lists.num_edges) - 1) > 0:
            about += (
                f"; those of {int(linked_lists.sum())} others, for {reads[linked_lists].sum() / served:.0%}, on "
                f"{num_linked} linked device{'s' * (num_linked > 1)}"
            )
        return about + ("" if all_lists else f"; {self._all_mapped}") + self._why

    def _map(self, array: np.ndarray) -> Mapped | torch.Tensor:
        if not array.size:
            return self.device.put(array)  # nothing to page-lock
        # A device goes on reading a file's own pages when a lease exchanges them, and whoever writes to the file then
        # changes what it reads. Page-locked, a copy takes no more memory than they do.
        if mapped_file(array.ctypes.data) is not None and array.nbytes <= free_bytes() // 2:
            array = array.copy()
        as_read = array.view()
        as_read.flags.writeable = False  # or a file's pages, which torch takes for writable ones, would be refused
        try:
            return self.device.map_host(as_read)
        except DeviceMemoryError:
            # Not every system page-locks files; memory of its own it may.
            if array.nbytes > free_bytes():
                raise
            return self.device.map_host(array.copy())


def _edge_columns(graph: Graph, weighted: bool) -> dict[str, np.ndarray]:
    """Returns the arrays with an entry for each edge, by their names in a :class:`.Topology`."""
    columns = {"indices": graph.indices}
    if weighted:
        table = graph.alias_table if graph.types is None else graph.run_alias_table
        columns["table"] = table.entries.view(np.int64)
    if graph.edge_time is not None:
        columns["edge_time"] = _signed(graph.edge_time)
    return columns


def _signed(array: np.ndarray) -> np.ndarray:
    """Views uint32 as int32, which torch has: kernels read the same bits."""
    return array.view(np.int32) if array.dtype == np.uint32 else array


def _num_bytes(*arrays: np.ndarray | None) -> int:
    return sum(array.nbytes for array in arrays if array is not None)


class _OwnMemory:
    """One shard, of this rank's device alone."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self.addresses = (memory.data_ptr(),)

    def write(self, offset: int, values: torch.Tensor) -> None:
        self._memory[offset : offset + values.nbytes].copy_(values.view(torch.uint8))

    def check(self) -> None: ...

    def close(self) -> None: ...
