"""Whole loaders of links: both ends and negatives of each, with the features of all nodes that are found."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from lightning_gnnload.adapters.formats import FORMATS
from tests.benchmarks import goals
from tests.benchmarks.contenders import FORCED_SETS, MALLOC_2MB, Setting, comparison, contender, count
from tests.benchmarks.measure import Comparison, Report, Role, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.typed import LINK_FANOUTS, typed_peers
from tests.benchmarks.workers import HUGE_PAGE_MALLOC, Workers


def _settings(name: str) -> list[Setting]:
    """The first does all in its own thread, as ours without threads."""
    return [
        Setting(f"{name}, {count(number, 'worker')}{MALLOC_2MB}", HUGE_PAGE_MALLOC, {}, {"num_workers": number})
        for number in (0, 2)
    ]


_PEERS = {"DGL": _settings("DGL"), "pyg-lib": _settings("PyG by pyg-lib")}


def link_loaders(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """On one thread, and by as many threads or workers as each row says. Edge ids are what both peers always give."""
    formats = [name for name, form in FORMATS.items() if form.library and importlib.util.find_spec(form.library)]
    ways: list[tuple[str, int, bool, str | None]] = [("blocks", number, False, None) for number in (0, 2)]
    ways += [
        (form, 0, edge_ids, forced) for form in formats for edge_ids in (False, True) for forced in (None, *FORCED_SETS)
    ]
    ways += [(form, 2, True, None) for form in formats]
    ours = workers.get("our_typed", HUGE_PAGE_MALLOC, graph=graph)
    for num_negatives in (1, 10):
        work: dict[str, Any] = {
            "num_batches": scale.loaded_batches,
            "fanouts": LINK_FANOUTS,
            "num_negatives": num_negatives,
        }
        contenders = [
            contender(
                our_loader(form, number, edge_ids, forced),
                Role.OURS,
                ours,
                "load_links",
                **work,
                batch_format=form,
                num_threads=number,
                edge_ids=edge_ids,
                instruction_set=forced,
            )
            for form, number, edge_ids, forced in ways
        ]
        contenders += [
            contender(setting.name, Role.PEER, worker, "load_links", family=family, **work | setting.work)
            for family, setting, worker in typed_peers(_PEERS, graph, scale, workers)
        ]
        compared = comparison("Link loader", graph, LINK_FANOUTS, contenders)
        compared.setting += f", {count(num_negatives, 'negative')}"
        alone = {family: settings[0].name for family, settings in _PEERS.items()}
        compared.goals = goals.of_link_loader(
            graph, {alone[family]: our_loader(form, 0, True) for form, family in (("pyg", "pyg-lib"), ("dgl", "DGL"))}
        )
        compared.remark = "Ours and DGL's leave the links and their reverses out of what is drawn."
        yield take_turns(compared, scale.loader_turns, report)


def our_loader(batch_format: str, num_threads: int, edge_ids: bool, forced: str | None = None) -> str:
    """The name of ours."""
    threads = count(num_threads, "thread") if num_threads else "no threads"
    ids, how = ", edge ids" if edge_ids else "", f", {forced}" if forced else ""
    return f"ours, {batch_format}, {threads}{ids}{MALLOC_2MB}{how}"
