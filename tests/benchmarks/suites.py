"""What is measured: one generator of comparisons for each topic."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.benchmarks.measure import Comparison, Contender, Report, Role, check_same_work, take_turns
from tests.benchmarks.workers import ALL_CORES, HUGE_PAGE_MALLOC, Worker, Workers

FANOUTS = ([15, 10, 5], [10, 25])  # nearest hop first
HAS_DGL = importlib.util.find_spec("dgl") is not None

_PLAIN: dict[str, dict[str, str]] = {"": {}}
_TUNED = {", malloc on 2 MB pages": HUGE_PAGE_MALLOC}
_ALL_CORES = {", OpenMP on all cores": ALL_CORES}


@dataclass(frozen=True)
class Scale:
    """How much is done.

    Attributes:
        num_turns: turns of each contender, besides one for warming up.
        sampled_batches: mini-batches a turn where each is timed.
        loaded_batches: mini-batches a turn that stream from a loader.
        gather_rows: rows of the feature table.
        gather_ids: rows gathered at a time.
        gather_repeats: gathers a turn.
        every_setting: peers also with all cores and with malloc on 2 MB pages; both kinds of pages for tables.
    """

    num_turns: int = 5
    sampled_batches: int = 8
    loaded_batches: int = 25
    gather_rows: int = 2_400_000
    gather_ids: int = 300_000
    gather_repeats: int = 5
    every_setting: bool = True


QUICK = Scale(
    num_turns=2, loaded_batches=12, gather_rows=1 << 18, gather_ids=30_000, gather_repeats=3, every_setting=False
)


def sampling(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """Drawing, deduplication and relabelling, on one thread."""
    ours, peers = workers.get("ours", graph=graph), _dgl(workers, graph, scale, _PLAIN | _TUNED)
    for fanouts in FANOUTS:
        work = {"num_batches": scale.sampled_batches, "fanouts": fanouts}
        as_loader = [
            _contender("ours", Role.OURS, ours, "sample", **work),
            _contender("ours, with edge ids", Role.OURS, ours, "sample", **work, edge_ids=True),
        ]
        less_work = _contender('ours, expand="new"', Role.OURS, ours, "sample", **work, expand="new")
        others = [
            _contender("ours, NeighborSampler.sample", Role.OURS, ours, "sample_once", **work),
            *(_contender(f"DGL{how}", Role.PEER, peer, "sample", **work) for how, peer in peers.items()),
            _contender("our random reads alone", Role.CEILING, ours, "replay", **work),
        ]
        contenders = [*as_loader, less_work, *others]
        measured = take_turns(_comparison("Sampling", graph, fanouts, contenders), scale.num_turns, report)
        check_same_work([*as_loader, *others], "edges")
        yield measured


def gather(scale: Scale, _: Workers, report: Report) -> Iterator[Comparison]:
    """Random feature rows, on one thread."""
    for huge_pages in (False, True) if scale.every_setting else (True,):
        with Workers() as workers:  # tables are large: none stays for the next comparison
            settings: dict[str, Any] = {"num_rows": scale.gather_rows, "num_features": 128, "num_ids": scale.gather_ids}
            settings |= {"huge_pages": huge_pages}
            plain, repeats = workers.get("gathers", **settings), {"repeats": scale.gather_repeats}
            ways = {
                "index_select": "index_select",
                "index_select(out=)": "index_select_out",
                "index_select(out=slot)": "index_select_slot",
                "x[ids]": "subscript",
                "numpy take": "numpy_take",
            }
            contenders = [
                _contender("ours, into a slot", Role.OURS, plain, "gather", **repeats, way="ours"),
                *(_contender(n, Role.PEER, plain, "gather", **repeats, way=way) for n, way in ways.items()),
                _contender("memcpy of as much", Role.CEILING, plain, "copy", **repeats),
                _contender("random 4-byte reads, their lines", Role.CEILING, plain, "read", **repeats),
            ]
            if scale.every_setting:
                name, tuned = f"index_select{next(iter(_TUNED))}", workers.get("gathers", HUGE_PAGE_MALLOC, **settings)
                contenders.insert(2, _contender(name, Role.PEER, tuned, "gather", **repeats, way="index_select"))
            share = plain.call("share_on_huge_pages")["share"]
            rows = f"{scale.gather_ids:,} of {scale.gather_rows:,} rows of 128 float32"
            setting = f"{rows}, {share:.0%} of the table on 2 MB pages"
            comparison = Comparison("Gather", setting, "GB/s", contenders, more_is_better=True)
            yield take_turns(comparison, scale.num_turns, report)


def loaders(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """Whole loaders, features and labels included, without a model."""
    ours, peers = workers.get("ours", graph=graph), _dgl(workers, graph, scale, _PLAIN | _TUNED | _ALL_CORES)
    for fanouts in FANOUTS:
        work = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
        contenders = [
            _contender(
                f"ours, {batch_format}, {_count(num_threads, 'thread')}",
                Role.OURS,
                ours,
                "load",
                **work,
                batch_format=batch_format,
                num_threads=num_threads,
            )
            for batch_format in (("blocks", "dgl") if HAS_DGL else ("blocks",))
            for num_threads in (0, 1, 2)
        ] + [
            _contender(f"DGL, {num_workers} workers{how}", Role.PEER, peer, "load", **work, num_workers=num_workers)
            for how, peer in peers.items()
            for num_workers in (0, 2)
        ]
        yield take_turns(_comparison("Loader", graph, fanouts, contenders), scale.num_turns, report)


def queue(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """From another process, or within one; without a model."""
    ours = workers.get("ours", graph=graph)
    for fanouts in FANOUTS:
        work: dict[str, Any] = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
        in_process = work | {"batch_format": "blocks"}
        contenders = [
            _contender("sampler process, 1 thread", Role.OURS, ours, "receive", **work),
            _contender("in process, 0 threads", Role.PEER, ours, "load", **in_process, num_threads=0),
            _contender("in process, 1 thread", Role.PEER, ours, "load", **in_process, num_threads=1),
        ]
        yield take_turns(_comparison("Queue", graph, fanouts, contenders), scale.num_turns, report)


def memory(graph: str, scale: Scale, _: Workers, report: Report) -> Iterator[Comparison]:
    """Peaks of processes that do nothing but load, each new for this."""
    fanouts = FANOUTS[0]
    work: dict[str, Any] = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
    contenders = []
    for count in (0, 2) if scale.every_setting else (0,):
        ours = partial(_peak, "ours", graph, **work, batch_format="blocks", num_threads=count)
        contenders.append(Contender(f"ours, {_count(count, 'thread')}", Role.OURS, ours))
        if HAS_DGL:
            peer = partial(_peak, "peer_dgl", graph, **work, num_workers=count)
            contenders.append(Contender(f"DGL, {_count(count, 'worker')}", Role.PEER, peer))
    yield take_turns(_comparison("Memory", graph, fanouts, contenders, unit="MiB"), 1, report)


def _peak(module: str, graph: str, turn: int, **work: Any) -> dict[str, Any]:
    if turn == 0:  # a new process has nothing to warm up
        return {"values": []}
    with Worker(module, graph=graph) as fresh:
        fresh.call("load", turn=turn, **work)
        return fresh.call("peak")


def _contender(name: str, role: Role, worker: Worker, task: str, **arguments: Any) -> Contender:
    return Contender(name, role, lambda turn: worker.call(task, turn=turn, **arguments))


def _dgl(workers: Workers, graph: str, scale: Scale, settings: dict[str, dict[str, str]]) -> dict[str, Worker]:
    """One worker for each setting, or for the first alone; none where DGL is not installed."""
    wanted = list(settings.items())[: len(settings) if scale.every_setting else 1] if HAS_DGL else []
    return {how: workers.get("peer_dgl", environment, graph=graph) for how, environment in wanted}


def _comparison(
    topic: str, graph: str, fanouts: list[int], contenders: list[Contender], unit: str = "ms a batch"
) -> Comparison:
    setting = f"{graph.capitalize()}, fanouts {', '.join(map(str, fanouts))}"
    return Comparison(topic, setting, unit, contenders)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


Suite = Callable[[Scale, Workers, Report], Iterator[Comparison]]


def suites(graphs: list[str]) -> dict[str, list[Suite]]:
    """The topics, by the name that the command line knows them by."""
    return {
        "sampling": [partial(sampling, graph) for graph in graphs],
        "gather": [gather],
        "loaders": [partial(loaders, graph) for graph in graphs],
        "queue": [partial(queue, graph) for graph in graphs],
        "memory": [partial(memory, graph) for graph in graphs],
    }
