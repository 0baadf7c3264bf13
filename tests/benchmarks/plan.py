"""What ``gnnload plan`` predicts, beside what comes of it: ``python -m tests.benchmarks.plan`` prints a Markdown table.

Four configurations are planned, and ten layouts of them are trained as ``gnnload fit`` trains them, each in processes
of its own: one rank, several, and a sampler beside a trainer. Nothing of the model behind a plan was fitted to them.
Some five minutes on two idle cores. On busy ones, which its last line tells, an epoch takes as long as others let it;
what then can be compared is memory, and what the trainer's thread computes in a step, in its processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml

from lightning_gnnload.host.memory import in_units
from lightning_gnnload.pipeline.forecast.plan import Plan, read_plan
from lightning_gnnload.pipeline.forecast.work import RunLayout
from lightning_gnnload.plugin.planning.configuration import planned_configuration
from tests.benchmarks.machine import Neighbours, describe

STEPS, EPOCHS, SECONDS = 25, 3, 12
WARM_UP = 10  # steps whose processor time is not counted
CLOCK = "trainer_clock.json"
TIMEOUT_S = 300
TIME_AIM, MEMORY_AIM = 0.15, 0.10
ROOT = Path(__file__).parents[2]
GRAPH = {"kind": "chung-lu", "num_nodes": 80_000, "num_edges": 800_000, "num_features": 100, "train_fraction": 0.6}
OWN, SAGE = "examples.models.GraphSAGE", "lightning_gnnload.SAGE"


class TrainerClock(pl.Callback):
    """The processor time of trainer 0's thread, in milliseconds a step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_end(self, *_: Any) -> None:
        self.seconds.append(time.thread_time())

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            counted = self.seconds[WARM_UP:]
            step_ms = (counted[-1] - counted[0]) / (len(counted) - 1) * 1e3
            Path(trainer.default_root_dir, CLOCK).write_text(json.dumps(step_ms))


@dataclass(frozen=True)
class PlannedCase:
    """A configuration, and the layouts of it that are trained: way, threads, trainers and samplers."""

    fanouts: list[int]
    batch_size: int
    model: str
    settings: dict[str, Any]
    layouts: Sequence[tuple[str, int, int, int]]
    batch_format: str = "blocks"

    def configuration(self, folder: Path) -> dict[str, Any]:
        return {
            "seed_everything": 0,
            "trainer": {
                "accelerator": "cpu",
                "devices": 1,
                "max_epochs": EPOCHS,
                "limit_train_batches": STEPS,
                "limit_val_batches": 0,
                "default_root_dir": str(folder),
                "callbacks": [{"class_path": "tests.benchmarks.plan.TrainerClock"}],
                **dict.fromkeys(
                    ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False
                ),
            },
            "model": {"class_path": self.model, "init_args": self.settings},
            "data": {
                "data": {"class_path": "lightning_gnnload.Synthetic", "init_args": GRAPH},
                "sampler": {"class_path": "lightning_gnnload.NeighborSampler", "init_args": {"fanouts": self.fanouts}},
                "batch_size": self.batch_size,
                "batch_format": self.batch_format,
            },
        }


CASES = [
    PlannedCase([10, 5], 512, SAGE, {"hidden": 64}, [("auto", 1, 1, 0), ("auto", 2, 1, 0), ("ddp", 1, 2, 0)]),
    PlannedCase(
        [15, 10, 5],
        256,
        OWN,
        {"hidden": 32, "num_layers": 3},
        [("auto", 1, 1, 0), ("factored", 1, 1, 1), ("ddp", 1, 2, 0)],
    ),
    PlannedCase([20, 10], 1024, OWN, {"hidden": 128, "num_layers": 2}, [("auto", 1, 1, 0), ("factored", 2, 1, 1)]),
    PlannedCase(
        [10, 10],
        512,
        "tests.benchmarks.epoch_job.GraphSAGEOnDGL",
        {"hidden": 64, "num_layers": 2},
        [("auto", 1, 1, 0), ("factored", 1, 1, 1)],
        "dgl",
    ),
]


