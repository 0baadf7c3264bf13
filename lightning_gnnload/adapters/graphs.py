"""GraphData as a graph of PyG or DGL: the way back from ``from_pyg`` and ``from_dgl``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from lightning_gnnload.adapters.columns import UNTYPED
from lightning_gnnload.adapters.dgl.relations import EDGE_FEATURE_NAME, FEATURE_NAME, LABEL_NAME, import_dgl
from lightning_gnnload.adapters.pyg.stores import import_pyg
from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.tables import EDGE_PREFIX, GRAPH_COLUMNS, EdgeTable, NodeTable
from lightning_gnnload.data.typed_parts import columns_of


class _TypedEdges(NamedTuple):
    """The edges of one type: int64 ``[E_k]`` each, in the user's order, and columns by name."""

    src: torch.Tensor
    dst: torch.Tensor
    columns: dict[str, torch.Tensor]


def to_pyg_graph(data: GraphData) -> Any:
    """Converts GraphData to a PyG ``Data``, or a ``HeteroData`` where the graph has types: the reverse of
    :meth:`.GraphData.from_pyg`.

    Nodes and edges get ``x``, ``y``, ``edge_attr`` and the tables under their names. Splits become ``train_mask`` and
    so on, where no table has these names; the graph's own weights and types ``edge_weight`` and ``edge_type``, unless
    edge tables were named. Edges lie as they were given, if the graph has kept that. Times of a graph travel where they
    are tables, too.

    Raises:
        MissingExtraError: PyG cannot be imported.

    Example:
        >>> import torch_geometric
        >>> to_pyg_graph(GraphData(Graph.from_coo([0, 1], [1, 2]), y=[0, 1, 0], train=[2]))
        Data(num_nodes=3, y=[3], train_mask=[3], edge_index=[2, 2])
    """
    pyg = import_pyg("Making a PyG graph")
    graph = pyg.data.HeteroData() if data.graph.types is not None else pyg.data.Data()
    for node_type, columns in _nodes(data).items():
        store = graph if node_type is UNTYPED else graph[node_type]
        _set(store, {"num_nodes": _count(data.graph, node_type), **columns})
    for edge_type, edges in _edges(data).items():
        store = graph if edge_type is UNTYPED else graph[edge_type]
        columns = {("edge_attr" if name == "x" else name): rows for name, rows in edges.columns.items()}
        _set(store, {"edge_index": torch.stack([edges.src, edges.dst]), **columns})
    return graph


def to_dgl_graph(
    data: GraphData,
    feature_name: str = FEATURE_NAME,
    label_name: str = LABEL_NAME,
    edge_feature_name: str = EDGE_FEATURE_NAME,
) -> Any:
    """Converts GraphData to a DGLGraph, with types where the graph has them: the reverse of
    :meth:`.GraphData.from_dgl`; see :func:`to_pyg_graph` for what it gets.

    Args:
        data: the data.
        feature_name: the column of features in ``ndata``.
        label_name: that of labels.
        edge_feature_name: that of features in ``edata``.

    Raises:
        MissingExtraError: DGL cannot be imported.

    Example:
        >>> import dgl
        >>> graph = to_dgl_graph(GraphData(Graph.from_coo([0, 1], [1, 2]), y=[0, 1, 0]))
        >>> graph.num_nodes(), graph.edges()[0].tolist(), graph.ndata["label"].tolist()
        (3, [0, 1], [0, 1, 0])
    """
    dgl = import_dgl("Making a DGL graph")
    typed_edges = _edges(data)
    pairs = {edge_type: (edges.src, edges.dst) for edge_type, edges in typed_edges.items()}
    if data.graph.types is None:
        graph = dgl.graph(pairs[UNTYPED], num_nodes=data.num_nodes)
    else:
        graph = dgl.heterograph(pairs, {name: _count(data.graph, name) for name in data.graph.types.node_types})
    names = {"x": feature_name, "y": label_name}
    for node_type, columns in _nodes(data).items():
        frame = graph.ndata if node_type is UNTYPED else graph.nodes[node_type].data
        frame.update({names.get(name, name): rows for name, rows in columns.items()})
    for edge_type, edges in typed_edges.items():
        frame = graph.edata if edge_type is UNTYPED else graph.edges[edge_type].data
        frame.update({edge_feature_name if name == "x" else name: rows for name, rows in edges.columns.items()})
    return graph


def _set(store: Any, columns: dict[str, Any]) -> None:
    for name, rows in columns.items():
        store[name] = rows


def _count(graph: Graph, node_type: Any) -> int:
    return graph.num_nodes if graph.types is None else len(graph.types.range_of(node_type))


