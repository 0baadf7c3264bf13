"""Neighbourhood sampling, node by node.

Shapes: N graph nodes, E edges, K edge types, S seeds, L hops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from ..errors import SamplerConfigError
from .checks import as_flag, as_integer, as_list, check_array, check_choice, check_kind
from .dispatch import ALL_NEIGHBORS, MAX_FANOUT, MAX_HOPS, DrawKey, SampleLayout, check_hops, kernels
from .inputs import SamplerInput
from .queries import Queries, native_queries
from .typed_lists import MAX_EDGE_TYPES, TypedLists, check_lists

# Fewer than elsewhere: edge types take 12 of the 16 bits that number a draw's hop.
MAX_TYPED_HOPS: int = kernels.MAX_TYPED_HOPS


def sample_neighbors(
    inputs: SamplerInput,
    fanouts: Sequence[int],
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
) -> SampleLayout:
    """Samples the neighbourhood of the seeds into the arena: a pure function of everything but the workspace.

    ``nodes`` are in order of first occurrence, seeds first; destination ``j`` of every hop is ``nodes[j]``. Picks are
    in the order of draws, or in adjacency order where all neighbours are taken. ``fanouts`` come nearest hop first, -1
    takes all. With ``expand="all"`` every node known so far is a destination of the next hop (DGL); with ``"new"`` only
    those that the last hop found (PyG), and the hops share one ``indptr`` and one ``indices``, each a prefix of the
    next.

    Source: GraphSAGE (NIPS'17), section 3.1; TurboGNN, section III-B for the kernel that this one does without.
    """
    check_kind("inputs", inputs, SamplerInput)
    fanouts = check_fanouts(fanouts)
    check_hops("fanouts", len(fanouts), inputs.key)
    check_choice("expand", expand, ("all", "new"))
    return SampleLayout.of(
        kernels.sample_neighbors(
            inputs.native, fanouts, as_flag("replace", replace), expand == "new", as_flag("edge_ids", edge_ids)
        )
    )


def sample_typed_neighbors(
    inputs: SamplerInput,
    lists: TypedLists,
    fanouts: np.ndarray,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
    pick: Literal["uniform", "last"] = "uniform",
    queries: Queries | None = None,
) -> SampleLayout:
    """Samples as :func:`sample_neighbors` does, with a fanout for each edge type, and for each seed the edges that its
    query counts; the hops carry edge types, unless ``lists.is_untyped``.

    A node's edges are in the order of its runs, and each run is drawn from as if there were no others. Within a run,
    picks are in the order of draws, or in list order where all that count are taken and where ``pick="last"`` takes, of
    types with times, the newest, and of equal times those with the largest edge id. A node belongs to the query that it
    was found for: ``nodes`` has one entry for each query and node, and the layout tells the query of each.

    Args:
        fanouts: int64 ``[L, K]``, of each hop, nearest first, and edge type; 0 draws nothing, -1 takes all.
        queries: what the seeds ask for. None: all edges, drawn by the names of the batch.
    """
    check_kind("inputs", inputs, SamplerInput)
    check_kind("lists", lists, TypedLists)
    check_choice("expand", expand, ("all", "new"))
    check_choice("pick", pick, ("uniform", "last"))
    fanouts = check_fanout_table(fanouts, lists, inputs)
    replace = as_flag("replace", replace)
    if pick == "last" and replace:
        raise SamplerConfigError('pick="last" takes the newest edges, each once: leave out replace=True.')
    return SampleLayout.of(
        kernels.sample_typed(
            inputs.native,
            lists.native,
            fanouts.ravel().tolist(),
            fanouts.shape[1],
            lists.is_untyped,
            replace,
            pick == "last",
            expand == "new",
            as_flag("edge_ids", edge_ids),
            None if queries is None else native_queries(queries, lists, inputs),
        )
    )


def fanout_table(fanouts: Sequence[int | Mapping[int, int]], num_edge_types: int) -> np.ndarray:
    """Returns int64 ``[L, K]`` of fanouts by hop and edge type, as :func:`sample_typed_neighbors` takes them, of one
    number for every type or of ``{type: fanout}``, where types left out draw nothing.

    Example:
        >>> fanout_table([{0: 5}, -1], num_edge_types=2).tolist()
        [[5, 0], [-1, -1]]
    """
    fanouts = as_list("fanouts", fanouts)
    num_edge_types = as_integer("num_edge_types", num_edge_types)
    if not 0 <= num_edge_types <= MAX_EDGE_TYPES:
        raise SamplerConfigError(f"num_edge_types is {num_edge_types}, but must lie in [0, {MAX_EDGE_TYPES}].")
    table = np.zeros((len(fanouts), max(num_edge_types, 1)), np.int64)
    for row, hop in zip(table, fanouts, strict=True):
        if not isinstance(hop, Mapping):
            [row[:]] = check_fanouts([hop])
            continue
        for edge_type, fanout in hop.items():
            if not 0 <= as_integer("fanouts: an edge type", edge_type) < len(row):
                raise SamplerConfigError(
                    f"fanouts name edge type {edge_type}, but the graph's edge types lie in [0, {len(row)})."
                )
            [row[edge_type]] = check_fanouts([fanout])
    return table


def check_fanout_table(fanouts: np.ndarray, lists: TypedLists, inputs: SamplerInput) -> np.ndarray:
    """Returns fanouts int64 ``[L, K]``, by hop and edge type, once they and the lists fit the input's graph."""
    check_lists(lists, inputs)
    return check_typed_fanouts(fanouts, lists.num_edge_types, lists.is_untyped, inputs.key)


def check_typed_fanouts(fanouts: np.ndarray, num_edge_types: int, is_untyped: bool, key: DrawKey) -> np.ndarray:
    """Checks fanouts int64 ``[L, K]`` of lists with so many edge types, and returns them.

    Raises:
        SamplerConfigError: another dtype or shape, a number that is no fanout, 0 or -1, or too many hops.
    """
    check_array("fanouts", fanouts, (np.int64,), 2, SamplerConfigError)
    if fanouts.shape[1] != max(num_edge_types, 1):
        raise SamplerConfigError(
            f"fanouts has shape {list(fanouts.shape)}, but one of each hop and edge type is needed, and the graph has "
            f"{num_edge_types} edge types: fanout_table() makes such an array."
        )
    if fanouts.size and not ALL_NEIGHBORS <= fanouts.min() <= fanouts.max() <= MAX_FANOUT:
        bad = fanouts[(fanouts < ALL_NEIGHBORS) | (fanouts > MAX_FANOUT)][0]
        raise SamplerConfigError(
            f"fanouts hold {bad}, but must lie in [1, {MAX_FANOUT}], or be 0 for none, or -1 for all."
        )
    most_hops = MAX_HOPS if is_untyped else MAX_TYPED_HOPS
    check_hops("fanouts, with one an edge type,", len(fanouts), key, most_hops)
    return fanouts


def check_fanouts(fanouts: Sequence[int]) -> list[int]:
    """Returns fanouts as plain integers; raises SamplerConfigError where one is no fanout."""
    fanouts = as_list("fanouts", fanouts)
    for hop, fanout in enumerate(fanouts):
        if type(fanout) is not int:
            fanouts[hop] = fanout = as_integer(f"fanouts[{hop}]", fanout)  # native code takes plain integers only
        if fanout != ALL_NEIGHBORS and not 1 <= fanout <= MAX_FANOUT:
            raise SamplerConfigError(
                f"fanouts[{hop}] is {fanout}, but must lie in [1, {MAX_FANOUT}], or be -1 for all."
            )
    return fanouts
