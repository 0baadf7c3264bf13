"""PyG: mini-batches as its own NeighborLoader yields them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from lightning_gnnload.adapters.base import BatchFormat, cut_by_type, pop_arguments
from lightning_gnnload.adapters.columns import UNTYPED, original_edge_ids, seed_fields, without_none
from lightning_gnnload.adapters.pyg.read import check_pyg_graph, from_pyg, part_whole, set_apart
from lightning_gnnload.adapters.pyg.stores import fill_store, import_pyg, links_by_store, steps
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.seedform import COLUMNS, LinkForm
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import ColumnOf, columns_of
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import GraphDataError, LoaderConfigError, SamplerConfigError

_Part = tuple[dict[str, Any], list[dict[str, Any]]]
_OPTIONAL = ("batch", "edge_attr", "edge_weight", "face", "pos", "time")
"""Names that a Data has even where nothing is set under them."""
_OWN_COLUMNS = {*COLUMNS["links"], "time", "y"}
"""Columns of links that PyG has by other names, or in another form."""
_OF_TRIPLETS = ("src_index", "dst_pos_index", "dst_neg_index", "dst_neg_mask", "src_neg_index", "src_neg_mask")
_OF_LINKS = ("edge_label_index", "edge_label", "edge_label_time", *_OF_TRIPLETS)
_TAKEN = {"nodes": {"batch_size", "seed_time"}, "links": {"batch_size", "seed_time", *_OF_LINKS}}
"""What no column of a user's seeds can be named beside PyG's own fields, by the kind of seed."""


def to_pyg(
    batch: MiniBatch,
    graph: Graph | None = None,
    columns: ColumnOf | None = None,
    template: Any = None,
) -> Any:
    """Converts a mini-batch to what PyG's NeighborLoader yields: a ``torch_geometric.data.Data`` or, of a graph with
    types, a ``HeteroData`` with stores for all of them, which are empty where nothing was drawn.

    A Data has all of this, a HeteroData in the stores of the types that it belongs to. Of nodes:

    - ``x``: ``[V, F]``, features of ``n_id``, or None.
    - ``y``: ``[S]`` or ``[S, C]``, labels of the seeds alone, or None.
    - ``n_id``: int64 ``[V]``, node ids, in a HeteroData within their type; the seeds come first.
    - ``num_sampled_nodes``: by hop, from the seeds on, for ``torch_geometric.utils.trim_to_layer``.
    - ``batch``: int64 ``[V]``, the seed that a node was drawn for, where every seed has nodes of its own.
    - ``batch_size``: S; and ``input_id``: int64 ``[S]``, the seeds; of a :class:`.SeedTable`, the numbers of its rows,
      beside ``seed_time`` and further columns under their names. In types with seeds.
    - ``num_nodes``: V, in types without ``x``.

    Of edges:

    - ``edge_index``: int64 ``[2, E]``, sources above destinations, as positions in ``n_id``, nearest hop first.
    - ``e_id``: int64 ``[E]``, edge ids, where the sampler gives them: of a type's own list.
    - ``edge_attr``: ``[E, F]``, edge features, where the graph has them.
    - ``num_sampled_edges``: by hop.
    - ``edge_weight``: float32 ``[E]``, instead of a table of that name, where the sampler says what each edge counts.
    - ``edge_type``: int64 ``[E]``, where there is such a table, or the sampler draws by type.

    Tables are there under their names: of all nodes ``[V, ...]``, of edges ``[E, ...]``; in a Data, from a
    :class:`NodeTable` ``[M, ...]`` and their positions in ``n_id`` as ``<name>_positions``, int64 ``[M]``. As with
    PyG's loader, attributes of a Data that are named ``n_id`` or ``e_id`` come instead of the ids. Of links,
    ``batch_size`` counts rows, and instead of ``y`` there is what :func:`.pyg_link_fields` says, in stores as
    :func:`.links_by_store` says. Features, labels, tables and the ids of a Data are views of the mini-batch.

    Without ``graph`` there are no types, and edge ids are positions in ``Graph.indices``, not the user's. ``columns``
    says which tables have rows of one type; ``template`` is what every mini-batch repeats, as :func:`.part_whole` makes
    it.

    Raises:
        SamplerConfigError: the hops are not prefixes of one another, as with ``expand="all"``.
        GraphDataError: a table has the name of another attribute.

    Example:
        >>> from lightning_gnnload import NeighborSampler
        >>> import torch_geometric
        >>> graph = Graph.from_coo(src=[1, 2, 3], dst=[0, 0, 1])
        >>> data = to_pyg(NeighborSampler([-1, -1], expand="new").sample(graph, [0]))
        >>> data.edge_index.tolist(), data.num_sampled_nodes, data.num_sampled_edges
        ([[1, 2, 3], [0, 0, 1]], [1, 2, 1], [2, 1])
        >>> graph = Graph.from_hetero({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 1, 1], [2, 2, 0])})
        >>> data = to_pyg(NeighborSampler([-1], expand="new", edge_ids=True).sample(graph, [4]), graph)
        >>> data["user"].n_id.tolist(), data["item"].batch_size, data.edge_index_dict["user", "buys", "item"].tolist()
        ([0, 1], 1, [[0, 1], [0, 0]])
    """
    # One list of edges serves all hops only where each hop is the beginning of the one outside it.
    _check_nested(batch.blocks)
    types = None if graph is None else graph.types
    typed = cut_by_type(batch, graph, columns)
    # By store: the fields, and the tables of nodes, of edges and of seeds.
    parts: dict[Any, _Part] = {key: (_node_fields(typed, key), [typed.tables[key]]) for key in typed.nodes}
    for key in (UNTYPED,) if types is None else types.edge_types:
        fields, tables = parts.setdefault(key, ({}, []))
        tables.append(_add_edges(fields, typed, key, graph))
    _add_seeds(parts, batch, typed, types)
    if types is None and batch.positions:
        parts[UNTYPED][1].append({f"{name}_positions": positions for name, positions in batch.positions.items()})
    pyg = import_pyg("batch_format='pyg'").data
    data = copy(template) if template is not None else pyg.Data() if types is None else pyg.HeteroData()
    for key, (fields, tables) in parts.items():
        _write(data, key, {name: value for name, value in fields.items() if value is not None}, tables, template)
    return data


def _write(data: Any, key: Any, fields: dict[str, Any], tables: list[dict[str, Any]], template: Any) -> None:
    """Sets the attributes of a store; raises GraphDataError where a table has the name of another attribute."""
    store, columns = data if key is UNTYPED else data[key], _merge_columns(*tables)
    # Of a user's own Data, whose attributes the template repeats, n_id comes instead of ours, as with PyG's loader.
    reserved = fields.keys() - ({"e_id"} if template is None else {"e_id", "n_id"})
    if template is None and key is UNTYPED:
        reserved |= {name for name in columns if hasattr(type(data), name) and name not in _OPTIONAL}
    if twice := reserved & columns.keys():
        with_type = "" if key is UNTYPED else f" of {key}"
        raise GraphDataError(
            f"{min(twice)!r} of the tables{with_type} is another attribute of PyG's mini-batches. Name the table anew."
        )
    fill_store(store, columns, fields)


def _node_fields(typed: TypedMiniBatch, key: Any) -> dict[str, Any]:
    nodes, counts = typed.nodes[key], [0, typed.num_seeds[key]]
    for hop in reversed(typed.num_src):  # nearest first
        counts.append(hop[key])
    return {
        "x": typed.x.get(key),
        "y": typed.y.get(key),
        "n_id": nodes,
        "num_nodes": None if key is UNTYPED or key in typed.x else len(nodes),  # PyG cannot count them by n_id
        "num_sampled_nodes": steps(counts),
        "batch": typed.rows[key].long() if typed.rows else None,
    }


def _add_edges(fields: dict[str, Any], typed: TypedMiniBatch, key: Any, graph: Graph | None) -> dict[str, torch.Tensor]:
    """Adds the fields of an edge type, and returns its tables."""
    new_empty, counts = next(iter(typed.nodes.values())).new_empty, [0]
    if not typed.blocks:
        fields |= {"edge_index": new_empty((2, 0)), "num_sampled_edges": []}
        return {}
    for hop in reversed(typed.blocks):  # nearest first
        counts.append(hop[key].num_edges)
    outermost, edge_index = typed.blocks[0][key], new_empty((2, counts[-1]))
    edge_index[0], edge_index[1] = outermost.indices, outermost.edge_dst()
    fields |= {"edge_index": edge_index, "num_sampled_edges": steps(counts), "edge_attr": outermost.x}
    if outermost.edge_ids is not None:
        fields["e_id"] = original_edge_ids(outermost.edge_ids, graph)
    tables = dict(outermost.tables)
    if outermost.edge_weight is not None:
        tables["edge_weight"] = outermost.edge_weight
    if outermost.edge_type is not None:
        tables.setdefault("edge_type", outermost.edge_type.long())
    return tables


_Fields = list[tuple[Any, dict[str, Any]]]


def _add_seeds(parts: dict[Any, _Part], batch: MiniBatch, typed: TypedMiniBatch, types: GraphTypes | None) -> None:
    """Adds what belongs to seeds to the stores of their types; raises GraphDataError for a column that has the name of
    another attribute."""
    if reserved := batch.seed_columns.keys() & _TAKEN.get(batch.seed_form.name, ()):
        raise GraphDataError(
            f"{min(reserved)!r} is a column of the seed table, and another attribute of PyG's mini-batches. Name the "
            "column anew."
        )
    for key, rows in _SEED_WRITERS[batch.seed_form.name](batch, typed, types):
        fields, tables = parts[key]
        for name in ("input_id", "batch_size"):
            if name in rows:
                fields[name] = rows.pop(name)
        tables.append(rows)


def _node_seed_fields(batch: MiniBatch, typed: TypedMiniBatch, types: GraphTypes | None) -> _Fields:
    by_store = list(seed_fields(batch, types).items())
    for store, rows in by_store:
        count = typed.num_seeds[store]
        rows |= {"batch_size": count, "input_id": rows.get("input_id", typed.nodes[store][:count])}
    return by_store


def _link_seed_fields(batch: MiniBatch, typed: TypedMiniBatch, types: GraphTypes | None) -> _Fields:
    by_store: _Fields = []
    for link, columns in batch.seed_form.by_type(typed.seed_columns):
        fields = {**pyg_link_fields(columns, columns.get("y"), link), "batch_size": len(columns["input_id"])}
        if len(batch.seed_form.links) > 1:  # in stores of nodes, as PyG has them, types would hide each other's
            by_store.append((link.edge_type, fields))
        else:
            by_store += links_by_store(fields, link.edge_type).items()
    return by_store


_SEED_WRITERS = {"nodes": _node_seed_fields, "links": _link_seed_fields}
"""What says the fields of each kind of seed, by store."""


def _check_nested(blocks: Sequence[Block]) -> None:
    """Raises SamplerConfigError: a hop is not the beginning of the one outside it."""
    for hop, (outer, inner) in enumerate(pairwise(blocks)):
        if not _begins_with(outer.indptr, inner.indptr) or not _begins_with(outer.indices, inner.indices):
            raise SamplerConfigError(
                f"batch_format='pyg' needs hops that draw for new nodes only, but blocks[{hop}] draws afresh "
                f"for the nodes of blocks[{hop + 1}]. Give NeighborSampler(..., expand='new')."
            )


def _begins_with(outer: torch.Tensor, inner: torch.Tensor) -> bool:
    # Samplers let such hops share memory; to compare what a GPU holds, the host would have to wait for it.
    return outer.data_ptr() == inner.data_ptr() or torch.equal(outer[: len(inner)], inner)


def _merge_columns(*columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns columns of nodes, of edges and of seeds as attributes of one store; raises GraphDataError where two have
    one name."""
    merged: dict[str, Any] = {}
    for part in columns:
        if twice := merged.keys() & part.keys():
            raise GraphDataError(
                f"{min(twice)!r} names two columns, of nodes, edges or seeds, which a mini-batch of PyG cannot tell "
                "apart. Name one of them anew."
            )
        merged |= part
    return merged


