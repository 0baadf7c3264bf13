"""The graph that is sampled, of PyG's Data, HeteroData, or a pair of a FeatureStore and a GraphStore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData

from lightning_gnnload.adapters.columns import UNTYPED, graph_of_columns
from lightning_gnnload.adapters.pyg.stores import count_nodes, edges_of_store, stores_of
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import GraphDataError, SamplerUnsupportedError
from lightning_gnnload.pyg.compat import num_nodes

Direction = Literal["forward", "backward"]
EdgeType = tuple[str, str, str]
WeightAttr = str | Mapping[EdgeType, str] | None
_NO_IDS = torch.empty(0, dtype=torch.long)


class SampledGraph(NamedTuple):
    """A user's graph as it is sampled, with its order of edges, times and weights.

    ``node_time`` has the times of nodes for PyG's draws of negatives: a tensor, by type in a graph with types, None
    where nodes have none. ``num_nodes`` is a number, by type in a graph with types.
    """

    graph: Graph
    node_time: Any
    num_nodes: int | dict[str, int]


def topology_of(
    data: Any, time_attr: str | None, weight_attr: WeightAttr, direction: Direction = "forward"
) -> SampledGraph:
    """Reads a ``Data``, a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)``.

    ``time_attr`` names the attribute of nodes or of edges that says since when they are there, ``weight_attr`` that of
    edges in proportion to which they are drawn, or these by edge type. ``"backward"`` turns all edges around, and their
    types by :func:`turned`.

    Raises:
        SamplerUnsupportedError: weights of stores.
        GraphDataError: no such data; an attribute that is not there, is no numbers, or is of nodes and of edges.
        GraphFormatError: ids that are no nodes, weights that are negative, times that are none.
    """
    if isinstance(data, Data | HeteroData):
        return _read_data(data, time_attr, weight_attr, direction)
    if isinstance(data, list | tuple) and len(data) == 2:
        features, graph = data
        if isinstance(features, FeatureStore) and isinstance(graph, GraphStore):
            return _read_stores(features, graph, time_attr, weight_attr, direction)
    refuse_partition("PyG's loaders", data)
    raise GraphDataError(
        f"a Data, a HeteroData, or a pair of a FeatureStore and a GraphStore is needed, but a {type(data).__name__} "
        "was given."
    )


def refuse_partition(name: str, data: Any) -> None:
    """Raises GraphDataError for a partition, whose lists lie in parts."""
    from lightning_gnnload.data.partition import Partition  # of no use to those who have none

    if isinstance(data, Partition):
        raise GraphDataError(
            f"{name}: graphs in memory are needed, but a partition was given. GraphDataModule(partition, sampler, "
            "graph='remote', features='remote', batch_format='pyg') makes PyG's mini-batches of its parts."
        )


def turned(edge_type: EdgeType, direction: Direction) -> EdgeType:
    """Returns the type by which the user's edges are sampled in this direction; or the user's, of that one."""
    return edge_type if direction == "forward" or edge_type is UNTYPED else edge_type[::-1]


def _topology(
    num_nodes: dict[Any, int],
    edges: dict[Any, tuple[Any, Any]],
    direction: Direction,
    node_time: dict[Any, Any],
    edge_time: dict[Any, Any],
    edge_weight: dict[Any, Any],
) -> SampledGraph:
    """Makes the graph of columns by type; those of a graph without types are under UNTYPED."""
    graph = graph_of_columns(
        num_nodes,
        {turned(name, direction): pair if direction == "forward" else pair[::-1] for name, pair in edges.items()},
        edge_weight={turned(edge_type, direction): rows for edge_type, rows in edge_weight.items()},
        edge_time=edge_time,
        node_time=node_time,
    )
    if graph.types is None:
        return SampledGraph(graph, node_time.get(UNTYPED), graph.num_nodes)
    return SampledGraph(graph, node_time or None, num_nodes)


def _read_data(
    data: Data | HeteroData, time_attr: str | None, weight_attr: WeightAttr, direction: Direction
) -> SampledGraph:
    nodes, edges = stores_of(data)
    node_time, edge_time = _times(data, nodes, edges, time_attr)
    weights = _weight_columns(edges, weight_attr)
    if weight_attr is not None and not weights:
        names = ", ".join(_names(edges.values()))
        raise GraphDataError(f"weight_attr={weight_attr!r}: no edges have such an attribute. The graph holds {names}.")
    # A Data of nodes alone is a graph without edges; of a HeteroData, each edge store has to have some.
    has_edges = isinstance(data, HeteroData) or "edge_index" in data or "adj_t" in data
    return _topology(
        {node_type: count_nodes(store) for node_type, store in nodes.items()},
        {
            edge_type: tuple(map(_cpu, edges_of_store(store)[:2] if has_edges else (_NO_IDS, _NO_IDS)))
            for edge_type, store in edges.items()
        },
        direction,
        node_time,
        edge_time,
        {edge_type: _weights(weight) for edge_type, weight in weights.items()},
    )


def _times(
    data: Data | HeteroData, nodes: dict[Any, Any], edges: dict[Any, Any], time_attr: str | None
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns the times of nodes and those of edges, by type; one of both is empty."""
    node_time, edge_time = _columns(nodes, time_attr), _columns(edges, time_attr)
    if isinstance(data, Data):  # whose one store has both
        node_time = node_time if node_time and data.is_node_attr(time_attr) else {}
        edge_time = edge_time if edge_time and data.is_edge_attr(time_attr) else {}
    if time_attr is not None and not (node_time or edge_time):
        raise _no_time(time_attr, "is neither a node-level nor an edge-level attribute", data.stores)
    if node_time and edge_time:
        raise _no_time(time_attr, "is both a node-level and an edge-level attribute", data.stores)
    return node_time, edge_time


