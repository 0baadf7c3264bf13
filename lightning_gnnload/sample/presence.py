"""How likely each node is in a mini-batch, by propagating probabilities from the seeds along the edges.

Shapes: N nodes, E edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.ops import Walks
from lightning_gnnload.sample.inclusion import (
    InclusionProbabilities,
    UniformInclusion,
    WeightedInclusion,
    chunks,
    log_missed,
)


def presence(graph: Graph, seeds: np.ndarray, hops: Sequence[InclusionProbabilities], *, again: bool) -> np.ndarray:
    """Computes how likely each node is in a mini-batch whose nodes draw in-neighbours independently, float64 ``[N]``.

    ``seeds`` has each node's chance to be a seed, ``hops`` what a node draws, nearest hop first; with ``again``
    (``expand="all"``) nodes of earlier hops draw again. A node is missed if it is no seed and no node that is there
    draws it; these chances are multiplied as if independent. That is exact where every node is reached along one path,
    or along paths that share nothing, and an approximation where paths meet. Two cases that weigh most are followed: a
    node draws afresh in each hop from the one in which it came; and, where all edges go both ways, a node that is there
    only because ``v`` drew it brings nothing new when it draws ``v``.

    Source: SALIENT++ (MLSys'23), vertex inclusion probabilities, which follows neither case.
    """
    mutual = goes_both_ways(graph)
    missed = [log_missed(seeds)]  # log of the chance that a node is not there after a hop
    returned = [np.zeros(graph.num_nodes)]  # likewise, that a node does not draw one of its neighbours up to a hop
    for hop in range(len(hops)):
        # From the seeds anew, as _drawn sums up all hops to this one.
        missed.append(missed[0].copy())
        returned.append(np.zeros(graph.num_nodes))
        for begin, end in chunks(graph.indptr):
            owner, sources = _edges(graph, begin, end)
            chances = [chance.of(begin, end) for chance in hops[: hop + 1]]
            there = [-np.expm1(log[owner]) for log in missed[:-1]]
            if mutual:
                degrees = np.maximum(np.bincount(owner - begin, minlength=end - begin), 1)
                share = np.bincount(owner - begin, _drawn(chances, there, again), minlength=end - begin) / degrees
                returned[-1][begin:end] = log_missed(share)
                there = _without(sources, missed[:-1], returned[:-1], owner)
            unseen = log_missed(_drawn(chances, there, again))
            unseen[sources == owner] = 0  # a loop brings nobody
            np.add.at(missed[-1], sources, unseen)
    return -np.expm1(missed[-1])


def presence_by_fanouts(
    graph: Graph,
    seeds: np.ndarray,
    fanouts: Sequence[int],
    *,
    weighted: bool = False,
    replace: bool = False,
    again: bool,
) -> np.ndarray:
    """Computes :func:`presence` for samplers that draw so many of each node's in-neighbours, uniformly or by weight."""
    law = WeightedInclusion if weighted else UniformInclusion
    # Hops of one fanout share what is computed once a graph.
    laws: dict[int, InclusionProbabilities] = {fanout: law(graph, fanout, replace) for fanout in set(fanouts)}
    return presence(graph, seeds, [laws[fanout] for fanout in fanouts], again=again)


def presence_by_walks(
    graph: Graph,
    seeds: np.ndarray,
    walks: Walks,
    *,
    num_layers: int,
    num_neighbors: int,
    weighted: bool,
    again: bool,
) -> np.ndarray:
    """Approximates how likely each node is in a mini-batch of random walks, float64 ``[N]``.

    Visits to a node count as if they came at random moments (Poisson), except that the walks from one node may take the
    same first edge. Of what a node's walks visit, ``num_neighbors`` are taken as if all were visited equally often,
    lower ids first. ``seeds`` and ``again`` are those of :func:`presence`.
    """
    missed = log_missed(seeds)
    present, came = seeds, seeds
    for _ in range(num_layers):
        visits = _walk_visits(
            graph, present if again else came, walks, WeightedInclusion if weighted else UniformInclusion
        )
        missed -= visits * _kept(visits, walks, num_neighbors)
        reached = -np.expm1(missed)
        present, came = reached, reached - present
    return present


def _drawn(chances: Sequence[np.ndarray], there: Sequence[np.ndarray], again: bool) -> np.ndarray:
    """Computes the chance that each edge was drawn by the last of some hops. By hop and edge: ``chances`` that the
    edge's node draws it, ``there`` that the node is there before."""
    before, waiting, total = np.zeros((3, len(chances[0])))
    for chance, now in zip(chances, there, strict=True):
        came = now - before
        waiting, before = waiting + came if again else came, now
        total += waiting * chance
        waiting = waiting * (1 - chance)
    return total


def _without(
    sources: np.ndarray, missed: Sequence[np.ndarray], returned: Sequence[np.ndarray], owner: np.ndarray
) -> list[np.ndarray]:
    """Computes the chance that each edge's node is there before each hop if its source had not drawn it."""
    there: list[np.ndarray] = []
    least = -np.expm1(missed[0])[owner]  # as a seed
    for log, back in zip(missed, returned, strict=True):
        # What the source draws is known on average over its edges, so it may be more than there is.
        alone = -np.expm1(np.minimum(log[owner] - back[sources], 0))
        least = np.maximum(least, alone)
        there.append(least)
    return there


def _walk_visits(
    graph: Graph, present: np.ndarray, walks: Walks, law: type[UniformInclusion | WeightedInclusion]
) -> np.ndarray:
    """Computes the visits that each node expects of the walks from all nodes that are there, float64 ``[N]``."""
    step = law(graph, 1, replace=True)
    alive = float(walks.num_walks)
    visits = _along_edges(graph, present, law(graph, walks.num_walks, replace=True))
    walkers = _along_edges(graph, present * walks.num_walks, step)
    for _ in range(walks.length - 1):
        alive *= 1 - walks.termination_prob
        onward = walkers * ((1 - walks.restart_prob) * (1 - walks.termination_prob))
        walkers = _along_edges(graph, onward + walks.restart_prob * alive * present, step)
        visits += walkers
    return visits


def _kept(visits: np.ndarray, walks: Walks, num_neighbors: int) -> np.ndarray:
    """Computes the chance that a visited node is among the ``num_neighbors`` of lowest id, float64 ``[N]``."""
    chance_of = _number_of_visits(walks.length, walks.num_walks, walks.termination_prob)
    chance_of *= np.arange(len(chance_of))  # a visit is likelier to be one of many
    # The chance that another visit went to a lower id decides, so a table over that chance serves all nodes.
    lower = np.linspace(0, 1, 257)
    fewer = np.zeros((num_neighbors, len(lower)))  # [j]: that j of the other visits went to lower ids
    fewer[0] = 1
    share = np.zeros(len(lower))
    for chance in chance_of[1:]:
        share += chance * fewer.sum(axis=0)
        fewer[1:] = fewer[1:] * (1 - lower) + fewer[:-1] * lower
        fewer[0] *= 1 - lower
    passed = np.cumsum(visits)
    return np.interp(passed / max(passed[-1], 1e-300), lower, share / chance_of.sum())


def _number_of_visits(length: int, num_walks: int, termination_prob: float) -> np.ndarray:
    """Computes the chances of 0, 1, ... steps of all walks of a node together."""
    steps = np.arange(1, length + 1)
    one = np.append(0.0, termination_prob * (1 - termination_prob) ** (steps - 1.0))
    one[-1] = (1 - termination_prob) ** (length - 1.0)
    total = np.ones(1)
    for _ in range(num_walks):
        total = np.convolve(total, one)
    return total


def _along_edges(graph: Graph, amount: np.ndarray, chances: InclusionProbabilities) -> np.ndarray:
    """Passes each node's amount on to its in-neighbours, times the chance of the edge; returns what each gets, float64
    ``[N]``."""
    got = np.zeros(graph.num_nodes)
    for begin, end in chunks(graph.indptr):
        owner, sources = _edges(graph, begin, end)
        np.add.at(got, sources, amount[owner] * chances.of(begin, end))
    return got


def goes_both_ways(graph: Graph) -> bool:
    """Returns whether each edge has a reverse: each node's in- and out-neighbours have the same sum of random 64-bit
    words. Another graph passes with a chance of 2**-64.

    Example:
        >>> [goes_both_ways(Graph.from_coo([0, 1, 1], dst)) for dst in ([1, 0, 1], [1, 0, 2])]
        [True, False]
    """
    # Sums need no sorted copy of the edges to compare: two words a node, and one pass.
    words = ops.random_keys(0, 0, np.arange(graph.num_nodes))
    excess = np.zeros(graph.num_nodes, np.uint64)  # sums wrap around
    for begin, end in chunks(graph.indptr):
        owner, sources = _edges(graph, begin, end)
        np.add.at(excess, owner, words[sources])
        np.subtract.at(excess, sources, words[owner])
    return not excess.any()


def _edges(graph: Graph, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the destinations and sources of the edges into nodes ``[begin, end)``, both int64."""
    owner = np.repeat(np.arange(begin, end), np.diff(graph.indptr[begin : end + 1]))
    return owner, graph.indices[graph.indptr[begin] : graph.indptr[end]].astype(np.int64, copy=False)
