"""Caches of tables whose rows are not those of all nodes: of one node type, and of edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.policies import EVICTION_RULES, policy_named
from lightning_gnnload.cache.policy import CachePolicy, checked_hotness
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.workload import Workload


class OfNodes(CachePolicy):
    """Another policy's ranking, of some of the nodes alone: row ``i`` of their table is that of node ``nodes[i]``.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> from lightning_gnnload.cache.structure import Degree
        >>> from lightning_gnnload.data.seeds import Sequential
        >>> star = Graph.from_coo(src=[3, 3, 2], dst=[0, 1, 0])
        >>> workload = Workload(star, NeighborSampler([1]), np.arange(2), batch_size=1, order=Sequential())
        >>> OfNodes(Degree(), range(2, 4)).hotness(workload, epoch=0).tolist()
        [1, 2]
    """

    def __init__(self, policy: CachePolicy, nodes: range) -> None:
        self.policy = policy
        self.nodes = nodes
        self.window = policy.window
        self.is_own = policy.is_own

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        ranked = checked_hotness(self.policy.hotness(workload, epoch), workload.graph.num_nodes)
        return ranked[self.nodes.start : self.nodes.stop]

    def quietly(self) -> OfNodes:
        return OfNodes(self.policy.quietly(), self.nodes)

    def __repr__(self) -> str:
        return f"{self.policy!r} of nodes {self.nodes.start} to {self.nodes.stop - 1}"


def fitting(
    levels: Sequence[FeatureCache], data: GraphData, name: str, *, progress: bool = True
) -> tuple[FeatureCache, ...]:
    """The same caches, with policies that judge the rows of that table.

    Args:
        levels: as for a table of all nodes.
        data: whose table it is.
        name: of the table, in :attr:`.GraphData.stores`.
        progress: whether policies that sample ahead show a bar on stderr.

    Raises:
        CacheConfigError: a policy that judges all nodes, for rows of some of them or of edges.
    """
    return tuple(_fitting(level, data, name, progress) for level in levels)


def _fitting(level: FeatureCache, data: GraphData, name: str, progress: bool) -> FeatureCache:
    table = data.tables.get(name)
    of_some = isinstance(table, NodeTable)
    if not (of_some or name in data.edge_stores) or (level.policy in EVICTION_RULES and level.policy != "belady"):
        return level
    if not isinstance(table, NodeTable) or level.policy == "belady":
        raise CacheConfigError(
            f"policy={level.policy!r} judges the rows of all nodes, but {name!r} has those of "
            f"{'some nodes' if of_some else 'edges'}. Give its cache one that judges none: 'fifo', 'clock', 's3fifo'."
        )
    return replace(
        level, policy=OfNodes(policy_named(level.policy, window=level.window, progress=progress), table.nodes)
    )