def _read_stores(
    features: FeatureStore, store: GraphStore, time_attr: str | None, weight_attr: WeightAttr, direction: Direction
) -> SampledGraph:
    """Numbers edges in the order of the store's lists of edges, or of its CSC or CSR where it has only these."""
    if weight_attr is not None:
        raise SamplerUnsupportedError(
            f"weight_attr={weight_attr!r}: a GraphStore holds no weights. Give a Data or a HeteroData, or no weights."
        )
    attrs = store.get_all_edge_attrs()
    times = _stored_times(features, time_attr)
    src, dst, _ = store.coo()
    if all(attr.edge_type is None for attr in attrs):
        # A FeatureStore does not say what its rows are of; PyG, too, goes by this name.
        time = {UNTYPED: next(iter(times.values()))} if times else {}
        both: tuple[Any, Any] = (time, {}) if time_attr == "time" else ({}, time)
        return _topology({UNTYPED: max(attrs[0].size)}, {UNTYPED: (src, dst)}, direction, *both, {})
    names = {attr.group_name for attr in features.get_all_tensor_attrs() if isinstance(attr.group_name, str)}
    names.update(*(edge_type[::2] for edge_type in src))
    sizes = {name: int(num_nodes(features, store, name)) for name in sorted(names)}
    node_time = {name: time for name, time in times.items() if isinstance(name, str)}
    edge_time = {name: time for name, time in times.items() if isinstance(name, tuple)}
    if node_time and edge_time:
        raise _no_time(time_attr, "is both a node-level and an edge-level attribute", [])
    return _topology(sizes, {name: (src[name], dst[name]) for name in src}, direction, node_time, edge_time, {})


def _stored_times(features: FeatureStore, time_attr: str | None) -> dict[Any, torch.Tensor]:
    """Returns the times that a FeatureStore has, by the group that they are of."""
    if time_attr is None:
        return {}
    attrs = [attr for attr in features.get_all_tensor_attrs() if attr.attr_name == time_attr]
    if not attrs:
        raise _no_time(time_attr, "is not in the FeatureStore", [])
    for attr in attrs:
        attr.index = None  # of all rows
    return {attr.group_name: torch.as_tensor(features.get_tensor(attr)) for attr in attrs}


def _columns(stores: dict[Any, Any], name: str | None) -> dict[Any, Any]:
    """Returns the attribute of those stores that have it, by type."""
    return {key: _cpu(store[name]) for key, store in stores.items() if name is not None and name in store}


def _weight_columns(edges: dict[Any, Any], weight_attr: WeightAttr) -> dict[Any, Any]:
    if not isinstance(weight_attr, Mapping):
        return _columns(edges, weight_attr)
    for edge_type, name in weight_attr.items():
        if edge_type not in edges or edge_type is UNTYPED:
            types = ", ".join(map(str, edges)) if UNTYPED not in edges else "none: give one name, weight_attr='...'"
            raise GraphDataError(f"weight_attr names edges of type {edge_type}, but the types are {types}.")
        if name not in edges[edge_type]:
            raise GraphDataError(
                f"weight_attr={{{edge_type}: {name!r}}}: these edges have no such attribute. They have "
                f"{', '.join(_names([edges[edge_type]]))}."
            )
    return {edge_type: _cpu(edges[edge_type][name]) for edge_type, name in weight_attr.items()}


def _weights(weight: Any) -> torch.Tensor | None:
    """Returns weights as the floats that samplers draw by; whole numbers and booleans are exact in float64."""
    if weight is None:
        return None
    try:
        weight = _cpu(torch.as_tensor(weight)).view(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphDataError(f"weight_attr: weights must be numbers, one an edge, but are {weight!r:.100}.") from error
    return weight if weight.dtype in (torch.float32, torch.float64) else weight.double()


def _cpu(rows: Any) -> Any:
    return rows.cpu() if isinstance(rows, torch.Tensor) else rows


def _names(stores: Any) -> list[str]:
    return sorted({str(key) for store in stores for key in store.keys()})  # noqa: SIM118


def _no_time(name: str | None, problem: str, stores: Any) -> GraphDataError:
    named = f" The graph holds {', '.join(_names(stores))}." if stores else ""
    return GraphDataError(f"time_attr: the time attribute {name!r} {problem}.{named}")
