"""PyG: its Data objects as GraphData, and mini-batches as its own NeighborLoader yields them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.ids import ids_of_mask, original_edge_ids
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.errors import GraphDataError, MissingExtraError, SamplerConfigError


def to_pyg(batch: MiniBatch, edge_order: np.ndarray | None = None) -> Any:
    """A mini-batch as the ``torch_geometric.data.Data`` that PyG's NeighborLoader yields.

    - ``x``: ``[V, F]``, features of ``n_id``, or None.
    - ``edge_index``: int64 ``[2, E]``, sources above destinations, nearest hop first.
    - ``y``: ``[S]`` or ``[S, C]``, labels of the seeds alone, or None.
    - ``n_id``: int64 ``[V]``, node ids; the seeds come first.
    - ``e_id``: int64 ``[E]``, edge ids, where the sampler was asked for them.
    - ``edge_weight``: float32 ``[E]``, and ``edge_type``: int64 ``[E]``, where the sampler gives them.
    - ``edge_attr``: ``[E, F]``, edge features, where the graph has them.
    - ``batch_size``: S.
    - ``num_sampled_nodes``, ``num_sampled_edges``: by hop, for ``torch_geometric.utils.trim_to_layer``.

    - named tables under their names: ``[V, F]``; from a :class:`NodeTable` ``[M, F]``, and their places in ``n_id`` as
      ``<name>_positions``, int64 ``[M]``.

    Features, labels, tables and node ids are views of the mini-batch. There is no ``input_id``: the seeds are
    ``n_id[:batch_size]``.

    Args:
        batch: from a sampler with ``expand="new"``, whose hops draw no node's neighbours twice.
        edge_order: ``Graph.edge_order``, int64 ``[E]``, which turns edge ids into columns of the user's
            ``edge_index``; None leaves positions in ``Graph.indices``.

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
    data = _import_pyg("batch_format='pyg'").data.Data(
        x=batch.x,
        edge_index=_edge_index(batch),
        y=batch.y,
        n_id=batch.nodes,
        batch_size=batch.num_seeds,
    )
    # By hop, nearest first; blocks come outermost first and count all nodes and edges so far.
    hops = batch.blocks[::-1]
    data.num_sampled_nodes = _steps([0, batch.num_seeds, *(block.num_src for block in hops)])
    data.num_sampled_edges = _steps([0, *(block.num_edges for block in hops)])
    if hops and (edge_ids := hops[-1].edge_ids) is not None:
        data.e_id = original_edge_ids(edge_ids, edge_order)
    if hops and (edge_weight := hops[-1].edge_weight) is not None:
        data.edge_weight = edge_weight
    if hops and (edge_type := hops[-1].edge_type) is not None:
        data.edge_type = edge_type.long()
    if hops and (edge_x := hops[-1].x) is not None:
        data.edge_attr = edge_x
    for name, rows in (batch.tables | {f"{name}_positions": found for name, found in batch.positions.items()}).items():
        if name in data or hasattr(type(data), name):
            raise GraphDataError(f"{name!r} of the tables is another attribute of a PyG Data. Name the table anew.")
        setattr(data, name, rows)
    return data


def graph_data_from_pyg(data: Any, *, tables: Iterable[str] = (), edge_feature_name: str | None = None) -> GraphData:
    """A homogeneous PyG ``Data`` as GraphData; features and labels share its memory.

    ``Graph.edge_order`` holds each edge's column in ``edge_index``.

    Args:
        data: N nodes: ``edge_index`` or, without it, ``adj_t``, whose values then are edge weights; ``x``,
            ``y`` and ``edge_weight`` where they are there; splits are ``train_mask``, ``val_mask`` and
            ``test_mask``.
        tables: names of further attributes ``[N, F]`` that mini-batches need.
        edge_feature_name: the attribute that holds edge features ``[E, F]``, such as ``"edge_attr"``; None for none,
            as not every model pays for them.

    Raises:
        GraphDataError: no Data, a heterogeneous one, one without edges, or without an attribute asked for; edge
            features beside ``adj_t``.
        MissingExtraError: PyG cannot be imported.
    """
    pyg = _import_pyg("Reading a PyG graph")
    if isinstance(data, pyg.data.HeteroData):
        raise GraphDataError(
            f"the PyG graph is heterogeneous (node types {data.node_types}), but one node type and one edge "
            f"type are needed. data.to_homogeneous() merges the types."
        )
    if not isinstance(data, pyg.data.Data):
        raise GraphDataError(f"a torch_geometric.data.Data is needed, but a {type(data).__name__} was given.")
    weight = data.get("edge_weight")
    if data.get("edge_index") is not None:
        src, dst = data.edge_index
    elif data.get("adj_t") is not None:
        (dst, src), weight = pyg.utils.to_edge_index(data.adj_t)
    else:
        raise GraphDataError(f"the PyG graph has neither edge_index nor adj_t, but only {sorted(data.keys())}.")
    edge_x = None if edge_feature_name is None else _attribute(data, edge_feature_name, "edge_feature_name")
    if edge_x is not None and data.get("edge_index") is None:
        raise GraphDataError(
            f"edge_feature_name={edge_feature_name!r}: which row belongs to which entry of adj_t is not known. "
            f"Give the PyG graph an edge_index, in the order of these rows."
        )
    masks = {name: data.get(f"{name}_mask") for name in SPLITS}
    train, val, test = (
        ids_of_mask(mask, what=f"{name}_mask", num_nodes=data.num_nodes) for name, mask in masks.items()
    )
    return GraphData(
        Graph.from_coo(src, dst, data.num_nodes, edge_weight=weight, keep_order=True),
        x=data.get("x"),
        y=data.get("y"),
        train=train,
        val=val,
        test=test,
        tables={name: _attribute(data, name, "tables") for name in tables},
        edge_x=edge_x,
    )


def _attribute(data: Any, name: str, argument: str) -> Any:
    if data.get(name) is None:
        raise GraphDataError(f"{argument}={name!r}, but the PyG graph holds only {sorted(data.keys())}.")
    return data[name]


def _edge_index(batch: MiniBatch) -> torch.Tensor:
    if not batch.blocks:
        return batch.nodes.new_empty((2, 0))
    for hop, (outer, inner) in enumerate(pairwise(batch.blocks)):
        if not _begins_with(outer.indptr, inner.indptr) or not _begins_with(outer.indices, inner.indices):
            raise SamplerConfigError(
                f"batch_format='pyg' needs hops that draw for new nodes only, but blocks[{hop}] draws afresh "
                f"for the nodes of blocks[{hop + 1}]. Give NeighborSampler(..., expand='new')."
            )
    outermost = batch.blocks[0]
    edge_index = batch.nodes.new_empty((2, outermost.num_edges))
    edge_index[0] = outermost.indices
    edge_index[1] = outermost.edge_dst()
    return edge_index


def _begins_with(outer: torch.Tensor, inner: torch.Tensor) -> bool:
    # Samplers let such hops share memory; to compare what a GPU holds, the host would have to wait for it.
    return outer.data_ptr() == inner.data_ptr() or torch.equal(outer[: len(inner)], inner)


def _steps(totals: list[int]) -> list[int]:
    return [after - before for before, after in pairwise(totals)]


def _import_pyg(purpose: str) -> ModuleType:
    try:
        import torch_geometric
        import torch_geometric.data
        import torch_geometric.utils
    except ImportError as error:
        raise MissingExtraError("torch_geometric", "pyg", purpose, error) from error
    return torch_geometric
