"""What it wins that malloc keeps the memory which a training step frees, and what it takes of memory:
``python -m tests.benchmarks.freed_memory`` prints a table in Markdown.

GraphSAGE by Lightning's Trainer in one rank, with torch on one thread; each row is a process of its own, and the rows
take turns. Figures are of processor time, so that other work on the machine counts little. Some four minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, NamedTuple

from tests.benchmarks import machine
from tests.benchmarks.workers import Worker

_ARENA_MAX = -8  # <malloc.h>
_WARM_UP = 3
SETTINGS = {"as_is": "as it is", "kept": "freed memory kept", "one_arena": "kept, one arena for all threads"}


class Case(NamedTuple):
    title: str
    graph: str
    fanouts: Sequence[int]
    hidden: int
    num_steps: int
    batch_format: str = "blocks"


CASES = {
    "readme": Case("Debian, 2 layers 256 wide, [15, 10]", "debian", [15, 10], 256, 25),
    "large": Case("G3, 3 layers 256 wide, [15, 10, 5]", "g3", [15, 10, 5], 256, 8),
}


def job(name: str, setting: str, stack: ExitStack) -> dict[str, float]:
    """Trains in this process; medians over its steps."""
    import pytorch_lightning as pl
    import torch

    from lightning_gnnload import GraphDataModule, NeighborSampler
    from lightning_gnnload.host import malloc
    from tests.benchmarks.graphs import GRAPHS
    from tests.plain_sage import GraphSAGE

    case, steps = CASES[name], list[tuple[float, float, float]]()

    class Steps(pl.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            steps.append((time.process_time() * 1e3, used.ru_stime * 1e3, used.ru_minflt))

    if setting != "as_is" and not stack.enter_context(malloc.freed_memory_kept()):
        raise RuntimeError(f"malloc cannot keep memory here: it is {malloc.allocator()}")
    if setting == "one_arena":
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    data = GRAPHS[case.graph].load()
    pl.seed_everything(0, verbose=False)
    model = GraphSAGE(data.num_features, data.num_classes, hidden=case.hidden, num_layers=len(case.fanouts))
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=case.num_steps + _WARM_UP + 1,
        limit_val_batches=0,
        callbacks=[Steps()],
        **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False),
    )
    trainer.fit(model, GraphDataModule(data, NeighborSampler(case.fanouts), batch_size=1024))
    spans = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(steps[_WARM_UP:])]
    ms, kernel_ms, faults = (statistics.median(column) for column in zip(*spans, strict=True))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ms": ms, "kernel_ms": kernel_ms, "faults": faults, "peak_mib": peak_mib}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        with ExitStack() as stack:
            print(json.dumps(job(*args.job, stack)))
        return
    neighbours = machine.Neighbours()
    print("| | malloc | processor ms a step | of it in the kernel | page faults a step | peak memory, MiB |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for case in args.cases:
        with Worker("graphs", show_output=True) as worker:
            worker.call("prepare", graph=CASES[case].graph)
        results: dict[str, list[dict[str, float]]] = {setting: [] for setting in SETTINGS}
        for _ in range(args.rounds):
            for setting, measured in results.items():
                command = [sys.executable, "-m", "tests.benchmarks.freed_memory", "--job", case, setting]
                measured.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
        for setting, measured in results.items():
            ms, kernel_ms, faults, peak = (statistics.median(one[name] for one in measured) for name in measured[0])
            cells = f"{ms:.1f} | {kernel_ms:.1f} | {faults:.0f} | {peak:.0f} |"
            print(f"| {CASES[case].title} | {SETTINGS[setting]} | {cells}", flush=True)
    print("\n" + "\n".join(f"- {line}" for line in (*machine.describe(), neighbours.describe())))


if __name__ == "__main__":
    main()
