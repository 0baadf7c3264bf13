"""Layer-wise sampling where the lists of a layer lie on several ranks: edges are drawn by the lists' lengths, or by the
sums of their weights.

Shapes: N nodes of a part, D destinations, E edges taken, n draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import GraphFormatError, SamplerConfigError, SeedError
from .checks import as_flag, as_integer_within, check_array, check_kind
from .dispatch import MAX_NODES, DrawKey, kernels
from .layers import MAX_BUDGET, WHOLE_LAYER, check_budgets

# Local ids of a batch are int32.
_MAX_LOCAL = 2**31 - 1


def draw_layer(
    degrees: np.ndarray,
    budget: int,
    key: DrawKey,
    first_seed: int,
    *,
    replace: bool = False,
    normalize: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws the edges that a layer takes, as :func:`.sample_layers` with ``method="dsp"`` does, without their sources.

    ``degrees``, int64 ``[D]``, are the destinations' in-degrees, and ``budget`` -1 takes all edges; ``first_seed`` is
    the global id of the batch's first seed, which the draws depend on. With replacement, an edge that is drawn twice
    counts twice in the weights. Returns ``counts`` int64 ``[D]``, and, destination by destination, ascending in each:
    the edges' positions in their lists, int64 ``[E]``, and their weights, float32 ``[E]``.

    Raises SamplerConfigError for no budget, a degree outside [0, 2**32), or more edges than int32 can count.

    Source: DSP (PPoPP'23), section 4.2.

    Example:
        >>> counts, positions, weights = draw_layer(np.array([1, 4]), -1, DrawKey(0, 0, 0), 7)
        >>> counts.tolist(), positions.tolist(), weights.tolist()
        ([1, 4], [0, 0, 1, 2, 3], [1.0, 0.25, 0.25, 0.25, 0.25])
    """
    check_array("degrees", degrees, (np.int64,), 1, SamplerConfigError)
    check_kind("key", key, DrawKey)
    [budget] = check_budgets([budget])
    first_seed = as_integer_within("first_seed", first_seed, 0, MAX_NODES - 1)
    if len(bad := np.flatnonzero((degrees < 0) | (degrees >= 1 << 32))):
        raise SamplerConfigError(f"degrees[{bad[0]}] is {degrees[bad[0]]}, but in-degrees lie in [0, 2**32).")
    num_edges = int(degrees.sum())
    # An upper bound with replacement as well, as an edge that is drawn twice is one edge of twice the weight.
    most = num_edges if budget == WHOLE_LAYER else min(budget, num_edges)
    if most > _MAX_LOCAL:
        raise SamplerConfigError(
            f"The layer takes up to {most} edges, beyond int32 local ids. Use a smaller batch or smaller budgets."
        )
    counts, positions, weights = np.empty(len(degrees), np.int64), np.empty(most, np.int64), np.empty(most, np.float32)
    num_taken = kernels.draw_layer(
        degrees,
        budget,
        as_flag("replace", replace),
        as_flag("normalize", normalize),
        key.seed,
        key.epoch,
        key.step,
        key.hop,
        first_seed,
        counts,
        positions,
        weights,
    )
    return counts, positions[:num_taken], weights[:num_taken]


