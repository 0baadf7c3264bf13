"""Placement: puts the in-neighbour lists where a device finds them: in its own memory, as far as there is room.

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
from lightning_gnnload.host.memory import free_bytes, in_units, reserve_bytes
from lightning_gnnload.host.pages import mapped_file
from lightning_gnnload.host.progress import progress as progress_bar
from lightning_gnnload.ops.cuda.device import Device, Mapped
from lightning_gnnload.ops.cuda.topology import DeviceLists, Topology
from lightning_gnnload.sample.device.hotness import chunked_edges, expected_reads, expected_visits, hottest_lists

MODEL_SHARE = 0.5
"""The share of a device's free memory left to its model, its mini-batches and a cache, where it trains as well."""
_CHUNK_BYTES = 32 << 20
_TITLES = {"indices": "lists", "table": "alias tables", "edge_time": "times"}
_DTYPES = {np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64}


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
    placing = _Placing(graph, _edge_columns(graph, weighted), device, budget_bytes, hotness, progress)
    topology, refusal = None, ""
    for way in (placing.whole, placing.hot):
        try:
            topology = topology or way()
        except DeviceMemoryError as error:
            refusal = f" ({error})"  # what the device says is free, it need not give
    try:
        topology = topology or placing.mapped()
    except DeviceMemoryError as error:
        raise DeviceMemoryError(
            f"the graph takes {in_units(placing.num_bytes)}, of which {device.torch_device} may hold "
            f"{in_units(budget_bytes)}, and the host cannot page-lock the rest ({error}). Free memory of the host, "
            f"raise its limit of locked memory (ulimit -l), or sample on the CPU: "
            f"GraphDataModule(sampling_device='cpu')."
        ) from error
    device.record().synchronize()  # whatever stream reads it
    return replace(topology, about=f"{topology.about}{refusal}.")


@dataclass(frozen=True)
class _Placing:
    """Places one graph on one device."""

    graph: Graph
    edge_columns: dict[str, np.ndarray]
    device: Device
    budget_bytes: int
    hotness: np.ndarray | None
    progress: bool

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
        topology = self._topology(self._copy, **{name: self._map(array) for name, array in self.edge_columns.items()})
        lists = f"all lists, {in_units(self.num_bytes - self.node_bytes)}, in page-locked host memory"
        hot, share = self._hottest()
        if not hot.any():
            return replace(
                topology, about=f"Graph: offsets, {in_units(self.node_bytes)}, on {self._where}; {lists}{self._why}"
            )
        begin, num_edges = _begins(hot, graph.in_degrees)
        hot_bytes = begin.nbytes + num_edges * self._edge_bytes
        columns: dict[str, Any] = {"hot_begin": self._copy("offsets of hot lists", begin)}
        for name, array in self.edge_columns.items():
            columns[f"hot_{name}"] = self._pick(f"hot {_TITLES[name]}", array, hot, num_edges)
        return replace(
            topology,
            **columns,
            about=(
                f"Graph: offsets and the lists of {int(hot.sum())} of {graph.num_nodes} nodes, "
                f"{in_units(self.node_bytes + hot_bytes)} for an expected {share:.0%} of reads, on {self._where}; "
                f"{lists}{self._why}"
            ),
        )

    def mapped(self) -> Topology:
        return self._topology(
            lambda _, array: self._map(array),
            **{name: self._map(array) for name, array in self.edge_columns.items()},
            about=(
                f"Graph: all of it, {in_units(self.num_bytes)}, in page-locked host memory, read by {self._where}"
                f"{self._why}"
            ),
        )

    @property
    def _where(self) -> str:
        return str(self.device.torch_device)

    @property
    def _why(self) -> str:
        return f", as {in_units(self.num_bytes)} are needed and {in_units(self.budget_bytes)} allowed there"

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

    def _hottest(self) -> tuple[np.ndarray, float]:
        """Selects the nodes whose lists lie on the device, bool ``[N]``, and the share of reads that these serve."""
        graph = self.graph
        # hot_begin is placed as well, an int64 a node, where any list is hot.
        begin_bytes = 8 * graph.num_nodes
        num_edges = (self.budget_bytes - self.node_bytes - begin_bytes) // self._edge_bytes
        if num_edges <= 0:
            return np.zeros(graph.num_nodes, bool), 0.0
        visits = self.hotness
        if visits is None:
            with progress_bar("Ranking lists", graph.num_edges, show=self.progress) as advance:
                visits = expected_visits(graph, advance=advance)
        reads = expected_reads(graph, visits)
        hot = hottest_lists(graph, reads, num_edges)
        return hot, float(reads[hot].sum() / max(reads.sum(), 1e-300))

    def _copy(self, name: str, array: np.ndarray) -> torch.Tensor:
        step = _CHUNK_BYTES // array.itemsize
        chunks = (array[begin : begin + step] for begin in range(0, len(array), step))
        return self._fill(name, chunks, len(array), array.dtype)

    def _pick(self, name: str, edge_values: np.ndarray, hot: np.ndarray, num_edges: int) -> torch.Tensor:
        """Copies the hot nodes' entries, those of one node beside each other."""
        chunks = (edge_values[chunk.begin : chunk.end][chunk.spread(hot)] for chunk in chunked_edges(self.graph.indptr))
        return self._fill(name, chunks, num_edges, edge_values.dtype)

    def _fill(self, name: str, chunks: Iterable[np.ndarray], count: int, dtype: np.dtype) -> torch.Tensor:
        filled, end = self.device.empty(count, _DTYPES[dtype]), 0
        with progress_bar(f"Placing {name}", count, show=self.progress) as advance:
            for chunk in chunks:
                begin, end = end, end + len(chunk)
                if len(chunk):
                    filled[begin:end].copy_(self.device.put(chunk))
                    advance(len(chunk))
        return filled

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


def _begins(hot: np.ndarray, degrees: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns where each hot list begins among the hot ones, int64 ``[N]``, -1 for others; and their number of
    edges."""
    stops = np.cumsum(np.where(hot, degrees, 0))
    return np.where(hot, stops - degrees, -1), int(stops[-1])


def _num_bytes(*arrays: np.ndarray | None) -> int:
    return sum(array.nbytes for array in arrays if array is not None)
