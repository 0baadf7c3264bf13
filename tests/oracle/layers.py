"""Oracle of layer-wise sampling.

Factors are Python floats, which are the kernel's doubles: where two integers are divided, each becomes a float first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np

from lightning_gnnload.ops.dispatch import DrawKey
from lightning_gnnload.ops.layers import WHOLE_LAYER, LayerMethod
from lightning_gnnload.ops.philox import stream_keys

from .draws import NodeDraws, name_of
from .neighbors import Hop


@dataclass(frozen=True)
class LayerHop(Hop):
    """One hop, with ``edge_weights`` float32 ``[num_edges]``."""

    edge_weights: np.ndarray


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Some edges' weights as whole numbers, in units of which the greatest has 63 bits less those of their number."""
    _, exponent = math.frexp(max(weights, default=0))
    unit = Fraction(2) ** (exponent + len(weights).bit_length() - 63)
    return [max(1, int(Fraction(weight) / unit)) if weight > 0 else 0 for weight in weights]


def importances_of_list(weights: Sequence[int], num_destinations: int) -> list[int]:
    """What the edges into a destination add to their sources' importance, by their weights as whole numbers."""
    one = 2**62 >> num_destinations.bit_length()
    whole = sum(weights)
    return [max(1, one * weight // whole * weight // whole) if weight else 0 for weight in weights]


def importance_tree(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The Fenwick tree int64 ``[N + 1]``; see :func:`.layers.importance_tree`."""
    line = graph_importances(indptr, indices, weights)
    sums = [sum(line[i - (i & -i) : i]) for i in range(1, len(line) + 1)]
    return np.array([sum(importance > 0 for importance in line), *sums], np.int64)


def graph_importances(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None = None) -> list[int]:
    """Computes each node's importance to the whole graph."""
    num_nodes = len(indptr) - 1
    line = [0] * num_nodes
    for start, end in pairwise(indptr.tolist()):
        counts = list_weights(range(start, end), weights)
        for source, importance in zip(indices[start:end], importances_of_list(counts, num_nodes), strict=True):
            line[source] += importance
    return line


def list_weights(edges: Sequence[int], weights: np.ndarray | None) -> list[int]:
    """What these edges count: their weights as whole numbers, or 1 each."""
    return [1] * len(edges) if weights is None else whole_weights([float(weights[edge]) for edge in edges])


def draw_items(
    line: Mapping[int, int], budget: int, replace: bool, draws: NodeDraws, in_waves: bool = False
) -> dict[int, float]:
    """The factor of each item that is drawn from a line of items, given their importances: without replacement, items
    are taken off the line at once, or after each wave of draws."""
    line = {item: importance for item, importance in line.items() if importance > 0}
    if takes_all(budget, len(line), replace):
        return dict.fromkeys(line, 1.0)
    factors: dict[int, float] = {}
    left = sum(line.values())
    if in_waves and not replace:
        wave = 0
        while len(factors) < budget and line:
            length, of_wave = left, draws.of_wave(wave)
            missing = budget - len(factors)
            for j in range(missing + missing // 8 + 16):
                item = item_at(line, of_wave.below64(j, length))
                if item not in factors and len(factors) < budget:
                    factors[item] = (float(left) / float(line[item]) + float(budget - 1 - len(factors))) / float(budget)
                    left -= line[item]
            line = {item: importance for item, importance in line.items() if item not in factors}
            wave += 1
        return factors
    for j in range(budget if line else 0):
        item = item_at(line, draws.below64(j, left))
        if replace:
            factor = float(left) / (float(budget) * float(line[item]))
            factors[item] = factors.get(item, 0.0) + factor
        else:
            factors[item] = (float(left) / float(line[item]) + float(budget - 1 - j)) / float(budget)
            left -= line.pop(item)
    return factors


def item_at(line: Mapping[int, int], place: int) -> int:
    for item, importance in line.items():
        if place < importance:
            return item
        place -= importance
    raise IndexError(place)


def draw_edges(
    edges: Sequence[int], budget: int, replace: bool, draws: NodeDraws, weights: np.ndarray | None = None
) -> dict[int, float]:
    """The factor of each edge that is drawn from these: by weight, or uniformly where they have none."""
    if weights is not None:
        counts = dict(zip(edges, list_weights(edges, weights), strict=True))
        return draw_items(counts, budget, replace, draws, in_waves=True)
    if takes_all(budget, len(edges), replace):
        return dict.fromkeys(edges, 1.0)
    factors: dict[int, float] = {}
    for j in range(budget if edges else 0):
        last = len(edges) - 1 if replace else len(edges) - budget + j
        edge = edges[draws.below64(j, last + 1)]
        if edge in factors and not replace:
            edge = edges[last]
        factors[edge] = factors.get(edge, 0.0) + float(len(edges)) / float(budget)
    return factors


def takes_all(budget: int, num_items: int, replace: bool) -> bool:
    return budget == WHOLE_LAYER or (not replace and budget >= num_items)


def add_up(numbers: Iterable[float]) -> float:
    """Adds from left to right, without the compensation that ``sum`` has in some versions of Python."""
    total = 0.0
    for number in numbers:
        total += number
    return total


def sample_layers(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    budgets: Sequence[int],
    method: LayerMethod,
    key: DrawKey,
    *,
    replace: bool = False,
    normalize: bool = False,
    keep_known: bool = False,
    expand: Literal["all", "new"] = "all",
    num_drawn: int = 0,
    weights: np.ndarray | None = None,
    names: np.ndarray | None = None,
) -> tuple[np.ndarray, list[LayerHop]]:
    """``nodes`` int64 and the hops of a batch, nearest hop first; see :func:`.layers.sample_layers`."""
    local = {int(seed): i for i, seed in enumerate(seeds)}  # a dict keeps the order of insertion
    hop_indptr, hop_indices, edge_ids, values = [0] * (num_drawn + 1), list[int](), list[int](), list[float]()
    hops = []
    num_expanded = num_drawn
    draw_key, _ = stream_keys(key.seed, key.epoch)
    first_seed = name_of(int(seeds[0]), names) if len(seeds) else 0
    for hop, budget in enumerate(budgets):
        if expand == "all" and hop > 0:
            hop_indptr, hop_indices, edge_ids, values = [0], [], [], []
            num_expanded = 0
        known = list(local)
        rows = [range(int(indptr[node]), int(indptr[node + 1])) for node in known[num_expanded:]]
        draws, counted_by = NodeDraws(draw_key, key.step, key.hop + hop, first_seed), weights
        if method == "dsp":
            edges = [edge for row in rows for edge in row]
            if weights is not None and len(set(weights[edges])) == 1 and all(weights[edges] > 0):
                counted_by = None  # edges of one weight count as if they had none
            of_edge = draw_edges(edges, budget, replace, draws, counted_by)
        else:
            if method == "ladies":
                line = dict.fromkeys(known, 0)
                for row in rows:
                    counts = list_weights(row, weights)
                    for edge, importance in zip(row, importances_of_list(counts, len(rows)), strict=True):
                        source = int(indices[edge])
                        line[source] = line.get(source, 0) + importance
                if keep_known:
                    line.update(dict.fromkeys(known, 0))
            else:
                line = dict(enumerate(graph_importances(indptr, indices, weights)))
            of_node = draw_items(line, budget, replace, draws) if any(rows) else {}
            if keep_known:
                of_node.update(dict.fromkeys(known, 1.0))
            of_edge = {edge: of_node[node] for row in rows for edge in row if (node := int(indices[edge])) in of_node}
        for row in rows:
            counts = list_weights(row, counted_by)
            counted = zip(row, counts, strict=True)
            kept = {edge: of_edge[edge] * float(count) for edge, count in counted if count and edge in of_edge}
            divisor = add_up(kept.values()) if normalize else float(sum(counts))
            for edge, value in kept.items():
                source = int(indices[edge])
                hop_indices.append(local.setdefault(source, len(local)))
                edge_ids.append(edge)
                values.append(value / divisor)
            hop_indptr.append(len(hop_indices))
        num_expanded = len(known)
        hops.append(
            LayerHop(
                len(local),
                np.array(hop_indptr),
                np.array(hop_indices, np.int64),
                np.array(edge_ids, np.int64),
                np.array(values, np.float32),
            )
        )
    return np.array(list(local), np.int64), hops
