"""Random walks, and RandomWalkSampler: PinSAGE's neighbourhoods, the nodes that walks visit most often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_ids
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CudaUnavailableError, SamplerConfigError
from lightning_gnnload.ops import Draw, DrawKey, SampleLayout, Walks
from lightning_gnnload.sample.base import LayBatch, Paradigm, Sampler, columns_that, sampler_input
from lightning_gnnload.sample.fanouts import check_expand
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.metapath import (
    check_metapath,
    metapath_runs,
    metapath_steps,
    runs_of_steps,
    starts_of,
    walk_length,
)
from lightning_gnnload.sample.naming import local_seeds
from lightning_gnnload.sample.parts.collective_walks import walk_together, walks_along
from lightning_gnnload.sample.parts.hops import lay_hops
from lightning_gnnload.sample.parts.lists import HopEdges, walk_table
from lightning_gnnload.sample.presence import presence_by_walks

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
    from lightning_gnnload.ops.cuda.sampling.topology import Topology
    from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace

_ACROSS_TYPES = (
    "walks by edge weight across types need alias tables of whole lists, and devices hold those of each type by itself"
)


def random_walk(
    graph: Graph,
    starts: Any,
    length: int | None = None,
    *,
    metapath: Sequence[Any] | None = None,
    num_walks: int = 1,
    termination_prob: float = 0.0,
    restart_prob: float = 0.0,
    weighted: bool = True,
    seed: int = 0,
    epoch: int = 0,
    step: int = 0,
) -> torch.Tensor:
    """Walks at random along in-edges, from a node to one of its in-neighbours, in proportion to ``Graph.edge_weight``.

    In-edges, since a node's messages come from there; in an undirected graph it makes no difference. In a graph
    without weights each in-neighbour is equally likely. A walk ends at a node without in-neighbours, or whose in-edges
    all weigh zero. Each walk is a pure function of the graph, its start, its number and the key
    (seed, epoch, step), whatever the other starts are.

    Args:
        graph: N nodes; ids of a part are those of the whole graph, as in :meth:`.Sampler.sample`.
        starts: distinct node ids ``[S]``: tensor, array or list.
        length: steps a walk; with a metapath, rounds a walk, 1 if not given.
        metapath: in a graph with types, the edge type of each step of a round, ``(source, relation, target)`` or
            another name that :meth:`.GraphTypes.edge_type_number` knows. Walks go along in-edges: the first edge type
            ends in the starts' type, each further one in the type that the step before has reached, and with several
            rounds the last step reaches the starts' type again. None: steps go along edges of any type.
        num_walks: walks from each start.
        termination_prob: after each step, or each round, the walk ends with this probability (DGL's samplers by
            random walk do so; its ``random_walk`` may end a walk before the first step as well).
        restart_prob: a step, or the first one of a round, leaves, with this probability, from the start instead of the
            node reached before it, as in personalised PageRank. What the row shows is the nodes that steps reached.
        weighted: step by ``Graph.edge_weight`` where the graph has it, the default, since who gives weights means
            them; False: as if it had none.
        seed: the random seed of the run.
        epoch: the epoch.
        step: the global optimizer step in the epoch.

    Returns:
        int64 ``[S * num_walks, steps + 1]``: row ``s * num_walks + w`` is walk ``w`` of ``starts[s]``, the start
        first and -1 after the end.

    Raises:
        SeedError: a start is not a node, repeats, or is none of the type that the metapath begins at.
        SamplerConfigError: a length or number below 1, a probability outside [0, 1], a metapath that the graph does not
            have, a graph with times.
        PartReachError: the graph is a part that does not hold ``length`` hops of the starts.

    Source: DSP (PPoPP'23), section 4.2: a walk is node-wise sampling with fanout 1; Pixie (WWW'18), section 3.1,
    for restarts.

    Example:
        >>> ring = Graph.from_coo(src=[0, 1, 2], dst=[1, 2, 0])
        >>> random_walk(ring, [0, 1], length=4).tolist()
        [[0, 2, 1, 0, 2], [1, 0, 2, 1, 0]]
        >>> bought = Graph.from_hetero(None, {("user", "buys", "item"): ([0], [2]), ("user", "is", "user"): ([1], [0])})
        >>> random_walk(bought, [bought.types.range_of("item")[2]], metapath=["buys", "is"]).tolist()
        [[4, 0, 1]]
    """
    num_steps = walk_length(length, metapath)
    if graph.clock is not None:
        raise SamplerConfigError(
            "random_walk ignores times, but the graph has them: it would walk to the future. Take NeighborSampler, or "
            "build the graph without times."
        )
    walks, runs = Walks(num_steps, num_walks, termination_prob, restart_prob), None
    if metapath is not None:
        runs = metapath_runs(graph, check_metapath(metapath), returns=walks.length > 1)
        walks = replace(walks, length=walks.length * len(runs.first))
    reach = walks.length if runs is None else None  # runs are of the whole graph's numbering, which a part has not
    ids = local_seeds(graph, as_ids(starts, name="starts"), reach, "random_walk")
    key = DrawKey(seed, epoch, step)
    table = walk_table(graph, weighted, runs is not None)
    traces = ops.random_walk(graph.indptr, graph.indices, ids, walks, key, runs=runs, table=table, names=graph.names)
    if graph.origin is not None:
        on_way = traces >= 0
        traces[on_way] = graph.names_of(traces[on_way])
    return torch.from_numpy(traces)


class RandomWalkSampler(Sampler):
    """Takes as neighbours of every node, hop by hop, those that random walks from it visit most often (PinSAGE).

    A block's ``edge_weight`` is the importance of each edge: how often the walks of its destination visited its
    source. A destination's edges come by falling visits, equal ones by rising id. An edge joins nodes that may be
    several steps apart, so blocks have no ``edge_ids``. In a graph with ``Graph.edge_weight`` a step goes by it; the
    first batch then makes the alias tables, as for :class:`.WeightedNeighborSampler`. The defaults are GNNLab's: of
    each node, the 5 nodes that 4 walks of up to 3 steps visit most often, in 3 layers.

    With a metapath walks go between types, and come back to their own at the end of each round: only these nodes are
    visited. So all nodes of a mini-batch are of the seeds' type, and its edges, which join two of them, are of no type
    of the graph: models see a graph of one type.

    Args:
        num_layers: number of blocks, each with walks of its own.
        num_neighbors: at most so many neighbours a node.
        num_walks: walks from each node.
        walk_length: steps a walk, along in-edges; with a metapath, rounds a walk (DGL's ``num_traversals``). A walk
            ends early at a node without in-neighbours, or whose in-edges all weigh zero.
        termination_prob: after each step, or each round, a walk ends with this probability.
        restart_prob: a step, or the first one of a round, leaves, with this probability, from the destination instead
            of the node reached before.
        include_self: whether a walk that comes back to its destination has visited it, so that the destination
            can be its own neighbour, as in DGL and GNNLab.
        normalize: divide the visits by their sum over the neighbours taken, so that the weights of a destination
            sum to one (the paper's L1 norm), in float32.
        expand: ``"all"``: every node seen so far is a destination again in the next hop, with fresh walks (DGL);
            ``"new"``: only the nodes that the last hop found (PyG). None: ``"new"`` where a GraphDataModule's
            ``batch_format`` needs it, else ``"all"``.
        weighted: step by ``Graph.edge_weight`` where the graph has it, the default, since who gives weights means
            them; False: as if it had none.
        metapath: in a graph with types, the edge type of each step of a round, as for :func:`.random_walk`; the last
            step reaches the type that the first one left. None: steps go along edges of any type.

    Raises:
        SamplerConfigError: a number below 1, a probability outside [0, 1], more than 65,535 visits a node, or an
            unknown ``expand``; on sampling, a metapath that the graph does not have, or that does not return.
        SeedError: on sampling, a seed that is not of the type that the metapath begins at.

    Source: PinSage (KDD'18), section 3.2, importance pooling; GNNLab (EuroSys'22), section 7.1, for the defaults; DGL's
    PinSAGESampler for metapaths.

    Example:
        >>> star = Graph.from_coo(src=[1, 2, 3, 0, 0, 0], dst=[0, 0, 0, 1, 2, 3])
        >>> sampler = RandomWalkSampler(num_layers=1, num_neighbors=1, walk_length=2, termination_prob=0)
        >>> block = sampler.sample(star, [1]).blocks[0]  # each walk goes to the hub, then back or to another leaf
        >>> block.indices.tolist(), block.edge_weight.tolist()
        ([1], [4.0])
        >>> buys, rev_buys = ("user", "buys", "item"), ("item", "rev_buys", "user")
        >>> shop = Graph.from_hetero(None, {buys: ([0, 0], [0, 2]), rev_buys: ([0, 2], [0, 0])})
        >>> pinsage = RandomWalkSampler(num_layers=1, walk_length=2, metapath=[buys, rev_buys])
        >>> shop.types.range_of("item"), sorted(pinsage.sample(shop, [1]).nodes.tolist())
        (range(1, 4), [1, 3])
    """

    def __init__(
        self,
        num_layers: int = 3,
        num_neighbors: int = 5,
        num_walks: int = 4,
        walk_length: int = 3,
        termination_prob: float = 0.5,
        restart_prob: float = 0.0,
        include_self: bool = True,
        normalize: bool = False,
        expand: Literal["all", "new"] | None = None,
        weighted: bool = True,
        metapath: Sequence[Any] | None = None,
    ) -> None:
        for name, value in (("num_layers", num_layers), ("num_neighbors", num_neighbors)):
            if not isinstance(value, int | np.integer) or value < 1:
                raise SamplerConfigError(f"{name}={value!r}: a whole number of at least 1 is needed.")
        rounds = Walks(walk_length, num_walks, termination_prob, restart_prob)
        ops.check_visits(rounds)
        self.metapath = None if metapath is None else check_metapath(metapath)
        self.walks = replace(rounds, length=rounds.length * len(self.metapath or [None]))
        self.walk_length, self.num_walks = walk_length, num_walks  # of which metapaths make longer walks
        self.termination_prob, self.restart_prob = termination_prob, restart_prob
        self.num_neighbors = int(num_neighbors)
        self.include_self = include_self
        self.normalize = normalize
        self.expand, self.is_expand_open = check_expand(expand), expand is None
        self.weighted = weighted
        self._num_layers = int(num_layers)

    @property
    def num_layers(self) -> int:
        return self._num_layers

    @property
    def reach(self) -> int | None:
        # Metapaths leave nodes by runs of the whole graph's numbering, which a part does not have.
        return None if self.metapath is not None else self.num_layers * self.walks.length

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_that(edge_weight=True)

    @property
    def weighting(self) -> Literal["never", "optional"]:
        return "optional" if self.weighted else "never"

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        runs = None if self.metapath is None else metapath_runs(graph, self.metapath, returns=True)
        return ops.sample_walks(
            sampler_input(graph, draw, memory),
            self.walks,
            num_hops=self.num_layers,
            num_neighbors=self.num_neighbors,
            include_self=self.include_self,
            normalize=self.normalize,
            expand=self.expand,
            runs=runs,
            table=walk_table(graph, self.weighted, runs is not None),
        )

    def presence(self, graph: Graph, seeds: np.ndarray) -> np.ndarray | None:
        if self.metapath is not None:
            return None
        return presence_by_walks(
            graph,
            seeds,
            self.walks,
            num_layers=self.num_layers,
            num_neighbors=self.num_neighbors,
            weighted=self.weighted and graph.edge_weight is not None,
            again=self.expand == "all",
        )

    def draw_on(self, workspace: DeviceWorkspace, topology: Topology, draw: Draw) -> DeviceSample:
        from lightning_gnnload.ops.cuda.sampling.walks import sample_walks

        runs, weighted = None, self.weighted and topology.has_weights
        if self.metapath is not None:
            types, steps = metapath_steps(topology.types, self.metapath, returns=True)
            assert topology.lists is not None, "a graph with types has them"
            runs = runs_of_steps(types, steps, topology.lists.run_ptr)
        elif weighted and topology.types is not None:
            raise CudaUnavailableError(f"{_ACROSS_TYPES}. Give sampling_device='cpu', or weighted=False.")
        return sample_walks(
            workspace,
            topology,
            draw.seeds,
            self.walks,
            draw.key,
            num_hops=self.num_layers,
            num_neighbors=self.num_neighbors,
            include_self=self.include_self,
            normalize=self.normalize,
            expand=self.expand,
            runs=runs,
            weighted=weighted,
        )

    def check_draw(self, topology: Topology, draw: Draw) -> None:
        if self.metapath is not None:
            types, steps = metapath_steps(topology.types, self.metapath, returns=True)
            ops.check_type_of_starts(starts_of(types, steps), draw.seeds, "seeds")

    def needs_host(self, graph: Graph) -> str | None:
        is_weighted = self.weighted and graph.has("edge_weight")
        return _ACROSS_TYPES if is_weighted and self.metapath is None and graph.types is not None else None

    def collective(self, group: SamplingGroup, paradigm: Paradigm) -> LayBatch:
        """Does what :meth:`.Sampler.collective` does: all ranks walk, this one takes the nodes visited most often."""
        rounds = replace(self.walks, length=self.walks.length // len(self.metapath or [None]))
        walks, steps = walks_along(group, rounds, self.metapath, returns=True)
        steps_a_round = 1 if steps is None else len(steps)
        node_ids, new_ids = np.asarray(group.partition.node_ids), np.asarray(group.partition.new_ids)

        def draw(hop: int, nodes: np.ndarray, first: int, key: DrawKey) -> HopEdges:
            frontier = nodes[first:]
            traces = walk_together(group, frontier, walks, key, paradigm, weighted=self.weighted, steps=steps)
            # Nodes at the end of a round are visited; to begin at a node is no visit to it.
            visits = np.ascontiguousarray(traces[:, steps_a_round::steps_a_round])
            counts, neighbors, weights = ops.rank_visits(
                node_ids[frontier],
                visits.reshape(len(frontier), walks.num_walks * rounds.length),
                num_neighbors=self.num_neighbors,
                include_self=self.include_self,
                normalize=self.normalize,
            )
            return HopEdges(counts, new_ids[neighbors], edge_weight=weights)

        return lay_hops(self, group, draw)

    def __repr__(self) -> str:
        walks, metapath = self.walks, "" if self.metapath is None else f", metapath={self.metapath}"
        walk_length = walks.length // len(self.metapath or [None])
        return (
            f"RandomWalkSampler(num_layers={self.num_layers}, num_neighbors={self.num_neighbors}, "
            f"num_walks={walks.num_walks}, walk_length={walk_length}, termination_prob={walks.termination_prob}, "
            f"restart_prob={walks.restart_prob}, include_self={self.include_self}, normalize={self.normalize}, "
            f"expand={self.expand!r}{'' if self.weighted else ', weighted=False'}{metapath})"
        )
