"""Quality: how good a partition is, in numbers that a manifest keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.partition.cut import SampledCut, count_cross_edges
from lightning_gnnload.partition.stages import BuildStage


@dataclass(frozen=True)
class CacheRates:
    """Hit rates of trainers' caches that hold the share ``ratio`` of the rows, chosen by ``policy``.

    ``by_part`` is of each part's own cache; ``shared`` of one that is filled for all and copied, as without a
    partition. Source: PaGraph (TPDS'21), section 5.5, figure 17a.
    """

    ratio: float
    policy: str
    by_part: list[float]
    shared: float


@dataclass(frozen=True)
class Quality:
    """Reports the costs and gains of a partition. Lists have one entry a part.

    ``own_nodes`` add up to N; ``held_nodes`` and ``held_edges`` count the part's graph, with ``mirrors`` of nodes that
    other parts own, and without nodes that no seed reaches. ``cross_edges`` have endpoints of different owners.
    ``sampled`` and ``caches`` are None until sampling has measured them.
    """

    num_nodes: int
    num_edges: int
    own_nodes: list[int]
    held_nodes: list[int]
    held_edges: list[int]
    mirrors: list[int]
    seeds: dict[str, list[int]]
    cross_edges: int
    sampled: SampledCut | None = None
    caches: CacheRates | None = None
    stages: list[BuildStage] = field(default_factory=list)

    @property
    def num_parts(self) -> int:
        return len(self.own_nodes)

    @property
    def node_share(self) -> float:
        """The share of the whole graph's nodes that a part holds on average (PaGraph, figure 17b)."""
        return sum(self.held_nodes) / (self.num_parts * max(self.num_nodes, 1))

    @property
    def edge_share(self) -> float:
        return sum(self.held_edges) / (self.num_parts * max(self.num_edges, 1))

    @property
    def node_replication(self) -> float:
        """How often a node is held on average; below 1 where parts leave out what no seed reaches."""
        return self.node_share * self.num_parts

    @property
    def edge_replication(self) -> float:
        return self.edge_share * self.num_parts

    @property
    def cross_share(self) -> float:
        return self.cross_edges / max(self.num_edges, 1)

    @property
    def random_cross_share(self) -> float:
        """What a random partition into parts of these sizes is expected to cut: ``1 - sum of squared shares``."""
        return 1 - sum((nodes / max(self.num_nodes, 1)) ** 2 for nodes in self.own_nodes)

    def with_samples(self, sampled: SampledCut | None, caches: CacheRates | None) -> Quality:
        """Returns the same report, with what only sampling measures."""
        return replace(self, sampled=sampled, caches=caches)

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values: the attributes, and the shares that follow from them."""
        shares = ("node_share", "edge_share", "node_replication", "edge_replication", "cross_share")
        return {**asdict(self), "shares": {name: getattr(self, name) for name in (*shares, "random_cross_share")}}

    @classmethod
    def from_json(cls, report: Mapping[str, Any]) -> Quality:
        """Reads what :meth:`to_json` returned."""
        values = {name: value for name, value in report.items() if name != "shares"}
        for name, report_class in (("sampled", SampledCut), ("caches", CacheRates)):
            values[name] = report_class(**values[name]) if values.get(name) else None
        values["stages"] = [BuildStage(**stage) for stage in values.get("stages", [])]
        return cls(**values)


def imbalance(sizes: Sequence[int]) -> float:
    """Returns the largest size over their mean: 1 where all are equal, all 0 included.

    Example:
        >>> imbalance([3, 1, 2])
        1.5
    """
    return max(sizes) * len(sizes) / sum(sizes) if any(sizes) else 1.0


def measure_quality(
    partition: Partition,
    graph: Graph,
    stages: Sequence[BuildStage] = (),
    *,
    advance: Callable[[float], object] = lambda share: None,
) -> Quality:
    """Measures the sizes and the cut of a partition of ``graph`` in one pass over the graph's edges."""
    parts = list(partition.parts)
    # A part's nodes are numbered in a row, so that its bounds say who owns which.
    owners = np.repeat(np.arange(partition.num_parts, dtype=np.int32), np.diff(partition.starts))
    return Quality(
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        own_nodes=np.diff(partition.starts).tolist(),
        held_nodes=[part.graph.num_nodes for part in parts],
        held_edges=[part.graph.num_edges for part in parts],
        mirrors=[part.num_mirrors for part in parts],
        seeds={phase: [len(part.seeds[phase]) for part in parts] for phase in parts[0].seeds},
        cross_edges=count_cross_edges(graph, owners[partition.new_ids], advance=advance),
        stages=list(stages),
    )
