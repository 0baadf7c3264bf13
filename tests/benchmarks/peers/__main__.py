"""The table beside the peers: a mini-batch's time, the loader's memory, an epoch, and what each library can do.

    make compare                                                       # with environments for the peers
    python -m tests.benchmarks.peers --pyg-python pyg/bin/python --graphbolt-python graphbolt/bin/python

Loaders alone, without a model, of the same graph, features, fanouts and seeds a batch, on all cores; ours by each
instruction set that the machine has. Each way to load is a process of its own and has the machine to itself; the ways
take turns. Of a library, its best way counts. Then epochs of training on the Debian graph, ours and DGL's own example
of the same model. Ten minutes; --quick takes three, and shows that all of it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from lightning_gnnload import ops
from lightning_gnnload.errors import GnnLoadError
from tests.benchmarks import machine, peers
from tests.benchmarks.contenders import TITLES
from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.graphs import GRAPHS, ends_by_source
from tests.benchmarks.memory import held_bytes
from tests.benchmarks.peers import environments
from tests.benchmarks.peers.abilities import ABILITIES, LIBRARIES
from tests.benchmarks.report import number
from tests.benchmarks.seeds import BATCH_SIZE
from tests.benchmarks.workers import ALL_CORES, HUGE_PAGE_MALLOC, Worker

_FANOUTS = [15, 10, 5]
_GIB = 1 << 30
_LOOK_S = 0.2


@dataclass
class Way:
    """A way to load with one library, and what was measured of it.

    Attributes:
        library: its column of the table.
        how: the setting, in words.
        worker: the module of the benchmarks that runs it.
        work: arguments of its ``load``.
        environment: variables of its process, besides 2 MB pages for malloc.
        settings: of the worker itself, besides the graph.
        times_ms: wall time a batch, of each round.
        used_ms: processor time a batch, of the loader and all its processes.
        held_gib: the most memory while batches come.
        peak_gib: likewise, the start included, in which the graph is read and brought to the library's form.
    """

    library: str
    how: str
    worker: str
    work: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    times_ms: list[float] = field(default_factory=list)
    used_ms: list[float] = field(default_factory=list)
    held_gib: list[float] = field(default_factory=list)
    peak_gib: list[float] = field(default_factory=list)

    @property
    def least_ms(self) -> float:
        """Of the rounds: whatever else the machine does can only add to it."""
        return min(self.times_ms)


def ways() -> list[Way]:
    """Ours as a data module gives it, by each instruction set, and by PyG's names; each peer by worker processes and by
    OpenMP's threads."""
    blocks = {"batch_format": "blocks", "num_threads": 2}
    ours = [
        Way(LIBRARIES[0], f"GraphDataModule, 2 threads, {name}", "ours", blocks, {}, {"instruction_set": name})
        for name in reversed(ops.instruction_sets()[1:] or ops.instruction_sets())
    ]
    ours += [
        Way(LIBRARIES[0], "pyg.NeighborLoader, 2 threads", "our_pyg_loaders", {"num_workers": 2}),
    ]
    workers = ("peer_pyg_loaders", "peer_graphbolt", "peer_dgl")
    return ours + [
        Way(library, *setting)
        for library, worker in zip(LIBRARIES[1:], workers, strict=True)
        for setting in (
            ("2 workers", worker, {"num_workers": 2}),
            ("no workers, OpenMP on all cores", worker, {"num_workers": 0}, ALL_CORES),
        )
    ]


def measure(way: Way, python: str, graph: str, num_batches: int) -> None:
    """One round, in a new process: a warm-up that shows what the start takes, then the time, then the memory."""
    settings = _where(way.worker, graph) | way.settings
    with Worker(way.worker, HUGE_PAGE_MALLOC | way.environment, python=python, **settings) as worker:
        process = worker.start().pid
        work = {"fanouts": _FANOUTS, **way.work}
        with _watched(process) as peak:
            worker.call("load", turn=0, num_batches=num_batches, **work)
        before = _processor_s(process)
        way.times_ms += worker.call("load", turn=1, num_batches=num_batches, **work)["values"]
        # With what it takes to start and end the loader's own processes: who has none does not pay for them.
        way.used_ms.append((_processor_s(process) - before) * 1e3 / num_batches)
        with _watched(process) as held:
            worker.call("load", turn=2, num_batches=num_batches, **work)
        way.held_gib.append(held() / _GIB)
        way.peak_gib.append(max(peak(), held()) / _GIB)


