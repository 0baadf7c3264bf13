"""What this folder uses of PyG beyond what PyG documents: when a new release breaks something, look here first."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data.remote_backend_utils import num_nodes as num_nodes
from torch_geometric.loader.utils import index_select as index_select
from torch_geometric.sampler import HeteroSamplerOutput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import NumNeighbors as NumNeighbors
from torch_geometric.sampler.base import SubgraphType as SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample
from torch_geometric.typing import TensorFrame as TensorFrame


def seeds_of(
    inputs: Any, num_nodes: Any, disjoint: bool, negatives: NegativeSampling | None
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Returns the seeds, their times, and the metadata of PyG's sampler output for the nodes or links of ``inputs``."""
    calls: list[tuple[Any, Any]] = []

    # PyG's rules on which seeds links and negatives come to, in which order, with which times and metadata, are in
    # these two functions of its samplers. Both expect a function that samples: this one notes what it is called with,
    # and returns an output without nodes, to which PyG adds the metadata. So the rules need no copy here.
    def note(seed: Any, seed_time: Any) -> SamplerOutput | HeteroSamplerOutput:
        calls.append((seed, seed_time))
        if isinstance(seed, dict):
            return HeteroSamplerOutput({}, {}, {}, {}, batch={})
        nothing = torch.empty(0, dtype=torch.long)
        return SamplerOutput(nothing, nothing, nothing, nothing, batch=nothing)

    if isinstance(inputs, NodeSamplerInput):
        output = node_sample(inputs, note)
    else:
        output = edge_sample(inputs, note, num_nodes, disjoint, neg_sampling=negatives)
    [(seed, seed_time)] = calls
    return seed, seed_time, output.metadata
