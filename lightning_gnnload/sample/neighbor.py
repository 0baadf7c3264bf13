"""NeighborSampler: uniform neighbourhood sampling, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.clock import Before, length_of
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CudaUnavailableError, SamplerConfigError, SeedError
from lightning_gnnload.ops import Draw, DrawKey, Queries, SampleLayout, TypedLists
from lightning_gnnload.sample.base import LayBatch, Paradigm, Sampler, columns_that, sampler_input
from lightning_gnnload.sample.fanouts import check_expand, fanouts_by_type, hop_from_json, hop_to_json, typed_fanouts
from lightning_gnnload.sample.seeds.rows import Sharing

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
    from lightning_gnnload.ops.cuda.sampling.topology import Topology
    from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
    from lightning_gnnload.sample.group.group import SamplingGroup


class NeighborSampler(Sampler):
    """Draws up to ``fanout`` in-neighbours of every node, hop by hop, each subset of neighbours equally likely.

    Args:
        fanouts: neighbours drawn per node, nearest hop first; -1 takes all. An empty list draws no neighbours,
            for a model without a graph. A hop given as ``{type: fanout}`` draws from each edge type by itself;
            types left out draw nothing. If any hop is given so, or in a graph of :meth:`.Graph.from_hetero`, a number
            means as many of every type, edges come in ascending order of type, and blocks carry ``edge_type``. There,
            types have names, as :meth:`.GraphTypes.edge_type_number` takes them, and PyG's ``{type: [fanout by hop]}``
            does as well.
        replace: draw with replacement (a neighbour may come twice).
        expand: ``"all"``: every node seen so far is a destination again in the next hop, with fresh draws (DGL);
            ``"new"``: only the nodes that the last hop found (PyG). None: ``"new"`` where a GraphDataModule's
            ``batch_format`` needs it, else ``"all"``.
        edge_ids: blocks carry ``edge_ids``, positions in ``Graph.indices``.
        sharing: which seeds share the nodes that they find: ``"plain"``: all; ``"disjoint"``: none, each seed row has
            nodes of its own and draws by its row's number; ``"time"``: those of the same time. None: ``"disjoint"`` in
            a graph with times, else ``"plain"``.
        before: which edges count, where they have times: ``"<="``, those up to the seed's time; ``"<"``, those before
            it; None, all, as if there were no times.
        window: the greatest age, at the seed's time, of edges that count: a number in the unit of the graph's times,
            which of dates is nanoseconds, or where times are dates a ``timedelta64``; None for any.
        order: whose time bounds the edges of later hops: ``"root"``, the seed's; ``"path"``, that of the edge by which
            a node was found. Along paths a node is in a mini-batch once for each time at which it was found.
        pick: which of the edges that count: ``"uniform"``, any alike; ``"last"``, the newest, and of equal times those
            given last; edges of types without times have no newest, and are drawn as by ``"uniform"``.

    Raises:
        SamplerConfigError: a fanout that is neither positive nor -1, an unknown name, or settings that contradict each
            other; on sampling, a type that the graph does not have, or a graph with times and seeds without.
        GraphFormatError: on sampling by type, a graph without edge types.

    Source: GraphSAGE neighbourhood sampling, as in GNNLab (EuroSys'22), section 2; Floyd's algorithm for the draw.

    Example:
        >>> graph = Graph.from_coo(src=[1, 2, 3, 0], dst=[0, 0, 0, 3])
        >>> batch = NeighborSampler([2, -1]).sample(graph, [0])
        >>> batch.seeds.tolist(), [block.num_dst for block in batch.blocks]
        ([0], [3, 1])
        >>> typed = Graph.from_coo(src=[1, 2, 3], dst=[0, 0, 0], edge_type=[5, 7, 5])
        >>> [block] = NeighborSampler([{5: 1, 7: -1}]).sample(typed, [0]).blocks
        >>> block.edge_type.tolist()
        [5, 7]
    """

    def __init__(
        self,
        fanouts: Sequence[int | Mapping[int, int] | Mapping[Any, int]] | Mapping[Any, Sequence[int]],
        replace: bool = False,
        expand: Literal["all", "new"] | None = None,
        edge_ids: bool = False,
        *,
        sharing: Sharing | None = None,
        before: Before | None = "<=",
        window: float | np.timedelta64 | None = None,
        order: Literal["root", "path"] = "root",
        pick: Literal["uniform", "last"] = "uniform",
    ) -> None:
        self.fanouts = typed_fanouts(fanouts)
        self.replace = replace
        self.expand, self.is_expand_open = check_expand(expand), expand is None
        self.edge_ids = edge_ids
        for name, value, choices in (
            ("sharing", sharing, (None, "plain", "disjoint", "time")),
            ("before", before, ("<=", "<", None)),
            ("order", order, ("root", "path")),
            ("pick", pick, ("uniform", "last")),
        ):
            if not isinstance(value, str | None) or value not in choices:
                raise SamplerConfigError(f"{name}={value!r} is not known; give one of {', '.join(map(repr, choices))}.")
        self.sharing = sharing
        self.before = before
        self.window = _window(window)
        self.order = order
        self.pick = pick
        if before is None and (window is not None or order == "path" or sharing == "time"):
            raise SamplerConfigError(
                "before=None ignores times, but window=, order='path' and sharing='time' need them. Give before='<='."
            )
        if pick == "last" and replace:
            raise SamplerConfigError("pick='last' takes the newest edges, each once: it cannot go with replace=True.")

    @property
    def num_layers(self) -> int:
        return len(self.fanouts)

    @property
    def reach(self) -> int:
        return len(self.fanouts)

    @property
    def columns(self) -> tuple[str, ...]:
        return columns_that(edge_ids=self.edge_ids, edge_type=self._is_typed)

    def columns_of(self, graph: Graph) -> tuple[str, ...]:
        # Flat edge types cut lists, too, where these are to be in the order of their times.
        by_time = graph.clock is not None and (self.before is not None or self.pick == "last")
        is_cut = self._is_typed or graph.types is not None or (by_time and graph.has("edge_type"))
        return columns_that(edge_ids=self.edge_ids, edge_type=is_cut)

    @property
    def reads_times(self) -> bool:
        return self.pick == "last"

    @property
    def _is_typed(self) -> bool:
        return dict in map(type, self.fanouts)

    @property
    def _asks(self) -> bool:
        """Whether settings are set that go by times or rows."""
        return self.sharing in ("disjoint", "time") or self.window is not None or self.pick == "last"

    @property
    def heeds(self) -> frozenset[str]:
        return frozenset({"times", "rows", "exclusion"})

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        queries = draw.queries
        self._check_queries(graph.edge_time is not None, queries)
        inputs = sampler_input(graph, draw, memory)
        lists = self._lists(graph, queries)
        if lists is None:
            return ops.sample_neighbors(inputs, self.fanouts, **self._options)  # type: ignore[arg-type]
        table = fanouts_by_type(self.fanouts, graph.types, lists.num_edge_types, is_part=graph.origin is not None)
        layout = ops.sample_typed_neighbors(inputs, lists, table, pick=self.pick, queries=queries, **self._options)
        # Of one query that all share, to leave edges out, no node need say that it is its.
        is_shared = queries is not None and queries.name is None
        return replace(layout, queries_offset=-1) if is_shared else layout

    def _check_queries(self, has_times: bool, queries: Queries | None) -> None:
        """Raises SeedError: the graph has times that count, and nobody says of the seeds which; SamplerConfigError: the
        newest are to be taken of edges without times."""
        if queries is None and has_times and self.before is not None:
            raise SeedError(
                "the graph has times, but the seeds have none: edges of any time would count. Give "
                "sample(..., times=times), or NeighborSampler(..., before=None)."
            )
        if self.pick == "last" and not has_times:
            raise SamplerConfigError("pick='last' takes the newest edges, but the graph has no times.")

    def _lists(self, graph: Graph, queries: Queries | None) -> TypedLists | None:
        """Returns the lists to draw from, cut by type and sorted by time; None: those of all types, whatever their
        times."""
        if self._is_typed:
            return graph.lists_by_number
        if graph.types is not None:
            return graph.typed_lists
        if queries is None and self.pick != "last":
            return None
        # Runs of several types are in the order of times each by itself.
        by_time = graph.edge_time is not None and (self.before is not None or self.pick == "last")
        return graph.typed_lists if by_time else graph.whole_lists

    @property
    def _options(self) -> dict[str, Any]:
        """What all forms of sampling take."""
        return {"replace": self.replace, "expand": self.expand, "edge_ids": self.edge_ids}

    def presence(self, graph: Graph, seeds: np.ndarray) -> np.ndarray | None:
        from lightning_gnnload.sample.presence import presence_by_fanouts

        if self._is_typed or self._asks or graph.types is not None:
            return None
        fanouts: list[int] = self.fanouts  # type: ignore[assignment]
        weighted, again = self.weighting == "always", self.expand == "all"
        return presence_by_fanouts(graph, seeds, fanouts, weighted=weighted, replace=self.replace, again=again)

    def draw_on(self, workspace: DeviceWorkspace, topology: Topology, draw: Draw) -> DeviceSample:
        from lightning_gnnload.ops.cuda.sampling.neighbors import sample_neighbors
        from lightning_gnnload.ops.cuda.sampling.typed import sample_typed_neighbors

        self._check_queries(topology.edge_time is not None, draw.queries)
        types = topology.types
        by_lists = types is not None or self.pick == "last" or draw.queries is not None
        if (types is None and self._is_typed) or (by_lists and topology.lists is None):
            raise CudaUnavailableError(
                f"{self!r} draws by the edge_type of Graph.from_coo, for which there are no kernels on a device. Build "
                "the graph with Graph.from_hetero, or give sampling_device='cpu'."
            )
        if by_lists:
            table = fanouts_by_type(self.fanouts, types, 1 if types is None else len(types.edge_types))
            options = {"pick": self.pick, "queries": draw.queries, **self._options}
            return sample_typed_neighbors(workspace, topology, draw.seeds, table, draw.key, **options)
        fanouts: list[int] = self.fanouts  # type: ignore[assignment]
        return sample_neighbors(workspace, topology, draw.seeds, fanouts, draw.key, **self._options)

    def collective(self, group: SamplingGroup, paradigm: Paradigm) -> LayBatch:
        """Does what :meth:`.Sampler.collective` does.

        Raises:
            SamplerConfigError: no part has edges of a type that has a fanout.
            GraphFormatError: the graph has no edge types.
        """
        from lightning_gnnload.sample.parts.hops import check_types, lay_hops, node_wise

        check_types(self.fanouts, group)
        has_times = group.owned.graph.clock is not None
        lay_all = lay_hops(self, group, node_wise(self, group, paradigm))

        def lay(seeds: np.ndarray, key: DrawKey, arena: np.ndarray, queries: Queries | None = None) -> SampleLayout:
            self._check_queries(has_times, queries)  # which an owner would refuse, and with it the rounds of all
            return lay_all(seeds, key, arena, queries)

        return lay

    def hop_settings(self, hop: int) -> dict[str, Any]:
        settings = {"fanouts": [hop_to_json(self.fanouts[hop], by_type=self._is_typed)], "replace": self.replace}
        # By their edges, owners know until when what they find counts.
        settings["edge_ids"] = self.edge_ids or self.order == "path"
        return settings | {"before": self.before, "pick": self.pick}

    @classmethod
    def of_hop(cls, settings: Mapping[str, Any], graph: Graph) -> Sampler:
        [hop] = settings["fanouts"]
        lists = graph.lists_by_number if isinstance(hop, list) else None
        return cls(**{**settings, "fanouts": [hop_from_json(hop, lists)]})

    def __repr__(self) -> str:
        defaults = {"replace": False, "edge_ids": False, "sharing": None, "before": "<=", "window": None}
        defaults |= {"order": "root", "pick": "uniform"}
        settings = "".join(
            f", {name}={value!r}" for name, default in defaults.items() if (value := getattr(self, name)) != default
        )
        return f"NeighborSampler({self.fanouts}, expand={self.expand!r}{settings})"


def _window(window: Any) -> float | np.timedelta64 | None:
    """Checks a length of time. Raises SamplerConfigError: it is none, or negative."""
    is_number = isinstance(window, int | float | np.integer | np.floating) and not isinstance(window, bool)
    if window is None or (is_number and length_of(window) >= 0):  # NumPy counts timedelta64 among integers
        return window
    raise SamplerConfigError(f"window={window!r}: a number of 0 or more, or a numpy.timedelta64, is needed.")
