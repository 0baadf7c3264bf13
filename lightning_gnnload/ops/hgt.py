"""HGT's budget sampling: so many nodes of each type a hop, and the subgraph that they induce.

Shapes: N graph nodes, E edges, T node types, S seeds, L hops.
"""

from __future__ import annotations

import numpy as np

from ..errors import SamplerConfigError
from .checks import as_flag, as_integer, check_array, check_kind
from .dispatch import ALL_NEIGHBORS, MAX_FANOUT, SampleLayout, check_hops, kernels
from .inputs import SamplerInput
from .neighbors import MAX_TYPED_HOPS
from .shadow import check_num_layers
from .typed_lists import DenseLists, check_lists

MAX_NEIGHBORS = 50  # of one edge type whose budgets a node adds to, at most: torch-sparse's number


def sample_hgt(
    inputs: SamplerInput,
    lists: DenseLists,
    num_samples: np.ndarray,
    *,
    num_layers: int,
    max_neighbors: int = MAX_NEIGHBORS,
    edge_ids: bool = False,
) -> SampleLayout:
    """Samples nodes by budgets, and all edges among them, into the arena: a pure function of everything but the
    workspace.

    A node of the batch gives each of its in-neighbours outside, for each edge type, a share of one; the sum of a node's
    shares is its budget. A hop takes ``num_samples``, int64 ``[L, T]``, nodes of each type that have a budget, without
    replacement, in proportion to its square, and these then give shares. Where more than ``max_neighbors`` edges of a
    type lead into a node, so many are drawn uniformly, and these alone get shares; -1: no bound. ``nodes`` are the
    seeds, then hop by hop, ascending, the nodes taken. Each keeps all its in-neighbours among them, in adjacency order.
    All ``num_layers`` hops, whatever L is, share one ``indptr`` and one ``indices`` with edge types: the nearest has
    the seeds as destinations, the others all nodes.

    Raises SeedError for a seed out of range or repeated; SamplerConfigError for settings that do not work, lists of
    another graph, more than 16 hops, or a batch beyond int32 local ids; ArenaTooSmall, after which to sample again with
    ``needed_bytes``.

    Source: Hu et al., "Heterogeneous graph transformer" (WWW'20), section 4.2, algorithms 1 and 2.
    """
    check_kind("inputs", inputs, SamplerInput)
    check_kind("lists", lists, DenseLists)
    # Before the numbers of samples, which are counted by the lists' node types.
    check_lists(lists, inputs)
    check_array("num_samples", num_samples, (np.int64,), 2, SamplerConfigError)
    num_types = len(lists.first_node) - 1
    if num_samples.shape[1] != num_types:
        raise SamplerConfigError(
            f"num_samples has shape {list(num_samples.shape)}, but one of each hop and node type is needed, and the "
            f"graph has {num_types} node types."
        )
    if num_samples.size and num_samples.min() < 0:
        raise SamplerConfigError(f"num_samples hold {num_samples.min()}, but must be 0 or more.")
    check_hops("num_samples", len(num_samples), inputs.key, MAX_TYPED_HOPS)
    return SampleLayout.of(
        kernels.sample_hgt(
            inputs.native,
            lists.native,
            num_samples.ravel().tolist(),
            len(num_samples),
            check_max_neighbors(max_neighbors),
            check_num_layers(num_layers),
            as_flag("edge_ids", edge_ids),
        )
    )


def check_max_neighbors(max_neighbors: int) -> int:
    """Returns ``max_neighbors`` as a plain integer; raises SamplerConfigError where it is no bound."""
    max_neighbors = as_integer("max_neighbors", max_neighbors)
    if max_neighbors != ALL_NEIGHBORS and not 1 <= max_neighbors <= MAX_FANOUT:
        raise SamplerConfigError(
            f"max_neighbors is {max_neighbors}, but must lie in [1, {MAX_FANOUT}], or be -1 for no bound."
        )
    return max_neighbors
