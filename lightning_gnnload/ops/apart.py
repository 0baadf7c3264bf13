"""Layer-wise sampling of lists that lie apart: drawn by their lengths, or by what their edges weigh together.

Shapes: N nodes of a part, D destinations, E edges taken, n draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import GraphFormatError, SamplerConfigError, SeedError
from .checks import as_flag, as_integer, check_array, check_kind
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

    Args:
        degrees: int64 ``[D]``, the in-degrees of the destinations.
        budget: edges drawn; -1 takes all.
        key: decides every draw, with the seed; its ``hop`` is the layer's.
        first_seed: the name of the batch's first seed: its id in the whole graph.
        replace: draw with replacement; an edge that is drawn twice counts twice in the weights.
        normalize: make the weights of each destination add up to 1.

    Returns:
        ``counts`` int64 ``[D]``; ``places`` int64 ``[E]``, the places of the edges in their destinations' lists, and
        ``weights`` float32 ``[E]``: those of the first destination first, each in ascending order.

    Raises:
        SamplerConfigError: no budget, a degree not in [0, 2**32), or more edges than int32 can count.

    Source: DSP (PPoPP'23), section 4.2.

    Example:
        >>> counts, places, weights = draw_layer(np.array([1, 4]), -1, DrawKey(0, 0, 0), 7)
        >>> counts.tolist(), places.tolist(), weights.tolist()
        ([1, 4], [0, 0, 1, 2, 3], [1.0, 0.25, 0.25, 0.25, 0.25])
    """
    check_array("degrees", degrees, (np.int64,), 1, SamplerConfigError)
    check_kind("key", key, DrawKey)
    [budget] = check_budgets([budget])
    first_seed = _within("first_seed", first_seed, 0, MAX_NODES)
    if len(bad := np.flatnonzero((degrees < 0) | (degrees >= 1 << 32))):
        raise SamplerConfigError(f"degrees[{bad[0]}] is {degrees[bad[0]]}, but in-degrees lie in [0, 2**32).")
    num_edges = int(degrees.sum())
    # With replacement, too: an edge that is drawn twice is taken once, with twice the weight.
    most = num_edges if budget == WHOLE_LAYER else min(budget, num_edges)
    if most > _MAX_LOCAL:
        raise SamplerConfigError(
            f"The layer takes up to {most} edges, beyond int32 local ids. Use a smaller batch or smaller budgets."
        )
    counts, places, weights = np.empty(len(degrees), np.int64), np.empty(most, np.int64), np.empty(most, np.float32)
    taken = kernels.draw_layer(
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
        places,
        weights,
    )
    return counts, places[:taken], weights[:taken]


class LineUnits(NamedTuple):
    """The units in which the weights of a layer's edges are counted, as lengths of a line that is drawn from.

    Attributes:
        greatest: of the layer's weights.
        num_edges: of the layer.
    """

    greatest: float
    num_edges: int


def measure_lists(
    indptr: np.ndarray, weights: np.ndarray, rows: np.ndarray, units: LineUnits
) -> tuple[np.ndarray, int]:
    """Measures how long the stretches of some lists are on the line of a layer: what their edges weigh together.

    Args:
        indptr: int64 ``[N + 1]``, of a graph that passed :func:`.check_csc`.
        weights: float32 or float64, one an edge.
        rows: int64 ``[D]``, in ``[0, N)``: whose lists.
        units: of the layer.

    Returns:
        int64 ``[D]``, and how many edges of the lists weigh more than zero.

    Raises:
        SeedError: a row out of range.
        GraphFormatError: weights of another dtype or number, or one met that is none.
        SamplerConfigError: units of no layer.
    """
    _check_lists(indptr, weights, rows, units)
    lengths = np.empty(len(rows), np.int64)
    return lengths, kernels.measure_lists(indptr, weights, rows, *units, lengths)


