"""Links as PyG's and DGL's own loaders yield them: positive and negative pairs by the places of their nodes in a
mini-batch.

Negatives come as ``[P, num]``, -1 where there is none. The first ``num_dst`` of a row replace its destination, the
others its source.

Shapes: P positive pairs, M negative pairs that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from lightning_gnnload.adapters.columns import seed_fields
from lightning_gnnload.adapters.dgl_frames import import_dgl
from lightning_gnnload.adapters.dgl_relations import graph_of
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.types import EdgeType

CountOf = Callable[[int], int]
"""How many of so many negatives of a row replace its destination; the others replace its source."""
_OF_LINKS = {"src", "dst", "label", "negatives", "negative_mask", "time", "y"}
"""Columns of links that libraries have by other names."""


def negative_pairs(
    src: torch.Tensor, dst: torch.Tensor, negatives: torch.Tensor, num_dst: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sources and destinations of all negative pairs, int64 ``[P, num]`` each; -1 in one of both where
    there is none.

    Example:
        >>> src, dst = negative_pairs(torch.tensor([5]), torch.tensor([6]), torch.tensor([[7, 8]]), num_dst=1)
        >>> src.tolist(), dst.tolist()
        ([[5, 8]], [[7, 6]])
    """
    is_dst = torch.arange(negatives.shape[1], device=negatives.device) < num_dst
    return torch.where(is_dst, src[:, None], negatives), torch.where(is_dst, negatives, dst[:, None])


