"""What a division of cores and threads is worth, and whether the measured roles choose the best one.

``python -m tests.benchmarks.resources [CASE ...]`` runs a trainer and a sampler, and one rank that does both, with
threads given by hand in all ways that two cores leave, and with those that the measured stages choose. It prints a
Markdown table: beside each measured step stands what the stages predict for it. The ways to run take turns, so that
what else the machine does meets all alike; the figures are medians. Cases "narrow" and "wide" served to find the rule,
"other" did not.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import nn
from torch.nn import functional

from lightning_gnnload import FactoredStrategy, GraphDataModule, MiniBatch, NeighborSampler, Synthetic
from lightning_gnnload.pipeline.forecast.stages import StageTimes, shared_ms, slowest_ms
from lightning_gnnload.plugin.job import RolePlan
from lightning_gnnload.plugin.strategy.resources import stages_of
from tests.benchmarks.machine import Neighbours, describe

ROUNDS = 2
STEPS, WARM_UP = 40, 8
CITATIONS = Synthetic("chung-lu", num_nodes=170_000, num_edges=1_200_000, num_features=128, train_fraction=0.54)
DENSE = Synthetic("rmat", num_nodes=60_000, num_edges=3_000_000, num_features=64, train_fraction=0.8, seed=3)
CASES: dict[str, dict[str, Any]] = {
    "narrow": {"graph": CITATIONS, "fanouts": [15, 10, 5], "hidden": 16},
    "wide": {"graph": CITATIONS, "fanouts": [15, 10, 5], "hidden": 256},
    "other": {"graph": DENSE, "fanouts": [20, 8], "hidden": 64, "attention": True},
}
TWO, ONE = "a trainer and a sampler", "one rank does both"


def by_hand(ranks: str, torch_threads: int, sampler_threads: int, **settings: Any) -> dict[str, Any]:
    return {
        "ranks": ranks,
        "torch": torch_threads,
        "strategy": {"samplers": 1, "sampler_threads": sampler_threads, **settings},
    }


WAYS: dict[str, dict[str, Any]] = {
    **{
        f"{ranks}: torch {torch_threads}, sampling {threads}": by_hand(ranks, torch_threads, threads)
        for ranks in (TWO, ONE)
        for torch_threads in (1, 2)
        for threads in (1, 2)
    },
    f"{TWO}: each on a core of its own": by_hand(TWO, 1, 1, pin_cores=True),
    f"{TWO}: nothing set": {"ranks": TWO, "torch": None, "strategy": {}},
    f"{TWO}: measured": {"ranks": TWO, "torch": None, "strategy": {"samplers": "auto"}},
    f"{ONE}: nothing set": {"ranks": ONE, "torch": None, "strategy": {}},
    f"{ONE}: measured": {"ranks": ONE, "torch": None, "strategy": {"samplers": "auto"}},
    f"{ONE}: alternating": {"ranks": ONE, "torch": None, "strategy": {"switching": True}},
}


class Sage(LightningModule):
    """Mean aggregation, or by a score of each source, a layer a hop."""

    def __init__(self, num_features: int, num_layers: int, hidden: int, attention: bool) -> None:
        super().__init__()
        sizes = [2 * num_features, *[2 * hidden] * (num_layers - 1)]
        self.layers = nn.ModuleList(nn.Linear(size, hidden) for size in sizes)
        self.scores = nn.ModuleList(nn.Linear(size // 2, 1) for size in sizes) if attention else None

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        x = batch.x
        for number, (layer, block) in enumerate(zip(self.layers, batch.blocks, strict=True)):
            weighted = x
            if self.scores is not None:
                weighted = x * torch.sigmoid(self.scores[number](x))
            mean = functional.embedding_bag(
                block.indices, weighted, block.indptr, mode="mean", include_last_offset=True
            )
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
            strategy: Any = trainer.strategy
            decision = strategy.role_decision
            found = {
                "ms": (time.perf_counter() - self.began) * 1e3 / (STEPS - WARM_UP),
                "threads": [torch.get_num_threads(), strategy.num_sampler_threads],
                "stages": decision and decision.stages and asdict(decision.stages),
            }
            Path("took.json").write_text(json.dumps(found))


def job(case: str, way: str) -> None:
    """One run, in processes of its own."""
    graph, fanouts = CASES[case]["graph"], CASES[case]["fanouts"]
    trainer = Trainer(
        accelerator="cpu",
        devices=1 if WAYS[way]["ranks"] == ONE else 2,
        strategy=FactoredStrategy(**WAYS[way]["strategy"]),
        max_steps=STEPS,
        callbacks=[Clock()],
        **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
    )
    model = Sage(graph.num_features, len(fanouts), CASES[case]["hidden"], CASES[case].get("attention", False))
    trainer.fit(model, GraphDataModule(graph, NeighborSampler(fanouts), batch_size=512))


def run(case: str, way: str) -> dict[str, Any]:
    """Milliseconds a step, threads, and the stages if they were measured."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": folder}
        environment.pop("OMP_NUM_THREADS", None)
        if WAYS[way]["torch"] is not None:
            environment["OMP_NUM_THREADS"] = str(WAYS[way]["torch"])
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, "--job", case, way],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{case}, {way}: {done.stderr}")
        return json.loads(Path(folder, "took.json").read_text())


def predicted_ms(way: str, times: StageTimes, threads: Sequence[int]) -> float:
    """What the stages predict for so many threads of torch and of sampling."""
    stages = stages_of(times, RolePlan(1 if WAYS[way]["ranks"] == ONE else 2, 1))
    if WAYS[way]["strategy"].get("pin_cores"):
        return slowest_ms(stages, threads)
    return shared_ms(stages, threads, len(os.sched_getaffinity(0)))


def main(cases: Sequence[str], rounds: int) -> None:
    for case in cases:
        CASES[case]["graph"].prepare()
    around = Neighbours()
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for case in cases:
            for way in WAYS:
                found.setdefault((case, way), []).append(run(case, way))
                print(f"{case}, {way}: {found[case, way][-1]['ms']:.1f} ms a step", file=sys.stderr)
    print("\n".join(f"- {line}" for line in (*describe(), around.describe())))
    for case in cases:
        print(f"\n{case}:\n\n| ranks: threads | torch, sampling | predicted | ms a step, median | fastest to slowest |")
        print("| --- | --- | ---: | ---: | --- |")
        for way in WAYS:
            runs = found[case, way]
            ms = [each["ms"] for each in runs]
            torch_threads, threads = runs[-1]["threads"]
            # By what the same kind of job has measured, in the round in the middle.
            measured = found[case, f"{WAYS[way]['ranks']}: measured"]
            predicted = statistics.median(
                predicted_ms(way, StageTimes(**each["stages"]), runs[-1]["threads"]) for each in measured
            )
            print(
                f"| {way} | {torch_threads}, {threads} | {predicted:.1f} | {statistics.median(ms):.1f} | "
                f"{min(ms):.1f} to {max(ms):.1f} |"
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        job(*sys.argv[2:])
    else:
        main(sys.argv[1:] or list(CASES), int(os.environ.get("ROUNDS", ROUNDS)))