@contextmanager
def _watched(process: int) -> Iterator[Callable[[], int]]:
    """Yields what tells the most memory that the process and all it started held together since."""
    peak, is_over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.is_set():
            is_over.wait(_LOOK_S)
            peak = max(peak, held_bytes(process))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: peak
    finally:
        is_over.set()
        watcher.join()


def _processor_s(process: int) -> float:
    """Of the process, and of those it started that have ended."""
    times = psutil.Process(process).cpu_times()
    return sum((times.user, times.system, times.children_user, times.children_system))


def _where(worker: str, graph: str) -> dict[str, Any]:
    if worker in ("ours", "peer_dgl"):
        return {"graph": graph}
    folder = {"folder": str(GRAPHS[graph].folder)}
    if worker == "peer_graphbolt":
        return folder | {"in_memory": True}
    return folder | {"typed": False, "by_source": str(ends_by_source(graph))}


def epochs(rounds: int, with_dgl: bool) -> dict[str, float]:
    """Milliseconds of an epoch of the same GraphSAGE on the Debian graph, by library: ours under Lightning's Trainer,
    and DGL's example without workers, its best way there. On all cores, in turn; the first epoch is not timed."""
    cores = len(os.sched_getaffinity(0))
    environment = {"OMP_NUM_THREADS": str(cores), "OMP_WAIT_POLICY": "passive"}
    sides = {LIBRARIES[0]: ("our_training", {"precision": "float32"})}
    if with_dgl:
        theirs = {"precision": "float32", "num_workers": 0, "our_dropout": False}
        sides[LIBRARIES[-1]] = ("peer_dgl_training", theirs)
    took_ms: dict[str, list[float]] = {library: [] for library in sides}
    with ExitStack() as stack:
        workers = {
            library: stack.enter_context(Worker(module, environment, graph="debian", cores=cores))
            for library, (module, _) in sides.items()
        }
        for turn in range(rounds + 1):
            for library, worker in workers.items():
                took_ms[library] += worker.call("epoch", turn=turn, **sides[library][1])["values"]
    return {library: min(values[1:]) for library, values in took_ms.items()}


def table(measured: Sequence[Way], missing: dict[str, str], epoch_ms: Mapping[str, float]) -> str:
    """What was measured of each library's best way, and what each can do, a column a library."""
    best = {
        library: min((way for way in measured if way.library == library), key=lambda way: way.least_ms, default=None)
        for library in LIBRARIES
    }
    rows = [
        ("time a mini-batch, ms", lambda way: number(way.least_ms)),
        ("processor time of it, ms", lambda way: number(min(way.used_ms))),
        ("memory while it loads, GiB", lambda way: f"{max(way.held_gib):.1f}"),
        ("the most memory, start included, GiB", lambda way: f"{max(way.peak_gib):.1f}"),
    ]
    lines = [f"| | {' | '.join(LIBRARIES)} |", "| --- |" + " --- |" * len(LIBRARIES)]
    for what, of in rows:
        lines.append(f"| {what} | {' | '.join('not measured' if way is None else of(way) for way in best.values())} |")
    for ours in (way for way in measured if way.settings):
        ratios = ("" if way is None else f"{way.least_ms / ours.least_ms:.1f}" for way in best.values())
        lines.append(f"| times ours by {ours.settings['instruction_set']} | {' | '.join(ratios)} |")
    if epoch_ms:
        cells = (number(epoch_ms[library]) if library in epoch_ms else "not measured" for library in LIBRARIES)
        lines.append(f"| an epoch of GraphSAGE on Debian, ms | {' | '.join(cells)} |")
    lines += [f"| {what} | {' | '.join(answers)} |" for what, answers in ABILITIES.items()]
    reasons = [f"- {library} was not measured here: {reason}" for library, reason in missing.items()]
    return "\n".join([*lines, *(["", *reasons] if reasons else [])])


