"""SeedForm: what a phase's seeds are, as mini-batches and formats know them; and links cut by edge type.

Shapes: R rows of a mini-batch, P links: the rows, and with binary negatives these, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch

from lightning_gnnload.data.types import EdgeType


class SeedColumn(NamedTuple):
    """What a column has an entry for, and what that is: the position of a node, that of a row, or a value."""

    axis: Literal["row", "pair"]
    holds: Literal["node", "row", "value"]


COLUMNS: Mapping[str, Mapping[str, SeedColumn]] = {
    "nodes": {},
    "links": {
        "src": SeedColumn("pair", "node"),
        "dst": SeedColumn("pair", "node"),
        "label": SeedColumn("pair", "value"),
        "row": SeedColumn("pair", "row"),
        "negatives": SeedColumn("row", "node"),
        "negative_mask": SeedColumn("row", "value"),
    },
    "pyg": {},
}
"""The columns that each kind of seed has beside those of its table, by the kind's name."""


class LinkForm(NamedTuple):
    """What formats need to know of all links of one edge type.

    Attributes:
        edge_type: None in a graph without types.
        number: of the edge type, which the column ``"type"`` has where there are several.
        num_negatives: of a row; None where the mini-batch decides. The first ``num_dst`` of these replace its
            destination (None: all), the others its source.
        first_label: what PyG adds to labels beside binary negatives, whose label is 0: 1, where the least label of the
            whole table is 0.
    """

    edge_type: EdgeType | None = None
    number: int = 0
    num_negatives: int | None = None
    num_dst: int | None = None
    first_label: int = 0


class SeedForm(NamedTuple):
    """A kind of seed: its name, by which formats find how they write it, and of links each edge type of the table."""

    name: str = "nodes"
    links: tuple[LinkForm, ...] = ()

    @property
    def rows_are_seeds(self) -> bool:
        """Whether row ``i`` is seed ``i``, so that the graph's labels of seeds are those of rows."""
        return self.name == "nodes"

    def by_type(self, columns: Mapping[str, torch.Tensor]) -> list[tuple[LinkForm, Mapping[str, torch.Tensor]]]:
        """Cuts the columns of links by edge type: each type has its own rows and pairs, in their order, and as many
        negatives as it asked for. Types without rows have empty columns."""
        if len(self.links) == 1:
            return [(self.links[0], columns)]
        return [(link, self._of_type(link, columns)) for link in self.links]

    def _of_type(self, link: LinkForm, columns: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        is_row = columns["type"] == link.number
        row = columns.get("row")
        is_pair = is_row if row is None else is_row[row]
        part = {}
        for name, column in columns.items():
            axis, holds = COLUMNS[self.name].get(name, ("row", "value"))
            values = column[is_pair if axis == "pair" else is_row]
            # Rows count anew: each by how many of its type come up to it.
            part[name] = is_row.cumsum(0)[values] - 1 if holds == "row" else values
        del part["type"]
        if "negatives" in part:
            num_rows = len(part["input_id"])
            width = max(num_rows - 1, 0) if link.num_negatives is None else link.num_negatives
            for name in ("negatives", "negative_mask"):
                # Of a type without rows here, the columns are as wide as the types that have rows made them.
                is_narrow = part[name].shape[1] < width
                part[name] = part[name].new_zeros((num_rows, width)) if is_narrow else part[name][:, :width]
        return part

    @classmethod
    def of_json(cls, values: Any) -> SeedForm:
        """Checks and reads what JSON makes of a form, from another process. Raises TypeError, ValueError."""
        name, links = values
        for edge_type, number, num_negatives, num_dst, first_label in links:
            if edge_type is not None and [type(text) for text in edge_type] != [str] * 3:
                raise ValueError(f"{edge_type!r:.100} is no edge type")
            numbers, optional = {type(number), type(first_label)}, {type(num_negatives), type(num_dst)}
            if numbers != {int} or not optional <= {int, type(None)}:
                raise ValueError(f"{number!r:.50} and others are no numbers of links")
        if type(name) is not str or name not in COLUMNS or (name == "links") != bool(links):
            raise ValueError(f"{name!r:.50} is no kind of seed")
        return cls(name, tuple(LinkForm(edge_type and tuple(edge_type), *numbers) for edge_type, *numbers in links))


NODE_SEEDS = SeedForm()
