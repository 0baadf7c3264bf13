"""NetworkX's graphs as GraphData."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np

from lightning_gnnload.adapters.columns import chosen, drawable_weights, split_ids, time_column
from lightning_gnnload.adapters.named_columns import as_features, as_floats, columns_of_dicts, omitted
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import GraphDataError, warn

_KEY = "key"  # of an edge of a multigraph


def from_networkx(
    graph: Any,
    feature_name: str = "x",
    label_name: str = "y",
    *,
    edge_feature_name: str | None = None,
    edge_weight_name: str = "weight",
    time_name: str | None = None,
    train: Any = None,
    val: Any = None,
    test: Any = None,
    without: Iterable[str] = (),
) -> GraphData:
    """Converts a NetworkX graph. Its nodes get numbers in its own order, and their keys become ``user_ids``.

    An edge ``u, v`` of a ``DiGraph`` makes ``u`` an in-neighbour of ``v``; one of an undirected graph goes both
    ways, with its attributes. Keys that are neither all whole numbers nor all texts are kept as texts; those that
    are just 0, 1, 2, ... are the nodes' numbers and not kept at all.

    Args:
        graph: a ``Graph``, ``DiGraph``, ``MultiGraph`` or ``MultiDiGraph`` of N nodes.
        feature_name: the attribute of nodes that holds features, F numbers each; floats become float32.
        label_name: that of labels, a number each.
        edge_feature_name: the attribute of edges that holds features, likewise.
        edge_weight_name: the attribute of edges that samplers draw by, if there is one; mini-batches carry it, too.
        time_name: the attributes of nodes, edges, or both, that say since when one is there, for samplers by time.
        train: node numbers, or a :class:`.SeedTable`; None for the nodes whose attribute ``train_mask`` is true.
            Likewise ``val`` and ``test``.
        without: names of attributes that are left out, of nodes, edges and the graph. The keys of a multigraph's
            edges are ``"key"``.

    Raises:
        GraphDataError: no such graph; an attribute that some nodes or edges lack, or that is no number, or no list
            of as many numbers everywhere; keys of nodes that are alike as texts.

    Example:
        >>> import networkx as nx
        >>> from lightning_gnnload import GraphData
        >>> data = GraphData.from_networkx(nx.DiGraph([("ann", "bob"), ("cleo", "bob")]))
        >>> data.user_ids[""].take(data.graph.in_neighbors(1)).tolist()
        ['ann', 'cleo']
    """
    if not (hasattr(graph, "adj") and hasattr(graph, "is_directed") and hasattr(graph, "nodes")):
        raise GraphDataError(
            f"GraphData.from_networkx: a NetworkX graph is needed, but a {type(graph).__name__} was given."
        )
    keys, edges = list(graph.nodes), _edges(graph)
    node_rows, edge_rows = [graph.nodes[key] for key in keys], [attributes for _, _, attributes in edges]
    without = omitted(without, chain(*node_rows, *edge_rows, graph.graph), "the NetworkX graph")
    if whole := [name for name in graph.graph if name not in without]:
        warn(
            f"{', '.join(map(repr, whole))} of the NetworkX graph: no attribute of nodes or edges, but of the graph, "
            f"which GraphData does not carry. without=[...] leaves it out without this warning."
        )
    nodes = columns_of_dicts(node_rows, keys, "nodes", without)
    columns = columns_of_dicts(edge_rows, [(src, dst) for src, dst, _ in edges], "edges", without)
    for argument, name, usual, named in (
        ("feature_name", feature_name, "x", nodes),
        ("label_name", label_name, "y", nodes),
        ("edge_feature_name", edge_feature_name, None, columns),
        ("edge_weight_name", edge_weight_name, "weight", columns),
        ("time_name", time_name, None, nodes | columns),
    ):
        if name != usual:
            chosen(named, name, argument, "the NetworkX graph")
    src, dst, columns = _both_ways(graph, keys, edges, columns)
    topology = Graph.from_coo(
        src,
        dst,
        len(keys),
        edge_weight=drawable_weights(repr(edge_weight_name), columns.get(edge_weight_name)),
        edge_time=time_column(columns, time_name),
        node_time=time_column(nodes, time_name),
        keep_order=True,
    )
    # Taken out, as features are not carried as a table, too; weights and times are.
    edge_x = None if edge_feature_name is None else columns.pop(edge_feature_name)
    tables = {name: rows for name, rows in nodes.items() if name not in (feature_name, label_name)}
    return GraphData(
        topology,
        x=as_features(nodes.get(feature_name), f"attribute {feature_name!r} of nodes"),
        y=as_floats(nodes.get(label_name), f"attribute {label_name!r} of nodes"),
        **split_ids({"train": train, "val": val, "test": test}, nodes, len(keys)),
        tables=tables,
        edge_x=as_features(edge_x, f"attribute {edge_feature_name!r} of edges"),
        edge_tables=columns,
        user_ids=_user_ids(keys),
    )


def _both_ways(
    graph: Any, keys: list[Any], edges: list[tuple[Any, Any, Any]], columns: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Returns sources, destinations and columns of edges; of an undirected graph, also those of the ways back."""
    number = {key: at for at, key in enumerate(keys)}
    src, dst = (np.array([number[edge[end]] for edge in edges], np.int64) for end in (0, 1))
    if not graph.is_directed():  # the way back, but for loops, which are their own
        back = np.flatnonzero(src != dst)
        src, dst = np.concatenate([src, dst[back]]), np.concatenate([dst, src[back]])
        columns = {name: np.concatenate([rows, rows[back]]) for name, rows in columns.items()}
    return src, dst, columns


def _edges(graph: Any) -> list[tuple[Any, Any, Mapping[Any, Any]]]:
    """Returns source, destination and attributes of each edge. The keys of a multigraph's are ``"key"`` among these,
    unless they only count the edges of a pair."""
    if not graph.is_multigraph():
        return list(graph.edges(data=True))
    # NetworkX numbers the edges of a pair by itself where the user names no keys: such keys say nothing.
    edges, counts = list(graph.edges(keys=True, data=True)), Counter[Any]()
    only_count = True
    for src, dst, key, _ in edges:
        only_count &= key == counts[src, dst]
        counts[src, dst] += 1
    if only_count:
        return [(src, dst, attributes) for src, dst, _, attributes in edges]
    if any(_KEY in attributes for *_, attributes in edges):
        raise GraphDataError(f"edges have keys and an attribute {_KEY!r}. Rename one of them.")
    return [(src, dst, {_KEY: key, **attributes}) for src, dst, key, attributes in edges]


def _user_ids(keys: list[Any]) -> UserIds | None:
    if keys == list(range(len(keys))):
        return None  # they are the nodes' numbers
    if all(type(key) is int for key in keys):
        return UserIds.of(keys, column="node")
    texts = [str(key) for key in keys]
    if len(set(texts)) < len(texts):
        twice = Counter(texts).most_common(1)[0][0]
        raise GraphDataError(
            f"several nodes of the NetworkX graph are {twice!r} as text. Name them anew: "
            f"networkx.convert_node_labels_to_integers(graph, label_attribute='name')."
        )
    return UserIds.of(texts, column="node")
