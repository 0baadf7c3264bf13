"""FirstRows: what models know of nodes before the first hop: features, categories and learned rows as one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.nn.dropout import Dropout

CODES = "codes"
"""The name of a type's table of categories, integers ``[N_t, C]`` with 0 for unknown ones."""
Rows = dict[str, Tensor]
"""``[V_t, F]`` by node type; a graph without types has one, ``""``."""
_ROWS_AT_ONCE = 1 << 20


class FirstRows(nn.Module):
    """The first rows of nodes: a learned row for each type, plus projected features, plus a row for each category, plus
    a row for each node where types without columns have such.

    Args:
        sizes: of :func:`first_sizes`.
        width: of the rows.
        dropout: after them, and after a relu.
    """

    project: Any  # a name in checkpoints; nested modules, whose items are nn.Module to a type checker
    embed: Any
    node_rows: Any

    def __init__(self, sizes: Mapping[str, Any], width: int, dropout: float) -> None:
        super().__init__()
        num_features: dict[str, int] = sizes["num_features"]
        self.module_names = names = module_names(sizes)
        self.dropout = Dropout(dropout, relu=True)
        if not sizes.get("encodes", True):
            return
        with_x = {names[name]: size for name, size in num_features.items() if size}
        with_nodes = {names[name]: count for name, count in sizes.get("num_rows", {}).items()}
        self.project = nn.ModuleDict({key: nn.Linear(size, width) for key, size in with_x.items()})
        shared: dict[str, nn.Embedding] = {}  # columns of one vocabulary have one table
        self.embed = nn.ModuleDict()
        for name, counts in sizes["num_codes"].items():
            vocabularies = sizes.get("vocabularies", {}).get(name, [None] * len(counts))
            embeds = [nn.Embedding(count, width) for count in counts]
            named = zip(vocabularies, embeds, strict=True)
            self.embed[names[name]] = nn.ModuleList(
                embed if vocabulary is None else shared.setdefault(vocabulary, embed) for vocabulary, embed in named
            )
        self.row = nn.ParameterDict({key: nn.Parameter(0.1 * torch.randn(width)) for key in names.values()})
        self.node_rows = nn.ModuleDict({key: nn.Embedding(count, width) for key, count in with_nodes.items()})

    def encode(self, nodes: Rows, x: Mapping[str, Tensor | None], tables: Mapping[str, Rows]) -> Rows:
        """Returns the rows of nodes, by their ids within the type, features and further tables."""
        rows = {}
        for name, ids in nodes.items():
            key = self.module_names[name]
            row = self.row[key].expand(len(ids), -1)
            if key in self.project:
                features = x[name]
                assert features is not None, "the data have features of this type, as the layers were made for them"
                row = row + self.project[key](features.to(row.dtype))
            if key in self.embed:
                codes = tables[name][CODES].long()
                for code, embed in zip(codes.unbind(dim=1), self.embed[key], strict=True):
                    row = row + embed(torch.where(code < embed.num_embeddings, code, 0))
            if key in self.node_rows:
                # Nodes that came after training have the row of their type alone.
                embed = self.node_rows[key]
                is_trained = ids < embed.num_embeddings
                row = row + embed(torch.where(is_trained, ids, 0)) * is_trained[:, None]
            rows[name] = self.dropout(row)
        return rows


def module_names(sizes: Mapping[str, Any]) -> dict[str, str]:
    """Returns the keys of node types in dicts of modules."""
    # By number: modules' names may contain no dots.
    return {name: str(number) for number, name in enumerate(sizes["num_features"])}


def first_sizes(data: GraphData, *, with_node_rows: bool) -> dict[str, Any]:
    """Returns the sizes of :class:`FirstRows` by node type, in types that a checkpoint takes."""
    types, stores = data.graph.types, _stores_by_type(data)
    counts = [data.num_nodes] if types is None else types.num_nodes
    sizes: dict[str, Any] = {
        "num_features": {
            name: width_of(columns["x"], f"table 'x.{name}'" if name else "table 'x'") if "x" in columns else 0
            for name, columns in stores.items()
        },
        **_code_sizes(data, {name: columns[CODES] for name, columns in stores.items() if CODES in columns}),
    }
    if with_node_rows:
        bare = {
            name: int(n)
            for (name, columns), n in zip(stores.items(), counts, strict=True)
            if not {"x", CODES} & {*columns}
        }
        sizes["num_rows"] = bare
    return sizes


def _stores_by_type(data: GraphData) -> dict[str, dict[str, Any]]:
    if data.graph.types is None:
        return {"": {**data.stores}}
    names = data.graph.types.node_types
    return {name: {key: table.store for key, table in data.tables_of(name).items()} for name in names}


def _code_sizes(data: GraphData, stores: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers of codes and the vocabularies of tables of categories; columns of one vocabulary have as many
    codes."""
    tables = {name: f"{CODES}.{name}" if name else CODES for name in stores}
    counts = {name: num_codes(store, f"table {tables[name]!r}") for name, store in stores.items()}
    vocabularies = {name: data.vocabularies[table] for name, table in tables.items() if table in data.vocabularies}
    largest: dict[str | None, int] = {}
    for name, shared in vocabularies.items():
        for vocabulary, count in zip(shared, counts[name], strict=True):
            largest[vocabulary] = max(largest.get(vocabulary, 0), count)
    for name, shared in vocabularies.items():
        counts[name] = [
            count if vocabulary is None else largest[vocabulary]
            for vocabulary, count in zip(shared, counts[name], strict=True)
        ]
    return {"num_codes": counts, "vocabularies": vocabularies}


def width_of(store: Any, name: str) -> int:
    """Returns how many columns a table has. Raises GraphDataError: its rows are of no dimension, or of several."""
    if len(store.row_shape) != 1:
        raise GraphDataError(
            f"{name} has the shape {[store.shape[0], *store.row_shape]}, but models by name read [rows, columns]. One "
            "column becomes a table by [:, None], rows of several dimensions by flatten(1)."
        )
    return int(store.row_shape[0])


def num_codes(store: Any, name: str) -> list[int]:
    """Returns the number of codes of each column of a table of categories, ``[C]``. Raises GraphDataError: it is of
    another shape, or has negative codes."""
    width_of(store, name)
    highest = torch.zeros(store.shape[1], dtype=torch.int64)
    for first in range(0, store.shape[0], _ROWS_AT_ONCE):
        ids = torch.arange(first, min(first + _ROWS_AT_ONCE, store.shape[0]))
        rows = torch.empty((len(ids), *store.row_shape), dtype=store.dtype)
        store.gather(ids, rows)
        codes = rows.long()
        if bool((codes < 0).any()):
            raise GraphDataError(f"{name} has the code {int(codes.min())}, but codes count from 0, the unknown one.")
        highest = torch.maximum(highest, codes.amax(dim=0))
    return (highest + 1).tolist()
