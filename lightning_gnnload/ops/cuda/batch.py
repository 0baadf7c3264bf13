"""DeviceBatch: a mini-batch in the making on a device; what all node-wise samplers have in common.

Shapes: S seeds, N graph nodes; D destinations and E edges of a hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn, Protocol

import numpy as np
import torch

from ...errors import SamplerConfigError, SeedError
from ..checks import check_array, check_choice
from ..dispatch import MAX_HOP_DRAWS, DrawKey, check_hops
from . import state as codes
from .device import Device
from .queries import DeviceQueries
from .sample import DeviceHop, DeviceSample, HopBuilder
from .state import State
from .topology import Topology
from .workspace import DeviceWorkspace, NumberTable

THREADS = 256
"""The threads of a block: kernels/common/cuda/scan.h counts on this number."""
MAX_LOCAL = 2**31 - 1
MAX_BOUND_EDGES = 1 << 27
"""For a hop that could have more edges, the host waits for their number, and takes memory for that."""
# kTile of kernels/number_nodes/number_nodes_cuda.cu.
_APPEND_TILE = 4 * THREADS
# Of 256 threads: 2,048, the most that a multiprocessor of any architecture holds at once.
_BLOCKS_A_PROCESSOR = 8


class Picker(Protocol):
    """The interface by which a node-wise sampler chooses edges on a device."""

    edge_ids: bool
    edge_weights: bool
    edge_types: bool
    replaces_neighbors: bool

    def most_edges(self, hop: HopBuilder) -> int | None:
        """Returns the largest number of edges that the hop can have; None where only counting tells, for which the
        host waits."""

    def count(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        """Writes ``hop.starts`` and ``hop.last_edge``."""

    def pick(self, batch: DeviceBatch, hop: HopBuilder) -> None:
        """Writes ``hop.picked`` and what else is asked for, and lets each neighbour occur: the one of edge ``e`` at
        ``num_dst + e - first_edge``."""


class DeviceBatch:
    """A mini-batch that is being drawn on a device, in memory for the largest that it can become.

    Args:
        workspace: of this thread alone.
        topology: N nodes.
        seeds: int64 ``[S]``, distinct; on the host, or on the device.
        key: decides every draw.
        num_hops: of the batch.
        queries: of the seeds, which are on the host then; None: all are of one, which asks for every edge.

    Attributes:
        known: the workspace, which kernels take as ``NodeStamps``.
        nodes: int64; as many as the state says are written.
        error: the state's.
        most_nodes: that there are, at most.

    Raises:
        SamplerConfigError: more hops than draws have numbers for, or a workspace of a smaller graph.
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
        self.known, self.topology, self.key, self.num_hops = workspace, topology, key, num_hops
        self.seeds = seeds
        self.queries = queries
        self.state = State(self.device, num_hops)
        self.error = self.state.error
        self.most_nodes = len(seeds)
        self._hops: list[HopBuilder] = []
        self._shares_edges = False  # expand="new": an edge is of one hop, and hops are prefixes of the last
        workspace.begin(self.most_nodes, self.most_nodes)
        self.nodes = self.device.empty(len(seeds), torch.int64)
        if queries is not None:
            assert isinstance(seeds, np.ndarray), "queries are the host's"
            self._check_seeds(seeds, queries)
            seeds = queries.above_seeds | seeds
        self._add_seeds(self.device.put(seeds) if isinstance(seeds, np.ndarray) else seeds)

    def blocks(self, count: int, of_block: int = THREADS, a_processor: int = _BLOCKS_A_PROCESSOR) -> int:
        """Returns the number of blocks of a launch for up to ``count`` items: at least one, at most what the device
        runs at once."""
        return max(min(-(-count // of_block), self.device.num_processors * a_processor), 1)

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
        # Where hops share edges, the nodes before `first` have theirs already.
        hop.most_dst = self.most_nodes - (0 if hop.first is self.state.zero else nodes[hop.index - 1])

    def run(self, picker: Picker, expand: Literal["all", "new"]) -> DeviceSample:
        """Draws all hops, one after the other.

        Raises:
            SeedError: a seed out of range or repeated.
            SamplerConfigError: more edges than local ids can number.
        """
        check_choice("expand", expand, ("all", "new"))
        self._shares_edges = expand == "new"
        for index in range(self.num_hops):
            hop = self._begin_hop(index)
            # Before there is room for edges: where no bound is known, what it counts says how much is needed.
            picker.count(self, hop)
            self._make_room(picker, hop)
            picker.pick(self, hop)
            self.number_nodes(hop, self.nodes, self.state.num_nodes(index + 1))
            self._hops.append(hop)
        return self._finished()

    def note_known(self, hop: HopBuilder, table: NumberTable | None = None) -> None:
        """Notes the nodes known before the hop in a table that has forgotten them."""
        most = (self if table is None else table).most_nodes
        self.launch("number_nodes", "note_known", blocks=self.blocks(most), as_batch=table, hop=hop)

    def start_edges(self, hop: HopBuilder, num_edges: torch.Tensor) -> None:
        """Writes ``hop.starts`` and ``hop.last_edge``.

        Args:
            num_edges: int32, read as unsigned, of each node of the batch that is a destination to expand.
        """
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
        """Gives the neighbours of a hop's edges local ids, in the order in which they occur: writes ``hop.indices``,
        those that are new to ``nodes``, and how many there are then. Or numbers what occurs in another table."""
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
        # Launched by itself, since all new nodes must have their ids before any edge reads one.
        blocks = self.blocks(hop.most_edges)
        self.launch("number_nodes", "relabel", types, blocks=blocks, as_batch=table, hop=hop, edges=hop)

    def _add_seeds(self, seeds: torch.Tensor) -> None:
        blocks = self.blocks(len(seeds))
        # Those below their queries' numbers are checked already.
        end = self.topology.num_nodes if self.queries is None else 2**63 - 1
        sizes: dict[str, Any] = {"num_seeds": len(seeds), "num_graph_nodes": end}
        num_nodes = self.state.num_nodes(0)
        self.launch("number_nodes", "add_seeds", blocks=blocks, seeds=seeds, num_nodes=num_nodes, **sizes)
        # Launched by itself, since all seeds must have occurred before one is asked whether it was first.
        self.launch("number_nodes", "check_seeds", blocks=blocks, **sizes)

    def _check_seeds(self, seeds: np.ndarray, queries: DeviceQueries) -> None:
        """Raises SeedError: the first that is out of range or repeats, if one is out of range: with its query's number
        above it, no kernel could tell."""
        bad = np.flatnonzero((seeds < 0) | (seeds >= self.topology.num_nodes))
        if not len(bad):
            return
        before = queries.above_seeds[: bad[0]] | seeds[: bad[0]]
        _, first = np.unique(before, return_index=True)
        repeats = np.setdiff1d(np.arange(len(before)), first)
        if len(repeats):
            self.fail(codes.SEED_REPEATED, int(repeats[0]))
        self.fail(codes.SEED_OUT_OF_RANGE, int(bad[0]))

    def _before(self) -> HopBuilder | None:
        """Returns the hop whose edges the next one's follow in memory; None where there is none."""
        return self._hops[-1] if self._hops and self._shares_edges else None

    def _begin_hop(self, index: int) -> HopBuilder:
        state, before = self.state, self._before()
        most_dst = self.most_nodes if before is None else min(before.most_edges, self.most_nodes)
        return HopBuilder(
            key=DrawKey(self.key.seed, self.key.epoch, self.key.step, self.key.hop + index),
            index=index,
            first=state.zero if before is None else before.num_dst,
            num_dst=state.num_nodes(index),
            first_edge=state.zero if before is None else before.last_edge,
            last_edge=state.num_edges(index),
            most_dst=most_dst,
            starts=self.grown(None if before is None else before.starts, self.most_nodes + 1, torch.int32),
        )

    def _make_room(self, picker: Picker, hop: HopBuilder) -> None:
        """Allocates memory for the edges and nodes of a hop: for as many as there can be or, where these are too many
        or unknown, for as many as there are, for which the host waits."""
        before, bound = self._before(), picker.most_edges(hop)
        edges_before = 0 if before is None else before.most_edges
        if bound is None or edges_before + bound > MAX_BOUND_EDGES:
            nodes, edges = self.read()
            self.most_nodes = nodes[hop.index]
            hop.most_edges = edges[hop.index]
            if picker.replaces_neighbors:
                first_dst, first = (0, 0) if before is None else (nodes[before.index], edges[before.index])
                num_dst = nodes[hop.index] - first_dst
                self.check_draws(hop, num_dst, hop.most_edges - first, "neighbours with replacement")
        else:
            hop.most_edges = edges_before + bound
        if self.most_nodes + hop.most_edges > codes.MAX_POSITIONS:
            self.fail(codes.TOO_MANY_EDGES)
        most_after = self.most_nodes + hop.most_edges
        if self.queries is None or self.queries.paths is None:
            num_queries = 1 if self.queries is None else self.queries.num_queries
            most_after = min(most_after, self.topology.num_nodes * num_queries)
        if self.known.widen(most_after, self.most_nodes + hop.most_edges):
            self.note_known(hop)
        self.most_nodes = most_after
        self.nodes = self.grown(self.nodes, most_after, torch.int64)
        picked = self.topology.index_dtype if self.queries is None else torch.int64
        columns = {"picked": picked, "indices": torch.int32}
        if picker.edge_ids:
            columns["edge_ids"] = torch.int64
        if picker.edge_weights:
            columns["edge_weights"] = torch.float32
        if picker.edge_types:
            columns["edge_types"] = torch.int32
        for name, dtype in columns.items():
            held = None if before is None else getattr(before, name)
            setattr(hop, name, self.grown(held, hop.most_edges, dtype))

    def _finished(self) -> DeviceSample:
        nodes, edges = self.read()
        hops = []
        for hop in self._hops:
            # Hops that share their edges' memory have grown into the last one's; the others keep their own.
            held = self._hops[-1] if self._shares_edges else hop
            first, last = nodes[hop.index], edges[hop.index]
            assert held.indices is not None
            hops.append(
                DeviceHop(
                    num_dst=first,
                    num_src=nodes[hop.index + 1],
                    indptr=held.starts[: first + 1],
                    indices=held.indices[:last],
                    edge_ids=None if held.edge_ids is None else held.edge_ids[:last],
                    edge_weights=None if held.edge_weights is None else held.edge_weights[:last],
                    edge_types=None if held.edge_types is None else held.edge_types[:last],
                )
            )
        found = self.nodes[: nodes[-1]]
        if self.queries is None:
            return DeviceSample(found, tuple(hops))
        return DeviceSample(self.queries.nodes(found), tuple(hops), self.queries.numbers(found))

    def check_draws(self, hop: HopBuilder, num_dst: int, num_draws: int, what: str) -> None:
        """Raises SamplerConfigError: a hop draws more than there is time and memory for, as on the CPU."""
        if num_draws > MAX_HOP_DRAWS:
            raise SamplerConfigError(
                f"Hop {hop.index} of a batch, of {num_dst} nodes, draws up to {num_draws} {what}, but a hop draws "
                f"at most {MAX_HOP_DRAWS}. Use a smaller batch, or draw fewer for each node."
            )

    def read(self) -> tuple[list[int], list[int]]:
        """Reads how many nodes were known before each hop, and where its edges end; of later hops, 0. The host waits.

        Raises:
            SeedError: a seed out of range or repeated.
            SamplerConfigError: more edges than local ids can number.
        """
        error, nodes, edges = self.state.read()
        if error is not None:
            self.fail(*error)
        return nodes, edges

    def fail(self, code: int, place: int = 0) -> NoReturn:
        """Raises what :meth:`read` does for an error of this code and place."""
        if code == codes.TOO_MANY_EDGES:
            raise SamplerConfigError(
                f"A batch of {len(self.seeds)} seeds reaches more than {MAX_LOCAL} edges, beyond int32 local ids. Use "
                f"a smaller batch or smaller fanouts."
            )
        if code == codes.TOO_MANY_QUERIES:
            assert self.queries is not None
            raise SamplerConfigError(
                f"A batch along paths has {(1 << 63 - self.queries.shift) + 1} times at which it asks for edges, of "
                f"which each needs a number of its own above those of nodes and edges, within 63 bits. Use a smaller "
                f"batch."
            )
        seeds = self.seeds if isinstance(self.seeds, np.ndarray) else self.device.read(self.seeds)
        num_nodes = self.topology.num_nodes
        if code == codes.SEED_OUT_OF_RANGE:
            raise SeedError(
                f"seeds[{place}] is {seeds[place]}, but the graph has {num_nodes} nodes: seeds must lie in [0, "
                f"{num_nodes})."
            )
        named = seeds if self.queries is None else self.queries.above_seeds | seeds
        first = int(np.flatnonzero(named == named[place])[0])
        raise SeedError(
            f"seeds[{place}] is {seeds[place]}, the same node as seeds[{first}]. The seeds of a batch must be "
            f"distinct: remove repeats, for example with numpy.unique."
        )

    def grown(self, held: torch.Tensor | None, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor of at least ``count`` elements that begins with what is held."""
        if held is not None and len(held) >= count:
            return held
        grown = self.device.empty(count, dtype)
        if held is not None:
            grown[: len(held)] = held
        return grown