def pyg_link_fields(
    columns: Mapping[str, torch.Tensor], labels: torch.Tensor | None, link: LinkForm
) -> dict[str, torch.Tensor]:
    """Returns the columns of a mini-batch's R links as PyG's LinkNeighborLoader names them.

    - ``input_id``, and further columns under their names.
    - Beside negatives that are no binary ones, what :func:`pyg_triplet_fields` says, and ``edge_label``, the labels.

    Otherwise, with M binary negatives:

    - ``edge_label_index``: int64 ``[2, R + M]``, pairs that are rows first, then negative ones, row by row.
    - ``edge_label``: ``[R + M]`` or ``[R + M, C]``: the labels, with ``LinkForm.first_label`` more, and 0 for
      negatives; of rows without labels, 1 in float32. Not there without labels and negatives.
    - ``edge_label_time``: ``[R + M]``, a negative has its row's. Not there without times.

    Example:
        >>> pairs = {"src": torch.tensor([0, 1, 0]), "dst": torch.tensor([2, 3, 4]), "input_id": torch.tensor([7, 8])}
        >>> columns = {**pairs, "label": torch.tensor([1.0, 1.0, 0.0]), "row": torch.tensor([0, 1, 0])}
        >>> fields = pyg_link_fields(columns, torch.tensor([0, 3]), LinkForm(first_label=1))
        >>> fields["edge_label_index"].tolist(), fields["edge_label"].tolist()
        ([[0, 1, 0], [2, 3, 4]], [1, 4, 0])
    """
    src, dst, times = columns["src"], columns["dst"], columns.get("time")
    fields: dict[str, torch.Tensor | None] = {name: rows for name, rows in columns.items() if name not in _OWN_COLUMNS}
    # A mini-batch's columns are those of all its types: one that asked for no negatives is as in a loader of its own.
    if "negatives" in columns and link.num_negatives != 0:
        negatives = columns["negatives"].where(columns["negative_mask"], -1)
        triplets = pyg_triplet_fields(src, dst, negatives, num_dst=link.num_dst, times=times)
        return without_none({**fields, **triplets, "edge_label": labels})
    if "label" in columns and link.num_negatives != 0:
        times = None if times is None else times[columns["row"]]
        if labels is None:
            labels = columns["label"]
        else:
            none = labels.new_zeros(len(src) - len(labels), *labels.shape[1:])
            labels = torch.cat([labels + link.first_label, none])
    pairs = torch.stack([src, dst])
    return without_none({**fields, "edge_label_index": pairs, "edge_label": labels, "edge_label_time": times})