def run(torch_threads: int | None, *arguments: str) -> None:
    """``gnnload`` with these arguments. Raises RuntimeError: it failed."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"PYTHONPATH": str(ROOT)} | (
        {} if torch_threads is None else {"OMP_NUM_THREADS": str(torch_threads)}
    )
    command = [str(Path(sys.executable).with_name("gnnload")), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"gnnload {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def results_of(
    case: PlannedCase, folder: Path, torch_threads: int | None
) -> Iterator[tuple[RunLayout, dict[str, Any], Plan]]:
    """Plans a configuration, then trains each of its layouts; yields these with the figures of its report."""
    configuration, plan_file = folder / "run.yaml", folder / "plan.json"
    configuration.write_text(yaml.safe_dump(case.configuration(folder)))
    run(torch_threads, "plan", "--config", str(configuration), "--seconds", str(SECONDS), "--out", str(plan_file))
    plan = read_plan(plan_file)
    for _, threads, trainers, samplers in case.layouts:
        layout = plan.layout_like(samplers=samplers, trainers=trainers, threads=threads, switching=False)
        planned, _ = planned_configuration(
            case.configuration(folder), replace(plan.measured.mine, threads=0), layout, plan_file=plan_file
        )
        configuration.write_text(yaml.safe_dump(planned))
        run(torch_threads, "fit", "--config", str(configuration))
        report = json.loads((folder / "where_the_time_went.json").read_text())
        yield layout, report["planned"] | {"clock_ms": json.loads((folder / CLOCK).read_text())}, plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs="+", choices=range(len(CASES)), default=range(len(CASES)))
    parser.add_argument(
        "--torch-threads", type=int, help="of each trainer, at most; default: as Lightning divides cores"
    )
    args = parser.parse_args()
    neighbours = Neighbours()
    rows, offs = [], {"epoch": [], "step's computing": [], "memory": []}  # type: ignore[var-annotated]
    for number in args.cases:
        case = CASES[number]
        with tempfile.TemporaryDirectory() as folder:
            for layout, figures, plan in results_of(case, Path(folder), args.torch_threads):
                work = plan.measured.work_of(layout, plan.machine)
                computed_ms = work.train_on_cores_ms(layout.torch_threads) + work.convert_ms * bool(layout.samplers)
                epoch, memory = figures["epoch"], figures["a trainer's memory"]
                computing = {"predicted": computed_ms, "actual": figures["clock_ms"]}
                off = [figure["predicted"] / figure["actual"] - 1 for figure in (epoch, computing, memory)]
                for name, share in zip(offs, off, strict=True):
                    offs[name].append(abs(share))
                cells = [
                    f"{case.fanouts}, {case.batch_size}, {case.batch_format}",
                    str(layout),
                    f"{epoch['predicted']:.2f}",
                    f"{epoch['actual']:.2f}",
                    f"{off[0]:+.0%}",
                    *(f"{computing[key]:.1f}" for key in ("predicted", "actual")),
                    f"{off[1]:+.0%}",
                    *(in_units(int(memory[key])) for key in ("predicted", "actual")),
                    f"{off[2]:+.0%}",
                    f"{plan.measured.foreign_load:.0%}",
                ]
                rows.append(f"| {' | '.join(cells)} |")
                print(rows[-1], file=sys.stderr, flush=True)
    print(
        "| fanouts, seeds a step, format | layout | epoch predicted, s | actual | off | a step's computing, ms "
        "| processor time | off | trainer's memory predicted | actual | off | others' load while planning |\n"
        f"| --- | --- | {' | '.join(['---:'] * 10)} |"
    )
    print("\n".join(rows))
    for name, aim in (("epoch", TIME_AIM), ("step's computing", TIME_AIM), ("memory", MEMORY_AIM)):
        within = sum(off <= aim for off in offs[name])
        print(f"\n{within} of {len(offs[name])} within {aim:.0%}: {name}; the furthest is {max(offs[name]):.0%} off.")
    print("\n" + "\n".join(f"- {line}" for line in (*describe(), neighbours.describe())))


if __name__ == "__main__":
    main()