class LineItems(NamedTuple):
    """The edges that lie at some places on the stretches of lists.

    Attributes:
        numbers: int64 ``[n]``, the edges' places in their lists.
        begins: int64 ``[n]``, where they begin on the stretches of these.
        lengths: int64 ``[n]``, how long they are.
        weights: float64 ``[n]``, what they weigh, in units of their lists.
        wholes: float64 ``[n]``, what these weigh in all.
    """

    numbers: np.ndarray
    begins: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray
    wholes: np.ndarray


def find_on_line(
    indptr: np.ndarray, weights: np.ndarray, rows: np.ndarray, units: LineUnits, places: np.ndarray
) -> LineItems:
    """Finds which edges lie at places on the stretches of lists. It takes what :func:`measure_lists` takes, and:

    Args:
        places: int64 ``[n]``, each from the beginning of its row's stretch on. In ascending order within a row, whose
            places stand together, they cost one pass over its list.

    Raises:
        SamplerConfigError: a place beyond its stretch.

    Example:
        >>> indptr, weights, rows = np.array([0, 2]), np.array([1.0, 3.0]), np.array([0, 0])
        >>> lengths, _ = measure_lists(indptr, weights, rows[:1], LineUnits(greatest=3.0, num_edges=2))
        >>> found = find_on_line(indptr, weights, rows, LineUnits(3.0, 2), np.array([0, lengths[0] // 4]))
        >>> found.numbers.tolist(), (found.weights / found.wholes).tolist()
        ([0, 1], [0.25, 0.75])
    """
    _check_lists(indptr, weights, rows, units)
    check_array("places", places, (np.int64,), 1, SamplerConfigError)
    if len(places) != len(rows) or (len(places) and places.min() < 0):
        raise SamplerConfigError(
            f"places has {len(places)} entries from {places.min(initial=0)} on for {len(rows)} rows: one of 0 or more "
            f"each is needed."
        )
    whole = [np.empty(len(rows), np.int64) for _ in range(3)]
    items = LineItems(*whole, *(np.empty(len(rows), np.float64) for _ in range(2)))
    kernels.find_on_line(indptr, weights, rows, *units, places, *items)
    return items


def draw_places(length: int, num_missing: int, key: DrawKey, first_seed: int, wave: int = 0) -> np.ndarray:
    """Draws the places of a wave on the line of a layer: int64, each exactly uniform in ``[0, length)``.

    Args:
        length: of what is left of the line, 1 to ``2**63 - 1``.
        num_missing: edges still to be drawn, 1 to a budget; there are as many places, and some more, since edges that
            come again are passed over.
        key: decides them, with the seed and the wave; its ``hop`` is the layer's.
        first_seed: the name of the batch's first seed: its id in the whole graph.
        wave: counts the waves of a layer (``kernels/sample_layers/draw_waves.h``).

    Raises:
        SamplerConfigError: one of them is out of range.

    Example:
        >>> draw_places(1, 2, DrawKey(0, 0, 0), 7)[:2].tolist()
        [0, 0]
    """
    check_kind("key", key, DrawKey)
    length = _within("length", length, 1, 1 << 63)
    num_missing = _within("num_missing", num_missing, 1, MAX_BUDGET + 1)
    first_seed, wave = _within("first_seed", first_seed, 0, MAX_NODES), _within("wave", wave, 0, 1 << 32)
    places = np.empty(kernels.places_of_wave(num_missing), np.int64)
    kernels.draw_places(key.seed, key.epoch, key.step, key.hop, first_seed, wave, length, places)
    return places


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
    _within("num_edges", units.num_edges, 0, 1 << 48)
    if not 0 <= units.greatest < np.inf:
        raise SamplerConfigError(f"greatest is {units.greatest}, but weights are finite and not negative.")


def _within(name: str, value: int, least: int, below: int) -> int:
    value = as_integer(name, value)
    if not least <= value < below:
        raise SamplerConfigError(f"{name} is {value}, but must lie in [{least}, {below}).")
    return value
