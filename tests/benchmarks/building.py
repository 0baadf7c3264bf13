"""Building graphs with types and times from edge lists: each time in a new process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tests.benchmarks import goals
from tests.benchmarks.builds import AT_REST
from tests.benchmarks.contenders import TITLES
from tests.benchmarks.measure import Comparison, Contender, Reply, Report, Role, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.typed_graph import TYPED_GRAPHS
from tests.benchmarks.workers import Worker, Workers

_SORT = "torch.sort(stable=True) by target"
_TIMED = "ours, times"
_REMARK = (
    "PyG's keeps its edges' times and their order; pyg-lib's kernel by itself needs neither the order nor its 8 bytes."
)


def building(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """Of all edges, and the bytes an edge that the process has more than before."""
    if not TYPED_GRAPHS[graph].arrays.is_timed:
        return
    contenders = [
        _contender(_TIMED, Role.OURS, graph, "ours", timed=True),
        _contender(f"{_TIMED}, order of edges kept", Role.OURS, graph, "ours", timed=True, keep_order=True),
        _contender("ours, no times", Role.OURS, graph, "ours", timed=False),
        _contender(_SORT, Role.CEILING, graph, "torch_sort", timed=False),
        _contender("twice, by time and by target", Role.CEILING, graph, "torch_sort", timed=True),
        _contender("PyG's, times", Role.PEER, graph, "pyg", family="PyG"),
    ]
    if "DGL" in workers.found:
        contenders.append(_contender("DGL's, no times", Role.PEER, graph, "dgl", family="DGL"))
    compared = Comparison("Building", TITLES[graph], "s", contenders, goals=goals.of_build(graph, _TIMED, _SORT))
    yield take_turns(compared, 1 if scale.every_setting else 2, report)
    yield _at_rest(graph, contenders)


def _at_rest(graph: str, built: list[Contender]) -> Comparison:
    """Of the graphs that were built, what they take of memory."""
    graphs = [one for one in built if one.role is not Role.CEILING and AT_REST in one.notes]
    contenders = [replace(one, values=one.notes[AT_REST], notes={}) for one in graphs]
    asked = Contender(goals.ASKED, Role.CEILING, lambda _: {}, values=[goals.BYTES_AN_EDGE])
    return Comparison(
        "At rest", TITLES[graph], AT_REST, [*contenders, asked], goals=goals.of_rest(graph, _TIMED), remark=_REMARK
    )


def _contender(name: str, role: Role, graph: str, way: str, *, family: str = "", **settings: Any) -> Contender:
    return Contender(name, role, partial(_build, graph, way, settings), family=family)


def _build(graph: str, way: str, settings: dict[str, Any], turn: int) -> Reply:
    if turn == 0:  # a new process has nothing to warm up
        return {"values": []}
    with Worker("builds", graph=graph) as fresh:
        return fresh.call("build", way=way, **settings)
