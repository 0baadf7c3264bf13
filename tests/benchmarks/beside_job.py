"""Trains over parts with FactoredStrategy, a model that computes nothing: ``beside.py`` starts it.

Argument: JSON with the graph's name, the folder of its partition, which ranks there are, and how many steps to take.
Each sampler writes what it did to ``<local rank>.json`` in the folder of the partition.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.ops import Draw
from lightning_gnnload.plugin.module import partition
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from tests.benchmarks.cross_parts import GRAPHS

FANOUTS, TIMEOUT_S = [10, 10, 10], 300


class Nothing(pl.LightningModule):
    """Reads mini-batches as fast as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.weight.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def count() -> dict[str, Any]:
    """Counts what this rank samples together with others."""
    done: dict[str, Any] = dict.fromkeys(("batches", "seeds", "foreign", "rows", "seconds"), 0)
    draw_one = CollectiveSampler.draw

    def counted(self: CollectiveSampler, graph: Any, draw: Draw, memory: np.ndarray) -> Any:
        began, seeds = time.monotonic(), draw.seeds
        layout = draw_one(self, graph, draw, memory)
        done["seconds"] += time.monotonic() - began
        done["batches"] += 1
        done["seeds"] += len(seeds)
        done["foreign"] += int(np.count_nonzero(self.colleagues.partition.part_of(seeds) != self.colleagues.rank))
        done["rows"] += layout.num_nodes
        traffic = self.colleagues.traffic.values()
        for name in ("num_nodes", "num_remote", "num_bytes"):
            done[name] = sum(getattr(each, name) for each in traffic)
        return layout

    CollectiveSampler.draw = counted  # type: ignore[method-assign]
    return done


def shuffled_over_all_parts(seeds: Any, inner: SeedOrder, **_: Any) -> SeedOrder:
    """In the place of LocalOrder: the order of a graph without parts, whose steps samplers deal out in turn."""
    return inner


def main(graph: str, folder: str, samplers: int, trainers: int, is_local: bool, steps: int, batch_size: int) -> None:
    if not is_local:
        partition.LocalOrder = shuffled_over_all_parts  # type: ignore[misc, assignment]
    done = count()
    pl.seed_everything(0, verbose=False)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=samplers + trainers,
        strategy=FactoredStrategy(samplers=samplers, sampler_threads=1, connect_timeout_s=TIMEOUT_S),
        max_epochs=1,
        limit_train_batches=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = GraphDataModule(GRAPHS[graph], NeighborSampler(FANOUTS), batch_size=batch_size, partition=folder)
    trainer.fit(Nothing(), module)
    if done["batches"]:
        (Path(folder) / f"{trainer.local_rank}.json").write_text(json.dumps(done))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
