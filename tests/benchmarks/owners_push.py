"""What a link's latency costs a trainer, by who makes its mini-batches: ``python -m tests.benchmarks.owners_push``.

Two owners, processes of their own with a part each, behind links that delay each byte, each way: between the trainer
and owners, and among owners. ``ranks``: the trainer asks hop by hop, and then for rows; ``owners``: it asks for whole
mini-batches, each sampling thread for one, so that threads are its credit. First mini-batches as they stream to who
only takes them, with the processor's time that they take the trainer, and both owners; then a trainer whose step, a
pause, takes as long as one thread here needs to make a mini-batch of the same graph in memory, or as ``--step-ms``
says; then one whose step takes as long as mini-batches take to stream, beside the steps alone. The floor: a loop over
plain TCP by as many streams as there are owners, which gathers as many rows by the same kernel and knows nothing else.
Medians by turns. Owners share this machine's cores with the trainer. Some minutes a delay.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import psutil

from lightning_gnnload import (
    Debian,
    FeatureCache,
    GraphDataModule,
    MemoryFeatureStore,
    NeighborSampler,
    Synthetic,
    load_partition,
    partition_graph,
)
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.owners.address import SECRET_FILE
from lightning_gnnload.owners.wire import Wire
from tests.benchmarks.owners import Plain
from tests.cluster.delay import DelayProxy
from tests.unit.owners.serving import SECRET, OwnerProcess

NUM_PARTS = 2
SAMPLER, BATCH_SIZE = NeighborSampler([15, 10]), 1024
MADE_BY = ("ranks", "owners")
AIM = 1.15


class Scale(NamedTuple):
    """How much is measured: ``num_batches`` are timed after ``num_first``, which are
    more than any has under way."""

    num_nodes: int
    delays_ms: tuple[float, ...]
    threads: tuple[int, ...]
    rounds: int
    num_first: int
    num_batches: int


WHOLE = Scale(200_000, (0, 0.1, 1, 10), (1, 2, 4, 8), rounds=3, num_first=12, num_batches=24)
SHORT = Scale(60_000, (0, 1), (1, 4), rounds=1, num_first=6, num_batches=12)


class Trained(NamedTuple):
    """Seconds that a trainer took for its mini-batches, how much of these it waited; and of the processor, the
    trainer's and the owners'."""

    took_s: float
    waited_s: float
    trainer_s: float = 0.0
    owners_s: float = 0.0


@dataclass
class Contender:
    """A way to have mini-batches, and what was measured of it, by delay."""

    name: str
    threads: int
    module: GraphDataModule
    streamed: dict[float, list[Trained]] = field(default_factory=lambda: defaultdict(list))
    trained: dict[float, list[Trained]] = field(default_factory=lambda: defaultdict(list))
    as_long: dict[float, list[float]] = field(default_factory=lambda: defaultdict(list))

    def measure(self, delay_ms: float, scale: Scale, step_s: float, owners: Sequence[psutil.Process]) -> None:
        streamed = train(self.module, scale, 0.0, owners)
        self.streamed[delay_ms].append(streamed)
        self.trained[delay_ms].append(train(self.module, scale, step_s, owners))
        as_long = train(self.module, scale, streamed.took_s / scale.num_batches, owners)
        self.as_long[delay_ms].append(as_long.took_s / streamed.took_s)


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def train(module: GraphDataModule, scale: Scale, step_s: float, owners: Sequence[psutil.Process] = ()) -> Trained:
    """Takes mini-batches from a loader of its own, and trains on each for ``step_s``."""
    return take(iter(module.train_dataloader()), scale, step_s, owners)


def take(batches: Iterator[object], scale: Scale, step_s: float, owners: Sequence[psutil.Process]) -> Trained:
    for _ in itertools.islice(batches, scale.num_first):
        time.sleep(step_s)
    trainer = [psutil.Process()]
    trainer_s, owners_s = cpu_s(trainer), cpu_s(owners)
    began, waited_s = time.perf_counter(), 0.0
    for _ in range(scale.num_batches):
        asked = time.perf_counter()
        batch = next(batches)
        waited_s += time.perf_counter() - asked
        del batch  # its memory is free for another
        time.sleep(step_s)
    took_s = time.perf_counter() - began
    return Trained(took_s, waited_s, cpu_s(trainer) - trainer_s, cpu_s(owners) - owners_s)


def floor(folder: Path, module: GraphDataModule, scale: Scale, stack: ExitStack) -> Trained:
    """Takes as many rows as mini-batches have over plain TCP (``tests/benchmarks/owners.py``)."""
    store, rows = module.graph_data.x, next(iter(module.train_dataloader())).x
    assert isinstance(store, MemoryFeatureStore)
    np.save(folder / "x.npy", store.rows.numpy())
    command = [sys.executable, "-m", "tests.benchmarks.owners", "--plain", str(folder / "x.npy")]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    assert process.stdout is not None
    plain, random = Plain(int(process.stdout.readline()), NUM_PARTS), np.random.default_rng(0)
    out = np.empty((len(rows), store.row_bytes), np.uint8)
    asked = (plain.gather(random.integers(0, store.shape[0], len(rows)), out) for _ in itertools.count())
    return take(asked, scale, 0.0, [psutil.Process(process.pid)])


def serve(folder: Path, stack: ExitStack) -> tuple[list[DelayProxy], list[psutil.Process]]:
    """Starts the owners; returns the links to them, by whose addresses all know them, and their processes."""
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(SECRET)
    owners = [
        stack.enter_context(OwnerProcess(folder / "parts", secret, "--parts", str(part))) for part in range(NUM_PARTS)
    ]
    ports = [int(owner.wait_until_ready().rpartition(":")[2]) for owner in owners]
    links = [stack.enter_context(DelayProxy(port)) for port in ports]
    return links, [psutil.Process(owner.process.pid) for owner in owners]


def measure(graph: str, scale: Scale, step_ms: float | None, method: str, kept: float, wire: Wire) -> list[str]:
    """Returns rows of the table, in Markdown."""
    dataset = (
        Debian()
        if graph == "debian"
        else Synthetic("chung-lu", scale.num_nodes, 10 * scale.num_nodes, num_features=128, train_fraction=0.54)
    )
    dataset.prepare()
    data = dataset.load()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        parts = partition_graph(data, folder / "parts", NUM_PARTS, method, hops=0, progress=False)
        order = "shuffle" if method == "random" else LocalOrder(parts, num_ranks=1)
        links, owners = serve(folder, stack)
        os.environ[SECRET_FILE] = str(folder / "secret")
        addresses = [f"127.0.0.1:{link.port}" for link in links]
        here = Contender("here", 1, GraphDataModule(data, SAMPLER, BATCH_SIZE, num_threads=1, order=order))
        remote = [
            Contender(
                made_by,
                threads,
                GraphDataModule(
                    load_partition(folder / "parts"),
                    SAMPLER,
                    BATCH_SIZE,
                    num_threads=threads,
                    order=order,
                    cache=FeatureCache("presample", ratio=kept) if kept else None,
                    wire=wire,
                    graph=addresses,
                    features=addresses,
                    made_by=made_by,  # type: ignore[arg-type]
                ),
            )
            for made_by in MADE_BY
            for threads in scale.threads
        ]
        for contender in remote:
            stack.callback(contender.module.owners.close)
            contender.module.setup()
        train(here.module, scale, 0.0)  # maps its pages
        here_ms = statistics.median(train(here.module, scale, 0.0).took_s for _ in range(3)) * 1e3 / scale.num_batches
        step_ms = here_ms if step_ms is None else step_ms
        plain = floor(folder, here.module, scale, stack)
        told = f"{graph}: a mini-batch {here_ms:.1f} ms here, a step {step_ms:.1f} ms"
        print(told, file=sys.stderr, flush=True)
        for turn in range(scale.rounds):
            for delay_ms in scale.delays_ms:
                for link in links:
                    link.set_delay(round(delay_ms * 1000))
                for contender in (here, *remote):
                    contender.measure(delay_ms, scale, step_ms / 1e3, owners)
                print(f"round {turn + 1} of {scale.rounds}: {delay_ms} ms", file=sys.stderr, flush=True)
        local_s = statistics.median(trained.took_s for each in here.trained.values() for trained in each)
        rows = [
            row_of(contender, delay_ms, local_s, scale) for delay_ms in scale.delays_ms for contender in (here, *remote)
        ]
        return [f"| 0 | plain TCP | 1 | {' | '.join(costs_of([plain], scale))} | | | | |", *rows]


def costs_of(streamed: Sequence[Trained], scale: Scale) -> list[str]:
    """Returns a mini-batch's milliseconds, and the processor's, of the trainer and of the owners."""
    columns = [(each.took_s, each.trainer_s, each.owners_s) for each in streamed]
    return [f"{statistics.median(column) * 1e3 / scale.num_batches:.1f}" for column in zip(*columns, strict=True)]


def row_of(contender: Contender, delay_ms: float, local_s: float, scale: Scale) -> str:
    took_s = statistics.median(trained.took_s for trained in contender.trained[delay_ms])
    waited = statistics.median(trained.waited_s / trained.took_s for trained in contender.trained[delay_ms])
    ratio = took_s / local_s
    cells = [f"{delay_ms:g}", contender.name, str(contender.threads), *costs_of(contender.streamed[delay_ms], scale)]
    cells += [f"{waited:.0%}", f"{ratio:.2f}", "yes" if ratio <= AIM else "no"]
    return f"| {' | '.join([*cells, f'{statistics.median(contender.as_long[delay_ms]):.2f}'])} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.owners_push",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--graph", choices=("power-law", "debian"), default="power-law")
    parser.add_argument("--short", action="store_true", help="a smaller graph, two delays, one round: a minute")
    parser.add_argument("--step-ms", type=float, help="by default as long as a mini-batch takes here")
    parser.add_argument("--delays", nargs="+", type=float, metavar="MS", help=f"added each way; {WHOLE.delays_ms}")
    parser.add_argument("--rounds", type=int, help=f"turns of each; {WHOLE.rounds}")
    parser.add_argument("--threads", nargs="+", type=int, help=f"of the trainer; {WHOLE.threads}")
    parser.add_argument(
        "--parts", default="random", help="how the graph is cut; but for random, seeds lie beside a part"
    )
    parser.add_argument("--kept", type=float, default=0.0, help="the share of rows that the trainer keeps; 0")
    parser.add_argument("--wire", choices=get_args(Wire), default="exact", help="how rows travel; exact")
    options = parser.parse_args(arguments)
    scale = SHORT if options.short else WHOLE
    scale = scale._replace(delays_ms=options.delays or scale.delays_ms, rounds=options.rounds or scale.rounds)
    scale = scale._replace(threads=options.threads or scale.threads)
    lines = measure(options.graph, scale, options.step_ms, options.parts, options.kept, options.wire)
    names = ["added, ms each way", "made by", "threads", "ms a mini-batch", "CPU, ms: trainer", "owners", "waited"]
    names += ["epoch / here", f"within {AIM:g}", "epoch / steps as long as loading"]
    print(f"| {' | '.join(names)} |")
    print("| ---: | --- |" + " ---: |" * (len(names) - 2))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
