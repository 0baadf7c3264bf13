"""Origin: the ids that the nodes and edges of a part have in the whole graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_gnnload.errors import GraphFormatError, PartReachError


@dataclass(frozen=True)
class Origin:
    """Maps the n nodes of a part to the whole graph, by whose ids they draw, so that mini-batches are the same."""

    node_ids: np.ndarray
    """int64 ``[n]``, the nodes' distinct ids in the whole graph."""
    reach: np.ndarray
    """uint8 ``[n]``: how many hops of in-neighbours of a node the part has completely; 0 where its list is missing."""
    edge_starts: np.ndarray
    """int64 ``[n]``: where a node's list begins in the whole graph's ``indices``; any value where reach is 0."""

    def __post_init__(self) -> None:
        for name, dtype in (("node_ids", np.int64), ("reach", np.uint8), ("edge_starts", np.int64)):
            values = getattr(self, name)
            if values.dtype != dtype or values.shape != (len(self.node_ids),):
                raise GraphFormatError(
                    f"Origin: {name} must be {np.dtype(dtype)} [{len(self.node_ids)}], as many as node_ids, but it is "
                    f"{values.dtype} {list(values.shape)}."
                )


class LocalIds:
    """Maps ids of the whole graph to local ids of a part, whose nodes have the distinct ``node_ids``, int64 ``[n]``."""

    def __init__(self, node_ids: np.ndarray) -> None:
        self._order = np.argsort(node_ids, kind="stable")  # quick where they ascend in runs, as a part's do
        self._ids = node_ids[self._order]

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Returns int64 local ids in the shape of ``ids``. Raises PartReachError: an id that the part does not have."""
        local = self.find(ids)
        if (local < 0).any():
            missing = ids[local < 0]
            raise PartReachError(
                f"this part of the graph, of {len(self._ids)} nodes, lacks {len(missing)} of the {ids.size} nodes "
                f"asked for, first node {missing[0]}. Ask the part that owns them: Partition.part_of(ids)."
            )
        return local

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Returns int64 local ids in the shape of ``ids``; -1 for those that the part does not have."""
        # By search: a table of the whole graph's N nodes would be quicker, but a part's memory must not grow with N.
        at = np.searchsorted(self._ids, ids)
        is_local = at < len(self._ids)  # ids beyond the largest have no entry to compare with
        is_local[is_local] = self._ids[at[is_local]] == ids[is_local]
        local = np.full(ids.shape, -1)
        local[is_local] = self._order[at[is_local]]
        return local
