"""A small graph, and a model that writes down every batch it sees and every loss it computes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from lightning_gnnload import Graph, GraphData, GraphDataModule, MiniBatch, NeighborSampler
from lightning_gnnload.plugin.compat import pl

NUM_NODES, NUM_FEATURES, NUM_CLASSES = 2000, 16, 4
NUM_TRAIN, NUM_VAL, NUM_TEST = 320, 70, 50


def toy_data() -> GraphData:
    """Citation-like: a new node cites up to six older ones, most of its own class."""
    random = np.random.default_rng(0)
    dst = np.repeat(np.arange(1, NUM_NODES), 6)
    src = random.integers(0, dst)
    y = random.integers(NUM_CLASSES, size=NUM_NODES)
    x = (np.eye(NUM_CLASSES, NUM_FEATURES)[y] + random.normal(size=(NUM_NODES, NUM_FEATURES))).astype(np.float32)
    split = random.permutation(NUM_NODES)
    train, val, test, _ = np.split(split, np.cumsum([NUM_TRAIN, NUM_VAL, NUM_TEST]))
    return GraphData(Graph.from_coo(src, dst, num_nodes=NUM_NODES), x=x, y=y, train=train, val=val, test=test)


def toy_module(batch_size: int = 16, **settings: Any) -> GraphDataModule:
    return GraphDataModule(
        toy_data(), NeighborSampler([4, 3]), batch_size=batch_size, seed=5, predict="test", **settings
    )


class TwoValLoaders(GraphDataModule):
    """The validation seeds once, then the test seeds."""

    def val_dataloader(self) -> Any:
        return [self._loader("val"), self._loader("test")]


def digest(tensors: Any) -> str:
    """Of all bits of some tensors."""
    hashed = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        hashed.update(tensor.detach().contiguous().numpy().tobytes())
    return hashed.hexdigest()


def batch_digest(batch: MiniBatch) -> str:
    """Of everything in a mini-batch."""
    arrays = [array for block in batch.blocks for array in (block.indptr, block.indices)]
    arrays += [] if batch.rows is None else [batch.rows]
    named = (batch.tables, batch.positions, batch.seed_columns)
    return digest([batch.nodes, batch.x, batch.y, *arrays, *(rows for each in named for rows in each.values())])


def edges(batch: MiniBatch) -> list[tuple[int, int, int]]:
    """The sampled edges as (hop, source, destination) in the graph's ids."""
    found = []
    for hop, block in enumerate(reversed(batch.blocks)):
        src, dst = batch.nodes[block.indices.long()], batch.nodes[block.edge_dst()]
        found += [(hop, *edge) for edge in zip(src.tolist(), dst.tolist(), strict=True)]
    return found


class Recorder(pl.LightningModule):
    """Two SAGE layers without dropout. ``seen`` holds one entry a batch: where Lightning was, the batch, the loss."""

    def __init__(self, keep_edges: bool = False) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2 * NUM_FEATURES, 16)
        self.second = torch.nn.Linear(32, NUM_CLASSES)
        self.keep_edges = keep_edges
        self.seen: list[list[Any]] = []
        self.drawn: list[Any] = []

    def forward(self, batch: MiniBatch) -> torch.Tensor:
        x = batch.x
        for layer, block in zip((self.first, self.second), batch.blocks, strict=True):
            mean = functional.embedding_bag(block.indices, x, block.indptr, mode="mean", include_last_offset=True)
            x = layer(torch.cat([x[: block.num_dst], mean], dim=1).relu())
        return x

    def look(self, phase: str, batch: MiniBatch, batch_idx: int, loader: int = 0) -> torch.Tensor:
        loss = functional.cross_entropy(self(batch), batch.y)
        if self.trainer.sanity_checking:
            phase = "sanity"
        at = [phase, loader, self.trainer.current_epoch, self.trainer.global_step, batch_idx]
        self.seen.append([*at, batch_digest(batch), loss.item().hex()])
        if self.keep_edges:
            self.drawn.append([phase, batch.seeds.tolist(), edges(batch)])
        return loss

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        loss = self.look("train", batch, batch_idx)
        if not self.trainer.barebones:
            self.log("train_loss", loss, batch_size=batch.num_seeds)
        return loss

    def validation_step(self, batch: MiniBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        loss = self.look("val", batch, batch_idx, dataloader_idx)
        self.log("val_loss", loss, batch_size=batch.num_seeds, sync_dist=True)

    def test_step(self, batch: MiniBatch, batch_idx: int) -> None:
        self.log("test_loss", self.look("test", batch, batch_idx), batch_size=batch.num_seeds, sync_dist=True)

    def predict_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        self.look("predict", batch, batch_idx)
        return batch.seeds  # a view of the slot: whoever keeps predictions keeps slots

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)
