"""What GraphBolt is told to do: int32 topology in memory, its own pipeline for the loader.

Runs in any Python that has ``dgl.graphbolt`` (2.1.0 imports with torch 2.2.1 and older only).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from tests.benchmarks.memory import on_huge_pages
from tests.benchmarks.seeds import BATCH_SIZE, seeds_of_turn
from tests.benchmarks.serve import serve
from tests.benchmarks.stored_arrays import stored_arrays
from tests.benchmarks.timing import steady_ms, timed

warnings.filterwarnings("ignore")
import dgl.graphbolt as gb  # noqa: E402  it warns on import


class PeerGraphBolt:
    """Over int32 indices; topology and features lie where ours do: mapped, or in memory on 2 MB pages."""

    def __init__(self, folder: str, in_memory: bool = False) -> None:
        arrays = stored_arrays(folder)
        indptr, indices = (arrays[name] for name in ("indptr", "indices"))
        if in_memory:
            indptr, indices = on_huge_pages(indptr), on_huge_pages(indices)
        self.graph = gb.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
        self.train = np.array(arrays["train"])
        self.x, self.y = (torch.from_numpy(arrays[name]) for name in ("x", "y"))

    def sample(self, turn: int, num_batches: int, fanouts: list[int]) -> dict[str, Any]:
        """What its pipeline calls for each batch, without the pipeline."""
        batches = [torch.from_numpy(seeds).int() for seeds in seeds_of_turn(self.train, turn, num_batches)]
        hops = [torch.tensor([fanout]) for fanout in fanouts]
        num_edges = 0

        def sample(nodes: torch.Tensor) -> None:
            nonlocal num_edges
            for fanout in hops:
                drawn = self.graph.sample_neighbors(nodes, fanout)
                nodes, block = gb.unique_and_compact_csc_formats(drawn.sampled_csc, nodes)
                num_edges += block.indices.numel()

        return timed(sample, batches) | {"edges": num_edges / num_batches}

    def load(self, turn: int, num_batches: int, fanouts: list[int], num_workers: int) -> dict[str, Any]:
        torch.manual_seed(turn)
        train = torch.from_numpy(self.train)
        items = gb.ItemSet((train.int(), self.y[train]), names=("seed_nodes", "labels"))
        store = gb.BasicFeatureStore({("node", None, "feat"): gb.TorchBasedFeature(self.x)})
        pipe = gb.ItemSampler(items, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
        pipe = pipe.sample_neighbor(self.graph, list(reversed(fanouts)))
        pipe = pipe.fetch_feature(store, node_feature_keys=["feat"])
        loader = gb.DataLoader(pipe, num_workers=num_workers, persistent_workers=False)
        return steady_ms(loader, num_batches, num_workers=num_workers)


if __name__ == "__main__":
    serve(PeerGraphBolt)
