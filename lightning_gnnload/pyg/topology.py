"""Topology: the graph that is sampled, of PyG's Data, HeteroData, or a pair of a FeatureStore and a GraphStore."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData, remote_backend_utils

from lightning_gnnload.adapters.pyg_stores import edge_ends
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import GraphDataError, SamplerUnsupportedError

Direction = Literal["forward", "backward"]
EdgeType = tuple[str, str, str]
_NO_IDS = torch.empty(0, dtype=torch.long)


class Topology(NamedTuple):
    """What is sampled of somebody's graph.

    Attributes:
        graph: with the user's order of edges, the times of ``time_attr``, and the weights of ``weight_attr``.
        node_time: the times of nodes as the user has them, for PyG's draws of negatives: a tensor, by type in a graph
            with types; None where nodes have none.
        num_nodes: a number, by type in a graph with types.
    """

    graph: Graph
    node_time: Any
    num_nodes: int | dict[str, int]


def topology_of(
    data: Any, time_attr: str | None, weight_attr: str | None, direction: Direction = "forward"
) -> Topology:
    """Reads a graph.

    Args:
        data: a ``Data``, a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)``.
        time_attr: the attribute of nodes, or of edges, that says since when they are there.
        weight_attr: the attribute of edges in proportion to which they are drawn.
        direction: ``"backward"`` turns all edges around, and names edge types by :func:`turned`.

    Raises:
        SamplerUnsupportedError: weights of stores.
        GraphDataError: no such data; an attribute that is not there, is no numbers, or is of nodes and of edges.
        GraphFormatError: ids that are no nodes, weights that are negative, times that are none.
    """
    if isinstance(data, Data):
        return _of_data(data, time_attr, weight_attr, direction)
    if isinstance(data, HeteroData):
        return _of_hetero_data(data, time_attr, weight_attr, direction)
    if isinstance(data, list | tuple) and len(data) == 2:
        features, graph = data
        if isinstance(features, FeatureStore) and isinstance(graph, GraphStore):
            return _of_stores(features, graph, time_attr, weight_attr, direction)
    raise GraphDataError(
        f"a Data, a HeteroData, or a pair of a FeatureStore and a GraphStore is needed, but a {type(data).__name__} "
        "was given."
    )


def turned(edge_type: EdgeType, direction: Direction) -> EdgeType:
    """Returns the type by which edges are sampled in this direction, of the user's; or the user's, of that one."""
    return edge_type if direction == "forward" else edge_type[::-1]


def _directed(ends: tuple[Any, Any], direction: Direction) -> tuple[Any, Any]:
    return ends if direction == "forward" else ends[::-1]


def _of_data(data: Data, time_attr: str | None, weight_attr: str | None, direction: Direction) -> Topology:
    node_time = edge_time = None
    if time_attr is not None:
        if time_attr in data and data.is_node_attr(time_attr):
            node_time = data[time_attr]
        elif time_attr in data and data.is_edge_attr(time_attr):
            edge_time = data[time_attr]
        else:
            raise _no_time(time_attr, "is neither a node-level nor an edge-level attribute", [data])
    src, dst, _ = edge_ends(data) if "edge_index" in data or "adj_t" in data else (_NO_IDS, _NO_IDS, None)
    weight = None if weight_attr is None else _attribute(data, weight_attr, "weight_attr")
    graph = Graph.from_coo(
        *_directed((_cpu(src), _cpu(dst)), direction),
        data.num_nodes,
        edge_weight=_weights(weight),
        edge_time=_cpu(edge_time),
        node_time=_cpu(node_time),
        keep_order=True,
    )
    return Topology(graph, _cpu(node_time), graph.num_nodes)


def _of_hetero_data(data: HeteroData, time_attr: str | None, weight_attr: str | None, direction: Direction) -> Topology:
    node_time, edge_time = _held(data.node_items(), time_attr), _held(data.edge_items(), time_attr)
    if time_attr is not None and not (node_time or edge_time):
        raise _no_time(time_attr, "is neither a node-level nor an edge-level attribute", data.stores)
    if node_time and edge_time:
        raise _no_time(time_attr, "is both a node-level and an edge-level attribute", data.stores)
    weights = _held(data.edge_items(), weight_attr)
    if weight_attr is not None and not weights:
        raise _missing(weight_attr, "weight_attr", data.edge_stores)
    num_nodes = {kind: _count(kind, store.num_nodes) for kind, store in data.node_items()}
    graph = Graph.from_hetero(
        num_nodes,
        {
            turned(kind, direction): _directed(tuple(map(_cpu, edge_ends(store)[:2])), direction)
            for kind, store in data.edge_items()
        },
        edge_weight={turned(kind, direction): _weights(weight) for kind, weight in weights.items()} or None,
        edge_time=edge_time or None,
        node_time=node_time or None,
        keep_order=True,
    )
    return Topology(graph, node_time or None, num_nodes)


def _of_stores(
    features: FeatureStore, store: GraphStore, time_attr: str | None, weight_attr: str | None, direction: Direction
) -> Topology:
    """Edges are numbered in the order of the store's lists of edges, or of its CSC or CSR where it has only these."""
    if weight_attr is not None:
        raise SamplerUnsupportedError(
            f"weight_attr={weight_attr!r}: a GraphStore holds no weights. Give a Data or a HeteroData, or no weights."
        )
    attrs = store.get_all_edge_attrs()
    times = [attr for attr in features.get_all_tensor_attrs() if attr.attr_name == time_attr] if time_attr else []
    if time_attr is not None and not times:
        raise _no_time(time_attr, "is not in the FeatureStore", [])
    for attr in times:
        attr.index = None  # of all rows
    of_group = {attr.group_name: torch.as_tensor(features.get_tensor(attr)) for attr in times}
    src, dst, _ = store.coo()
    if all(attr.edge_type is None for attr in attrs):
        # A FeatureStore does not say what its rows are of; PyG, too, goes by this name.
        time = next(iter(of_group.values()), None)
        node_time, edge_time = (time, None) if time_attr == "time" else (None, time)
        num_nodes = max(attrs[0].size)
        ends = _directed((src, dst), direction)
        graph = Graph.from_coo(*ends, num_nodes, edge_time=edge_time, node_time=node_time, keep_order=True)
        return Topology(graph, node_time, num_nodes)
    kinds = sorted({kind for edge_type in src for kind in edge_type[::2]} | {*_named_types(features)})
    sizes = {kind: int(remote_backend_utils.num_nodes(features, store, kind)) for kind in kinds}
    node_times = {kind: time for kind, time in of_group.items() if isinstance(kind, str)}
    edge_times = {kind: time for kind, time in of_group.items() if isinstance(kind, tuple)}
    if node_times and edge_times:
        raise _no_time(time_attr, "is both a node-level and an edge-level attribute", [])
    graph = Graph.from_hetero(
        sizes,
        {turned(kind, direction): _directed((src[kind], dst[kind]), direction) for kind in src},
        edge_time=edge_times or None,
        node_time=node_times or None,
        keep_order=True,
    )
    return Topology(graph, node_times or None, sizes)


