"""Oracle of HGT's budget sampling: budgets are added up anew for every draw, all candidates are sorted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from lightning_gnnload.ops.dispatch import DrawKey
from lightning_gnnload.ops.philox import stream_keys

from .draws import BatchDraws, name_of
from .labor import source_draw
from .neighbors import Hop, lists_of, sample_positions
from .shadow import hops_within

UNITS = 2**32  # in which budgets are counted


def exponential(word: int) -> float:
    """-log(u), by the sums and products of which the kernel makes it."""
    mantissa, exponent = math.frexp(((word >> 12) + 0.5) * 2.0**-52)
    mantissa, exponent = 2 * mantissa, exponent - 1  # in [1, 2)
    if mantissa > 1.4142135623730951:
        mantissa, exponent = mantissa / 2, exponent + 1
    s = (mantissa - 1) / (mantissa + 1)
    total = 0.0
    for k in range(25, 0, -2):
        total = total * (s * s) + 1 / k
    return -(exponent * 0.6931471805599453 + 2 * s * total)


def budgets_of(
    indptr: np.ndarray,
    indices: np.ndarray,
    edge_type: np.ndarray,
    hops: Sequence[Sequence[int]],
    key: DrawKey,
    max_neighbors: int,
    names: np.ndarray | None = None,
) -> Counter[int]:
    """What the nodes outside were given by those of a batch, ``hops``: the seeds, then what each hop took."""
    taken, budgets, draws = {node for hop in hops for node in hop}, Counter[int](), BatchDraws(key, names)
    fanouts = dict.fromkeys(map(int, np.unique(edge_type)), max_neighbors)
    for hop, nodes in enumerate(hops):
        for node in nodes:
            for edges, fanout, draw_hop in lists_of(indptr, node, hop, fanouts, edge_type):
                places = sample_positions(len(edges), fanout, False, draws.of(node, draw_hop))
                for place in places:
                    if (neighbor := int(indices[edges[place]])) not in taken:
                        budgets[neighbor] += UNITS // len(places)
    return budgets


def sample_hgt(
    indptr: np.ndarray,
    indices: np.ndarray,
    edge_type: np.ndarray,
    first_node: np.ndarray,
    seeds: np.ndarray,
    num_samples: Sequence[Sequence[int]],
    key: DrawKey,
    *,
    num_layers: int,
    max_neighbors: int,
    names: np.ndarray | None = None,
) -> tuple[np.ndarray, list[Hop]]:
    """``nodes`` int64 and the hops of a batch, nearest hop first; see :func:`.hgt.sample_hgt`.

    ``edge_type`` ``[E]`` sorts each list; the nodes of type ``t`` begin at ``first_node[t]``.
    """
    hops = [[int(seed) for seed in seeds]]
    draw_key, _ = stream_keys(key.seed, key.epoch)
    for hop, counts in enumerate(num_samples):
        budgets = budgets_of(indptr, indices, edge_type, hops, key, max_neighbors, names)

        def rank(node: int, hop: int = hop, budgets: Counter[int] = budgets) -> tuple[float, int]:
            word = source_draw(draw_key, key.step, key.hop + hop, name_of(node, names))
            return exponential(word) / (float(budgets[node]) * float(budgets[node])), node

        found = list[int]()
        for kind, count in enumerate(counts):
            of_type = [node for node in budgets if first_node[kind] <= node < first_node[kind + 1]]
            found += sorted(of_type, key=rank)[:count]
        hops.append(sorted(found))
    nodes = np.array([node for hop in hops for node in hop], np.int64)
    return nodes, hops_within(indptr, indices, nodes, len(seeds), num_layers)
