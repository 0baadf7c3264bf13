"""GnnloadSampler: PyG's neighbour sampler, drawn by our kernels, as a pure function of its seeds and a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch.utils.data import get_worker_info
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.clock import Before, as_times
from lightning_gnnload.data.edge_lists import ALWAYS
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.sanity import lone_seeds_issue
from lightning_gnnload.data.seedform import SeedForm
from lightning_gnnload.data.visibility import VisibleEdges
from lightning_gnnload.errors import SamplerConfigError, SamplerUnsupportedError, SeedError, warn
from lightning_gnnload.ops import Draw, DrawKey, Queries
from lightning_gnnload.ops.checks import as_integer, as_list
from lightning_gnnload.ops.philox import hash32
from lightning_gnnload.pyg.bidirectional import reverse_types
from lightning_gnnload.pyg.compat import NumNeighbors, SubgraphType, seeds_of
from lightning_gnnload.pyg.inputs import check_ids, check_rows, check_tensors
from lightning_gnnload.pyg.negatives import NamedNegatives, NodesByTime, digest
from lightning_gnnload.pyg.outputs import ALL_EDGES, UNTIL, metadata_columns, sampler_output, seeds_per_endpoint
from lightning_gnnload.pyg.topology import Direction, EdgeType, topology_of, turned
from lightning_gnnload.sample.base import Sampler, draw_here
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.seeds.rows import SeedBatch
from lightning_gnnload.sample.weighted import WeightedNeighborSampler
from lightning_gnnload.settings import check_one_of

_TURN = "swap them, data.edge_index.flip(0), or have them both ways, as torch_geometric.transforms.ToUndirected()"


class GnnloadSampler(BaseSampler):
    """Samples neighbourhoods for PyG's own loaders and data modules, with neither pyg-lib nor torch-sparse.

    The settings are those of ``torch_geometric.sampler.NeighborSampler``, and may be changed on a copy, as PyG's data
    modules do for evaluation. Edges come with the numbers that they have in the user's graph, so that
    ``edge_permutation`` is None.

    In a loader of PyG a mini-batch depends on its seeds, the sampler's ``seed`` and, with worker processes, on the
    seed of their epoch, which ``torch.manual_seed`` decides; without them, on how many were sampled before. In the
    loaders of this package it is a pure function of (graph, settings, seed, epoch, step, seeds).

    Args:
        data: a ``Data``, a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)``.
        num_neighbors: how many neighbours are drawn for each node, by hop: a list, a dict of lists by edge type, or a
            ``NumNeighbors``; -1 takes all.
        subgraph_type: ``"directional"``; ``"bidirectional"``: with the ways back of what was drawn, see
            :func:`.with_ways_back`; or ``"induced"``: all edges between what was drawn. With ``disjoint`` these are
            within each seed's own nodes, by time not later than the seed.
        replace: draw with replacement.
        disjoint: each seed has nodes of its own; always so by time.
        temporal_strategy: ``"uniform"``, or ``"last"``, which takes the newest.
        time_attr: the attribute of nodes or edges that says since when they are there.
        weight_attr: the attribute of edges in proportion to which they are drawn, or ``{edge type: attribute}``; edges
            of other types are drawn uniformly.
        is_sorted: nothing: edges in any order are sorted in time linear in their number.
        share_memory: nothing: threads share it, and forked processes do.
        directed: False is ``subgraph_type="induced"``, as in old versions of PyG.
        sample_direction: ``"backward"`` draws of the edges that go out, and gives them as they are in the graph.
        before: ``"<="``: edges up to a seed's time count; ``"<"``: those strictly before it.
        time_window: the greatest age, at the seed's time, of edges that count, in the unit of ``time_attr``.
        seed: random seed of the draws.

    Raises:
        GraphDataError, GraphFormatError: as :func:`.topology_of`.
        SamplerConfigError: settings that cannot be.
        SamplerUnsupportedError: backward by time; weights of a GraphStore.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.loader import NodeLoader
        >>> data = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]), num_nodes=4)
        >>> batch = next(iter(NodeLoader(data, GnnloadSampler(data, [-1, -1]), input_nodes=[0])))
        >>> batch.n_id.tolist(), batch.e_id.tolist()
        ([0, 1, 2, 3], [0, 1, 2])
    """

    counts_hops = True
    keep_orig_edges = False
    """PyG's: whether a bidirectional subgraph has the ends of what was drawn, too, and its counts by hop."""
    warned: set[str]
    """What loaders have warned of, once for all that share this sampler or a copy."""

    def __init__(
        self,
        data: Any,
        num_neighbors: NumNeighbors | Sequence[int] | Mapping[Any, Sequence[int]],
        subgraph_type: SubgraphType | str = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | Mapping[EdgeType, str] | None = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        sample_direction: Direction = "forward",
        *,
        before: Before = "<=",
        time_window: float | None = None,
        seed: int = 0,
    ) -> None:
        if not directed:
            warn("directed=False is subgraph_type='induced' in PyG's newer versions.")
            subgraph_type = SubgraphType.induced
        _check_settings(temporal_strategy, time_attr, weight_attr, sample_direction)
        check_one_of("before", before, ("<=", "<"), SamplerConfigError)
        self.sample_direction = sample_direction
        self.graph, self.node_time, self.num_nodes = topology_of(data, time_attr, weight_attr, sample_direction)
        self.is_weighted = weight_attr is not None
        if self.is_weighted and self.is_temporal:
            raise SamplerConfigError(
                f"weight_attr={weight_attr!r} with time_attr={time_attr!r}: there are no weighted draws by time, as in "
                "PyG. Leave one out."
            )
        self.num_neighbors = num_neighbors
        self.subgraph_type = SubgraphType(subgraph_type)
        self.before, self.time_window = before, time_window
        if not self.is_temporal and (before != "<=" or time_window is not None):
            raise SamplerConfigError("before= and time_window= need times: name their attribute, time_attr=.")
        if replace and temporal_strategy == "last" and self.is_temporal:
            raise SamplerConfigError("temporal_strategy='last' takes the newest edges, each once; leave replace= out.")
        self.replace = replace
        self.disjoint = disjoint
        self.temporal_strategy = temporal_strategy
        self.seed = seed
        self._num_sampled = 0
        self._by_time: dict[str | None, NodesByTime] = {}
        self.warned: set[str] = set()
        self.inner()  # refuses settings that cannot be
        if self.subgraph_type is SubgraphType.bidirectional and self.graph.types is not None:
            reverse_types(tuple(self.graph.types.edge_types))  # warns of those that have none

    @property
    def num_neighbors(self) -> NumNeighbors:
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, value: Any) -> None:
        if not isinstance(value, NumNeighbors | Mapping):
            value = as_list("num_neighbors", value)
        self._num_neighbors = value if isinstance(value, NumNeighbors) else NumNeighbors(value)

    @property
    def is_hetero(self) -> bool:
        return self.graph.types is not None

    @property
    def is_temporal(self) -> bool:
        return self.graph.clock is not None

    @property
    def disjoint(self) -> bool:
        """Whether each seed has nodes of its own; always by time, as each seed sees the graph as of its own time."""
        return self._disjoint or self.is_temporal

    @disjoint.setter
    def disjoint(self, disjoint: bool) -> None:
        self._disjoint = disjoint

    @property
    def edge_permutation(self) -> None:
        """None: edges have the numbers of the user's own lists already."""
        return

    @property
    def num_hops(self) -> int:
        """How many hops are drawn, with those that draw nothing."""
        return int(self.num_neighbors.num_hops)

    def inner(self) -> Sampler:
        """Makes the sampler that draws, of the settings as they are now: they may change on a copy."""
        # PyG's samplers expand new nodes alone, and its mini-batches carry e_id.
        if self.time_window is not None and self.subgraph_type in ALL_EDGES:
            raise SamplerUnsupportedError(
                f"time_window= with subgraph_type={self.subgraph_type.value!r}: edges that were not drawn would be of "
                "any age. Give subgraph_type='directional'."
            )
        fanouts = _fanouts(self.num_neighbors, self.graph, self.sample_direction)
        if self.is_weighted:
            sharing: Literal["plain", "disjoint"] = "disjoint" if self.disjoint else "plain"
            return WeightedNeighborSampler(fanouts, self.replace, expand="new", edge_ids=True, sharing=sharing)
        return NeighborSampler(
            fanouts,
            self.replace,
            expand="new",
            edge_ids=True,
            sharing="disjoint" if self.disjoint else "plain",
            before=self.before if self.is_temporal else None,
            window=self.time_window,
            pick="last" if self.is_temporal and self.temporal_strategy == "last" else "uniform",
        )

    # As PyG calls it.

    def sample_from_nodes(self, inputs: NodeSamplerInput) -> SamplerOutput | HeteroSamplerOutput:
        """Samples around nodes; raises SeedError for one that is not there, or without a time where times count."""
        return self._sampled(inputs, self._next_key(inputs.node), None)

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples around the endpoints of links and of negatives; raises SeedError as :meth:`sample_from_nodes`."""
        return self._sampled(inputs, self._next_key(inputs.row), neg_sampling)

    def _sampled(self, inputs: Any, key: DrawKey, neg_sampling: NegativeSampling | None) -> Any:
        seeds = self.seed_batch(inputs, key, neg_sampling)
        arena, layout = draw_here(self.inner(), self.graph, seeds.draw)
        # The thread's arena is written to by its next mini-batch.
        batch = MiniBatch.view(arena, layout, len(seeds.draw.seeds)).clone()
        batch.seed_columns = seeds.columns
        rows = inputs.node if isinstance(inputs, NodeSamplerInput) else inputs.row
        return sampler_output(batch, self, len(rows))

    def _sample(self, seed: Any, seed_time: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        """Samples around nodes, where PyG's BidirectionalNeighborSampler draws in both directions in turn."""
        return self.sample_from_nodes(NodeSamplerInput(None, seed, seed_time))

    def _next_key(self, seeds: torch.Tensor) -> DrawKey:
        worker = get_worker_info()
        if worker is None:
            self._num_sampled += 1
            # A new epoch for each mini-batch, as disjoint rows draw by their numbers and the epoch, whatever the step.
            return DrawKey(self.seed, (self._num_sampled - 1) & 0xFFFFFFFF, 0)
        # worker.seed - worker.id is the same in all workers of an epoch: any of them may get this mini-batch.
        return DrawKey(self.seed, (worker.seed - worker.id) & 0xFFFFFFFF, digest(seeds.numpy())[0])

    # As the loaders of this package call it.

    def seed_batch(self, inputs: Any, key: DrawKey, neg_sampling: NegativeSampling | None = None) -> SeedBatch:
        """Returns the seeds of a ``NodeSamplerInput`` or an ``EdgeSamplerInput``; ``key`` names the draws of negatives,
        too.

        Raises SeedError: a node that is not there, or without a time where times count.
        """
        negatives = None
        if neg_sampling is not None:
            negatives = NamedNegatives(neg_sampling, key, inputs, self._nodes_by_time(inputs.input_type))
        seed, seed_time, metadata = seeds_of(inputs, self.num_nodes, self.disjoint, negatives)
        if negatives is not None:
            metadata = negatives.without_missing(metadata)
        nodes, times = self._flat(seed, seed_time)
        num_rows = len(inputs.node if isinstance(inputs, NodeSamplerInput) else inputs.row)
        queries = self._queries(nodes, times, inputs, num_rows, seeds_per_endpoint(len(nodes), len(metadata)), key)
        columns = metadata_columns(metadata)
        if self.subgraph_type in ALL_EDGES and queries is not None and queries.until is not None:
            columns[UNTIL] = torch.from_numpy(queries.until.astype(np.int64))
        return SeedBatch(Draw(nodes, key, queries), None, columns, SeedForm("pyg"))

    def nodes_of(self, inputs: Any) -> np.ndarray:
        """Returns the nodes of these inputs by their ids in the graph, int64 ``[R, 1]``, of links ``[R, 2]``."""
        if isinstance(inputs, NodeSamplerInput):
            columns = [(inputs.input_type, inputs.node)]
        else:
            src, _, dst = inputs.input_type or (None, None, None)
            columns = [(src, inputs.row), (dst, inputs.col)]
        typed = [{node_type: ids} if self.is_hetero else ids for node_type, ids in columns]
        return np.stack([self._flat(ids, None)[0] for ids in typed], axis=1)

    def seen(self, inputs: Any) -> VisibleEdges | None:
        """Counts which in-edges of these inputs count at their times; None where times do not count."""
        clock = self.graph.clock
        if clock is None:
            return None
        nodes = self.nodes_of(inputs)
        times = self._own_times(nodes[:, 0]) if inputs.time is None else _times(inputs.time)
        lists, is_own = self.graph.typed_lists, inputs.time is None
        return VisibleEdges.of(
            lists, clock, nodes, times, use_node_times=is_own, before=self.before, window=self.time_window
        )

    def check_inputs(self, inputs: Any, neg_sampling: NegativeSampling | None = None) -> None:
        """Checks all rows of a loader before its first mini-batch: nodes, columns, and the weights of negatives."""
        num_rows = len(self.nodes_of(inputs))
        if isinstance(inputs, NodeSamplerInput):
            check_rows(num_rows, input_time=inputs.time, input_id=inputs.input_id)
        else:
            check_rows(num_rows, edge_label=inputs.label, edge_label_time=inputs.time, input_id=inputs.input_id)
        for name, end in (("src_weight", 0), ("dst_weight", 2)):
            weight = getattr(neg_sampling, name, None)
            if weight is None:
                continue
            check_tensors(**{f"neg_sampling: {name}": weight})
            count = self.num_nodes if isinstance(self.num_nodes, int) else self.num_nodes[inputs.input_type[end]]
            sound = weight.shape == (count,) and bool((weight.isfinite() & (weight >= 0)).all() and weight.sum() > 0)
            if not sound:
                raise SamplerConfigError(
                    f"neg_sampling: {name} must be [{count}], one number of 0 or more a node, not all of them 0, but "
                    f"it is {weight.dtype} {list(weight.shape)}, or some are negative or no numbers."
                )

    def oddities(self, inputs: Any, neg_sampling: NegativeSampling | None = None) -> list[str]:
        """Says what is allowed in a loader's rows, but seldom meant: seeds without in-neighbours, links without
        negatives."""
        nodes, texts = self.nodes_of(inputs), []
        names = ("seeds",) if nodes.shape[1] == 1 else ("sources of links", "destinations of links")
        issue = lone_seeds_issue(self.graph, dict(zip(names, nodes.T, strict=True)), _TURN, otherwise="")
        if issue is not None and issue.is_suspicious and self.num_hops:
            texts.append(issue.text)
        if neg_sampling is not None and inputs.time is not None:
            # Triplets have false destinations alone.
            by_endpoint = self._nodes_by_time(inputs.input_type)[1 if neg_sampling.is_triplet() else 0 :]
            num_until = [by_time.num_until(inputs.time) for by_time in by_endpoint if by_time is not None]
            if num_early := int(np.any([counts == 0 for counts in num_until], axis=0).sum()):
                instead = "get none" if neg_sampling.is_binary() else "have dst_neg_index as their dst_pos_index"
                texts.append(
                    f"{num_early} of {len(nodes)} links are earlier than every node that could be their negative, and "
                    f"{instead}."
                )
        return texts

    def _nodes_by_time(self, edge_type: EdgeType | None) -> tuple[NodesByTime | None, NodesByTime | None]:
        """Returns the nodes by time of both endpoints' types; None where these have no times."""
        by_endpoint = []
        for node_type in (None, None) if edge_type is None else edge_type[::2]:
            times = self.node_time.get(node_type) if isinstance(self.node_time, dict) else self.node_time
            # Sorted when a mini-batch first needs it, and kept: nodes are many.
            if times is not None and node_type not in self._by_time:
                self._by_time[node_type] = NodesByTime.of(times)
            by_endpoint.append(None if times is None else self._by_time[node_type])
        return by_endpoint[0], by_endpoint[1]

    def _flat(self, seed: Any, seed_time: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns the seeds by their ids in the graph, int64 ``[S]``, and their times, where they have any."""
        types = self.graph.types
        if types is None:
            nodes = check_ids(seed, self.graph.num_nodes, None)
            return nodes, None if seed_time is None else _times(seed_time)
        if not isinstance(seed, dict):
            raise SeedError(f"the seeds have no type; give input_type=, one of {', '.join(types.node_types)}.")
        parts = []
        for name, ids in seed.items():
            if name not in types.node_types:
                raise SeedError(f"seeds of type {name!r}, but the graph's types are {', '.join(types.node_types)}.")
            span = types.range_of(name)
            parts.append(check_ids(ids, len(span), name) + span.start)
        times = None if seed_time is None else np.concatenate([_times(times) for times in seed_time.values()])
        return np.concatenate(parts), times

    def _queries(
        self, nodes: np.ndarray, times: np.ndarray | None, inputs: Any, num_rows: int, per_endpoint: int, key: DrawKey
    ) -> Queries | None:
        if not self.disjoint:
            return _apart(nodes, key)
        # Seeds are the sources of all rows and negatives first, then their targets, and so on: each draws by its row's
        # number and its column among that row's seeds. A number that comes again is of another row, and gets further
        # columns: RelBench numbers destinations by their nodes, which rows share.

        at, num_rows, per_endpoint = np.arange(len(nodes)), max(num_rows, 1), max(per_endpoint, 1)
        numbers = np.arange(num_rows) if inputs.input_id is None else inputs.input_id.numpy()
        endpoint, within = at // per_endpoint, at % per_endpoint
        rows, column = within % num_rows, endpoint * -(-per_endpoint // num_rows) + within // num_rows
        column += _times_before(numbers)[rows] * (column.max(initial=0) + 1)
        name = numbers[rows].astype(np.uint32) ^ hash32(column.astype(np.uint32))
        until = since = None
        if self.graph.clock is not None:
            times = self._own_times(nodes) if times is None else times
            until, since = self.graph.clock.eligible(times, self.before, self.time_window)
        return Queries(at.astype(np.int32), name=name, by_row=True, until=until, since=since)

    def _own_times(self, nodes: np.ndarray) -> np.ndarray:
        """Returns the nodes' own times, for seeds without others."""
        if self.node_time is None:
            raise SeedError(
                "the edges have times, but the seeds have none. Give NeighborLoader(..., input_time=times), or "
                "LinkNeighborLoader(..., edge_label_time=times)."
            )
        assert self.graph.node_time is not None, "the nodes' times are its own"
        times = self.graph.node_time[nodes]
        if (times == (ALWAYS if times.dtype == np.int64 else -np.inf)).any():
            raise SeedError(
                "other types of nodes have times, but the seeds' has none, so that nothing would count. Give "
                "NeighborLoader(..., input_time=times)."
            )
        return times

    def __repr__(self) -> str:
        return f"GnnloadSampler({self.num_neighbors}, {self.inner()!r})"


def _check_settings(temporal_strategy: str, time_attr: Any, weight_attr: Any, sample_direction: str) -> None:
    if temporal_strategy not in ("uniform", "last"):
        raise SamplerConfigError(f"temporal_strategy={temporal_strategy!r} is not known; give 'uniform' or 'last'.")
    by_type = weight_attr.values() if isinstance(weight_attr, Mapping) else [weight_attr]
    for name, values, more in (("time_attr", [time_attr], ""), ("weight_attr", by_type, ", or {edge type: attribute}")):
        for value in values:
            if not isinstance(value, str | None):
                raise SamplerConfigError(
                    f"{name}={value!r:.100}: must be the name of an attribute{more}. A name holds for all types that "
                    "have the attribute."
                )
    if sample_direction not in get_args(Direction):
        raise SamplerConfigError(f"sample_direction={sample_direction!r} is not known; give 'forward' or 'backward'.")
    if sample_direction == "backward" and time_attr is not None:
        raise SamplerUnsupportedError(
            f"sample_direction='backward' with time_attr={time_attr!r}: what comes after a node is not drawn by "
            "time, here as in PyG. Leave one out."
        )


def _times_before(numbers: np.ndarray) -> np.ndarray:
    """Returns for each number how often it comes before, int64 ``[R]``."""
    order = np.argsort(numbers, kind="stable")
    ordered, at = numbers[order], np.arange(len(numbers))
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(numbers)]
    times = np.empty(len(numbers), np.int64)
    times[order] = at - np.maximum.accumulate(np.where(is_first, at, 0))
    return times


