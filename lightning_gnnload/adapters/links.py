"""Links as PyG's and DGL's own loaders yield them: positive and negative pairs by the places of their nodes in a
mini-batch.

Negatives come as ``[P, num]``, -1 where there is none. The first ``num_dst`` of a row replace its destination, the
others its source.

Shapes: P positive pairs, M negative pairs that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from lightning_gnnload.adapters.columns import named_as_elsewhere
from lightning_gnnload.adapters.dgl_relations import graph_of, import_dgl
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.types import EdgeType

_OF_LINKS = {"src", "dst", "label", "row", "negatives", "negative_mask", "time", "y"}
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
        src: int64 ``[P]``, places of the sources in the mini-batch, or among its nodes of their type.
        dst: int64 ``[P]``, likewise.
        negatives: int64 ``[P, num]``, likewise; -1 for none.
        num_dst: of the negatives, how many replace destinations; None: all.
        times: ``[P]``.

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


def pyg_link_fields(
    columns: Mapping[str, torch.Tensor], labels: torch.Tensor | None, form: LinkForm
) -> dict[str, torch.Tensor]:
    """Returns the columns of a mini-batch's links as PyG's LinkNeighborLoader names them.

    - ``input_id``, and further columns under their names.
    - Beside negatives that are no binary ones, what :func:`pyg_triplet_fields` says, and ``edge_label``, the labels.

    Otherwise:

    - ``edge_label_index``: int64 ``[2, R + M]``, pairs that are rows first, then negative ones, row by row.
    - ``edge_label``: ``[R + M]`` or ``[R + M, C]``: the labels, with ``LinkForm.first_label`` more, and 0 for
      negatives; of rows without labels, 1 in float32. Not there without labels and negatives.
    - ``edge_label_time``: ``[R + M]``, a negative has its row's. Not there without times.

    Args:
        columns: ``MiniBatch.seed_columns``, of links.
        labels: ``[R]`` or ``[R, C]``, of the rows.
        form: of the links.

    Shapes: R rows, M negatives of mode ``"binary"``.

    Example:
        >>> ends = {"src": torch.tensor([0, 1, 0]), "dst": torch.tensor([2, 3, 4]), "input_id": torch.tensor([7, 8])}
        >>> columns = {**ends, "label": torch.tensor([1.0, 1.0, 0.0]), "row": torch.tensor([0, 1, 0])}
        >>> fields = pyg_link_fields(columns, torch.tensor([0, 3]), LinkForm(first_label=1))
        >>> fields["edge_label_index"].tolist(), fields["edge_label"].tolist()
        ([[0, 1, 0], [2, 3, 4]], [1, 4, 0])
    """
    src, dst, times = columns["src"], columns["dst"], columns.get("time")
    fields: dict[str, torch.Tensor | None] = {name: each for name, each in columns.items() if name not in _OF_LINKS}
    if "negatives" in columns:
        negatives = columns["negatives"].where(columns["negative_mask"], -1)
        triplets = pyg_triplet_fields(src, dst, negatives, num_dst=form.num_dst(negatives.shape[1]), times=times)
        return _present({**fields, **triplets, "edge_label": labels})
    if "label" in columns:
        times = None if times is None else times[columns["row"]]
        if labels is None:
            labels = columns["label"]
        else:
            none = labels.new_zeros(len(src) - len(labels), *labels.shape[1:])
            labels = torch.cat([labels + form.first_label, none])
    pairs = torch.stack([src, dst])
    return _present({**fields, "edge_label_index": pairs, "edge_label": labels, "edge_label_time": times})


def dgl_link_graphs(
    columns: Mapping[str, torch.Tensor],
    labels: torch.Tensor | None,
    label_name: str,
    nodes: torch.Tensor | Mapping[str, torch.Tensor],
    form: LinkForm,
    edge_types: Sequence[EdgeType] | None = None,
) -> tuple[Any, ...]:
    """Returns the pair graphs of a mini-batch's links, see :func:`dgl_pair_graphs`; positive pairs have the columns of
    their rows, labels and times as ``label_name`` and ``"seed_time"``.

    Args:
        columns: ``MiniBatch.seed_columns``, of links.
        labels: of the rows.
        label_name: their name.
        nodes: the seeds.
        form: of the links.
        edge_types: all types of the graph.
    """
    src, dst, num_rows = columns["src"], columns["dst"], len(columns["input_id"])
    given = named_as_elsewhere({name: each for name, each in columns.items() if name not in _OF_LINKS - {"time"}})
    given |= _present({label_name: labels})
    pairs = partial(dgl_pair_graphs, nodes=nodes, edge_types=edge_types, edge_type=form.edge_type)
    if "negatives" in columns:
        negatives = columns["negatives"].where(columns["negative_mask"], -1)
        return pairs(src, dst, negatives=negatives, num_dst=form.num_dst(negatives.shape[1]), columns=given)
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


def _present(fields: Mapping[str, torch.Tensor | None]) -> dict[str, torch.Tensor]:
    """Returns the fields that a Data has: it does not keep those that are None."""
    return {name: value for name, value in fields.items() if value is not None}
