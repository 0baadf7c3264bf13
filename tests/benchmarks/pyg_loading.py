"""Whole loaders as PyG's users call them: ours beside PyG's own, by the same arguments, of the same Data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.benchmarks import goals
from tests.benchmarks.contenders import comparison, contender, count
from tests.benchmarks.graphs import GRAPHS, ends_by_source
from tests.benchmarks.measure import Comparison, Report, Role, check_same_work, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.typed_graph import TYPED_GRAPHS
from tests.benchmarks.workers import HUGE_PAGE_MALLOC, Workers

TOPIC = "PyG's loaders"
_FANOUTS = [10, 5]


def _works(graph: str) -> Iterator[tuple[str, list[int], dict[str, Any]]]:
    """(how, fanouts, arguments) of what is loaded."""
    if graph not in TYPED_GRAPHS:
        yield from (("", fanouts, {}) for fanouts in ([15, 10, 5], [10, 25]))
        return
    yield from (("", fanouts, {}) for fanouts in ([10, 5, 3], [15, 10]))
    if TYPED_GRAPHS[graph].arrays.is_timed:
        yield from ((f", by time, {pick}, seeds disjoint", _FANOUTS, {"pick": pick}) for pick in ("uniform", "last"))
    for number in (1, 10):
        yield f", links, {count(number, 'negative')}", _FANOUTS, {"num_negatives": number}


def pyg_loaders(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """In the thread that asks, and by two threads beside two worker processes; all fields, edge ids included."""
    if "pyg-lib" not in workers.found:
        return
    where = _where(graph)
    sides = [
        ("ours", "thread", Role.OURS, "", workers.get("our_pyg_loaders", HUGE_PAGE_MALLOC, **where)),
        ("PyG", "worker", Role.PEER, "pyg-lib", workers.get("peer_pyg_loaders", HUGE_PAGE_MALLOC, **where)),
    ]
    for how, fanouts, work in _works(graph):
        names = {
            (side, number): f"{side}, {count(number, unit) if number else f'no {unit}s'}"
            for number in (0, 2)
            for side, unit, *_ in sides
        }
        contenders = [
            contender(
                names[side, number],
                role,
                worker,
                "load",
                family=family,
                num_batches=3
                * scale.loaded_batches,  # buffers fill within an epoch's first, which a few would not show
                fanouts=fanouts,
                num_workers=number,
                **work,
            )
            for number in (0, 2)
            for side, _, role, family, worker in sides
        ]
        compared = comparison(TOPIC, graph, fanouts, contenders)
        compared.setting += how
        compared.goals = goals.of_pyg_loaders({names["PyG", number]: names["ours", number] for number in (0, 2)})
        compared.remark = "Both have malloc on 2 MB pages. MiB is what processes and workers hold of memory (Pss)."
        yield take_turns(compared, scale.loader_turns, report)
        for column in ("nodes", "edges"):
            check_same_work(contenders, column)


def _where(graph: str) -> dict[str, Any]:
    if graph not in TYPED_GRAPHS:
        return {"typed": False, "folder": str(GRAPHS[graph].folder), "by_source": str(ends_by_source(graph))}
    prepared = TYPED_GRAPHS[graph]
    return {
        "typed": True,
        "folder": str(prepared.folder),
        "seed_type": prepared.seed_type,
        "link_type": prepared.link_type,
    }
