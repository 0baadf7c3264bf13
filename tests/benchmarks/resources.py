"""What cores by role are worth: epochs of one trainer and one sampler, with and without cores of their own.

``python -m tests.benchmarks.resources`` prints a Markdown table. The ways to run take turns, so that what else the
machine does meets all alike; the figures are medians, and ratios to the first row.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import nn
from torch.nn import functional

from lightning_gnnload import FactoredStrategy, GraphDataModule, MiniBatch, NeighborSampler, Synthetic
from tests.benchmarks.machine import Neighbours, describe

ROUNDS = 3
STEPS, WARM_UP = 40, 8
GRAPH = Synthetic("chung-lu", num_nodes=170_000, num_edges=1_200_000, num_features=128, train_fraction=0.54)
WAYS: dict[str, dict[str, Any]] = {
    "sampler and trainer share all cores": {"devices": 2},
    "each keeps to cores of its own": {"devices": 2, "pin_cores": True},
    "one rank samples and trains, in threads": {"devices": 1},
    "one rank, torch leaves the sampling threads a core": {"devices": 1, "pin_cores": True},
    "one rank alternates": {"devices": 1, "switching": True},
}


class Sage(LightningModule):
    """Mean aggregation, a layer a hop."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        sizes = (2 * 128, 2 * hidden, 2 * hidden)
        self.layers = nn.ModuleList(nn.Linear(size, hidden) for size in sizes)

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        x = batch.x
        for layer, block in zip(self.layers, batch.blocks, strict=True):
            mean = functional.embedding_bag(block.indices, x, block.indptr, mode="mean", include_last_offset=True)
            x = layer(torch.cat([x[: block.num_dst], mean], 1)).relu()
        return functional.cross_entropy(x, batch.y.long())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


class Clock(Callback):
    """Times the steps after the warm-up, in the process that trains."""

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == WARM_UP:
            self.began = time.perf_counter()
        if trainer.global_step == STEPS:
            took_ms = (time.perf_counter() - self.began) * 1e3 / (STEPS - WARM_UP)
            Path("took.json").write_text(json.dumps(took_ms))


def job(devices: int, hidden: int, **settings: Any) -> None:
    """One run, in processes of its own."""
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=FactoredStrategy(**settings),
        max_steps=STEPS,
        callbacks=[Clock()],
        **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
    )
    trainer.fit(Sage(hidden), GraphDataModule(GRAPH, NeighborSampler([15, 10, 5]), batch_size=512))


def run(way: str, hidden: int) -> float:
    """Milliseconds a step."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = json.dumps(WAYS[way] | {"hidden": hidden})
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": folder}
        environment.pop("OMP_NUM_THREADS", None)
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{way}: {done.stderr}")
        return float(json.loads(Path(folder, "took.json").read_text()))


def main() -> None:
    GRAPH.prepare()
    around = Neighbours()
    took: dict[tuple[str, int], list[float]] = {}
    for _ in range(ROUNDS):
        for hidden in (16, 256):
            for way in WAYS:
                took.setdefault((way, hidden), []).append(run(way, hidden))
                print(f"{way}, width {hidden}: {took[way, hidden][-1]:.1f} ms a step", file=sys.stderr)
    print("\n".join(f"- {line}" for line in (*describe(), around.describe())))
    print("\n| model's width | cores | ms a step, median | times the first | fastest to slowest |")
    print("| --- | --- | ---: | ---: | --- |")
    for (way, hidden), times in sorted(took.items(), key=lambda entry: entry[0][1]):
        first = statistics.median(took[next(iter(WAYS)), hidden])
        median = statistics.median(times)
        print(f"| {hidden} | {way} | {median:.1f} | {median / first:.2f} | {min(times):.1f} to {max(times):.1f} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        job(**json.loads(sys.argv[1]))
    else:
        main()
