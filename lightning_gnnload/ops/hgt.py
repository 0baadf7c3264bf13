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

MAX_NEIGHBORS = 50
"""Of so many in-neighbours by edges of one type, at most, a node adds to the budgets, as in torch-sparse."""


def sample_hgt(
    inputs: SamplerInput,
    lists: DenseLists,
    num_samples: np.ndarray,
    *,
    num_layers: int,
    max_neighbors: int = MAX_NEIGHBORS,
    edge_ids: bool = False,
) -> SampleLayout:
    """Samples nodes by budgets, and all edges among them, into the arena.

    A pure function of everything but the workspace. A node of the batch gives each of its in-neighbours outside, for
    each edge type, a share of one; what a node was given is its budget. A hop takes ``num_samples`` nodes of each type
    of those that have a budget, without replacement, in proportion to its square, and these then give shares of their
    own. ``nodes`` are the seeds, then hop by hop, in ascending order, those that it took. Every node keeps all its
    in-neighbours among them, in adjacency order. All hops share one ``indptr`` and one ``indices``: the nearest has
    the seeds as destinations, the others all nodes; they carry edge types.

    Args:
        inputs: the graph and seeds, the key that decides every draw, and the arena.
        lists: the graph's, by type.
        num_samples: int64 ``[L, T]``, 0 or more, of each hop and node type.
        num_layers: hops to lay out, at least 1, whatever L is.
        max_neighbors: where more edges of a type lead into a node, so many are drawn, uniformly, and these alone get
            shares; -1: there is no bound.
        edge_ids: also write each edge's position in ``indices``.

    Raises:
        SeedError: a seed out of range or repeated.
        SamplerConfigError: numbers of samples that are negative or not one a node type, a bound of 0 or below -1, more
            than 16 hops, no layers, lists of another graph, or a batch beyond int32 local ids.
        ArenaTooSmall: sample again with at least ``needed_bytes``.

    Source: Hu et al., "Heterogeneous graph transformer" (WWW'20), section 4.2, algorithms 1 and 2.
    """
    check_kind("inputs", inputs, SamplerInput)
    check_kind("lists", lists, DenseLists)
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
