"""Trains a LightningModule with PyG's NeighborLoader, but for one line: the import of the loader.

python examples/pyg_one_import.py
"""

import torch
import torch.nn.functional as F
from pytorch_lightning import LightningModule, Trainer
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from lightning_gnnload.pyg import NeighborLoader  # was: from torch_geometric.loader import NeighborLoader


class Sage(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = GraphSAGE(in_channels=16, hidden_channels=32, num_layers=2, out_channels=4)

    def training_step(self, batch: Data) -> torch.Tensor:
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        return F.cross_entropy(out, batch.y[: batch.batch_size])

    def test_step(self, batch: Data) -> None:
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        accuracy = (out.argmax(dim=1) == batch.y[: batch.batch_size]).float().mean()
        self.log("accuracy", accuracy, batch_size=batch.batch_size)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def graph() -> Data:
    """A graph whose edges join nodes of one class, which their noisy features tell only in part."""
    torch.manual_seed(0)
    y = torch.randint(4, (4000,))
    by_class = y.argsort()
    near = (torch.arange(40_000) % 4000 + torch.randint(-300, 300, (40_000,))).clamp(0, 3999)
    data = Data(x=F.one_hot(y, 16) + 1.5 * torch.randn(4000, 16), y=y)
    data.edge_index = torch.stack([by_class[near], by_class[torch.arange(40_000) % 4000]])
    data.train_mask = torch.rand(4000) < 0.6
    return data


if __name__ == "__main__":
    data = graph()
    train = NeighborLoader(data, [10, 5], input_nodes=data.train_mask, batch_size=256, shuffle=True, num_workers=2)
    test = NeighborLoader(data, [10, 5], input_nodes=~data.train_mask, batch_size=256, num_workers=2)
    trainer = Trainer(accelerator="cpu", max_epochs=5, logger=False, enable_checkpointing=False)
    model = Sage()
    trainer.fit(model, train)
    trainer.test(model, test)
