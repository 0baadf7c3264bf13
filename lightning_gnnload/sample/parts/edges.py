"""HopEdges: the edges that a frontier draws, in the order of its nodes."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class HopEdges:
    """Holds the edges that the nodes of a frontier draw at one hop, grouped by node in the frontier's order.

    Attributes:
        counts: integer ``[D]``, edges of each node.
        neighbors: integer ``[E]``, node ids.
        edge_ids: integer ``[E]``, positions in the whole graph's ``indices``; None where nobody asked.
        edge_weight: float ``[E]``, or None.
        edge_type: integer ``[E]``, or None.
        edge_time: uint32 ``[E]``, from when on an edge is there, as a code of the clock; None likewise.
        until: uint32 ``[E]``, along paths: until when what the edge finds counts, as a code of the clock; None
            elsewhere.

    Shapes: D nodes of the frontier, E edges.
    """

    counts: np.ndarray
    neighbors: np.ndarray
    edge_ids: np.ndarray | None = None
    edge_weight: np.ndarray | None = None
    edge_type: np.ndarray | None = None
    edge_time: np.ndarray | None = None
    until: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays that are not None, by name."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in columns.items() if array is not None}

    def after(self, before: HopEdges | None) -> HopEdges:
        """Puts the edges of the nodes before this frontier, which drew at earlier hops, in front of its own."""
        if before is None:
            return self
        earlier = before.arrays()
        return HopEdges(**{name: np.concatenate([earlier[name], array]) for name, array in self.arrays().items()})
