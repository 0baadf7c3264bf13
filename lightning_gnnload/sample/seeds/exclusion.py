"""Target edges of links, and their reverses, which are left out of sampling, as they would tell the answer.

Shapes: P edges of a mini-batch, E edges of the graph, X excluded ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.types import GraphTypes, by_edge_type
from lightning_gnnload.errors import GraphDataError, SamplerConfigError, SeedError
from lightning_gnnload.sample.seeds.lookup import EdgeLookup, ListLookup

_REVERSED = "rev_"  # what PyG's ToUndirected puts before the name of a relation


def excluded_positions(
    graph: Graph,
    edge_type: Any,
    src: np.ndarray,
    dst: np.ndarray,
    edge_ids: np.ndarray | None = None,
    *,
    reverse_type: Any = None,
    names: np.ndarray | None = None,
    lookup: EdgeLookup | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the edges of a mini-batch's rows, and their reverses, among the in-neighbours of their endpoints.

    Of a row ``src -> dst`` that names its edge by id, that edge is left out; of one that does not, every edge from
    ``src`` to ``dst``, if there are any. The reverse of an edge is, in this order,

    - the edge of the same id, where the reverse type is another one and the row has an id, as PyG's ``ToUndirected``
      and DGL's ``reverse_types`` have it;
    - otherwise every edge from ``dst`` to ``src``: where an edge of a homogeneous graph goes both ways, any of those
      that go back would tell.

    ``src``, ``dst`` and ``edge_ids`` are int64 ``[P]``: ids of the graph, and of edges in the list of their type, which
    need :attr:`.Graph.edge_order`; no ids: all edges between ``src`` and ``dst``. Without ``reverse_type`` there are no
    reverses. ``lookup`` finds edges whose lists lie elsewhere. Errors call rows by ``names``, int64 ``[P]``, their
    numbers in a table. Returns ``(positions, rows)``, int64 ``[X]``: distinct positions in ``Graph.indices``, and for
    which row each is left out, ascending.

    Raises:
        SeedError: an id that no edge of these endpoints has.
        GraphDataError: an edge that is not the reverse of its row's.
        SamplerConfigError: ids, but a graph that did not keep them; no such edge type.

    Example:
        >>> graph = Graph.from_coo(src=[0, 1, 2, 0], dst=[1, 0, 1, 1], keep_order=True)
        >>> row = np.array([0]), np.array([1])
        >>> excluded_positions(graph, 0, *row, np.array([3]))[0].tolist()  # the second edge from 0 to 1 alone
        [3]
        >>> excluded_positions(graph, 0, *row, np.array([3]), reverse_type=0)[0].tolist()
        [0, 3]
    """
    number = graph.edge_type_number(edge_type)
    names = np.arange(len(src)) if names is None else names
    lookup = ListLookup(graph) if lookup is None else lookup
    matches = [_find(graph, lookup, number, src, dst, edge_ids, SeedError, names)]
    if reverse_type is not None:
        back = graph.edge_type_number(reverse_type)
        matches.append(
            _find(graph, lookup, back, dst, src, edge_ids if back != number else None, GraphDataError, names)
        )
    positions, rows = map(np.concatenate, zip(*matches, strict=True))
    # Edges by row, as the kernels look them up; a loop is found twice, as it is its own reverse.
    order = np.lexsort((positions, rows))
    positions, rows = positions[order], rows[order]
    again = (np.diff(positions, prepend=-1) == 0) & (np.diff(rows, prepend=-1) == 0)
    return positions[~again], rows[~again]


def reverse_of(types: GraphTypes | None, edge_type: Any, names: Mapping[Any, Any] | None = None) -> int | None:
    """Finds the number of the type of the edges that go back; None where there is none. Without types it is 0.

    ``names`` say it, ``{edge type: edge type of its reverses}``, or else it is ``rev_follows`` of ``follows`` and the
    other way round; without such a type, the type itself, if it leads to nodes of the type that it comes from.

    Raises:
        SamplerConfigError: no such edge type, one under two names, or one that does not go back.

    Example:
        >>> kinds = ("user", "buys", "item"), ("item", "rev_buys", "user"), ("item", "in", "shop")
        >>> types = GraphTypes(("user", "item", "shop"), (2, 3, 1), kinds)
        >>> [reverse_of(types, kind) for kind in kinds]
        [1, 0, None]
    """
    if types is None:
        return 0
    number = types.edge_type_number(edge_type)
    src, relation, dst = types.edge_types[number]
    if names is not None:
        numbers = {name: types.edge_type_number(back) for name, back in names.items()}
        if (back := by_edge_type("reverse_types", numbers, types.edge_type_number).get(number)) is None:
            return None
        if types.edge_types[back][::2] != (dst, src):
            raise SamplerConfigError(
                f"edges of type {types.edge_types[back]} are no reverses of {types.edge_types[number]}: they must lead "
                f"from {dst!r} to {src!r}."
            )
        return back
    for name in (_REVERSED + relation, relation.removeprefix(_REVERSED)):
        if name != relation and (dst, name, src) in types.edge_types:
            return types.edge_types.index((dst, name, src))
    return number if src == dst else None


def _find(
    graph: Graph,
    lookup: EdgeLookup,
    edge_type: int,
    src: np.ndarray,
    dst: np.ndarray,
    edge_ids: np.ndarray | None,
    error: type[SeedError] | type[GraphDataError],
    names: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions of edges, and of which row each is."""
    if edge_ids is None:
        return lookup.find_all(edge_type, src, dst)
    positions, sources = lookup.find_ids(edge_type, dst, edge_ids)
    is_right = (positions >= 0) & (sources == src)
    if not is_right.all():
        row, types = int(np.flatnonzero(~is_right)[0]), graph.types
        edge, endpoints = f"edge {edge_ids[row]}", [f"node {src[row]}", f"node {dst[row]}"]
        if types is not None:
            triple = types.edge_types[edge_type]
            named = zip(triple[::2], (src[row], dst[row]), strict=True)
            edge += f" of {triple}"
            endpoints = [f"{name} {node - types.range_of(name).start}" for name, node in named]
        needs, advice = f"as row {names[row]} of the seed table says", "Ids count in the list of their type"
        if error is GraphDataError:
            needs = f"as the reverse of row {names[row]} of the seed table must"
            advice += (
                "; name the type of the edges that go back, reverse_types=, or leave out edges alone, exclude='self'"
            )
        raise error(f"{edge} does not lead from {endpoints[0]} to {endpoints[1]}, {needs}. {advice}.")
    return positions, np.arange(len(dst))
