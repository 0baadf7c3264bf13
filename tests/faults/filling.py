"""Two samplers fill a cache together, of which the second one is slow, or hangs amid it.

Arguments: how, num_devices, and what the second sampler does: ``slow``, ``loops``, ``stopped`` or ``nothing``. The
trainer writes the digests of its batches.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from pytorch_lightning import Trainer, seed_everything

from lightning_gnnload import (
    FactoredStrategy,
    FeatureCache,
    FeatureStore,
    GraphData,
    GraphDataModule,
    MemoryFeatureStore,
    NeighborSampler,
)
from lightning_gnnload.cache import static
from lightning_gnnload.plugin.job import Role
from tests.faults.stores import StoreInFront
from tests.faults.takeover import STALL_TIMEOUT_S, lose
from tests.integration.scripts import launch
from tests.integration.scripts.toy import Recorder, toy_data

SETUP_TIMEOUT_S = 3.0 * launch.PATIENCE
PIECE_S = 0.6
NUM_PIECES = 16  # of each shard: twice as long as a sampler may get nowhere, and as others may wait for one that does
static._CHUNK_BYTES = 64 * 16 * 4  # 64 rows: 2000 nodes, half of them cached, are 16 pieces in two shards


class SlowStore(StoreInFront):
    """Rows that come slowly, on the second sampler."""

    def __init__(self, store: FeatureStore) -> None:
        super().__init__(store)
        self.does = "nothing"
        self.num_asked = 0

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        self.num_asked += 1
        if self.does == "slow" and self.num_asked <= NUM_PIECES:
            time.sleep(PIECE_S)
        elif self.does != "nothing" and self.num_asked == 4:
            lose(self.does)
            time.sleep(1)  # a signal that stops this process takes a moment, in which it could fill the rest
        self.store.gather(ids, out)


class SlowData(GraphDataModule):
    def __init__(self, does: str) -> None:
        data = toy_data()
        assert isinstance(data.x, MemoryFeatureStore)
        self.slow, self.does = SlowStore(data.x), does
        data = GraphData(data.graph, x=self.slow, y=data.y, train=data.train)
        super().__init__(data, NeighborSampler([4, 3]), batch_size=16, seed=5, cache=FeatureCache("degree", ratio=0.9))

    def setup(self, stage: str | None = None) -> None:
        assert self.trainer is not None
        strategy = self.trainer.strategy
        if strategy.role is Role.SAMPLER and strategy.roles.index(strategy.local_rank) == 1:
            Path("second").write_text(str(os.getpid()))
            self.slow.does = self.does
        super().setup(stage)


class Seen(Recorder):
    def teardown(self, stage: str) -> None:
        if self.trainer.strategy.role is Role.TRAINER:
            Path("seen.json").write_text(json.dumps(self.seen))


if __name__ == "__main__":
    how, devices, does = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    seed_everything(1, verbose=False)
    strategy = FactoredStrategy(
        2,
        stall_timeout_s=STALL_TIMEOUT_S,
        connect_timeout_s=30 * launch.PATIENCE,
        setup_timeout_s=SETUP_TIMEOUT_S,
        start_method=how if how in ("spawn", "fork") else "popen",
    )
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=strategy,
        # One step: the second sampler owes nothing, but what it fills.
        max_steps=1,
        limit_train_batches=1,
        limit_val_batches=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(Seen(), SlowData(does))
