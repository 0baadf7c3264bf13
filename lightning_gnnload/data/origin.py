"""Origin: where the nodes and edges of a part come from in the whole graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_gnnload.errors import GraphFormatError, PartReachError


@dataclass(frozen=True)
class Origin:
    """Records where a part lies in the whole graph. A node keeps its random draws wherever its list lies: their keys
    name it by ``node_ids``, so that a mini-batch of a part is one of the whole.

    Attributes:
        node_ids: int64 ``[n]``, each node's id in the whole graph, all different.
        reach: uint8 ``[n]``: how many hops of in-neighbours behind a node the part holds completely, as the whole
            graph has them; 0 for a node whose own list is missing.
        edge_starts: int64 ``[n]``: where in the whole graph's ``indices`` a node's list begins; any value where reach
            is 0.

    Raises:
        GraphFormatError: arrays of other dtypes, or of different lengths.
    """

    node_ids: np.ndarray
    reach: np.ndarray
    edge_starts: np.ndarray

    def __post_init__(self) -> None:
        for name, dtype in (("node_ids", np.int64), ("reach", np.uint8), ("edge_starts", np.int64)):
            values = getattr(self, name)
            if values.dtype != dtype or values.shape != (len(self.node_ids),):
                raise GraphFormatError(
                    f"Origin: {name} must be {np.dtype(dtype)} [{len(self.node_ids)}], one a node, but it is "
                    f"{values.dtype} {list(values.shape)}."
                )


class LocalIds:
    """Maps ids of the whole graph to the local ids of one part.

    Args:
        node_ids: int64 ``[n]``, all different; 16 bytes each are taken.
    """

    def __init__(self, node_ids: np.ndarray) -> None:
        self._places = np.argsort(node_ids, kind="stable")  # quick where they ascend in runs, as a part's do
        self._ids = node_ids[self._places]

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Returns the local ids, int64, in the shape of ``ids``.

        Raises:
            PartReachError: an id that is not there.
        """
        # A search, where a table of the whole graph's N entries would be quicker: a part's memory depends on n alone.
        at = np.searchsorted(self._ids, ids)
        is_local = at < len(self._ids)  # ids beyond the largest have no entry to compare with
        is_local[is_local] = self._ids[at[is_local]] == ids[is_local]
        if not is_local.all():
            missing = ids[~is_local]
            raise PartReachError(
                f"node {missing[0]} is not in this part of the graph, nor are {len(missing) - 1} more of the "
                f"{ids.size} asked for: a part has {len(self._ids)} nodes. Ask the part that owns them: "
                "Partition.part_of(ids)."
            )
        return self._places[at]
