"""Our loaders under PyG's own names, as a script that exchanges the names has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from lightning_gnnload import pyg

if TYPE_CHECKING:
    import torch_geometric.loader
    from torch_geometric.data import Data, HeteroData

EDGES = torch.tensor([[1, 2, 3], [0, 0, 1]])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("NeighborLoader", {"num_neighbors": [-1]}),
        ("LinkNeighborLoader", {"num_neighbors": [-1]}),
        ("ShaDowKHopSampler", {"depth": 1, "num_neighbors": 2}),
        ("HGTLoader", {"num_samples": [4], "input_nodes": "paper"}),
    ],
)
def test_a_loader_takes_the_name_of_pygs(monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, Any]) -> None:
    # Bases that are looked up under these names when a loader is made would be ours by then.
    monkeypatch.setattr(torch_geometric.loader, name, getattr(pyg, name))
    data: Any = Data(edge_index=EDGES, num_nodes=4)
    if name == "HGTLoader":
        data = HeteroData({"paper": {"num_nodes": 4}, ("paper", "cites", "paper"): {"edge_index": EDGES}})
    loader = getattr(torch_geometric.loader, name)(data, **arguments, batch_size=4)
    assert len(list(loader)) == 1
