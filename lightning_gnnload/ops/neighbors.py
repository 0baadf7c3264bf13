"""Neighbourhood sampling, node by node.

Shapes: N graph nodes, E edges, S seeds, L hops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ..errors import SamplerConfigError
from .checks import as_flag, as_integer, as_list, check_choice, check_kind
from .dispatch import ALL_NEIGHBORS, MAX_FANOUT, SampleLayout, check_hops, kernels
from .edge_types import EdgeTypeIndex
from .inputs import SamplerInput

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

    ``nodes`` are in order of first occurrence, seeds first; destination ``j`` of every hop is ``nodes[j]``.
    Picks are in the order of draws, or in adjacency order where all neighbours are taken. With
    ``expand="new"`` the hops share one ``indptr`` and one ``indices``, each hop a prefix of the next.

    Args:
        inputs: the graph and seeds, the key that decides every draw, and the arena.
        fanouts: neighbours a node at each hop, nearest hop first; -1 takes all.
        replace: draw each neighbour independently.
        expand: ``"all"``: every node known so far is a destination of the next hop (DGL); ``"new"``: only
            those that the last hop found (PyG).
        edge_ids: also write each edge's position in ``indices``.

    Raises:
        SeedError: a seed out of range or repeated.
        SamplerConfigError: a fanout of 0 or below -1, or a batch beyond int32 local ids.
        ArenaTooSmall: sample again with at least ``needed_bytes``.

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
    types: EdgeTypeIndex,
    fanouts: Sequence[int | Mapping[int, int]],
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
) -> SampleLayout:
    """Samples as :func:`sample_neighbors` does, with a fanout for each edge type; the hops carry edge types.

    A node's edges are in ascending order of type; each type's in-neighbours are drawn from as if there were no
    others.

    Args:
        types: of this graph, by :func:`.index_edge_types`.
        fanouts: for each hop, nearest first, ``{type: fanout}``, where types left out draw nothing; or one number
            for every type.

    Raises:
        SamplerConfigError: also for more than 16 hops, and for a type that the graph does not have.
    """
    check_kind("inputs", inputs, SamplerInput)
    check_kind("types", types, EdgeTypeIndex)
    if len(types.run_ptr) != len(inputs.indptr):
        raise SamplerConfigError(
            f"types index {len(types.run_ptr) - 1} nodes, but the graph has {len(inputs.indptr) - 1}: index this "
            "graph's."
        )
    fanouts = as_list("fanouts", fanouts)
    check_hops("fanouts, with one an edge type,", len(fanouts), inputs.key, MAX_TYPED_HOPS)
    check_choice("expand", expand, ("all", "new"))
    num_types = max(types.num_types, 1)
    table = [fanout for hop in fanouts for fanout in _fanouts_of_types(hop, num_types)]
    return SampleLayout.of(
        kernels.sample_typed(
            inputs.native,
            types.run_ptr,
            types.run_type,
            types.run_end,
            types.order,
            table,
            num_types,
            as_flag("replace", replace),
            expand == "new",
            as_flag("edge_ids", edge_ids),
        )
    )


def _fanouts_of_types(fanouts: int | Mapping[int, int], num_types: int) -> list[int]:
    if not isinstance(fanouts, Mapping):
        return check_fanouts([fanouts]) * num_types
    # The kernel draws nothing for a fanout of 0, which callers say by leaving the type out.
    table = [0] * num_types
    for kind, fanout in fanouts.items():
        if not 0 <= as_integer("fanouts: an edge type", kind) < num_types:
            raise SamplerConfigError(
                f"fanouts name edge type {kind}, but the graph's edge types lie in [0, {num_types})."
            )
        [table[kind]] = check_fanouts([fanout])
    return table


def check_fanouts(fanouts: Sequence[int]) -> list[int]:
    """Returns fanouts as plain integers; raises SamplerConfigError where one is no fanout."""
    fanouts = [as_integer(f"fanouts[{hop}]", fanout) for hop, fanout in enumerate(as_list("fanouts", fanouts))]
    for hop, fanout in enumerate(fanouts):
        if fanout != ALL_NEIGHBORS and not 1 <= fanout <= MAX_FANOUT:
            raise SamplerConfigError(
                f"fanouts[{hop}] is {fanout}, but must lie in [1, {MAX_FANOUT}], or be -1 for all."
            )
    return fanouts