def _named_types(features: FeatureStore) -> list[str]:
    return [attr.group_name for attr in features.get_all_tensor_attrs() if isinstance(attr.group_name, str)]


def _held(items: Any, name: str | None) -> dict[Any, Any]:
    """Returns the attribute of those stores that have it, by type."""
    return {kind: _cpu(store[name]) for kind, store in items if name is not None and name in store}


def _attribute(store: Any, name: str, argument: str) -> Any:
    if name not in store:
        raise _missing(name, argument, [store])
    return store[name]


def _weights(weight: Any) -> torch.Tensor | None:
    """Returns weights as floats that samplers draw by; whole numbers and booleans are exact in float64."""
    if weight is None:
        return None
    try:
        weight = _cpu(torch.as_tensor(weight)).view(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphDataError(f"weight_attr: weights must be numbers, one an edge, but are {weight!r:.100}.") from error
    return weight if weight.dtype in (torch.float32, torch.float64) else weight.double()


def _count(kind: str, count: Any) -> int:
    if count is None:
        raise GraphDataError(f"how many nodes of type {kind!r} there are is not known. Set data[{kind!r}].num_nodes.")
    return int(count)


def _cpu(rows: Any) -> Any:
    return rows.cpu() if isinstance(rows, torch.Tensor) else rows


def _missing(name: str, argument: str, stores: Any) -> GraphDataError:
    held = sorted({str(key) for store in stores for key in store.keys()})  # noqa: SIM118
    return GraphDataError(f"{argument}={name!r}: no edges have such an attribute. The graph holds {', '.join(held)}.")


def _no_time(name: str | None, problem: str, stores: Any) -> GraphDataError:
    held = sorted({str(key) for store in stores for key in store.keys()})  # noqa: SIM118
    there = f" The graph holds {', '.join(held)}." if held else ""
    return GraphDataError(f"time_attr: the time attribute {name!r} {problem}.{there}")
