"""How likely a node that draws neighbours draws a given one: the law of each sampler, edge by edge."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np

from lightning_gnnload.data.graph import Graph

_NEWTON_STEPS = 12  # a bound: the steps end when 1e-3 of a neighbour is missing


class InclusionProbabilities(Protocol):
    """Inclusion probabilities say how likely each edge is to be drawn at one hop."""

    def of(self, begin: int, end: int) -> np.ndarray:
        """Computes the inclusion probability of each edge into nodes ``[begin, end)``, float64."""


class UniformInclusion:
    """Computes inclusion probabilities where all subsets of in-neighbours are equally likely: ``fanout / degree``."""

    def __init__(self, graph: Graph, fanout: int, replace: bool) -> None:
        self._indptr, self._fanout, self._replace = graph.indptr, fanout, replace

    def of(self, begin: int, end: int) -> np.ndarray:
        degrees = np.diff(self._indptr[begin : end + 1])
        divisor = np.maximum(degrees, 1)  # a node without edges has none that could be drawn
        if self._fanout < 0:
            chance = np.ones(end - begin)
        elif self._replace:
            chance = -np.expm1(self._fanout * log_missed(1 / divisor))
        else:
            chance = np.minimum(self._fanout / divisor, 1)
        return np.repeat(chance, degrees)


class WeightedInclusion:
    """Inclusion probabilities of draws by edge weight. Without replacement they are approximate: each edge is drawn
    independently, with the right expected number a node.

    Drawing one by one in proportion to weight is a race of exponential clocks, one an edge, of which the first
    ``fanout`` win. Here all win that ring before a time at which ``fanout`` are expected to have rung: ``1 - exp(-rate
    * weight)``. The error vanishes as degrees grow.

    Source: Rosén, "Asymptotic theory for successive sampling with varying probabilities without replacement" (Annals of
    Mathematical Statistics 43, 1972).
    """

    def __init__(self, graph: Graph, fanout: int, replace: bool) -> None:
        assert graph.edge_weight is not None
        self._indptr, self._weight = graph.indptr, graph.edge_weight
        self._fanout, self._replace = fanout, replace
        self._rate = np.full(graph.num_nodes, np.inf)
        if fanout > 0 and not replace:
            for begin, end in chunks(graph.indptr):
                self._rate[begin:end] = self._ringing_rate(begin, end)

    def of(self, begin: int, end: int) -> np.ndarray:
        shares, owner = self._shares(begin, end)
        if self._replace and self._fanout > 0:
            return -np.expm1(self._fanout * log_missed(shares))
        with np.errstate(invalid="ignore"):  # infinity times zero
            return np.where(shares > 0, -np.expm1(-self._rate[begin:end][owner] * shares), 0.0)

    def _shares(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns each edge's share of its node's weight, and its node, counted from ``begin``."""
        first, last = self._indptr[begin], self._indptr[end]
        owner = np.repeat(np.arange(end - begin), np.diff(self._indptr[begin : end + 1]))
        weight = self._weight[first:last].astype(np.float64)
        total = np.bincount(owner, weight, minlength=end - begin)
        return np.divide(weight, total[owner], out=np.zeros_like(weight), where=weight > 0), owner

    def _ringing_rate(self, begin: int, end: int) -> np.ndarray:
        """Solves for each node's rate, infinite where it takes all edges with a weight. Newton's steps from below never
        overshoot: the expected number that have rung is concave in the rate."""
        shares, owner = self._shares(begin, end)
        count = end - begin
        takes_all = np.bincount(owner, shares > 0, minlength=count) <= self._fanout
        # From below: 1 - exp(-x) <= x and shares add up to 1, so no more than fanout are expected to have rung.
        rate = np.full(count, float(self._fanout))
        for _ in range(_NEWTON_STEPS):
            silent = np.exp(-rate[owner] * shares)
            missing = self._fanout - np.bincount(owner, 1 - silent, minlength=count)
            if missing[~takes_all].max(initial=0) < 1e-3:
                break
            slope = np.bincount(owner, shares * silent, minlength=count)
            rate += np.divide(missing, slope, out=np.zeros(count), where=~takes_all & (slope > 0))
        return np.where(takes_all, np.inf, rate)


def chunks(indptr: np.ndarray, num_edges: int = 1 << 21) -> list[tuple[int, int]]:
    """Cuts the nodes into ranges ``[begin, end)`` of about ``num_edges`` edges each, so that arrays by edge stay small.

    Example:
        >>> chunks(np.array([0, 2, 4, 9, 10]), num_edges=4)
        [(0, 2), (2, 3), (3, 4)]
    """
    # Between nodes, never within a list: an edge's chance depends on all the weights of its node.
    cuts = np.searchsorted(indptr, np.arange(num_edges, indptr[-1], num_edges))
    bounds = np.unique(np.concatenate([[0], cuts, [len(indptr) - 1]])).tolist()
    return list(pairwise(bounds))


def log_missed(chance: np.ndarray) -> np.ndarray:
    """Computes ``log(1 - chance)``; a chance of 1 counts as 1 - 2**-53, so that logarithms stay finite."""
    return np.log1p(-np.minimum(chance, 1 - 2.0**-53))
