"""PyG's HeteroData: as GraphData with types, and mini-batches as its own NeighborLoader yields them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any

import torch

from lightning_gnnload.adapters.columns import (
    original_edge_ids,
    typed_seed_fields,
)
from lightning_gnnload.adapters.links import ANY_LINKS, LinkForm, pyg_link_fields
from lightning_gnnload.adapters.pyg_stores import (
    check_nested,
    import_pyg,
    steps,
    together,
)
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import ColumnOf
from lightning_gnnload.errors import GraphDataError


def to_hetero_data(
    batch: MiniBatch,
    graph: Graph,
    columns: ColumnOf | None = None,
    template: Any = None,
    links: LinkForm = ANY_LINKS,
) -> Any:
    """Converts a mini-batch of a graph with types to the ``HeteroData`` that PyG's NeighborLoader yields.

    All node and edge types of the graph are there, with empty tensors where nothing was drawn.

    Stores of node types:

    - ``x``: ``[V_t, F_t]``, and tables under their names, ``[V_t, ...]``.
    - ``y``: ``[S_t]`` or ``[S_t, C]``, labels of the seeds alone, as :func:`.to_pyg` has them, in types with seeds.
    - ``n_id``: int64 ``[V_t]``, ids within the type; the seeds come first.
    - ``num_sampled_nodes``: by hop, from the seeds on, for ``torch_geometric.utils.trim_to_layer``.
    - ``batch``: int64 ``[V_t]``, the seed that a node was drawn for, where every seed has nodes of its own.
    - ``batch_size``: S_t, and ``input_id``, in types with seeds; of a :class:`.SeedTable`, ``seed_time`` and further
      columns, as :func:`.to_pyg` has them.
    - ``num_nodes``: V_t, in types without ``x``.

    Stores of edge types:

    - ``edge_index``: int64 ``[2, E_k]``, sources above destinations, as places in ``n_id`` of their types, nearest hop
      first.
    - ``e_id``: int64 ``[E_k]``, edges of the type's own list, where the sampler gives them.
    - ``edge_attr``, and tables under their names; ``edge_weight`` instead of one of that name, where the sampler says
      what each edge counts.
    - ``num_sampled_edges``: by hop.

    Of links, the store of their type has ``batch_size`` and what :func:`.pyg_link_fields` says, but for the indices of
    triplets, which are in those of their ends.

    Args:
        batch: from a sampler with ``expand="new"``, whose hops draw no node's neighbours twice.
        graph: has types; its ``edge_order`` turns edge ids into columns of the user's ``edge_index``.
        columns: of tables that have rows of one type, see :meth:`.TypedMiniBatch.of`.
        template: a HeteroData with the attributes that every mini-batch repeats, as :func:`.parted` makes it.
        links: the form of seeds that are links.

    Raises:
        SamplerConfigError: the hops are not prefixes of one another, as with ``expand="all"``.
        GraphDataError: a table has the name of another attribute.
        MissingExtraError: PyG cannot be imported.

    Example:
        >>> from lightning_gnnload import NeighborSampler
        >>> graph = Graph.from_hetero({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 1, 1], [2, 2, 0])})
        >>> import torch_geometric
        >>> batch = NeighborSampler([-1], expand="new", edge_ids=True).sample(graph, [4])
        >>> data = to_hetero_data(batch, graph)
        >>> data["user"].n_id.tolist(), data["item"].batch_size, data.edge_index_dict["user", "buys", "item"].tolist()
        ([0, 1], 1, [[0, 1], [0, 0]])
    """
    check_nested(batch.blocks)
    data = import_pyg("batch_format='pyg'").data.HeteroData() if template is None else copy(template)
    typed = TypedMiniBatch.of(batch, graph, columns)
    of_seeds = _link_fields(typed, links) if "src" in batch.seed_columns else _seed_fields(batch, typed, graph)
    for name in typed.nodes:
        tables = together(typed.tables[name], of_seeds.get(name, {}))
        _fill(data[name], _node_fields(typed, name), tables, yields=("n_id",))
    for kind in graph.types.edge_types:  # type: ignore[union-attr]  # as the typed batch has
        fields, tables = _edge_fields(batch, [hop[kind] for hop in typed.blocks], graph)
        _fill(data[kind], fields, together(tables, of_seeds.get(kind, {})), yields=("e_id",))
    return data


def _seed_fields(batch: MiniBatch, typed: TypedMiniBatch, graph: Graph) -> dict[Any, dict[str, Any]]:
    """Returns what belongs to seeds that are nodes, by store."""
    found = typed_seed_fields(batch, graph.types)  # type: ignore[arg-type]
    return {kind: {"batch_size": len(ids), "input_id": ids, **found[kind]} for kind, ids in typed.seeds.items()}


def _link_fields(typed: TypedMiniBatch, links: LinkForm) -> dict[Any, dict[str, Any]]:
    """Returns what belongs to links by store: indices of triplets in those of their ends, all else in their type's."""
    link_type, columns = links.edge_type, typed.seed_columns
    assert link_type is not None, "links of a graph with types have one"
    src, _, dst = link_type
    found: dict[Any, dict[str, Any]] = {kind: {} for kind in (src, dst, link_type)}
    found[link_type]["batch_size"] = len(columns["input_id"])
    for name, rows in pyg_link_fields(columns, columns.get("y"), links).items():
        end, _, rest = name.partition("_")
        if name == "seed_time":  # of triplets, as PyG has it
            found[src][name] = found[dst][name] = rows
        else:
            of_end = {"src": src, "dst": dst}.get(end) if rest.endswith(("index", "mask")) else None
            found[of_end or link_type][name] = rows
    return found


