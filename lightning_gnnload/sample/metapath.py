"""Metapaths: which edge types the steps of random walks go along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import WalkRuns


def check_metapath(metapath: Any) -> list[Any]:
    """Returns a metapath as a list of edge types for :meth:`.GraphTypes.edge_type_number`; SamplerConfigError if it is
    none."""
    if isinstance(metapath, str) or not isinstance(metapath, Sequence) or not metapath:
        raise SamplerConfigError(
            f"metapath={metapath!r}: a list of edge types is needed, one a step, for example "
            "[('user', 'buys', 'item'), ('item', 'rev_buys', 'user')]."
        )
    return list(metapath)


def walk_length(length: int | None, metapath: Any) -> int:
    """Returns the steps of a walk, or its rounds; SamplerConfigError: nothing says how many."""
    if length is None and metapath is None:
        raise SamplerConfigError("random_walk needs a length, the steps of a walk, or a metapath, which names them.")
    return 1 if length is None else length


def metapath_runs(graph: Graph, metapath: Sequence[Any], *, returns: bool) -> WalkRuns:
    """Returns the runs of lists that walks along a metapath leave nodes by; SamplerConfigError as
    :func:`metapath_steps`.

    Example:
        >>> buys, rev_buys = ("user", "buys", "item"), ("item", "rev_buys", "user")
        >>> graph = Graph.from_hetero({"user": 2, "item": 3}, {buys: ([0, 1], [2, 0]), rev_buys: ([2, 0], [0, 1])})
        >>> metapath_runs(graph, [buys, rev_buys], returns=True).starts
        range(2, 5)
    """
    types, steps = metapath_steps(graph.types, metapath, returns=returns)
    return runs_of_steps(types, steps, graph.typed_lists.run_ptr)


def runs_of_steps(types: GraphTypes, steps: Sequence[int], run_ptr: Any) -> WalkRuns:
    """Returns the runs that walks by these edge types leave nodes by, ``run_ptr`` being a graph's, here or on a
    device."""
    first, stride = zip(*(_runs_of(types, step) for step in steps), strict=True)
    return WalkRuns(run_ptr, first, stride, starts_of(types, steps))


def metapath_steps(types: GraphTypes | None, metapath: Sequence[Any], *, returns: bool) -> tuple[GraphTypes, list[int]]:
    """Returns the types of a graph, and by their numbers the edge types that walks along a metapath take.

    Walks go along in-edges: the first edge type ends in the starts' node type, each further one in that which the step
    before has reached. With ``returns``, the last step must reach the starts' type again.

    Raises:
        SamplerConfigError: a graph without these types, steps that do not follow each other or do not return.
    """
    if types is None:
        raise SamplerConfigError(
            "a metapath names edge types, but the graph has no types of nodes: build it with Graph.from_hetero, or "
            "walk without a metapath."
        )
    steps = [types.edge_type_number(name) for name in metapath]
    endpoints = [(types.edge_types[step][2], types.edge_types[step][0]) for step in steps]  # from where, to where
    for number in range(1, len(steps)):
        if endpoints[number][0] != endpoints[number - 1][1]:
            raise SamplerConfigError(
                f"metapath[{number}], {types.edge_types[steps[number]]}, ends in {endpoints[number][0]!r}, but the "
                f"step before it, along {types.edge_types[steps[number - 1]]}, reaches {endpoints[number - 1][1]!r}. "
                "Steps go along in-edges, from an edge's target to its source: each edge type must end where the one "
                "before begins."
            )
    if returns and endpoints[-1][1] != endpoints[0][0]:
        raise SamplerConfigError(
            f"the metapath leads from {endpoints[0][0]!r} to {endpoints[-1][1]!r}, but a walk of several rounds, and "
            f"one whose visits count, must come back to {endpoints[0][0]!r}: add steps that lead there."
        )
    return types, steps


def starts_of(types: GraphTypes, steps: Sequence[int]) -> range:
    """Returns the nodes that walks by these edge types begin at: those that the first one ends in."""
    return types.range_of(types.edge_types[steps[0]][2])


def _runs_of(types: GraphTypes, edge_type: int) -> tuple[int, int]:
    """Returns ``first`` and ``stride``: the run of node ``v`` by this edge type is ``first + v * stride``."""
    number = types.node_type_number(types.edge_types[edge_type][2])
    slots = types.slots[number]
    begin = int(types.first_run[number]) + slots.index(edge_type)
    return begin - int(types.first_node[number]) * len(slots), len(slots)
