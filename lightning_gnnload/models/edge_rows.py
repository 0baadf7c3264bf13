"""EdgeRows: what edges tell beside the node that they come from: features, categories, types, and how old they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import GraphDataError, LoaderConfigError, SamplerConfigError
from lightning_gnnload.models.first_rows import CODES, num_codes

EDGE_COLUMNS = ("x", "codes", "type", "age")
"""What models may read of edges."""
TIMES = ("edge_time", "time")
"""Names of the edge table that has the edges' times: the data module's, and the user's."""
_NUM_SPANS, _LONGEST = 6, 0.375


class EdgeRows(nn.Module):
    """A row for each edge of one type: projected features, plus a row for each category and for its type, plus its age.

    An age is told by ``exp(-age / span)`` for six spans, of three eighths of all time that the graph knows, a third of
    that and so on, and by whether the edge is from after the seed's time.

    Args:
        columns: of this edge type, by :func:`edge_sizes`.
        spans: in the unit of the graph's times.
        width: of the rows.
    """

    codes: Any

    def __init__(self, columns: Mapping[str, Any], spans: Sequence[float], width: int) -> None:
        super().__init__()
        self.spans = spans
        if "x" in columns:
            self.x = nn.Linear(columns["x"], width, bias=False)
        if "codes" in columns:
            self.codes = nn.ModuleList(nn.Embedding(count, width) for count in columns["codes"])
        if "type" in columns:
            self.relation = nn.Embedding(columns["type"], width)
        if "age" in columns:
            self.age = nn.Linear(len(spans) + 1, width, bias=False)

    def rows(self, block: Block, age: Tensor | None) -> Tensor | None:
        """Returns ``[num_edges, width]``, by a block of the type and its edges' ages; None where nothing is told.

        No call of the module: :func:`.infer` would take it, which gets edges, for a layer.
        """
        parts = []
        if hasattr(self, "x"):
            assert block.x is not None, "the data have edge features, as the layers were made for them"
            parts.append(self.x(block.x.to(self.x.weight.dtype)))
        for code, embed in (
            zip(block.tables[CODES].long().unbind(dim=1), self.codes, strict=True) if hasattr(self, "codes") else ()
        ):
            parts.append(embed(torch.where(code < embed.num_embeddings, code, 0)))
        if hasattr(self, "relation") and (types := edge_types_in(block)) is not None:
            parts.append(self.relation(torch.where(types < self.relation.num_embeddings, types, 0).long()))
        if hasattr(self, "age"):
            assert age is not None, "ages() has them, as the layers were made for them"
            parts.append(self.age(age_rows(age, self.spans).to(self.age.weight.dtype)))
        return torch.stack(parts).sum(dim=0) if parts else None


def edge_types_in(block: Block) -> Tensor | None:
    """Returns the number of each edge's type, ``[num_edges]``, of a graph without types of nodes."""
    return block.tables.get("edge_type") if block.edge_type is None else block.edge_type


def age_rows(age: Tensor, spans: Sequence[float]) -> Tensor:
    """Returns what is told of ages ``[E]``, ``[E, K + 1]``: near 1 within each of K spans, else near 0; then whether
    they are negative."""
    near = torch.exp(-age.abs()[:, None] / age.new_tensor(spans))
    return torch.cat([near, (age < 0).to(near)[:, None]], dim=1)


class Ages:
    """How long before its seed's time each edge of a mini-batch is, in the unit of the times.

    Args:
        batch: whose nodes know the seed, or the time, that they belong to.
        sharing: of its sampler.
    """

    def __init__(self, batch: MiniBatch | TypedMiniBatch, sharing: str | None) -> None:
        times = batch.seed_columns.get("time")
        if times is None or batch.rows is None or (isinstance(batch.rows, dict) and not batch.rows):
            raise SamplerConfigError(
                "the model reads the age of edges at the time of the seed that they belong to, but mini-batches do not "
                "tell the seeds' times, or which seed a node belongs to. Give seeds times, and NeighborSampler(..., "
                "sharing='disjoint') or sharing='time'."
            )
        # With "time", nodes have the number of their time among the mini-batch's, ascending.
        self._times = times.unique() if sharing == "time" else times
        self._rows = batch.rows if isinstance(batch.rows, dict) else {"": batch.rows}

    def of_edges(self, block: Block, dst_type: str) -> Tensor:
        """Returns the ages of a block's edges, float32 ``[num_edges]``."""
        time = next((block.tables[name] for name in TIMES if name in block.tables), None)
        assert time is not None, "the data have edges' times, as the layers were made for them"
        row = self._rows[dst_type][block.edge_dst()].long()
        # Subtracted as they are: float32 cannot tell the seconds of a date.
        return (self._times[row] - time.view(-1)).float()


