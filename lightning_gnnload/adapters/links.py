"""Links, as formats ask about them: what they need to know of all links of a phase.

Negatives come as ``[P, num]``, -1 where there is none. The first ``num_dst`` of a row replace its destination, the
others its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import EdgeType

OF_LINKS = {"src", "dst", "label", "row", "negatives", "negative_mask", "time", "y"}
"""Columns of links that libraries have by other names, or in another form."""


@dataclass(frozen=True)
class LinkForm:
    """What formats need to know of all links of a phase, beside a mini-batch of them.

    Attributes:
        edge_type: of the links; None in a graph without types.
        num_dst: how many of so many negatives of a row replace its destination, all by default; the others replace its
            source.
        first_label: what PyG adds to labels beside binary negatives, so that 0 is the label of these alone: 1, where
            the least label of the whole table is 0.
    """

    edge_type: EdgeType | None = None
    num_dst: Callable[[int], int] = int
    first_label: int = 0

    @classmethod
    def of(cls, graph: Graph, table: SeedTable | None, num_dst: Callable[[int], int] = int) -> LinkForm:
        """Returns the form of a table's links; the default one, where its rows are nodes or there is no table.

        Raises:
            SamplerConfigError: an edge type that the graph does not have.
        """
        if table is None or not table.is_links:
            return cls()
        types, y = graph.types, table.y
        edge_type = None if types is None else types.edge_types[types.edge_type_number(table.edge_type)]
        return cls(edge_type, num_dst, int(y is not None and y.numel() > 0 and bool(y.min() == 0)))


ANY_LINKS = LinkForm()


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
