"""ShaDow sampling: a scope around the seeds, and the subgraph that it induces.

Shapes: N graph nodes, E edges, S seeds, V nodes of the scope.
"""

from __future__ import annotations

from collections.abc import Sequence

from .checks import as_flag, as_integer_within, check_kind
from .dispatch import MAX_HOPS, SampleLayout, check_hops, kernels
from .inputs import SamplerInput
from .neighbors import check_fanouts


def sample_shadow(
    inputs: SamplerInput, fanouts: Sequence[int], *, num_layers: int, edge_ids: bool = False
) -> SampleLayout:
    """Samples the scope of the seeds and all edges within it into the arena: a pure function of everything but the
    workspace.

    ``nodes`` are those of :func:`.sample_neighbors` with ``expand="new"`` and these fanouts. Every node keeps its
    in-neighbours in the scope, in adjacency order. All ``num_layers`` hops share one ``indptr`` and one ``indices``:
    the nearest has the seeds as destinations, the others all nodes.

    Raises SeedError for a seed out of range or repeated; SamplerConfigError for a fanout of 0 or below -1, no layers,
    or a batch beyond int32 local ids; ArenaTooSmall, after which to sample again with ``needed_bytes``.

    Source: Zeng et al., "Decoupling the depth and scope of graph neural networks" (NeurIPS'21), section 3.
    """
    check_kind("inputs", inputs, SamplerInput)
    fanouts = check_fanouts(fanouts)
    check_hops("fanouts", len(fanouts), inputs.key)
    num_layers = check_num_layers(num_layers)
    return SampleLayout.of(kernels.sample_shadow(inputs.native, fanouts, num_layers, as_flag("edge_ids", edge_ids)))


def check_num_layers(num_layers: int) -> int:
    """Returns ``num_layers`` as a plain integer; raises SamplerConfigError where it counts no layers."""
    return as_integer_within("num_layers", num_layers, 1, MAX_HOPS)