def _fanouts(num_neighbors: NumNeighbors, graph: Graph, direction: Direction) -> list[Any]:
    """Returns the fanouts by hop, up to the first hop that draws nothing: those after it find nothing to draw from."""
    if graph.types is not None:
        return list(takewhile(bool, _typed_fanouts(num_neighbors, graph.types.edge_types, direction)))
    values = num_neighbors.get_mapped_values()
    if isinstance(values, dict):
        raise SamplerConfigError(
            f"num_neighbors names edge types, {', '.join(values)}, but the graph has no types. Give a list, one entry "
            "a hop."
        )
    return list(takewhile(bool, [as_integer(f"num_neighbors[{hop}]", fanout) for hop, fanout in enumerate(values)]))


def _typed_fanouts(
    num_neighbors: NumNeighbors, edge_types: Sequence[EdgeType], direction: Direction
) -> list[dict[EdgeType, int]]:
    """Returns for each hop the fanouts above 0, or -1, by edge type."""
    users_types = {edge_type: turned(edge_type, direction) for edge_type in edge_types}
    values = num_neighbors.get_values([*users_types.values()])
    fanouts = {}
    for edge_type, name in users_types.items():
        row = values[name] if isinstance(values, dict) else values
        fanouts[edge_type] = [as_integer(f"num_neighbors[{name}][{hop}]", fanout) for hop, fanout in enumerate(row)]
    num_hops = int(num_neighbors.num_hops) if edge_types else 0
    return [{edge_type: row[hop] for edge_type, row in fanouts.items() if row[hop]} for hop in range(num_hops)]


def _apart(nodes: np.ndarray, key: DrawKey) -> Queries | None:
    """Returns queries that let a node be a seed more than once, as PyG does; None where none is.

    The first time it draws as ever; each further one has a neighbourhood of its own.
    """
    time = _times_before(nodes)
    if not time.any():
        return None
    name = np.uint32(key.step & 0xFFFFFFFF) ^ hash32(np.arange(time.max() + 1, dtype=np.uint32))
    return Queries(time.astype(np.int32), name=name)


def _times(times: torch.Tensor) -> np.ndarray:
    return as_times(times, name="the seeds' times", error=SeedError)
