"""Neighbourhood sampling by edge weight, node by node.

Shapes: N graph nodes, E edges, S seeds, L hops, K edge types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..errors import SamplerConfigError
from .alias import AliasTable, check_table
from .checks import as_flag, check_choice, check_kind
from .dispatch import SampleLayout, check_hops, kernels
from .inputs import SamplerInput
from .neighbors import check_fanout_table, check_fanouts
from .queries import Queries, native_queries
from .typed_lists import TypedLists

MAX_WEIGHTED_FANOUT: int = kernels.MAX_WEIGHTED_FANOUT


def sample_weighted(
    inputs: SamplerInput,
    table: AliasTable,
    fanouts: Sequence[int] | np.ndarray,
    *,
    lists: TypedLists | None = None,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
    queries: Queries | None = None,
) -> SampleLayout:
    """Samples as :func:`.sample_neighbors` does, but in proportion to the edges' weights.

    Edges of weight zero are never taken. Without replacement a node draws by weight, removes what it drew, and draws
    again; it takes all edges of positive weight where there are no more than its fanout, which is at most 2**24. With
    ``lists``, each run is drawn from as if there were no others, ``fanouts`` are int64 ``[L, K]`` by hop and edge type,
    ``table`` is of the runs, and the hops carry edge types. Queries may have names alone, neither times nor excluded
    edges.
    """
    check_kind("inputs", inputs, SamplerInput)
    check_table(table, inputs.indptr if lists is None else lists.run_ptr, inputs.indices)
    if lists is None:
        flat = check_weighted_fanouts(fanouts)  # type: ignore[arg-type]
        check_hops("fanouts", len(flat), inputs.key)
    else:
        check_kind("lists", lists, TypedLists)
        flat = check_fanout_table(fanouts, lists, inputs).ravel().tolist()  # type: ignore[arg-type]
        check_weighted_fanouts([fanout for fanout in flat if fanout != 0])
    check_choice("expand", expand, ("all", "new"))
    if queries is not None and any(array is not None for array in (queries.since, queries.until, queries.excluded)):
        raise SamplerConfigError(
            "sample_weighted draws from all edges, as its table does: queries have neither since, until nor excluded."
        )
    return SampleLayout.of(
        kernels.sample_weighted(
            inputs.native,
            None if lists is None else lists.native,
            table.entries,
            flat,
            1 if lists is None else max(lists.num_edge_types, 1),
            as_flag("replace", replace),
            expand == "new",
            as_flag("edge_ids", edge_ids),
            None if queries is None else native_queries(queries, lists, inputs),
        )
    )


def check_weighted_fanouts(fanouts: Sequence[int]) -> list[int]:
    """Returns fanouts as integers; raises SamplerConfigError where one is none, or too large to draw by weight."""
    fanouts = check_fanouts(fanouts)
    if max(fanouts, default=0) > MAX_WEIGHTED_FANOUT:
        raise SamplerConfigError(f"fanouts has {max(fanouts)}, but by weight at most {MAX_WEIGHTED_FANOUT} are drawn.")
    return fanouts