def pyg_binary_fields(
    src: torch.Tensor,
    dst: torch.Tensor,
    negatives: torch.Tensor | None = None,
    *,
    num_dst: int | None = None,
    labels: torch.Tensor | None = None,
    times: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """Returns what PyG's LinkNeighborLoader calls pairs with labels, as without negatives and with ``"binary"`` ones.

    - ``edge_label_index``: int64 ``[2, P + M]``, positive pairs first, then the first negative of each row, and so on;
      negatives that are not there are left out.
    - ``edge_label``: ``[P + M]`` or ``[P + M, C]``: those given, or 1 in float32; 0 for negatives. Not there without
      labels and negatives.
    - ``edge_label_time``: ``[P + M]``, a negative has its row's. Not there without times.

    Args:
        src: int64 ``[P]``, places of the sources in the mini-batch, or among its nodes of their type.
        dst: int64 ``[P]``, likewise.
        negatives: int64 ``[P, num]``, likewise; -1 for none.
        num_dst: of the negatives, how many replace destinations; None: all.
        labels: ``[P]`` or ``[P, C]``, of positive pairs, by :func:`labels_beside_negatives`.
        times: ``[P]``.

    Example:
        >>> src, dst, negatives = torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([[4], [-1]])
        >>> fields = pyg_binary_fields(src, dst, negatives)
        >>> fields["edge_label_index"].tolist(), fields["edge_label"].tolist()
        ([[0, 1, 0], [2, 3, 4]], [1.0, 1.0, 0.0])
    """
    if negatives is None:
        return _present({"edge_label_index": torch.stack([src, dst]), "edge_label": labels, "edge_label_time": times})
    num = negatives.shape[1]
    false_src, false_dst = (
        ends.t().reshape(-1) for ends in negative_pairs(src, dst, negatives, num if num_dst is None else num_dst)
    )
    is_there = (false_src >= 0) & (false_dst >= 0)
    pairs = torch.stack([torch.cat([src, false_src[is_there]]), torch.cat([dst, false_dst[is_there]])])
    labels = torch.ones(len(src), device=src.device) if labels is None else labels
    label = torch.cat([labels, labels.new_zeros(pairs.shape[1] - len(src), *labels.shape[1:])])
    time = None if times is None else torch.cat([times, times.repeat(num)[is_there]])
    return _present({"edge_label_index": pairs, "edge_label": label, "edge_label_time": time})


def labels_beside_negatives(labels: torch.Tensor) -> torch.Tensor:
    """Returns a whole table's labels as PyG gives them beside binary negatives: where the least is 0, one more, so that
    0 is that of negatives alone."""
    return labels + 1 if labels.numel() and labels.min() == 0 else labels


def pyg_triplet_fields(
    src: torch.Tensor,
    dst: torch.Tensor,
    negatives: torch.Tensor,
    *,
    num_dst: int | None = None,
    times: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """Returns what PyG's LinkNeighborLoader calls pairs with ``"triplet"`` negatives.

    - ``src_index``, ``dst_pos_index``: int64 ``[P]``.
    - ``dst_neg_index``: int64 ``[P, num_dst]``, or ``[P]`` where that is 1. One that is not there is the positive
      pair's own, so that whatever compares both learns nothing;
    - ``dst_neg_mask``: bool, of the same shape, tells which are there. PyG has no such field.
    - ``src_neg_index``, ``src_neg_mask``: likewise, where some negatives replace sources. Nor these.
    - ``seed_time``: ``[P]``. Not there without times.

    Args:
        src: as in :func:`pyg_binary_fields`.
        dst: likewise.
        negatives: likewise.
        num_dst: likewise.
        times: likewise.

    Example:
        >>> fields = pyg_triplet_fields(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([[4], [-1]]))
        >>> fields["dst_neg_index"].tolist(), fields["dst_neg_mask"].tolist()
        ([4, 3], [True, False])
    """
    first = negatives.shape[1] if num_dst is None else num_dst
    fields = _present({"src_index": src, "dst_pos_index": dst, "seed_time": times})
    for end, own, nodes in (("dst", dst, negatives[:, :first]), ("src", src, negatives[:, first:])):
        if nodes.shape[1]:
            is_there = nodes >= 0
            fields[f"{end}_neg_index"] = torch.where(is_there, nodes, own[:, None]).squeeze(-1)
            fields[f"{end}_neg_mask"] = is_there.squeeze(-1)
    return fields


def link_type_of(data: GraphData) -> EdgeType | None:
    """Returns the edge type of the seeds that are links; None without types or links, or where these have several."""
    types = data.graph.types
    tables = [table for table in data.seed_tables.values() if table.is_links]
    found = set() if types is None else {types.edge_type_number(table.edge_type) for table in tables}
    return types.edge_types[found.pop()] if types is not None and len(found) == 1 else None


def pyg_link_fields(
    columns: Mapping[str, torch.Tensor],
    labels: torch.Tensor | None,
    rows: torch.Tensor | None,
    num_dst: CountOf | None = None,
) -> dict[str, torch.Tensor]:
    """Returns the columns of a mini-batch's links as PyG's LinkNeighborLoader names them.

    They are those of :func:`pyg_binary_fields`, negatives row by row, or of :func:`pyg_triplet_fields`; ``input_id``,
    and further columns under their names. Beside binary negatives, labels are one more than given.

    Args:
        columns: ``MiniBatch.seed_columns``, of links.
        labels: ``[R]`` or ``[R, C]``, of the rows.
        rows: ``MiniBatch.rows``, of the sources' type.
        num_dst: of negatives; None: all replace destinations.
    """
    src, dst, times = columns["src"], columns["dst"], columns.get("time")
    others = {name: each for name, each in columns.items() if name not in _OF_LINKS}
    if "negatives" in columns:
        negatives = columns["negatives"].where(columns["negative_mask"], -1)
        first = None if num_dst is None else num_dst(negatives.shape[1])
        return (
            others
            | pyg_triplet_fields(src, dst, negatives, num_dst=first, times=times)
            | _present({"edge_label": labels})
        )
    num_negatives = len(src) - len(columns["input_id"])
    if times is not None and num_negatives:
        times = None if rows is None else _times_of(times, rows[src].long())
    if labels is not None and "label" in columns:
        labels = torch.cat([labels + 1, labels.new_zeros(num_negatives, *labels.shape[1:])])
    return others | pyg_binary_fields(src, dst, labels=columns.get("label") if labels is None else labels, times=times)


def dgl_link_graphs(
    columns: Mapping[str, torch.Tensor],
    labels: torch.Tensor | None,
    nodes: torch.Tensor | Mapping[str, torch.Tensor],
    label_name: str,
    edge_types: Sequence[EdgeType] | None = None,
    edge_type: EdgeType | None = None,
    num_dst: CountOf | None = None,
) -> tuple[Any, ...]:
    """Returns the pair graphs of a mini-batch's links, see :func:`dgl_pair_graphs`; positive pairs have the columns of
    their rows, labels and times as ``label_name`` and ``"seed_time"``.

    Args:
        columns: ``MiniBatch.seed_columns``, of links.
        labels: of the rows.
        nodes: the seeds.
        label_name: the name of labels.
        edge_types: all types of the graph.
        edge_type: of the links.
        num_dst: of negatives; None: all replace destinations.
    """
    src, dst, num_rows = columns["src"], columns["dst"], len(columns["input_id"])
    given = seed_fields({name: each for name, each in columns.items() if name not in _OF_LINKS - {"time"}})
    given |= _present({label_name: labels})
    pairs = partial(dgl_pair_graphs, nodes=nodes, edge_types=edge_types, edge_type=edge_type)
    if "negatives" in columns:
        negatives = columns["negatives"].where(columns["negative_mask"], -1)
        first = None if num_dst is None else num_dst(negatives.shape[1])
        return pairs(src, dst, negatives=negatives, num_dst=first, columns=given)
    positive = pairs(src[:num_rows], dst[:num_rows], columns=given)
    return positive if "label" not in columns else (*positive, *pairs(src[num_rows:], dst[num_rows:]))


def dgl_pair_graphs(
    src: torch.Tensor,
    dst: torch.Tensor,
    nodes: torch.Tensor | Mapping[str, torch.Tensor],
    negatives: torch.Tensor | None = None,
    *,
    num_dst: int | None = None,
    edge_types: Sequence[EdgeType] | None = None,
    edge_type: EdgeType | None = None,
    edge_ids: torch.Tensor | None = None,
    columns: Mapping[str, torch.Tensor] | None = None,
) -> tuple[Any, ...]:
    """Returns the pair graphs of DGL's ``as_edge_prediction_sampler``: of positive pairs and, with negatives, of those.

    Both have the seeds of the mini-batch as nodes, in its order, and their ids as ``ndata[dgl.NID]``. Edges are pairs
    in order; negative ones row by row, without those that are not there.

    Args:
        src: int64 ``[P]``, places of the sources among ``nodes``, of their type.
        dst: int64 ``[P]``, likewise.
        nodes: ids of the seeds, int64 ``[S]``, or by node type.
        negatives: int64 ``[P, num]``, likewise; -1 for none.
        num_dst: of the negatives, how many replace destinations; None: all.
        edge_types: all types of the graph, which both graphs have, too; None for a homogeneous graph.
        edge_type: the pairs' own.
        edge_ids: int64 ``[P]``, ``edata[dgl.EID]`` of positive pairs.
        columns: further ``edata`` of positive pairs by name, such as labels.

    Raises:
        MissingExtraError: DGL cannot be imported.
    """
    dgl = import_dgl("batch_format='dgl'")

    def pairs(src: torch.Tensor, dst: torch.Tensor) -> Any:
        if not isinstance(nodes, Mapping) or edge_types is None:
            made = dgl.graph((src, dst), num_nodes=len(nodes))
            made.ndata[dgl.NID] = nodes
            return made
        none = src[:0]
        ends = {kind: (src, dst) if kind == edge_type else (none, none) for kind in edge_types}
        made = graph_of(ends, {kind: len(ids) for kind, ids in nodes.items()})
        for kind, ids in nodes.items():
            made.nodes[kind].data[dgl.NID] = ids
        return made

    positive = pairs(src, dst)
    data = positive.edges[edge_type].data if edge_type is not None else positive.edata
    for name, rows in {**({} if edge_ids is None else {dgl.EID: edge_ids}), **(columns or {})}.items():
        data[name] = rows
    if negatives is None:
        return (positive,)
    false_src, false_dst = negative_pairs(src, dst, negatives, negatives.shape[1] if num_dst is None else num_dst)
    is_there = (false_src >= 0) & (false_dst >= 0)
    return positive, pairs(false_src[is_there], false_dst[is_there])


def _times_of(times: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Returns the time of every pair, of those of the rows, which come first, and the query of each pair."""
    of_query = times.new_zeros(int(query.max()) + 1)
    of_query[query[: len(times)]] = times
    return of_query[query]


def _present(fields: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor]:
    """Returns the fields that a Data has: it does not keep those that are None."""
    return {name: value for name, value in fields.items() if value is not None}