def _nodes(data: GraphData) -> dict[Any, dict[str, torch.Tensor]]:
    """Returns all columns of nodes, by type and name."""
    types, typed = data.graph.types, columns_of(data)
    spans = {UNTYPED: range(data.num_nodes)}
    if types is not None:
        spans = {node_type: types.range_of(node_type) for node_type in types.node_types}
    by_type: dict[Any, dict[str, torch.Tensor]] = {node_type: {} for node_type in spans}
    whole = {} if data.x is None else {"x": _rows(data.x)}
    for name, table in data.tables.items():
        if name in typed:
            node_type, column = typed[name]
            by_type[node_type][column] = _rows(table)
        elif not isinstance(table, NodeTable):
            whole[name] = _rows(table)
    for node_type, span in spans.items():
        columns = by_type[node_type]
        columns |= {name: rows[span.start : span.stop] for name, rows in whole.items()}
        if data.y is not None and _is_labelled(y := data.y[span.start : span.stop], types is not None):
            columns["y"] = y
        for name, mask in _masks(data, span).items():  # a table of this name says more
            columns.setdefault(name, mask)
    return by_type


def _masks(data: GraphData, span: range) -> dict[str, torch.Tensor]:
    """Returns the masks of those splits that have some of these nodes."""
    masks = {}
    for split in SPLITS:
        ids = data.split(split)
        ids = ids[(ids >= span.start) & (ids < span.stop)] - span.start
        if len(ids):
            masks[f"{split}_mask"] = mask = torch.zeros(len(span), dtype=torch.bool)
            mask[tensor_view(ids)] = True
    return masks


def _is_labelled(y: torch.Tensor, by_type: bool) -> bool:
    """Whether labels are those of a type that has any: in other types, all rows are NaN or negative."""
    if not by_type or not y.dtype.is_signed:
        return True
    return not bool((y.isnan() if y.is_floating_point() else y < 0).all())


def _edges(data: GraphData) -> dict[Any, _TypedEdges]:
    graph, typed = data.graph, columns_of(data)
    by_type = {edge_type: _edges_at(data, edge_type, positions) for edge_type, positions in _positions(graph).items()}
    for name, table in data.edge_tables.items():
        edge_type, column = typed.get(EDGE_PREFIX + name, (UNTYPED, name))
        by_type[edge_type].columns[column] = _rows(table)
    if data.edge_x is not None:
        by_type[UNTYPED].columns["x"] = _rows(data.edge_x)
    return by_type


def _edges_at(data: GraphData, edge_type: Any, positions: np.ndarray) -> _TypedEdges:
    """Returns the edges of a type, which are at these positions, with the graph's own columns."""
    graph, begins = data.graph, (0, 0)
    if graph.types is not None:
        begins = graph.types.range_of(edge_type[0]).start, graph.types.range_of(edge_type[2]).start
    src = graph.indices[positions].astype(np.int64) - begins[0]
    # Of all edges first: those of a type are spread over the lists of all nodes.
    dst = np.repeat(np.arange(graph.num_nodes), graph.in_degrees)[positions] - begins[1]
    named = () if data.names_edge_tables else GRAPH_COLUMNS
    # A user who named edge tables has said what is carried.
    columns = {
        name: torch.from_numpy(array[positions]) for name in named if (array := getattr(graph, name)) is not None
    }
    return _TypedEdges(torch.from_numpy(src), torch.from_numpy(dst), columns)


def _positions(graph: Graph) -> dict[Any, np.ndarray]:
    """Returns by edge type where its edges are in ``Graph.indices``, in the user's order."""
    every = np.arange(graph.num_edges)
    if graph.types is None:
        by_type = {UNTYPED: every}
    else:
        numbers = graph.edge_types_of(every)
        by_type = {edge_type: np.flatnonzero(numbers == k) for k, edge_type in enumerate(graph.types.edge_types)}
    if (order := graph.edge_order) is None:
        return by_type
    return {edge_type: positions[np.argsort(order[positions])] for edge_type, positions in by_type.items()}


def _rows(table: FeatureStore | NodeTable | EdgeTable) -> torch.Tensor:
    """Returns all rows of a table; those in memory are not copied."""
    store = table.store if isinstance(table, NodeTable | EdgeTable) else table
    if isinstance(store, MemoryFeatureStore):
        return store.rows.view(len(store.rows), *store.row_shape)
    count, width = store.shape
    out = torch.empty((count, width), dtype=store.dtype)
    store.gather(torch.arange(count), out)
    return out.view(count, *store.row_shape)