def pyg_triplet_fields(
    src: torch.Tensor,
    dst: torch.Tensor,
    negatives: torch.Tensor,
    *,
    num_dst: int | None = None,
    times: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """Returns PyG's fields of P pairs with ``"triplet"`` negatives.

    - ``src_index``, ``dst_pos_index``: int64 ``[P]``.
    - ``dst_neg_index``: int64 ``[P, num_dst]``, or ``[P]`` where that is 1. One that does not exist is the positive
      pair's own, so that whatever compares both learns nothing;
    - ``dst_neg_mask``: bool, of the same shape: which exist. PyG has no such field.
    - ``src_neg_index``, ``src_neg_mask``: likewise, where some negatives replace sources. Nor these.
    - ``seed_time``: ``[P]``. Not there without times.

    ``src`` and ``dst`` are positions in the mini-batch, or among its nodes of their type; ``negatives``, ``[P, num]``,
    likewise, -1 for none: the first ``num_dst`` of a row replace its destination, all by default.

    Example:
        >>> fields = pyg_triplet_fields(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([[4], [-1]]))
        >>> fields["dst_neg_index"].tolist(), fields["dst_neg_mask"].tolist()
        ([4, 3], [True, False])
    """
    first = negatives.shape[1] if num_dst is None else num_dst
    fields = without_none({"src_index": src, "dst_pos_index": dst, "seed_time": times})
    for end, positive, nodes in (("dst", dst, negatives[:, :first]), ("src", src, negatives[:, first:])):
        if nodes.shape[1] or (end == "dst" and num_dst is None):
            is_there = nodes >= 0
            fields[f"{end}_neg_index"] = torch.where(is_there, nodes, positive[:, None]).squeeze(-1)
            fields[f"{end}_neg_mask"] = is_there.squeeze(-1)
    return fields


class PyGFormat(BatchFormat):
    """Implements ``batch_format="pyg"``: see :func:`to_pyg`."""

    library = "torch_geometric"
    words = frozenset(("edge_index", "batch_size", "input_id", "x_dict", "y_dict", "edge_index_dict", "n_id"))

    def fitted(self, sampler: Any) -> Any:
        if sampler.num_layers > 1 and sampler.is_expand_open:
            sampler = copy(sampler)
            sampler.expand = "new"
        return sampler

    def check_sampler(self, sampler: Any) -> None:
        super().check_sampler(sampler)
        if sampler.num_layers > 1 and sampler.expand != "new":
            raise LoaderConfigError(
                f"batch_format='pyg' needs a sampler that expands new nodes only, as PyG's loader does, "
                f"but it is {sampler}. Leave expand= out, or give expand='new'."
            )

    def adapter(self, data: GraphData, template: Any = None, **names: str) -> Callable[[MiniBatch], Any]:
        return partial(to_pyg, graph=data.graph, columns=columns_of(data), template=template)

    def read(self, data: Any, settings: dict[str, Any]) -> tuple[GraphData, Any]:
        options = pop_arguments(settings, from_pyg)
        check_pyg_graph(data)
        less, _ = set_apart(data, None, options.pop("without", ()))
        by_row, template = part_whole(less, options.get("user_ids"))
        # Where mini-batches repeat what belongs to the graph as a whole, none of it is lost.
        return from_pyg(by_row if settings["batch_format"] == "pyg" else less, **options), template

    def is_one_graph(self, arguments: Collection[str]) -> bool:
        return True

    def argument(self, batch: Any, name: str, feature_name: str) -> Any:
        value = super().argument(batch, name, feature_name)
        return None if isinstance(value, dict) and not value else value  # a HeteroData has any ``<name>_dict``

    def converted(self, batch: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
        return batch.apply(convert)
