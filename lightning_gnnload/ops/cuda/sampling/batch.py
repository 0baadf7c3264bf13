"""DeviceBatch: a mini-batch that is being drawn on a device; what all node-wise samplers have in common.

Shapes: S seeds, N graph nodes; D destinations and E edges of a hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn, Protocol

import numpy as np
import torch

from ....errors import SamplerConfigError, SeedError
from ...checks import check_array, check_choice
from ...dispatch import MAX_HOP_DRAWS, DrawKey, check_hops
from ..launch import state as codes
from ..launch.device import Device
from ..launch.state import State
from ..tables.bus_order import FEW_LISTS, Reads, can_order, order_reads
from .failures import MAX_LOCAL, fail
from .queries import DeviceQueries
from .sample import DeviceHop, DeviceSample, HopBuilder
from .topology import Topology
from .varying import HopKey, Varying, most_of
from .workspace import DeviceWorkspace, NumberTable

THREADS = 256  # of a block: kernels/common/cuda/scan.h is written for this number
# Of a hop. Where more are possible, waiting for their number costs less than memory for all of them.
MAX_BOUND_EDGES = 1 << 27
# kTile of kernels/number_nodes/number_nodes_cuda.cu.
_APPEND_TILE = 4 * THREADS
# Of 256 threads each: 2,048, the most that a multiprocessor of any architecture holds at once.
_BLOCKS_A_PROCESSOR = 8


class Picker(Protocol):
    """The interface by which a node-wise sampler chooses edges on a device."""

    edge_ids: bool
    edge_weights: bool
    edge_types: bool
    replaces_neighbors: bool

    def most_edges(self, hop: HopBuilder) -> int | None:
        """Returns the largest number of edges that the hop can have; None where only counting tells, for which the host
        waits."""

    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        """Writes ``hop.starts`` and ``hop.last_edge``."""

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        """Writes ``hop.picked`` and other columns, and enters each neighbour in the table: that of edge ``e`` at
        ``num_dst + e - first_edge``."""


class DeviceBatch:
    """A mini-batch that is being drawn on a device, in memory for the largest that it can become.

    ``seeds``, int64 ``[S]``, distinct, are on the host or on the device; with ``queries``, on the host. Raises
    SamplerConfigError for more hops than draws have numbers for, or a workspace of a smaller graph.
    """

    def __init__(
        self,
        workspace: DeviceWorkspace,
        topology: Topology,
        seeds: np.ndarray | torch.Tensor,
        key: DrawKey,
        num_hops: int,
        queries: DeviceQueries | None = None,
    ) -> None:
        check_hops("the sampler", num_hops, key)
        if isinstance(seeds, np.ndarray):
            check_array("seeds", seeds, (np.int64,), 1, SeedError)
        if workspace.num_nodes < topology.num_nodes:
            raise SamplerConfigError(
                f"The DeviceWorkspace is for graphs of {workspace.num_nodes} nodes, but this graph has "
                f"{topology.num_nodes}. Make a DeviceWorkspace(device, {topology.num_nodes})."
            )
        self.device: Device = workspace.device
        # Kernels take the workspace as ``NodeStamps``, by the name ``known``.
        self.known, self.topology, self.key, self.num_hops = workspace, topology, key, num_hops
        self.seeds = seeds
        self.queries = queries
        self.state = State(self.device, num_hops)
        self.error = self.state.error
        self.most_nodes = most_of(len(seeds))
        self._numbers: torch.Tensor | None = None  # int32, the query of each node, where these are asked for
        self._hops: list[HopBuilder] = []
        self._shares_edges = False  # expand="new": hops are prefixes of the last one, in its memory
        workspace.begin(self.most_nodes, self.most_nodes)
        self.nodes = self.device.empty(self.most_nodes, torch.int64)
        if queries is not None and queries.host is not None:
            assert isinstance(seeds, np.ndarray), "queries are the host's"
            seeds = queries.host.ids(seeds, topology.num_nodes)
        self._add_seeds(self.device.put(seeds, each_batch=True) if isinstance(seeds, np.ndarray) else seeds)

    def blocks(self, count: int, block_threads: int = THREADS, a_processor: int = _BLOCKS_A_PROCESSOR) -> int:
        """Returns the number of blocks of a launch for up to ``count`` items: at least one, at most what the device
        runs at once."""
        return max(min(-(-count // block_threads), self.device.num_processors * a_processor), 1)

    def launch(
        self,
        op: str,
        kernel: str,
        types: Sequence[str] = (),
        *,
        blocks: int,
        threads: int = THREADS,
        as_batch: DeviceBatch | NumberTable | None = None,
        **arguments: Any,
    ) -> None:
        """Starts a kernel that takes this batch, or ``as_batch``, as ``batch``: see :meth:`.Device.launch`."""
        batch = self if as_batch is None else as_batch
        self.device.launch(op, kernel, types, blocks=blocks, threads=threads, batch=batch, **arguments)

    def narrow(self, hop: HopBuilder) -> None:
        """Replaces the bound on a hop's destinations by their number, for which the host waits."""
        nodes, _ = self.read()
        self.most_nodes = nodes[hop.index]
        # Where hops share edges, the nodes before `first` have got theirs in earlier hops.
        hop.most_dst = self.most_nodes - (0 if hop.first is self.state.zero else nodes[hop.index - 1])

    def run(self, picker: Picker, expand: Literal["all", "new"]) -> DeviceSample:
        """Draws all hops, one after the other. Raises SeedError for a seed out of range or repeated, SamplerConfigError
        for more edges than local ids can number."""
        check_choice("expand", expand, ("all", "new"))
        self._shares_edges = expand == "new"
        for index in range(self.num_hops):
            hop = self._begin_hop(index)
            # Counted before memory is taken, as where no bound is known the count says how much is needed.
            picker.count(self, hop)
            self._make_room(picker, hop)
            picker.pick(self, hop)
            self.number_nodes(hop, self.nodes, self.state.num_nodes(index + 1))
            self._hops.append(hop)
        if self.queries is not None and self.queries.returns_queries:
            self._split_rows()
        return self._finished()

    def order_destinations(self, hop: HopBuilder) -> None:
        """Lets a hop's lists be read in the order of their places, if they come over the bus and are many. The edges,
        and where they go, are the same."""
        most, num_nodes = hop.most_dst, self.topology.num_nodes
        if most < FEW_LISTS or not self.topology.is_on_bus or not can_order(most, num_nodes):
            return
        mask = -1 if self.queries is None else (1 << self.queries.shift) - 1
        reads = Reads(self.nodes, most, num_nodes, first=hop.first, end=hop.num_dst, id_mask=mask)
        hop.order = order_reads(self.device, reads)

    def note_known(self, hop: HopBuilder, table: NumberTable | None = None) -> None:
        """Enters the nodes known before the hop in a table that was cleared."""
        most = (self if table is None else table).most_nodes
        self.launch("number_nodes", "note_known", blocks=self.blocks(most), as_batch=table, hop=hop)

    def start_edges(self, hop: HopBuilder, num_edges: torch.Tensor) -> None:
        """Writes ``hop.starts`` and ``hop.last_edge`` from ``num_edges``, int32 that is read as unsigned, of each
        destination to expand."""
        self.launch(
            "number_nodes",
            "sum_edges",
            blocks=self.blocks(hop.most_dst),
            hop=hop,
            num_edges=num_edges,
            max_edges=MAX_LOCAL,
            words=self.state.scan_words(hop.most_dst // THREADS + 1),
        )

    def number_nodes(
        self, hop: HopBuilder, nodes: torch.Tensor, num_nodes: torch.Tensor, table: NumberTable | None = None
    ) -> None:
        """Gives the neighbours of a hop's edges local ids, in order of first occurrence: writes ``hop.indices``, the
        nodes that are new to ``nodes``, and their number; with ``table``, numbers what occurs in another table."""
        assert hop.picked is not None
        types = ("int32_t" if hop.picked.dtype == torch.int32 else "int64_t",)
        self.launch(
            "number_nodes",
            "append_nodes",
            types,
            blocks=self.blocks(hop.most_edges, _APPEND_TILE),
            as_batch=table,
            hop=hop,
            edges=hop,
            nodes=nodes,
            num_nodes=num_nodes,
            words=self.state.scan_words(-(-hop.most_edges // _APPEND_TILE) + 1),
        )
        # A launch of its own, since only its end makes sure that all new nodes have their ids before an edge reads one.
        blocks = self.blocks(hop.most_edges)
        self.launch("number_nodes", "relabel", types, blocks=blocks, as_batch=table, hop=hop, edges=hop)

    def _add_seeds(self, seeds: torch.Tensor) -> None:
        blocks = self.blocks(self.most_nodes)
        # Seeds with a query's number above them have been checked on the host; to kernels they are any int64.
        are_checked = self.queries is not None and self.queries.host is not None
        end = 2**63 - 1 if are_checked else self.topology.num_nodes
        sizes: dict[str, Any] = {"num_seeds": Varying(len(seeds), "num_seeds"), "num_graph_nodes": end}
        num_nodes = self.state.num_nodes(0)
        self.launch("number_nodes", "add_seeds", blocks=blocks, seeds=seeds, num_nodes=num_nodes, **sizes)
        # A launch of its own, since all seeds must be in the table before one is compared with its first occurrence.
        self.launch("number_nodes", "check_seeds", blocks=blocks, **sizes)

    def _split_rows(self) -> None:
        """Takes the queries' numbers from above the nodes."""
        self._numbers = self.device.empty(self.most_nodes, torch.int32)
        self.launch(
            "sample_typed",
            "split_rows",
            blocks=self.blocks(self.most_nodes),
            asked=self.queries,
            num_nodes=self.state.num_nodes(self.num_hops),
            queries=self._numbers,
        )

    def _before(self) -> HopBuilder | None:
        """Returns the hop whose edges the next one's follow in memory; None where there is none."""
        return self._hops[-1] if self._hops and self._shares_edges else None

    def _begin_hop(self, index: int) -> HopBuilder:
        state, before, key = self.state, self._before(), self.key
        most_dst = self.most_nodes if before is None else min(before.most_edges, self.most_nodes)
        return HopBuilder(
            key=HopKey(
                Varying(key.seed, "seed"), Varying(key.epoch, "epoch"), Varying(key.step, "step"), key.hop + index
            ),
            index=index,
            first=state.zero if before is None else before.num_dst,
            num_dst=state.num_nodes(index),
            first_edge=state.zero if before is None else before.last_edge,
            last_edge=state.num_edges(index),
            most_dst=most_dst,
            starts=self.grown(None if before is None else before.starts, self.most_nodes + 1, torch.int32),
        )

    def _make_room(self, picker: Picker, hop: HopBuilder) -> None:
        """Allocates memory for the edges and nodes of a hop: for the most that there can be or, where these are too
        many or unknown, for as many as there are, for which the host waits."""
        before, bound = self._before(), picker.most_edges(hop)
        edges_before = 0 if before is None else before.most_edges
        if bound is None or edges_before + bound > MAX_BOUND_EDGES:
            self._count_edges(picker, hop, before)
        else:
            hop.most_edges = edges_before + bound
        if self.most_nodes + hop.most_edges > codes.MAX_POSITIONS:
            self.fail(codes.TOO_MANY_EDGES)
        most_after = self.most_nodes + hop.most_edges
        if self.queries is None or self.queries.paths is None:
            most_queries = 1 if self.queries is None else self.queries.most_queries
            most_after = min(most_after, self.topology.num_nodes * most_queries)
        if self.known.widen(most_after, self.most_nodes + hop.most_edges):
            self.note_known(hop)
        self.most_nodes = most_after
        self.nodes = self.grown(self.nodes, most_after, torch.int64)
        self._allocate_columns(picker, hop, before)

    def _count_edges(self, picker: Picker, hop: HopBuilder, before: HopBuilder | None) -> None:
        """Replaces the bounds on a hop's nodes and edges by their numbers, for which the host waits."""
        nodes, edges = self.read()
        self.most_nodes = nodes[hop.index]
        hop.most_edges = edges[hop.index]
        if picker.replaces_neighbors:
            first_dst, first = (0, 0) if before is None else (nodes[before.index], edges[before.index])
            num_dst = nodes[hop.index] - first_dst
            self.check_draws(hop, num_dst, hop.most_edges - first, "neighbours with replacement")

    def _allocate_columns(self, picker: Picker, hop: HopBuilder, before: HopBuilder | None) -> None:
        # With queries a neighbour has its query's number above it, which the graph's int32 has no bits for.
        picked = self.topology.index_dtype if self.queries is None else torch.int64
        columns = {"picked": picked, "indices": torch.int32}
        if picker.edge_ids:
            columns["edge_ids"] = torch.int64
        if picker.edge_weights:
            columns["edge_weights"] = torch.float32
        if picker.edge_types:
            columns["edge_types"] = torch.int32
        for name, dtype in columns.items():
            buffer = None if before is None else getattr(before, name)
            setattr(hop, name, self.grown(buffer, hop.most_edges, dtype))

    def _finished(self) -> DeviceSample:
        nodes, edges = self.read()
        hops = []
        for hop in self._hops:
            # Hops that share their edges' memory are prefixes of the last one's columns.
            columns = self._hops[-1] if self._shares_edges else hop
            first, last = nodes[hop.index], edges[hop.index]
            assert columns.indices is not None
            hops.append(
                DeviceHop(
                    num_dst=first,
                    num_src=nodes[hop.index + 1],
                    indptr=columns.starts[: first + 1],
                    indices=columns.indices[:last],
                    edge_ids=None if columns.edge_ids is None else columns.edge_ids[:last],
                    edge_weights=None if columns.edge_weights is None else columns.edge_weights[:last],
                    edge_types=None if columns.edge_types is None else columns.edge_types[:last],
                )
            )
        numbers = None if self._numbers is None else self._numbers[: nodes[-1]]
        return DeviceSample(self.nodes[: nodes[-1]], tuple(hops), numbers)

    def check_draws(self, hop: HopBuilder, num_dst: int, num_draws: int, drawn_items: str) -> None:
        """Raises SamplerConfigError where a hop draws more than there is time and memory for, as on the CPU."""
        if num_draws > MAX_HOP_DRAWS:
            raise SamplerConfigError(
                f"Hop {hop.index} of a batch, of {num_dst} nodes, draws up to {num_draws} {drawn_items}, but a hop "
                f"draws at most {MAX_HOP_DRAWS}. Use a smaller batch, or draw fewer for each node."
            )

    def read(self) -> tuple[list[int], list[int]]:
        """Reads how many nodes were known before each hop, and where its edges end; 0 for later hops. The host waits.
        Raises as :meth:`run`."""
        error, nodes, edges = self.state.read()
        if error is not None:
            self.fail(*error)
        return nodes, edges

    def fail(self, code: int, position: int = 0) -> NoReturn:
        """Raises the error of this code and position."""
        seeds = self.seeds if isinstance(self.seeds, np.ndarray) else self.device.read(self.seeds)
        fail(code, position, seeds, self.topology.num_nodes, None if self.queries is None else self.queries.host)

    def grown(self, tensor: torch.Tensor | None, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor of at least ``count`` elements that begins with those of ``tensor``."""
        if tensor is not None and len(tensor) >= count:
            return tensor
        return self.device.empty(count, dtype) if tensor is None else self.device.grow(tensor, count)
