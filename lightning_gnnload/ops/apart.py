"""Layer-wise sampling of lists that lie apart: drawn by their lengths alone.

Shapes: D destinations, E edges taken.
"""

from __future__ import annotations

import numpy as np

from ..errors import SamplerConfigError
from .checks import as_flag, as_integer, check_array, check_kind
from .dispatch import MAX_NODES, DrawKey, kernels
from .layers import WHOLE_LAYER, check_budgets

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
    first_seed = as_integer("first_seed", first_seed)
    if not 0 <= first_seed < MAX_NODES:
        raise SamplerConfigError(f"first_seed is {first_seed}, but must lie in [0, 2**48).")
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