def draw_nodes(
    tree: np.ndarray, budget: int, key: DrawKey, first_seed: int, *, replace: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the nodes that a layer takes, as :func:`.sample_layers` with ``method="fastgcn"`` does, without lists.

    ``tree`` is the whole graph's, by :func:`.importance_tree`; without replacement, at least ``budget`` nodes of it are
    of positive importance. ``first_seed`` is the global id of the batch's first seed. Returns nodes and factors, int64
    and float64 ``[budget]``, in the order of the draws; a node that is drawn twice comes twice.

    Raises SamplerConfigError for no budget, or a tree from which there are not so many to draw.

    Source: FastGCN (ICLR'18), section 3.

    Example:
        >>> tree = np.array([1, 0, 4, 0])  # of three nodes, of which the second alone has any importance
        >>> draw_nodes(tree, 1, DrawKey(0, 0, 0), 0)[0].tolist()
        [1]
    """
    check_array("tree", tree, (np.int64,), 1, SamplerConfigError)
    check_kind("key", key, DrawKey)
    replace = as_flag("replace", replace)
    budget = as_integer_within("budget", budget, 1, MAX_BUDGET)
    first_seed = as_integer_within("first_seed", first_seed, 0, MAX_NODES - 1)
    if len(tree) < 2 or tree[0] < (1 if replace else budget):
        raise SamplerConfigError(
            f"{budget} nodes are to be drawn from a tree in which {int(tree[0]) if len(tree) else 0} have any "
            "importance. Where the budget is enough for all, no node need be drawn: take them."
        )
    nodes, factors = np.empty(budget, np.int64), np.empty(budget, np.float64)
    kernels.draw_nodes(tree, budget, replace, key.seed, key.epoch, key.step, key.hop, first_seed, nodes, factors)
    return nodes, factors


class LineUnits(NamedTuple):
    """The units in which a layer's edges are measured, as lengths of a line to draw from: by the layer's greatest
    weight, and its number of edges."""

    greatest: float  # weight of the layer
    num_edges: int  # of the layer


def measure_lists(
    indptr: np.ndarray, weights: np.ndarray, rows: np.ndarray, units: LineUnits
) -> tuple[np.ndarray, int]:
    """Measures how long some lists are on a layer's line, int64 ``[D]``: the sums of their edges' weights, in its
    units. Also returns how many edges weigh more than zero.

    ``indptr`` is int64 ``[N + 1]``, ``weights`` float32 or float64, one an edge, ``rows`` int64 ``[D]`` in ``[0, N)``.
    Raises SeedError for a row out of range, GraphFormatError for weights that do not fit or are none,
    SamplerConfigError for units of no layer.
    """
    _check_lists(indptr, weights, rows, units)
    lengths = np.empty(len(rows), np.int64)
    return lengths, kernels.measure_lists(indptr, weights, rows, *units, lengths)


class LineItems(NamedTuple):
    """The edges at some positions of lists on a layer's line, one a position."""

    numbers: np.ndarray  # int64, the edges' positions in their lists
    begins: np.ndarray  # int64, where they begin on the stretches of these
    lengths: np.ndarray  # int64
    weights: np.ndarray  # float64, in units of their lists
    wholes: np.ndarray  # float64, the sums of the lists' weights


def find_on_line(
    indptr: np.ndarray, weights: np.ndarray, rows: np.ndarray, units: LineUnits, positions: np.ndarray
) -> LineItems:
    """Finds the edges at ``positions``, int64 ``[n]``, each counted from the beginning of its row's stretch. Ascending
    within a row, they cost one pass over its list. Other arguments and errors as in :func:`measure_lists`;
    SamplerConfigError for a position beyond its stretch.

    Example:
        >>> indptr, weights, rows = np.array([0, 2]), np.array([1.0, 3.0]), np.array([0, 0])
        >>> lengths, _ = measure_lists(indptr, weights, rows[:1], LineUnits(greatest=3.0, num_edges=2))
        >>> items = find_on_line(indptr, weights, rows, LineUnits(3.0, 2), np.array([0, lengths[0] // 4]))
        >>> items.numbers.tolist(), (items.weights / items.wholes).tolist()
        ([0, 1], [0.25, 0.75])
    """
    _check_lists(indptr, weights, rows, units)
    check_array("positions", positions, (np.int64,), 1, SamplerConfigError)
    if len(positions) != len(rows) or (len(positions) and positions.min() < 0):
        raise SamplerConfigError(
            f"positions has {len(positions)} entries from {positions.min(initial=0)} on for {len(rows)} rows: one of 0 "
            f"or more each is needed."
        )
    whole = [np.empty(len(rows), np.int64) for _ in range(3)]
    items = LineItems(*whole, *(np.empty(len(rows), np.float64) for _ in range(2)))
    kernels.find_on_line(indptr, weights, rows, *units, positions, *items)
    return items


def draw_places(length: int, num_missing: int, key: DrawKey, first_seed: int, wave: int = 0) -> np.ndarray:
    """Draws the positions of a wave on the line of a layer: int64, each exactly uniform in ``[0, length)``.

    There are ``num_missing`` of them and some more, since edges that come again are passed over. ``first_seed`` is the
    global id of the batch's first seed, ``wave`` counts the waves of a layer (``kernels/sample_layers/draw_waves.h``).
    Raises SamplerConfigError where a number is out of range.

    Example:
        >>> draw_places(1, 2, DrawKey(0, 0, 0), 7)[:2].tolist()
        [0, 0]
    """
    check_kind("key", key, DrawKey)
    length = as_integer_within("length", length, 1, (1 << 63) - 1)
    num_missing = as_integer_within("num_missing", num_missing, 1, MAX_BUDGET)
    first_seed, wave = (
        as_integer_within("first_seed", first_seed, 0, MAX_NODES - 1),
        as_integer_within("wave", wave, 0, (1 << 32) - 1),
    )
    positions = np.empty(kernels.places_of_wave(num_missing), np.int64)
    kernels.draw_places(key.seed, key.epoch, key.step, key.hop, first_seed, wave, length, positions)
    return positions


def _check_lists(indptr: np.ndarray, weights: np.ndarray, rows: np.ndarray, units: LineUnits) -> None:
    check_array("indptr", indptr, (np.int64,), 1, GraphFormatError)
    check_array("weights", weights, (np.float32, np.float64), 1, GraphFormatError)
    check_array("rows", rows, (np.int64,), 1, SeedError)
    check_kind("units", units, LineUnits)
    if len(indptr) == 0 or indptr[-1] != len(weights):
        raise GraphFormatError(
            f"weights has {len(weights)} entries, but the lists have {indptr[-1] if len(indptr) else 'no'} edges."
        )
    if len(rows) and not (rows.min() >= 0 and rows.max() < len(indptr) - 1):
        raise SeedError(f"rows span [{rows.min()}, {rows.max()}], but there are {len(indptr) - 1} lists.")
    as_integer_within("num_edges", units.num_edges, 0, (1 << 48) - 1)
    if not 0 <= units.greatest < np.inf:
        raise SamplerConfigError(f"greatest is {units.greatest}, but weights are finite and not negative.")