def settings_table(measured: Sequence[Way]) -> str:
    """Every way, the slow ones too, with the range of its rounds."""
    lines = [
        "| loader | how | ms a batch | rounds | processor ms | GiB while it loads | GiB, start included |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for way in measured:
        cells = [way.library, way.how, number(way.least_ms), ", ".join(number(ms) for ms in way.times_ms)]
        cells += [number(min(way.used_ms)), f"{max(way.held_gib):.1f}", f"{max(way.peak_gib):.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--graph", choices=("debian", "g2", "g1"), default="g1", help="by default g1, of 124 M edges")
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=LIBRARIES, help="by default all libraries")
    parser.add_argument("--quick", action="store_true", help="the Debian graph, two rounds: a trial, no measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=25, metavar="N", help="a round; the first five are not timed")
    for option, peer in (("--pyg-python", "PyG and pyg-lib"), ("--graphbolt-python", "GraphBolt")):
        parser.add_argument(
            option, metavar="PATH", default=sys.executable, help=f"the interpreter that has {peer}; by default this one"
        )
    parser.add_argument(
        "--environments",
        type=Path,
        metavar="FOLDER",
        help="make environments for PyG with pyg-lib and for GraphBolt there, unless they are; gigabytes each",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the tables there as well")
    options = parser.parse_args(arguments)
    if options.quick:
        options.graph, options.rounds, options.batches = "debian", 2, 10
    progress, neighbours = Console(stderr=True), machine.Neighbours()
    pythons = {"peer_pyg": options.pyg_python, "peer_graphbolt": options.graphbolt_python}
    # By the order of columns; the last of the peers is PyG by torch-sparse, which is slower than by pyg-lib.
    dgl, graphbolt, pyg, _ = peers.find(pythons)
    if options.environments is not None:
        named = {peer.family: peer for peer in peers.PEERS}
        made = environments.made(options.environments, named, lambda line: progress.print(line, soft_wrap=True))
        graphbolt = graphbolt if graphbolt.build else made["GraphBolt"]
        pyg = pyg if pyg.build else made["pyg-lib"]
    found = dict(zip(LIBRARIES[1:], (pyg, graphbolt, dgl), strict=True))
    missing = {library: one.missing for library, one in found.items() if one.missing is not None}
    with Worker("graphs", show_output=True) as worker:
        worker.call("prepare", graph=options.graph)
    measured = [way for way in ways() if way.library in options.only and way.library not in missing]
    for turn in range(options.rounds):
        for way in measured:
            python = found[way.library].python if way.library in found else sys.executable
            measure(way, python, options.graph, options.batches)
            progress.print(f"round {turn}: {way.library}, {way.how}: {way.times_ms[-1]:.1f} ms a batch")
    epoch_ms: dict[str, float] = {}
    if {LIBRARIES[0], LIBRARIES[-1]} <= {*options.only}:
        epoch_ms = epochs(options.rounds, LIBRARIES[-1] not in missing)
        progress.print(f"epochs on Debian: {', '.join(f'{name} {ms:.0f} ms' for name, ms in epoch_ms.items())}")
    fanouts = ", ".join(map(str, _FANOUTS))
    work = f"{TITLES[options.graph]}, fanouts {fanouts}, {BATCH_SIZE} seeds a batch"
    notes = [f"- {line}" for line in (*machine.describe(), *map(str, found.values()), neighbours.describe())]
    command = " ".join(["python -m tests.benchmarks.peers", *arguments])
    text = "\n\n".join(
        [
            f"# Beside other loaders, on this machine\n\n`{command}`",
            f"{work}; the fastest of {options.rounds} rounds:",
            table(measured, missing, epoch_ms),
            settings_table(measured),
            "\n".join(notes),
        ]
    )
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(f"{text}\n")
        progress.print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BenchmarkError, GnnLoadError) as error:
        sys.exit(f"benchmark: {error}")
    except KeyboardInterrupt:
        sys.exit("benchmark: interrupted")
