"""Whole loaders of links: both ends and negatives of each, with the features of all nodes that are found."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from lightning_gnnload.adapters import FORMATS
from tests.benchmarks import goals
from tests.benchmarks.contenders import FORCED_SETS, MALLOC_2MB, Setting, comparison, contender, count
from tests.benchmarks.measure import Comparison, Report, Role, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.typed import LINK_FANOUTS, typed_peers
from tests.benchmarks.workers import ALL_CORES, HUGE_PAGE_MALLOC, Workers

_ALL_CORES = ", OpenMP on all cores"


def _settings(name: str, how: str, environment: dict[str, str], *num_workers: int) -> list[Setting]:
    return [
        Setting(f"{name}, {count(number, 'worker')}{how}", environment, {}, {"num_workers": number})
        for number in num_workers
    ]


_PEERS = {
    "DGL": [
        *_settings("DGL", MALLOC_2MB, HUGE_PAGE_MALLOC, 0, 2),
        *_settings("DGL", f"{_ALL_CORES}{MALLOC_2MB}", ALL_CORES | HUGE_PAGE_MALLOC, 0),
    ],
    "pyg-lib": _settings("PyG by pyg-lib", MALLOC_2MB, HUGE_PAGE_MALLOC, 0, 2),
}


def link_loaders(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """On all cores of the machine, by as many threads or workers as each row says."""
    formats = [name for name, form in FORMATS.items() if form.library and importlib.util.find_spec(form.library)]
    ways: list[tuple[str, int, str | None]] = [("blocks", number, None) for number in (0, 1, 2)]
    ways += [(form, 2, None) for form in formats] + [("blocks", 2, forced) for forced in FORCED_SETS]
    ours = workers.get("our_typed", graph=graph)
    for num_negatives in (1, 10):
        work: dict[str, Any] = {
            "num_batches": scale.loaded_batches,
            "fanouts": LINK_FANOUTS,
            "num_negatives": num_negatives,
        }
        contenders = [
            contender(
                f"ours, {form}, {count(number, 'thread')}{f', {forced}' if forced else ''}",
                Role.OURS,
                ours,
                "load_links",
                **work,
                batch_format=form,
                num_threads=number,
                instruction_set=forced,
            )
            for form, number, forced in ways
        ]
        contenders += [
            contender(setting.name, Role.PEER, worker, "load_links", family=family, **work | setting.work)
            for family, setting, worker in typed_peers(_PEERS, graph, scale, workers)
        ]
        compared = comparison("Link loader", graph, LINK_FANOUTS, contenders)
        compared.setting += f", {count(num_negatives, 'negative')}"
        compared.goals = goals.of_link_loader(graph)
        yield take_turns(compared, scale.loader_turns, report)
