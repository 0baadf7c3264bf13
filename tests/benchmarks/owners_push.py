"""What a link's latency costs a trainer, by who makes its mini-batches: ``python -m tests.benchmarks.owners_push``.

Two owners, processes of their own with a part each, behind links that delay each byte, each way: between the trainer
and owners, and among owners. ``ranks``: the trainer asks hop by hop, and then for rows; ``owners``: it asks for whole
mini-batches, each sampling thread for one, so that threads are its credit. First mini-batches as they stream to who
only takes them; then a trainer whose step, a pause, takes as long as one thread here needs to make a mini-batch of the
same graph in memory, or as ``--step-ms`` says. Medians by turns. Owners share this machine's cores with the trainer.
Some minutes a delay.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lightning_gnnload import Debian, GraphDataModule, NeighborSampler, Synthetic, load_partition, partition_graph
from lightning_gnnload.owners.address import SECRET_FILE
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
    """Seconds that a trainer took for its mini-batches, and how much of these it waited."""

    took_s: float
    waited_s: float


@dataclass
class Contender:
    """A way to have mini-batches, and what was measured of it, by delay."""

    name: str
    threads: int
    module: GraphDataModule
    stream_ms: dict[float, list[float]] = field(default_factory=lambda: defaultdict(list))
    trained: dict[float, list[Trained]] = field(default_factory=lambda: defaultdict(list))

    def measure(self, delay_ms: float, scale: Scale, step_s: float) -> None:
        self.stream_ms[delay_ms].append(train(self.module, scale, 0.0).took_s * 1e3 / scale.num_batches)
        self.trained[delay_ms].append(train(self.module, scale, step_s))


def train(module: GraphDataModule, scale: Scale, step_s: float) -> Trained:
    """Takes mini-batches from a loader of its own, and trains on each for ``step_s``."""
    batches = iter(module.train_dataloader())
    for _ in itertools.islice(batches, scale.num_first):
        time.sleep(step_s)
    began, waited_s = time.perf_counter(), 0.0
    for _ in range(scale.num_batches):
        asked = time.perf_counter()
        batch = next(batches)
        waited_s += time.perf_counter() - asked
        del batch  # its memory is free for another
        time.sleep(step_s)
    return Trained(time.perf_counter() - began, waited_s)


def serve(folder: Path, stack: ExitStack) -> list[DelayProxy]:
    """Starts the owners; returns the links to them, by whose addresses all know them."""
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(SECRET)
    owners = [
        stack.enter_context(OwnerProcess(folder / "parts", secret, "--parts", str(part))) for part in range(NUM_PARTS)
    ]
    ports = [int(owner.wait_until_ready().rpartition(":")[2]) for owner in owners]
    return [stack.enter_context(DelayProxy(port)) for port in ports]


def measure(graph: str, scale: Scale, step_ms: float | None) -> list[str]:
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
        partition_graph(data, folder / "parts", NUM_PARTS, "random", hops=0, progress=False)
        links = serve(folder, stack)
        os.environ[SECRET_FILE] = str(folder / "secret")
        addresses = [f"127.0.0.1:{link.port}" for link in links]
        here = Contender("here", 1, GraphDataModule(data, SAMPLER, BATCH_SIZE, num_threads=1))
        remote = [
            Contender(
                made_by,
                threads,
                GraphDataModule(
                    load_partition(folder / "parts"),
                    SAMPLER,
                    BATCH_SIZE,
                    num_threads=threads,
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
        told = f"{graph}: a mini-batch {here_ms:.1f} ms here, a step {step_ms:.1f} ms"
        print(told, file=sys.stderr, flush=True)
        for turn in range(scale.rounds):
            for delay_ms in scale.delays_ms:
                for link in links:
                    link.set_delay(round(delay_ms * 1000))
                for contender in (here, *remote):
                    contender.measure(delay_ms, scale, step_ms / 1e3)
                print(f"round {turn + 1} of {scale.rounds}: {delay_ms} ms", file=sys.stderr, flush=True)
        local_s = statistics.median(trained.took_s for each in here.trained.values() for trained in each)
        return [row_of(contender, delay_ms, local_s) for delay_ms in scale.delays_ms for contender in (here, *remote)]


def row_of(contender: Contender, delay_ms: float, local_s: float) -> str:
    stream_ms = statistics.median(contender.stream_ms[delay_ms])
    took_s = statistics.median(trained.took_s for trained in contender.trained[delay_ms])
    waited = statistics.median(trained.waited_s / trained.took_s for trained in contender.trained[delay_ms])
    ratio = took_s / local_s
    cells = [f"{delay_ms:g}", contender.name, str(contender.threads), f"{stream_ms:.1f}", f"{waited:.0%}"]
    return f"| {' | '.join([*cells, f'{ratio:.2f}', 'yes' if ratio <= AIM else 'no'])} |"


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
    options = parser.parse_args(arguments)
    scale = SHORT if options.short else WHOLE
    scale = scale._replace(delays_ms=options.delays or scale.delays_ms, rounds=options.rounds or scale.rounds)
    lines = measure(options.graph, scale, options.step_ms)
    print(f"| added, ms each way | made by | threads | ms a mini-batch | waited | epoch / here | within {AIM:g} |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | --- |")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
