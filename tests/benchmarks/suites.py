"""What is measured: one generator of comparisons for each topic."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.benchmarks.measure import Comparison, Contender, Report, Role, check_same_work, take_turns
from tests.benchmarks.workers import ALL_CORES, HUGE_PAGE_MALLOC, Worker

FANOUTS = ([15, 10, 5], [10, 25])  # nearest hop first
HAS_DGL = importlib.util.find_spec("dgl") is not None


@dataclass(frozen=True)
class Scale:
    """How much is done; turns besides one for warming up."""

    num_turns: int = 5
    sampled_batches: int = 8
    loaded_batches: int = 25
    gather_rows: int = 2_400_000
    gather_ids: int = 300_000
    gather_repeats: int = 5
    all_settings: bool = True
    """Peers also with all cores, and with malloc on 2 MB pages."""


QUICK = Scale(
    num_turns=2,
    sampled_batches=8,
    loaded_batches=12,
    gather_rows=1 << 18,
    gather_ids=30_000,
    all_settings=False,
)


def sampling(graph: str, scale: Scale, report: Report) -> Iterator[Comparison]:
    """Drawing, deduplication and relabelling, on one thread."""
    with ExitStack() as stack:
        ours = stack.enter_context(Worker("ours", graph=graph))
        peers = _dgl_workers(stack, graph, scale, {"": {}, ", malloc on 2 MB pages": HUGE_PAGE_MALLOC})
        for fanouts in FANOUTS:
            todo = {"num_batches": scale.sampled_batches, "fanouts": fanouts}
            same_work = [
                _contender("ours", Role.OURS, ours, "sample", todo),
                _contender("ours, with edge ids", Role.OURS, ours, "sample", {**todo, "edge_ids": True}),
                _contender("ours, NeighborSampler.sample", Role.OURS, ours, "sample_once", todo),
                *(_contender(f"DGL{how}", Role.PEER, peer, "sample", todo) for how, peer in peers.items()),
                _contender("its random reads alone", Role.CEILING, ours, "replay", todo),
            ]
            less_work = _contender('ours, expand="new"', Role.OURS, ours, "sample", {**todo, "expand": "new"})
            topic = Comparison(
                "Sampling", _name(graph, fanouts), "ms a batch", [*same_work[:3], less_work, *same_work[3:]]
            )
            measured = take_turns(topic, scale.num_turns, report)
            check_same_work(same_work, "edges")
            yield measured


def gather(scale: Scale, report: Report) -> Iterator[Comparison]:
    """Random feature rows, on one thread."""
    for pages in ("4 KB", "2 MB"):
        with ExitStack() as stack:
            settings: dict[str, Any] = {
                "num_rows": scale.gather_rows,
                "num_features": 128,
                "num_ids": scale.gather_ids,
                "huge_pages": pages == "2 MB",
            }
            worker = stack.enter_context(Worker("gathers", **settings))
            todo = {"repeats": scale.gather_repeats}
            contenders = [
                _contender("ours, into a slot", Role.OURS, worker, "gather", {**todo, "way": "ours"}),
                _contender("index_select", Role.PEER, worker, "gather", {**todo, "way": "index_select"}),
                _contender(
                    "index_select(out=)", Role.PEER, worker, "gather", {**todo, "way": "index_select_out"}
                ),
                _contender(
                    "index_select(out=slot)",
                    Role.PEER,
                    worker,
                    "gather",
                    {**todo, "way": "index_select_slot"},
                ),
                _contender("x[ids]", Role.PEER, worker, "gather", {**todo, "way": "subscript"}),
                _contender("numpy take", Role.PEER, worker, "gather", {**todo, "way": "numpy_take"}),
                _contender("memcpy of as much", Role.CEILING, worker, "copy", todo),
                _contender("random 4-byte reads, their lines", Role.CEILING, worker, "read", todo),
            ]
            if scale.all_settings:
                tuned = stack.enter_context(Worker("gathers", HUGE_PAGE_MALLOC, **settings))
                name = "index_select, malloc on 2 MB pages"
                contenders.insert(
                    2, _contender(name, Role.PEER, tuned, "gather", {**todo, "way": "index_select"})
                )
            share = worker.call("share_on_huge_pages")["share"]
            size = f"{scale.gather_ids:,} of {scale.gather_rows:,} rows of 128 float32"
            setting = f"{size}, {share:.0%} of the table on 2 MB pages"
            yield take_turns(
                Comparison("Gather", setting, "GB/s", contenders, more_is_better=True),
                scale.num_turns,
                report,
            )


def loaders(graph: str, scale: Scale, report: Report) -> Iterator[Comparison]:
    """Whole loaders, features and labels included, without a model."""
    with ExitStack() as stack:
        ours = stack.enter_context(Worker("ours", graph=graph))
        settings: dict[str, dict[str, str]] = {"": {}, ", malloc on 2 MB pages": HUGE_PAGE_MALLOC}
        peers = _dgl_workers(stack, graph, scale, settings | {", OMP on all cores": ALL_CORES})
        for fanouts in FANOUTS:
            todo = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
            contenders = [
                _contender(
                    f"ours, {batch_format!r}, {threads} threads",
                    Role.OURS,
                    ours,
                    "load",
                    {**todo, "batch_format": batch_format, "num_threads": threads},
                )
                for batch_format in (("blocks", "dgl") if HAS_DGL else ("blocks",))
                for threads in (0, 1, 2)
            ] + [
                _contender(
                    f"DGL, {workers} workers{how}", Role.PEER, peer, "load", {**todo, "num_workers": workers}
                )
                for how, peer in peers.items()
                for workers in (0, 2)
            ]
            yield take_turns(
                Comparison("Loader", _name(graph, fanouts), "ms a batch", contenders), scale.num_turns, report
            )


def queue(graph: str, scale: Scale, report: Report) -> Iterator[Comparison]:
    """Between two processes, or within one; without a model."""
    with Worker("ours", graph=graph) as ours:
        for fanouts in FANOUTS:
            todo = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
            in_process = {**todo, "batch_format": "blocks"}
            contenders = [
                _contender("sampler process, 1 thread", Role.OURS, ours, "receive", todo),
                _contender("in process, 1 thread", Role.PEER, ours, "load", {**in_process, "num_threads": 1}),
                _contender(
                    "in process, 0 threads", Role.PEER, ours, "load", {**in_process, "num_threads": 0}
                ),
            ]
            yield take_turns(
                Comparison("Queue", _name(graph, fanouts), "ms a batch", contenders), scale.num_turns, report
            )


def memory(graph: str, scale: Scale, report: Report) -> Iterator[Comparison]:
    """Peaks of processes that do nothing but load, each new for this."""
    fanouts = FANOUTS[0]
    todo = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
    contenders = [
        Contender(
            f"ours, {threads} threads",
            Role.OURS,
            partial(
                _peak,
                {"module": "ours", "graph": graph},
                {**todo, "batch_format": "blocks", "num_threads": threads},
            ),
        )
        for threads in (0, 2)
    ]
    if HAS_DGL:
        contenders += [
            Contender(
                f"DGL, {workers} workers",
                Role.PEER,
                partial(_peak, {"module": "peer_dgl", "graph": graph}, {**todo, "num_workers": workers}),
            )
            for workers in (0, 2)
        ]
    yield take_turns(Comparison("Memory", _name(graph, fanouts), "MiB", contenders), 1, report)


def _peak(worker: dict[str, Any], todo: dict[str, Any], turn: int) -> dict[str, Any]:
    if turn == 0:  # a new process has nothing to warm up
        return {"values": []}
    with Worker(**worker) as fresh:
        fresh.call("load", turn=turn, **todo)
        return fresh.call("peak")


def _contender(name: str, role: Role, worker: Worker, task: str, arguments: dict[str, Any]) -> Contender:
    return Contender(name, role, lambda turn: worker.call(task, turn=turn, **arguments))


def _dgl_workers(
    stack: ExitStack, graph: str, scale: Scale, settings: dict[str, dict[str, str]]
) -> dict[str, Worker]:
    """One for each setting, or only the first, or none where DGL is not installed."""
    wanted = list(settings.items())[: len(settings) if scale.all_settings else 1]
    return {
        how: stack.enter_context(Worker("peer_dgl", environment, graph=graph))
        for how, environment in (wanted if HAS_DGL else [])
    }


def _name(graph: str, fanouts: list[int]) -> str:
    return f"{graph.capitalize()}, fanouts {', '.join(map(str, fanouts))}"


Suite = Callable[[Scale, Report], Iterator[Comparison]]


def suites(graphs: list[str]) -> dict[str, list[Suite]]:
    """The topics, by the name that the command line knows them by."""
    on_graphs = {"sampling": sampling, "loaders": loaders, "queue": queue, "memory": memory}
    found: dict[str, list[Suite]] = {
        name: [partial(suite, graph) for graph in graphs] for name, suite in on_graphs.items()
    }
    return {"sampling": found.pop("sampling"), "gather": [gather], **found}
