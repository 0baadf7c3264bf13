"""Oracle of ops on lists that lie apart: steps of walks, what the visits come to, and layers drawn by degrees."""

from __future__ import annotations

from collections import Counter

import numpy as np

from lightning_gnnload.ops.dispatch import DrawKey
from lightning_gnnload.ops.philox import stream_keys
from lightning_gnnload.ops.steps import ENDS, GOES_ON, RESTARTS, STUCK
from lightning_gnnload.ops.walks import Walks

from .draws import NodeDraws
from .layers import add_up, draw_edges
from .walks import blocks_per_walk, edge_taken


def step_walks(
    indptr: np.ndarray,
    indices: np.ndarray,
    places: np.ndarray,
    starts: np.ndarray,
    numbers: np.ndarray,
    walks: Walks,
    key: DrawKey,
    t: int,
    *,
    weights: np.ndarray | None = None,
) -> tuple[list[int], list[int]]:
    """Nodes and fates; see :func:`.steps.step_walks`."""
    draw_key, _ = stream_keys(key.seed, key.epoch)
    nodes, fates = [], []
    for place, start, number in zip(places.tolist(), starts.tolist(), numbers.tolist(), strict=True):
        draws = NodeDraws(draw_key, key.step, key.hop, start)
        j = 4 * number * blocks_per_walk(walks, weights) + (2 if weights is None else 4) * t
        words = draws.words(j + 4).tolist()
        edge = edge_taken(range(indptr[place], indptr[place + 1]), weights, draws, j, words)
        if edge is None:
            nodes.append(-1)
            fates.append(STUCK)
            continue
        fate = words[j + 1]
        nodes.append(int(indices[edge]))
        fates.append(ENDS if fate < walks.end_below else RESTARTS if fate < walks.restart_below else GOES_ON)
    return nodes, fates


def rank_visits(
    starts: np.ndarray, visits: np.ndarray, *, num_neighbors: int, include_self: bool = True, normalize: bool = False
) -> tuple[list[int], list[int], np.ndarray]:
    """Counts, neighbours and weights; see :func:`.steps.rank_visits`."""
    counts, neighbors, weights = list[int](), list[int](), list[np.float32]()
    for start, row in zip(starts.tolist(), visits.tolist(), strict=True):
        times = Counter(node for node in row if node >= 0 and (include_self or node != start))
        top = sorted(times.items(), key=lambda item: (-item[1], item[0]))[:num_neighbors]
        total = np.float32(sum(count for _, count in top) if normalize else 1)
        counts.append(len(top))
        neighbors += [node for node, _ in top]
        weights += [np.float32(count) / total for _, count in top]
    return counts, neighbors, np.array(weights, np.float32)


def draw_layer(
    degrees: np.ndarray, budget: int, key: DrawKey, first_seed: int, *, replace: bool = False, normalize: bool = False
) -> tuple[list[int], list[int], np.ndarray]:
    """Counts, places and weights; see :func:`.apart.draw_layer`."""
    draw_key, _ = stream_keys(key.seed, key.epoch)
    factors = draw_edges(range(sum(degrees)), budget, replace, NodeDraws(draw_key, key.step, key.hop, first_seed))
    counts, places, weights, first = list[int](), list[int](), list[float](), 0
    for degree in degrees.tolist():
        kept = [edge for edge in range(first, first + degree) if edge in factors]
        divisor = add_up(factors[edge] for edge in kept) if normalize else float(degree)
        counts.append(len(kept))
        places += [edge - first for edge in kept]
        weights += [factors[edge] / divisor for edge in kept]
        first += degree
    return counts, places, np.array(weights, np.float32)
