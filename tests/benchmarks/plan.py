"""What ``gnnload plan`` predicts, beside what comes of it: ``python -m tests.benchmarks.plan`` prints a Markdown table.

Ten configurations are planned, and each is then trained as ``gnnload fit`` trains it, in processes of its own, for
whole epochs: by one rank, by two of DDP, by a sampler beside a trainer, and as the plan recommends. Nothing of what
lies behind a plan was fitted to them. Regret is how much longer the recommended layout takes than the fastest of those.

Ten minutes on two idle cores; ``--cases 0 1`` runs some. A virtual machine is faster in one minute than in another:
``speed`` is that of rows copied at random and of a product of matrices while training, where 1 is while planning.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from lightning_gnnload.pipeline.forecast.plan import Plan, read_plan
from lightning_gnnload.pipeline.forecast.work import RunLayout
from lightning_gnnload.plugin.planning.configuration import planned_configuration
from tests.benchmarks.machine import Neighbours, describe
from tests.plain_sage import GraphSAGE

EPOCHS, SECONDS, TIMEOUT_S = 3, 25, 300
TIME_AIM, MEMORY_AIM = 0.15, 0.10
ROOT = Path(__file__).parents[2]
LAYOUTS = {"1 rank": (1, 0), "ddp, 2 ranks": (2, 0), "1 sampling, 1 training": (1, 1)}
"""Trainers and samplers; each rank that samples has one thread."""


class GraphSAGEOnPyG(GraphSAGE):
    """The same layers on PyG's batches, trimmed to what each layer needs."""

    def forward(self, batch: Any) -> torch.Tensor:
        from torch_geometric.utils import scatter, trim_to_layer

        x, edges = batch.x, batch.edge_index
        for index, conv in enumerate(self.convs):
            x, edges, _ = trim_to_layer(index, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
            x = self.dropout(x) if index else x
            x = conv.own(x) + conv.neighbors(scatter(x[edges[0]], edges[1], dim_size=len(x), reduce="mean"))
        return x[: batch.batch_size]

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self(batch), batch.y[: batch.batch_size])


@dataclass(frozen=True)
class PlannedCase:
    """A configuration: data set, sampler's fanouts, model, and further settings of the data module."""

    name: str
    data: tuple[str, dict[str, Any]]
    fanouts: list[int]
    batch_size: int
    model: tuple[str, dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)

    def configuration(self, folder: Path) -> dict[str, Any]:
        # PyG's loaders, whose batches its format has, expand no node twice.
        expand = "new" if self.settings.get("batch_format") == "pyg" else "all"
        sampler = {"fanouts": self.fanouts, "expand": expand}
        switched_off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
        return {
            "seed_everything": 0,
            "trainer": {
                "accelerator": "cpu",
                "devices": 1,
                "max_epochs": EPOCHS,
                "limit_val_batches": 0,
                "default_root_dir": str(folder),
                **dict.fromkeys(switched_off, False),
            },
            "model": {"class_path": self.model[0], "init_args": self.model[1]},
            "data": {
                "data": {"class_path": f"lightning_gnnload.{self.data[0]}", "init_args": self.data[1]},
                "sampler": {"class_path": "lightning_gnnload.NeighborSampler", "init_args": sampler},
                "batch_size": self.batch_size,
                **self.settings,
            },
        }


def synthetic(kind: str, nodes: int, edges: int, features: int, train: float) -> tuple[str, dict[str, Any]]:
    sizes = {"num_nodes": nodes, "num_edges": edges, "num_features": features, "train_fraction": train}
    return "Synthetic", {"kind": kind, **sizes}


def model(name: str, **settings: Any) -> tuple[str, dict[str, Any]]:
    return {"GraphSAGE": "tests.plain_sage.GraphSAGE"}.get(name, name), settings


CASES = [
    PlannedCase(
        "chung-lu, built-in SAGE",
        synthetic("chung-lu", 150_000, 2_000_000, 128, 0.4),
        [12, 8],
        768,
        ("lightning_gnnload.SAGE", {"hidden": 96}),
    ),
    PlannedCase(
        "rmat, 3 layers",
        synthetic("rmat", 100_000, 1_500_000, 64, 0.3),
        [10, 10, 5],
        384,
        model("GraphSAGE", hidden=64, num_layers=3),
    ),
    PlannedCase("web, GCN", synthetic("web", 120_000, 1_200_000, 200, 0.5), [20, 5], 1024, model("GCN", hidden=128)),
    PlannedCase("citation, GAT", synthetic("citation", 80_000, 600_000, 32, 0.3), [6, 6], 320, model("GAT", hidden=64)),
    PlannedCase("Debian, GraphSAGE", ("Debian", {}), [15, 10], 1024, model("GraphSAGE")),
    PlannedCase(
        "Debian with types, RGCN",
        ("Debian", {"typed": True}),
        [5, 3],
        1024,
        model("RGCN", learned_rows="node"),
    ),
    PlannedCase(
        "600 MB of rows mapped from a disk",
        synthetic("chung-lu", 400_000, 3_000_000, 384, 0.1),
        [10, 5],
        512,
        model("GraphSAGE", hidden=64),
    ),
    PlannedCase(
        "the same with a cache of a fifth",
        synthetic("chung-lu", 400_000, 3_000_000, 384, 0.1),
        [10, 5],
        512,
        model("GraphSAGE", hidden=64),
        {"cache": {"policy": "presample", "ratio": 0.2}},
    ),
    PlannedCase(
        "PyG's format",
        synthetic("rmat", 60_000, 900_000, 100, 0.5),
        [8, 8],
        512,
        ("tests.benchmarks.plan.GraphSAGEOnPyG", {"hidden": 64}),
        {"batch_format": "pyg"},
    ),
    PlannedCase(
        "DGL's format",
        synthetic("web", 60_000, 500_000, 100, 0.6),
        [10, 10],
        640,
        ("tests.benchmarks.epoch_job.GraphSAGEOnDGL", {"hidden": 64}),
        {"batch_format": "dgl"},
    ),
]


