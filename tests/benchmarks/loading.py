"""Whole loaders, features and labels included, without a model."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from lightning_gnnload.adapters.formats import FORMATS
from tests.benchmarks import goals
from tests.benchmarks.contenders import (
    FANOUTS,
    FORCED_SETS,
    IN_MEMORY,
    MALLOC_2MB,
    Setting,
    comparison,
    contender,
    count,
    peers,
)
from tests.benchmarks.measure import Comparison, Report, Role, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.workers import ALL_CORES, HUGE_PAGE_MALLOC, Workers

_ALL_CORES = ", OpenMP on all cores"


_SLOW = {"num_batches": 8}  # five to warm up and three that count


def _settings(
    name: str,
    how: str,
    environment: dict[str, str],
    *num_workers: int,
    work: dict[str, int] | None = None,
    **settings: Any,
) -> list[Setting]:
    return [
        Setting(
            f"{name}, {count(number, 'worker')}{how}", environment, settings, (work or {}) | {"num_workers": number}
        )
        for number in num_workers
    ]


LOADER_PEERS = {
    "DGL": [
        *_settings("DGL", "", {}, 0, 1, 2),
        *_settings("DGL", MALLOC_2MB, HUGE_PAGE_MALLOC, 0, 1, 2),
        *_settings("DGL", _ALL_CORES, ALL_CORES, 0),
        *_settings("DGL", f"{_ALL_CORES}{MALLOC_2MB}", ALL_CORES | HUGE_PAGE_MALLOC, 0),
    ],
    "GraphBolt": _settings("GraphBolt, int32", MALLOC_2MB, HUGE_PAGE_MALLOC, 0, 2, **IN_MEMORY),
    "pyg-lib": _settings("PyG by pyg-lib", MALLOC_2MB, HUGE_PAGE_MALLOC, 0, 2, **IN_MEMORY),
    "torch-sparse": _settings("PyG by torch-sparse", MALLOC_2MB, HUGE_PAGE_MALLOC, 0, 2, work=_SLOW, **IN_MEMORY),
}


def loaders(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """Loads on all cores of the machine, by as many threads or workers as each row says."""
    mapped, in_memory = workers.get("ours", graph=graph), workers.get("ours", graph=graph, in_memory=True)
    formats = [name for name, form in FORMATS.items() if form.library and importlib.util.find_spec(form.library)]
    ways = [*(("blocks", number) for number in (0, 1, 2)), *((form, 2) for form in formats)]
    best = "blocks, 2 threads"
    for fanouts in FANOUTS:
        work: dict[str, Any] = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
        contenders = [
            contender(
                f"ours, {form}, {count(number, 'thread')}",
                Role.OURS,
                mapped,
                "load",
                **work,
                batch_format=form,
                num_threads=number,
            )
            for form, number in ways
        ]
        two_threads: dict[str, Any] = {"batch_format": "blocks", "num_threads": 2}
        name = f"ours, topology in memory, {best}"
        contenders.append(contender(name, Role.OURS, in_memory, "load", **work, **two_threads))
        for forced in FORCED_SETS:
            here = work | two_threads | {"instruction_set": forced}
            contenders.append(contender(f"ours, {forced}, {best}", Role.OURS, mapped, "load", **here))
            contenders.append(contender(f"{name}, {forced}", Role.OURS, in_memory, "load", **here))
        for family, setting, worker in peers(LOADER_PEERS, graph, scale, workers):
            contenders.append(contender(setting.name, Role.PEER, worker, "load", family=family, **work | setting.work))
        wanted = goals.of_loader(graph, fanouts, [f"ours, {best}", name])
        compared = comparison("Loader", graph, fanouts, contenders, goals=wanted)
        yield take_turns(compared, scale.loader_turns, report)


def queue(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """From another process, or within one."""
    ours = workers.get("ours", graph=graph)
    for fanouts in FANOUTS:
        work: dict[str, Any] = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
        in_process = work | {"batch_format": "blocks"}
        contenders = [
            contender("sampler process, 1 thread", Role.OURS, ours, "receive", **work),
            contender("in process, 0 threads", Role.PEER, ours, "load", **in_process, num_threads=0),
            contender("in process, 1 thread", Role.PEER, ours, "load", **in_process, num_threads=1),
        ]
        yield take_turns(comparison("Queue", graph, fanouts, contenders), scale.num_turns, report)
