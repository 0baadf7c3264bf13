"""PyG: its Data objects as GraphData, and mini-batches as its own NeighborLoader yields them."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.base import BatchFormat, taken
from lightning_gnnload.adapters.columns import (
    original_edge_ids,
    seed_fields,
)
from lightning_gnnload.adapters.links import ANY_LINKS, LinkForm, pyg_link_fields
from lightning_gnnload.adapters.pyg_hetero import to_hetero_data
from lightning_gnnload.adapters.pyg_read import from_pyg
from lightning_gnnload.adapters.pyg_stores import (
    check_graph,
    check_nested,
    import_pyg,
    parted,
    set_apart,
    steps,
    together,
)
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_parts import columns_of
from lightning_gnnload.errors import GraphDataError, LoaderConfigError

_OPTIONAL = ("batch", "edge_attr", "edge_weight", "face", "pos", "time")
"""Names that a Data has even where nothing is set under them."""


def to_pyg(
    batch: MiniBatch, edge_order: np.ndarray | None = None, template: Any = None, links: LinkForm = ANY_LINKS
) -> Any:
    """Converts a mini-batch to the ``torch_geometric.data.Data`` that PyG's NeighborLoader yields.

    - ``x``: ``[V, F]``, features of ``n_id``, or None.
    - ``edge_index``: int64 ``[2, E]``, sources above destinations, nearest hop first.
    - ``y``: ``[S]`` or ``[S, C]``, labels of the seeds alone, or None.
    - ``n_id``: int64 ``[V]``, node ids; the seeds come first.
    - ``e_id``: int64 ``[E]``, edge ids, where the sampler gives them.
    - ``edge_attr``: ``[E, F]``, edge features, where the graph has them.
    - ``batch_size``: S.
    - ``num_sampled_nodes``, ``num_sampled_edges``: by hop, for ``torch_geometric.utils.trim_to_layer``.
    - tables under their names: of all nodes ``[V, ...]``, of edges ``[E, ...]``, from a :class:`NodeTable`
      ``[M, ...]`` and their places in ``n_id`` as ``<name>_positions``, int64 ``[M]``. As with PyG's loader, attributes
      of a Data that are named ``n_id`` or ``e_id`` come instead of the ids.
    - ``edge_weight``: float32 ``[E]``, instead of a table of that name, where the sampler says what each edge counts.
    - ``edge_type``: int64 ``[E]``, where there is such a table, or the sampler draws by type.

    - ``batch``: int64 ``[V]``, the seed that a node was drawn for, where every seed has nodes of its own.
    - ``input_id``: int64 ``[S]``, the seeds; of a :class:`.SeedTable`, the numbers of its rows, beside ``seed_time``
      and further columns under their names. Of links, ``batch_size`` counts rows, and instead of ``y`` there is what
      :func:`.pyg_link_fields` says.

    Features, labels, tables and node ids are views of the mini-batch.

    Args:
        batch: from a sampler with ``expand="new"``, whose hops draw no node's neighbours twice.
        edge_order: ``Graph.edge_order``, ``[E]``, which turns edge ids into columns of the user's
            ``edge_index``; None leaves positions in ``Graph.indices``.
        template: a Data with the attributes that every mini-batch repeats, as :func:`.parted` makes it.
        links: the form of seeds that are links.

    Raises:
        SamplerConfigError: the hops are not prefixes of one another, as with ``expand="all"``.
        GraphDataError: a table has the name of another attribute.
        MissingExtraError: PyG cannot be imported.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> graph = Graph.from_coo(src=[1, 2, 3], dst=[0, 0, 1])
        >>> import torch_geometric
        >>> data = to_pyg(NeighborSampler([-1, -1], expand="new").sample(graph, [0]))
        >>> data.edge_index.tolist(), data.num_sampled_nodes, data.num_sampled_edges
        ([[1, 2, 3], [0, 0, 1]], [1, 2, 1], [2, 1])
    """
    data = import_pyg("batch_format='pyg'").data.Data() if template is None else copy(template)
    # By hop, nearest first; blocks come outermost first and count all nodes and edges so far.
    hops, of_links = batch.blocks[::-1], "src" in batch.seed_columns
    columns = batch.seed_columns
    columns = pyg_link_fields(columns, batch.y, links) if of_links else seed_fields(columns)
    fields: dict[str, Any] = {
        "x": batch.x,
        "edge_index": _edge_index(batch),
        "y": None if of_links else batch.y,
        "input_id": columns.pop("input_id", batch.seeds),
        "num_sampled_nodes": steps([0, batch.num_seeds, *(block.num_src for block in hops)]),
        "num_sampled_edges": steps([0, *(block.num_edges for block in hops)]),
    }
    fields["batch_size"] = len(fields["input_id"])
    if batch.rows is not None:
        fields["batch"] = batch.rows.long()
    tables = batch.tables | {f"{name}_positions": found for name, found in batch.positions.items()}
    if batch.blocks:
        outermost = batch.blocks[0]
        tables = together(tables, outermost.tables)
        if outermost.edge_weight is not None:
            tables["edge_weight"] = outermost.edge_weight
        if outermost.edge_type is not None and "edge_type" not in tables:
            tables["edge_type"] = outermost.edge_type.long()
        if outermost.x is not None:
            fields["edge_attr"] = outermost.x
        if outermost.edge_ids is not None and "e_id" not in tables:
            fields["e_id"] = original_edge_ids(outermost.edge_ids, edge_order)
    if template is None or "n_id" not in tables:
        fields["n_id"] = batch.nodes
    tables = together(tables, columns)
    for name in tables:
        if name in fields or (template is None and hasattr(type(data), name) and name not in _OPTIONAL):
            raise GraphDataError(f"{name!r} of the tables is another attribute of a PyG Data. Name it anew.")
    for name, value in (fields | tables).items():
        if value is not None or name not in data:
            data[name] = value
    return data


class PyGFormat(BatchFormat):
    """Implements ``batch_format="pyg"``: see :func:`to_pyg`."""

    library = "torch_geometric"

    def check_sampler(self, sampler: Any) -> None:
        super().check_sampler(sampler)
        if sampler.num_layers > 1 and sampler.expand != "new":
            raise LoaderConfigError(
                f"batch_format='pyg' needs a sampler that expands new nodes only, as PyG's loader does, "
                f"but it is {sampler}. Give NeighborSampler(..., expand='new')."
            )

    def adapter(
        self, data: GraphData, template: Any = None, links: LinkForm = ANY_LINKS, **names: str
    ) -> Callable[[MiniBatch], Any]:
        if data.graph.types is not None:
            columns = columns_of(data)
            return partial(to_hetero_data, graph=data.graph, columns=columns, template=template, links=links)
        return partial(to_pyg, edge_order=data.graph.edge_order, template=template, links=links)

    def read(self, data: Any, settings: dict[str, Any]) -> tuple[GraphData, Any]:
        options = taken(settings, from_pyg)
        check_graph(data)
        less, _ = set_apart(data, None, options.pop("without", ()))
        by_row, template = parted(less, options.get("user_ids"))
        # Where mini-batches repeat what belongs to the graph as a whole, none of it is lost.
        return from_pyg(by_row if settings["batch_format"] == "pyg" else less, **options), template

    def converted(self, batch: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
        return batch.apply(convert)


def _edge_index(batch: MiniBatch) -> torch.Tensor:
    if not batch.blocks:
        return batch.nodes.new_empty((2, 0))
    check_nested(batch.blocks)
    outermost = batch.blocks[0]
    edge_index = batch.nodes.new_empty((2, outermost.num_edges))
    edge_index[0] = outermost.indices
    edge_index[1] = outermost.edge_dst()
    return edge_index
