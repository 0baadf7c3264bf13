"""Epoch times side by side: ``python -m tests.benchmarks.epochs`` prints a table in Markdown.

The same GraphSAGE, global batch and cores for all; torch has as many threads in each rank as Lightning gives it. On a
CPU most of an epoch is computing, which no loader can shorten: the table says how much of it is waiting. Some three
minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lightning_gnnload.data.plan import StepPlan
from tests.benchmarks import machine
from tests.benchmarks.contenders import TITLES
from tests.benchmarks.epoch_job import CONTENDERS, FANOUTS, GLOBAL_BATCH, HIDDEN
from tests.benchmarks.graphs import GRAPHS
from tests.benchmarks.report import number
from tests.benchmarks.workers import Worker

TIMEOUT_S = 600


def train(contender: str, graph: str, epochs: int, steps: int) -> dict[str, Any]:
    """The contender's fastest epoch, as ``EpochTimes`` has it: whatever else the machine does can only add to it."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "times.json"
        order = json.dumps([contender, graph, epochs + 1, steps, str(file)])
        command = [sys.executable, "-m", "tests.benchmarks.epoch_job", order]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{contender} on {graph} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        found: dict[str, Any] = json.loads(file.read_text())
    fastest = min(found["epochs"][1:], key=lambda epoch: epoch["seconds"])  # the first one warms up
    return {**fastest, "torch_threads": found["torch_threads"], "loss": found["epochs"][-1]["loss"]}


def table(results: dict[str, dict[str, Any]], num_steps: int) -> str:
    """A row a contender; shares are trainer 0's."""
    least = min(result["seconds"] / result["steps"] for result in results.values())
    lines = [
        "| | s an epoch | times the fastest | waiting | training step | rest | torch threads a trainer | loss |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, result in results.items():
        seconds, step_s = result["seconds"], result["seconds"] / result["steps"]
        shares = [result["wait"] / seconds, result["step"] / seconds]
        cells = [
            CONTENDERS[name].title,
            number(step_s * num_steps),
            number(step_s / least),
            *(f"{share:.1%}" for share in (*shares, 1 - sum(shares))),
            str(result["torch_threads"]),
            f"{result['loss']:.3f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(results: dict[str, dict[str, Any]]) -> str:
    """What the factoring wins against each other way, and how much there was to be won at all."""
    ms = {name: 1e3 * result["seconds"] / result["steps"] for name, result in results.items()}
    waits = {name: 1e3 * result["wait"] / result["steps"] for name, result in results.items()}
    lines = []
    for name in results:
        if name != "factored":
            saved = ms[name] - ms["factored"]
            lines.append(
                f"- Against {CONTENDERS[name].title}: {abs(saved):.1f} ms a step {'won' if saved > 0 else 'lost'} "
                f"({abs(saved) / ms[name]:.1%}), of which {waits[name] - waits['factored']:.1f} ms of waiting"
            )
    lines.append("\nA loader can win no more than the waiting; the rest is how the cores compute.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", nargs="+", choices=("debian", "g2"), default=["debian", "g2"])
    parser.add_argument("--epochs", type=int, default=2, help="timed, after one that warms up; the fastest counts")
    parser.add_argument("--steps", type=int, default=20, help="of each epoch; 0: all. Times are scaled to the whole")
    parser.add_argument("--only", nargs="+", choices=tuple(CONTENDERS), default=list(CONTENDERS))
    args = parser.parse_args()
    neighbours = machine.Neighbours()
    for graph in args.graph:
        with Worker("graphs", show_output=True) as worker:
            worker.call("prepare", graph=graph)
        num_steps = StepPlan(len(GRAPHS[graph].load().train), GLOBAL_BATCH, num_ranks=1).num_steps
        results = {}
        for contender in args.only:
            results[contender] = train(contender, graph, args.epochs, min(args.steps, num_steps))
            print(f"{graph} {contender}: {results[contender]}", file=sys.stderr, flush=True)
        print(
            f"\n{TITLES[graph]}: GraphSAGE of {len(FANOUTS)} layers, {HIDDEN} wide, fanouts {FANOUTS}; {GLOBAL_BATCH} "
            f"seeds a step in all; {min(args.steps or num_steps, num_steps)} of an epoch's {num_steps} steps are run:\n"
        )
        print(table(results, num_steps))
        if "factored" in results:
            print(f"\n{verdict(results)}")
    print("\n" + "\n".join(f"- {line}" for line in (*machine.describe(), neighbours.describe())))


if __name__ == "__main__":
    main()
