"""GraphSAINT's draws in plain Python: the chance of every set of nodes, by enumeration, for tiny graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product

Edge = tuple[int, int]
Law = dict[frozenset[int], float]
"""The chance of each set of nodes to be a mini-batch's."""


def by_degree(edges: Sequence[Edge], num_draws: int) -> Law:
    """Sources of edges that are drawn uniformly, with replacement."""
    law: Law = defaultdict(float)
    for drawn in product(edges, repeat=num_draws):
        law[frozenset(src for src, _ in drawn)] += len(edges) ** -num_draws
    return law


def of_edges(edges: Sequence[Edge], weights: Sequence[float], num_edges: int) -> Law:
    """Ends of edges that are drawn one after the other, in proportion to their weights, none of them twice."""
    law: Law = defaultdict(float)

    def go_on(drawn: tuple[int, ...], chance: float) -> None:
        if len(drawn) == min(num_edges, len(edges)):
            law[frozenset(node for edge in drawn for node in edges[edge])] += chance
            return
        left = [edge for edge in range(len(edges)) if edge not in drawn]
        total = sum(weights[edge] for edge in left)
        for edge in left:
            go_on((*drawn, edge), chance * weights[edge] / total)

    go_on((), 1.0)
    return law


def of_walks(edges: Sequence[Edge], num_nodes: int, num_walks: int, walk_length: int) -> Law:
    """Nodes that walks along edges visit, from roots that are drawn uniformly, with replacement."""
    targets = [[dst for src, dst in edges if src == node] or [node] for node in range(num_nodes)]
    one: Law = defaultdict(float)

    def go_on(trace: tuple[int, ...], chance: float) -> None:
        if len(trace) > walk_length:
            one[frozenset(trace)] += chance
            return
        for node in targets[trace[-1]]:
            go_on((*trace, node), chance / len(targets[trace[-1]]))

    for root in range(num_nodes):
        go_on((root,), 1 / num_nodes)
    law: Law = {frozenset(): 1.0}
    for _ in range(num_walks):
        further: Law = defaultdict(float)
        for (nodes, chance), (visited, step) in product(law.items(), one.items()):
            further[nodes | visited] += chance * step
        law = further
    return law


def chance_of(law: Law, *nodes: int) -> float:
    """The chance that all of these nodes are in a mini-batch."""
    return sum(chance for drawn, chance in law.items() if drawn.issuperset(nodes))
