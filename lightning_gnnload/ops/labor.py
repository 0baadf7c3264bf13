"""Layer-neighbour sampling (LABOR).

Shapes: N graph nodes, E edges, S seeds, L hops, K edge types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..errors import SamplerConfigError
from .checks import as_flag, as_integer, check_choice, check_kind
from .dispatch import SampleLayout, check_hops, kernels
from .inputs import SamplerInput
from .neighbors import check_fanout_table, check_fanouts
from .typed_lists import TypedLists

UNTIL_CONVERGED = -1


def sample_labor(
    inputs: SamplerInput,
    fanouts: Sequence[int] | np.ndarray,
    *,
    lists: TypedLists | None = None,
    importance: int = 0,
    layer_dependency: bool = False,
    fixed_count: bool = False,
    estimate: Literal["mean", "sum"] = "mean",
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
) -> SampleLayout:
    """Samples about ``fanout`` in-neighbours of each node into the arena, the same for nodes that share neighbours.

    A pure function of everything but the workspace, laid out as by :func:`.sample_neighbors`, with picks in adjacency
    order. Edge weights are written where they differ: with importance, and for sums. ``fanouts`` are expected numbers,
    nearest hop first, -1 for all; with ``lists``, int64 ``[L, K]``, 0 for none: each run is drawn from by itself, a
    source has a draw for each edge type, and hops carry edge types.

    ``importance`` counts iterations that prefer shared neighbours, -1 until they converge; ``fixed_count`` keeps the
    ``fanout`` neighbours of the smallest draws. Both, and importance with ``lists``, exclude each other.
    ``layer_dependency`` gives a source one draw for all hops. Weights of inverse probability average to 1 over a
    destination's edges for ``estimate="mean"``.

    Raises SeedError for a seed out of range or repeated; SamplerConfigError for settings that do not work, or a batch
    beyond int32 local ids; ArenaTooSmall, after which to sample again with ``needed_bytes``.

    Source: Balin & Catalyurek, "Layer-neighbor sampling" (NeurIPS'23), section 3 and appendix A.3.
    """
    check_kind("inputs", inputs, SamplerInput)
    importance = check_importance(importance, fixed_count)
    if lists is None:
        flat = check_fanouts(fanouts)  # type: ignore[arg-type]
        check_hops("fanouts", len(flat), inputs.key)
    else:
        check_kind("lists", lists, TypedLists)
        flat = check_fanout_table(fanouts, lists, inputs).ravel().tolist()  # type: ignore[arg-type]
        check_no_importance(importance)
    check_choice("estimate", estimate, ("mean", "sum"))
    check_choice("expand", expand, ("all", "new"))
    return SampleLayout.of(
        kernels.sample_labor(
            inputs.native,
            None if lists is None else lists.native,
            flat,
            1 if lists is None else max(lists.num_edge_types, 1),
            importance,
            as_flag("layer_dependency", layer_dependency),
            as_flag("fixed_count", fixed_count),
            estimate == "sum",
            expand == "new",
            as_flag("edge_ids", edge_ids),
        )
    )


def check_no_importance(importance: int) -> None:
    """Raises SamplerConfigError where importance is to be used in a graph with types."""
    if importance:
        raise SamplerConfigError(
            f"importance={importance} is solved for whole lists, but in a graph with types each edge type is drawn "
            "from by itself. Set importance=0."
        )


def check_importance(importance: int, fixed_count: bool) -> int:
    """Returns ``importance`` as an integer; raises SamplerConfigError where it is none, or excludes ``fixed_count``."""
    importance = as_integer("importance", importance)
    if not UNTIL_CONVERGED <= importance < 1 << 31:
        raise SamplerConfigError(
            f"importance is {importance}, but must be a number of iterations, or -1 to iterate until they converge."
        )
    if as_flag("fixed_count", fixed_count) and importance:
        raise SamplerConfigError(
            f"fixed_count=True and importance={importance} exclude each other: importance gives each neighbour a "
            "probability of its own, and counts vary. Set importance=0, or fixed_count=False."
        )
    return importance