def run(*arguments: str) -> None:
    """``gnnload`` with these arguments. Raises RuntimeError: it failed."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [str(Path(sys.executable).with_name("gnnload")), *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"gnnload {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


class SpeedReference:
    """How fast the machine is, in what loaders and models do most: rows copied at random, and a product."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.rows = generator.random((200_000, 64), np.float32)
        self.ids = generator.integers(0, len(self.rows), 20_000)
        self.matrix = generator.random((256, 256), np.float32)

    def steps_a_second(self) -> float:
        times_s = []
        for _ in range(60):
            began_s = time.perf_counter()
            self.rows[self.ids]
            self.matrix @ self.matrix
            times_s.append(time.perf_counter() - began_s)
        return 1 / statistics.fmean(times_s)


@dataclass(frozen=True)
class Outcome:
    """What came of one layout: figures by name, each predicted and actual, and the machine's speed meanwhile."""

    layout: RunLayout
    figures: dict[str, dict[str, float]]
    speed: float

    def off(self, name: str) -> float:
        return self.figures[name]["predicted"] / self.figures[name]["actual"] - 1

    def cell(self) -> str:
        epoch = self.figures["epoch"]
        return f"{epoch['predicted']:.2f}, was {epoch['actual']:.2f} ({self.off('epoch'):+.0%}) at {self.speed:.2f}"


def outcomes_of(case: PlannedCase, folder: Path) -> Iterator[Outcome]:
    """Plans a configuration, then trains it by each layout; the recommended one is last."""
    configuration, plan_file = folder / "run.yaml", folder / "plan.json"
    configuration.write_text(yaml.safe_dump(case.configuration(folder)))
    reference = SpeedReference()
    before = reference.steps_a_second()
    run("plan", "--config", str(configuration), "--seconds", str(SECONDS), "--out", str(plan_file))
    planned_at = (before + reference.steps_a_second()) / 2
    plan = read_plan(plan_file)
    layouts = [
        plan.layout_like(samplers=samplers, trainers=trainers, threads=1, switching=False)
        for trainers, samplers in LAYOUTS.values()
    ]
    outcomes: dict[RunLayout, Outcome] = {}
    for layout in [*layouts, plan.recommended.layout]:
        if layout not in outcomes:
            before = reference.steps_a_second()
            outcomes[layout] = trained(case, plan, layout, folder, plan_file)
            speed = (before + reference.steps_a_second()) / 2 / planned_at
            outcomes[layout] = replace(outcomes[layout], speed=speed)
        yield outcomes[layout]


def trained(case: PlannedCase, plan: Plan, layout: RunLayout, folder: Path, plan_file: Path) -> Outcome:
    planned, _ = planned_configuration(
        case.configuration(folder), replace(plan.measured.mine, threads=0), layout, plan_file=plan_file
    )
    file = folder / "planned.yaml"
    file.write_text(yaml.safe_dump(planned))
    run("fit", "--config", str(file))
    return Outcome(layout, json.loads((folder / "where_the_time_went.json").read_text())["planned"], 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs="+", choices=range(len(CASES)), default=range(len(CASES)))
    args = parser.parse_args()
    neighbours = Neighbours()
    print(f"| configuration | {' | '.join(LAYOUTS)} | memory, furthest off | recommended | regret |")
    print(f"| --- | {' | '.join(['---'] * len(LAYOUTS))} | ---: | --- | ---: |", flush=True)
    epochs, memories = list[float](), list[float]()
    for number in args.cases:
        case = CASES[number]
        with tempfile.TemporaryDirectory() as folder:
            *outcomes, best = outcomes_of(case, Path(folder))
        epochs += [abs(outcome.off("epoch")) for outcome in outcomes]
        memory = max((outcome.off("a trainer's memory") for outcome in outcomes), key=abs)
        memories.append(abs(memory))
        actual_s = {outcome.layout: outcome.figures["epoch"]["actual"] for outcome in (*outcomes, best)}
        regret = actual_s[best.layout] / min(actual_s.values()) - 1
        name = f"{case.name}; {case.fanouts}, {case.batch_size}"
        cells = [name, *(outcome.cell() for outcome in outcomes), f"{memory:+.0%}", str(best.layout), f"{regret:.0%}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    for what, offs, aim in (("epochs", epochs, TIME_AIM), ("memory", memories, MEMORY_AIM)):
        within = sum(off <= aim for off in offs)
        print(f"\n{within} of {len(offs)} within {aim:.0%}: {what}; the furthest is {max(offs):.0%} off.")
    print("\n" + "\n".join(f"- {line}" for line in (*describe(), neighbours.describe())))


if __name__ == "__main__":
    main()