def edge_sizes(data: GraphData, read: bool | Sequence[str], model: str) -> dict[str, Any] | None:
    """Returns the sizes of :class:`EdgeRows` by edge type, and the spans of ages, in types that a checkpoint takes;
    None where edges tell nothing.

    Args:
        data: of a run.
        read: True, all of :data:`EDGE_COLUMNS` that the data have; or names of those that they must have.
        model: the name of its class, for errors.

    Raises:
        GraphDataError: the data lack a column that was named.
        LoaderConfigError: edges and seeds have times, but mini-batches do not carry those of edges.
    """
    if not read:
        return None
    names = EDGE_COLUMNS if read is True else tuple(read)
    graph, types = data.graph, data.graph.types
    by_type: list[dict[str, Any]] = []
    for number, edge_type in enumerate([None] if types is None else types.edge_types):
        if edge_type is None:
            stores: dict[str, Any] = {name.removeprefix("edge."): store for name, store in data.edge_stores.items()}
            stores["x"] = stores.pop("edge_x", None)
        else:
            stores = {name: table.store for name, table in data.edge_tables_of(edge_type).items()}
            stores |= {name: store for name, store in data.edge_tables.items() if name in TIMES}
        columns: dict[str, Any] = {}
        if "x" in names and stores.get("x") is not None:
            columns["x"] = stores["x"].row_shape[-1]
        if "codes" in names and CODES in stores:
            columns["codes"] = num_codes(stores[CODES], f"edge table {CODES!r}")
        if "type" in names and types is None and graph.edge_type is not None:
            columns["type"] = int(graph.edge_type.max(initial=0)) + 1
        if "age" in names and graph.clock is not None and bool(graph.clock.timed[number]) and _seeds_have_times(data):
            if not any(name in stores for name in TIMES):
                raise LoaderConfigError(
                    f"{model} reads the age of edges, but mini-batches do not carry their times. Give "
                    "GraphDataModule(..., edge_time=True), in YAML data: {edge_time: true}; or "
                    "edges=['x', 'codes', 'type'], without ages."
                )
            columns["age"] = True
        by_type.append(columns)
    if read is not True:
        for name in names:
            if not any(name in columns for columns in by_type):
                raise GraphDataError(f"{model}(edges={list(names)}): {_LACKING[name]} Give such, or leave it out.")
    if not any(by_type):
        return None
    return {"by_type": by_type, "spans": _spans(data)}


_LACKING = {
    "x": "the data have no features of edges, edge_x.",
    "codes": "the data have no categories of edges, an edge table 'codes'.",
    "type": "the graph's edges have no types, or it has types of nodes, by which models tell edges apart anyway.",
    "age": "the edges, or the seeds, have no times.",
}


def check_edge_columns(read: bool | Sequence[str]) -> None:
    """Raises LoaderConfigError: these are no columns of edges."""
    if isinstance(read, bool):
        return
    if isinstance(read, str) or not all(name in EDGE_COLUMNS for name in read):
        raise LoaderConfigError(
            f"edges={read!r}: True, False, or a list of {', '.join(map(repr, EDGE_COLUMNS))} is needed."
        )


def _seeds_have_times(data: GraphData) -> bool:
    if data.graph.node_time is not None:
        return True
    return any(data.seed_tables[split].time is not None for split in SPLITS if split in data.seed_tables)


def _spans(data: GraphData) -> list[float]:
    if data.graph.clock is None:
        return []
    first, last = (float(time) for time in data.graph.clock.span)
    return (np.float64(last - first or 1) * _LONGEST / 3.0 ** np.arange(_NUM_SPANS)).tolist()