def _node_fields(typed: TypedMiniBatch, name: str) -> dict[str, Any]:
    seeds, nodes = typed.num_seeds[name], typed.nodes[name]
    fields = {
        "x": typed.x.get(name),
        "num_nodes": None if name in typed.x else len(nodes),  # PyG cannot count them by n_id
        "n_id": nodes,
        "num_sampled_nodes": steps([0, seeds, *(hop[name] for hop in typed.num_src[::-1])]),
        "batch": typed.rows[name].long() if typed.rows else None,
    }
    return fields | {"y": typed.y.get(name)}


def _edge_fields(batch: MiniBatch, hops: list[Block], graph: Graph) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Returns the fields and the tables of an edge type, of its blocks, outermost first."""
    if not hops:
        return {"edge_index": batch.nodes.new_empty((2, 0)), "num_sampled_edges": []}, {}
    outermost = hops[0]
    tables = dict(outermost.tables)
    if outermost.edge_weight is not None:
        tables["edge_weight"] = outermost.edge_weight
    edge_index = batch.nodes.new_empty((2, outermost.num_edges))
    edge_index[0], edge_index[1] = outermost.indices, outermost.edge_dst()
    fields = {
        "edge_index": edge_index,
        "num_sampled_edges": steps([0, *(block.num_edges for block in hops[::-1])]),
        "edge_attr": outermost.x,
    }
    if outermost.edge_ids is not None:
        fields["e_id"] = original_edge_ids(outermost.edge_ids, graph.edge_order)
    return fields, tables


def _fill(store: Any, fields: Mapping[str, Any], tables: Mapping[str, Any], yields: Iterable[str]) -> None:
    """Sets the attributes of a store; fields in ``yields`` give way to tables of their names, as PyG's do."""
    held = {name: value for name, value in fields.items() if value is not None}
    if twice := (held.keys() & tables.keys()) - set(yields):
        raise GraphDataError(
            f"{min(twice)!r} of the tables of {store._key} is another attribute of PyG's mini-batches. Name the table "
            "anew."
        )
    for name, value in (held | dict(tables)).items():
        store[name] = value
