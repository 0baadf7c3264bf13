"""DGL's graphs as our samplers draw from them: by edge weights, or without the edges that a mask leaves out."""

from __future__ import annotations

import operator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from lightning_gnnload.adapters.columns import UNTYPED, drawable_weights, graph_of_columns
from lightning_gnnload.adapters.dgl.read import dgl_topology
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import SamplerConfigError, SeedError

_read: WeakKeyDictionary[Any, dict[str | None, tuple[tuple[list[Any], list[int]], Graph]]] = WeakKeyDictionary()


def drawn_graph(g: Any, prob: str | None) -> Graph:
    """Returns a DGLGraph on the CPU as it is drawn from; that of the last call while its structure is the same.

    Args:
        g: its edges keep DGL's ids, by ``Graph.edge_order``.
        prob: a column of ``edata``, floats ``[E]``: weights of the edges; or booleans: edges that may be drawn. Types
            of edges without it draw uniformly, of all edges.

    Raises:
        SamplerConfigError: no edges have this column, or it is not one number of 0 or more an edge.
    """
    # A column that was written to anew, in place or not, makes a graph of its own.
    columns = [] if prob is None else [frame.get(prob) for frame in g._edge_frames]
    state = [g._graph, *columns], [getattr(column, "_version", 0) for column in columns]
    by_name = _read.setdefault(g, {})
    if prob in by_name:
        (parts, versions), graph = by_name[prob]
        if len(parts) == len(state[0]) and all(map(operator.is_, parts, state[0])) and versions == state[1]:
            return graph
    by_name[prob] = state, (graph := _as_graph(g, prob))
    return graph


def is_typed(g: Any) -> bool:
    """Returns whether a graph of DGL's has several types of nodes or edges."""
    return len(g.ntypes) > 1 or len(g.canonical_etypes) > 1


def canonical_type(g: Any, name: Any) -> Any:
    """Returns the canonical edge type of a name; raises SamplerConfigError for one that is none, or is of several."""
    if name in g.canonical_etypes:
        return name
    named = [edge_type for edge_type in g.canonical_etypes if edge_type[1] == name]
    if len(named) != 1:
        problem = "is no edge type of the graph" if not named else f"may be {' or '.join(map(str, named))}"
        raise SamplerConfigError(f"{name!r} {problem}. Its edge types are {', '.join(map(str, g.canonical_etypes))}.")
    return named[0]


def checked_ids(ids: Any, count: int, label: str) -> torch.Tensor:
    """Returns ids, int64 ``[R]`` on the CPU; raises SeedError for what is none, or lies outside ``[0, count)``."""
    try:
        ids = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError):
        raise SeedError(f"{label}: ids are needed, but {ids!r:.100} was given.") from None
    # A tensor of an empty list has floats, but no fractions.
    if ids.ndim != 1 or ids.is_complex() or ids.dtype is torch.bool or (ids.is_floating_point() and ids.numel()):
        advice = " Of a mask, give mask.nonzero().view(-1)." if ids.dtype is torch.bool else ""
        raise SeedError(f"{label}: ids [R] are needed, but {ids.dtype} {list(ids.shape)} was given.{advice}")
    ids = ids.detach().cpu().long()
    bad = ids[(ids < 0) | (ids >= count)]
    if len(bad):
        raise SeedError(f"{label}: {int(bad[0])} is none of them; ids must lie in [0, {count}).")
    return ids


def _as_graph(g: Any, prob: str | None) -> Graph:
    names = {edge_type: edge_type for edge_type in g.canonical_etypes} if is_typed(g) else {UNTYPED: g.etypes[0]}
    weights, masked_edges = {}, {}
    for key, name in names.items() if prob is not None else ():
        column = g.edges[name].data.get(prob)
        if column is not None and column.dtype is torch.bool:
            masked_edges[key] = column.view(-1).nonzero().view(-1)
        elif column is not None:
            weights[key] = drawable_weights(repr(prob), column)
            if weights[key] is None:
                raise SamplerConfigError(
                    f"prob={prob!r}: edata[{prob!r}] must be finite numbers of 0 or more, [E], or booleans."
                )
    if prob is not None and not weights and not masked_edges:
        raise SamplerConfigError(
            f"prob={prob!r} (or mask=): no edges have this column. Set g.edata[{prob!r}], one entry an edge."
        )
    if UNTYPED in names and not masked_edges:
        return dgl_topology(g, weights.get(UNTYPED), None)
    edges = {key: g.edges(etype=name, order="eid") for key, name in names.items()}
    if weights:  # by which all types are drawn, where one is
        weights = {key: weights.get(key, torch.ones(len(src))) for key, (src, _) in edges.items()}
    chosen = {
        key: (src[masked_edges[key]], dst[masked_edges[key]]) if key in masked_edges else (src, dst)
        for key, (src, dst) in edges.items()
    }
    weights = {key: rows[masked_edges[key]] if key in masked_edges else rows for key, rows in weights.items()}
    counts = {name: g.num_nodes(name) for name in g.ntypes} if is_typed(g) else {UNTYPED: g.num_nodes()}
    graph = graph_of_columns(counts, chosen, edge_weight=weights)
    if masked_edges:  # edges are numbered as they are among all
        order = np.arange(graph.num_edges) if graph.edge_order is None else np.array(graph.edge_order, np.int64)
        numbers = graph.edge_types_of(np.arange(graph.num_edges)) if is_typed(g) else np.zeros(len(order), np.int32)
        for number, key in enumerate(names):
            if key in masked_edges:
                at = numbers == number
                order[at] = masked_edges[key].numpy()[order[at]]
        graph.edge_order = order
    return graph
