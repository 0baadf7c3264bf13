"""Sampling by type, by time and for links, on one thread, each beside those peers that can do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.benchmarks import goals
from tests.benchmarks.contenders import FORCED_SETS, MALLOC_2MB, Setting, comparison, contender, count
from tests.benchmarks.measure import Comparison, Contender, Report, Role, check_same_work, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.typed_graph import TYPED_GRAPHS
from tests.benchmarks.workers import HUGE_PAGE_MALLOC, Worker, Workers

_FANOUTS = ([10, 5, 3], [15, 10], [10, 5])
LINK_FANOUTS = [10, 5]
_AS_MANY_A_NODE = [20, 10, 7]  # 12, 10 and 7 edges a node; 10, 5, 3 of each type are 11, 13 and 7
_NARROW = {"int32": True, "edge_ids": False}

_DGL = [
    Setting(f"DGL, fused{MALLOC_2MB}", HUGE_PAGE_MALLOC, {}, {"fused": True}),
    Setting(f"DGL, not fused{MALLOC_2MB}", HUGE_PAGE_MALLOC, {}, {"fused": False}),
    Setting("DGL, fused", {}, {}, {"fused": True}),
]
_GRAPHBOLT = [Setting(f"GraphBolt, int32{MALLOC_2MB}", HUGE_PAGE_MALLOC)]
_PYG = [
    Setting(f"pyg-lib, edge ids{MALLOC_2MB}", HUGE_PAGE_MALLOC),
    Setting(f"pyg-lib, int32{MALLOC_2MB}", HUGE_PAGE_MALLOC, {}, _NARROW),
]
_DGL_LINKS = [
    Setting(
        f"DGL, {'fused' if fused else 'not fused'}{', links left out' if exclude else ''}{MALLOC_2MB}",
        HUGE_PAGE_MALLOC,
        {},
        {"fused": fused, "exclude": exclude},
    )
    for fused, exclude in ((True, True), (False, True), (True, False))
]
_PYG_LINKS = [Setting(f"pyg-lib, by PyG's sampler{MALLOC_2MB}", HUGE_PAGE_MALLOC)]
_PYG_TIMED = [_PYG[0], Setting(f"pyg-lib{MALLOC_2MB}", HUGE_PAGE_MALLOC, {}, {"edge_ids": False})]


def typed(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """A number means as many of every edge type."""
    ours = workers.get("our_typed", graph=graph)
    for fanouts in _FANOUTS:
        work: dict[str, Any] = {"num_batches": _batches(scale), "fanouts": fanouts}
        every = _of_ours(ours, "sample", {"expand": "all"}, work)
        new = _of_ours(ours, "sample", {"expand": "new"}, work)
        every += _of_peers({"DGL": _DGL, "GraphBolt": _GRAPHBOLT}, "sample", work, graph, scale, workers)
        new += _of_peers({"pyg-lib": _PYG}, "sample", work, graph, scale, workers)
        replay = workers.get("replay_typed", graph=graph)
        every.append(contender(goals.REPLAY, Role.CEILING, replay, "replay", **work))
        new.append(contender(goals.REPLAY_NEW, Role.CEILING, replay, "replay", **work, expand="new"))
        contenders = sorted([*every, *new], key=_place)
        wanted = goals.of_typed(graph)
        yield take_turns(comparison("By type", graph, fanouts, contenders, goals=wanted), scale.loader_turns, report)
        check_same_work(every, "edges")
        check_same_work(new, "edges")
    yield take_turns(_beside_untyped(graph, ours, scale), scale.num_turns, report)


def timed(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """Each seed by itself, none later than its time."""
    if not TYPED_GRAPHS[graph].arrays.is_timed:
        return
    ours = workers.get("our_typed", graph=graph)
    for fanouts in _FANOUTS[:2]:
        work: dict[str, Any] = {"num_batches": _batches(scale), "fanouts": fanouts}
        for pick in ("uniform", "last"):
            contenders = _of_ours(ours, "sample_timed", {"pick": pick}, work)
            contenders += _of_peers(
                {"pyg-lib": _PYG_TIMED}, "sample_timed", work | {"pick": pick}, graph, scale, workers
            )
            replay = workers.get("replay_typed", graph=graph)
            contenders.append(contender(goals.REPLAY, Role.CEILING, replay, "replay_timed", **work, pick=pick))
            check = [*contenders]
            if pick == "uniform" and len(fanouts) == 2:  # more hops would find a hundred times as much
                contenders += _of_peers({"GraphBolt": _GRAPHBOLT}, "sample_timed", work, graph, scale, workers)
            compared = comparison("By time", graph, fanouts, contenders, goals=goals.of_timed(graph))
            compared.setting += f", {pick}, seeds disjoint"
            contenders.sort(key=_place)
            yield take_turns(compared, scale.loader_turns, report)
            check_same_work(check, "edges")


def links(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """Of 1024 links, both ends and the negatives; for ends that are known, and as each library makes them."""
    ours = workers.get("our_typed", graph=graph)
    for num_negatives in (1, 10):
        work: dict[str, Any] = {
            "num_batches": _batches(scale),
            "fanouts": LINK_FANOUTS,
            "num_negatives": num_negatives,
        }
        every = _of_ours(ours, "sample_ends", {"expand": "all"}, work)
        new = _of_ours(ours, "sample_ends", {"expand": "new"}, work)
        every += _of_peers({"DGL": _DGL, "GraphBolt": _GRAPHBOLT}, "sample_ends", work, graph, scale, workers)
        new += _of_peers({"pyg-lib": _PYG}, "sample_ends", work, graph, scale, workers)
        contenders = sorted([*every, *new], key=_place)
        compared = comparison("Links", graph, LINK_FANOUTS, contenders, goals=goals.of_links(graph))
        compared.setting += f", {count(num_negatives, 'negative')}, ends that are known"
        yield take_turns(compared, scale.loader_turns, report)
        check_same_work(every, "edges")
        check_same_work(new, "edges")
        every = _of_ours(ours, "sample_links", {"expand": "all"}, work)
        new = _of_ours(ours, "sample_links", {"expand": "new"}, work)
        every += _of_peers({"DGL": _DGL_LINKS}, "sample_links", work, graph, scale, workers)
        new += _of_peers({"pyg-lib": _PYG_LINKS}, "sample_links", work, graph, scale, workers)
        contenders = sorted([*every, *new], key=_place)
        compared = comparison("Links", graph, LINK_FANOUTS, contenders, goals=goals.of_made_links(graph))
        compared.setting += f", {count(num_negatives, 'negative')}, as each library makes them"
        compared.remark = "Ours, and DGL's where it says so, leave the links and their reverses out of what is drawn."
        yield take_turns(compared, scale.loader_turns, report)
        check_same_work(every, "edges")
        check_same_work(new, "edges")


def typed_peers(
    ways: Mapping[str, list[Setting]], graph: str, scale: Scale, workers: Workers
) -> Iterator[tuple[str, Setting, Worker]]:
    """(family, setting, worker) of every peer that is here, in every setting or in the first alone."""
    prepared = TYPED_GRAPHS[graph]
    where = {"folder": str(prepared.folder), "seed_type": prepared.seed_type, "link_type": prepared.link_type}
    for family, settings in ways.items():
        if (found := workers.found.get(family)) is not None:
            for setting in settings[: None if scale.every_setting else 1]:
                worker = workers.get(f"{found.peer.worker}_typed", setting.environment, **where, **setting.settings)
                yield family, setting, worker


def _of_peers(
    ways: Mapping[str, list[Setting]], task: str, work: dict[str, Any], graph: str, scale: Scale, workers: Workers
) -> list[Contender]:
    return [
        contender(setting.name, Role.PEER, worker, task, family=family, **work | setting.work)
        for family, setting, worker in typed_peers(ways, graph, scale, workers)
    ]


def _of_ours(worker: Worker, task: str, settings: dict[str, Any], work: dict[str, Any]) -> list[Contender]:
    """With edge ids and without, by the machine's best instructions and by those of others."""
    how = ', expand="new"' if settings.get("expand") == "new" else ""
    return [
        contender(
            f"ours{how}{', edge ids' if edge_ids else ''}{f', {forced}' if forced else ''}",
            Role.OURS,
            worker,
            task,
            **work,
            **settings,
            edge_ids=edge_ids,
            instruction_set=forced,
        )
        for forced in (None, *FORCED_SETS)
        for edge_ids in (False, True)
    ]


def _beside_untyped(graph: str, ours: Worker, scale: Scale) -> Comparison:
    """The same lists with types and without: by fanouts that give about as many edges a node, and by the same."""
    contenders = [
        contender(
            f"{'without' if untyped else 'with'} types, fanouts {', '.join(map(str, fanouts))}"
            f"{f', {forced}' if forced else ''}",
            Role.CEILING if untyped else Role.OURS,
            ours,
            "sample_edges",
            num_batches=_batches(scale),
            fanouts=fanouts,
            expand="new",
            untyped=untyped,
            instruction_set=forced,
        )
        for forced in (None, *FORCED_SETS)
        for untyped, fanouts in ((False, _FANOUTS[0]), (True, _AS_MANY_A_NODE), (True, _FANOUTS[0]))
    ]
    compared = comparison("By type", graph, _FANOUTS[0], contenders, unit="ns a sampled edge")
    typed, plain = contenders[0], contenders[1]
    compared.goals = goals.of_types(graph, typed.name, plain.name)
    return compared


def _batches(scale: Scale) -> int:
    return max(scale.sampled_batches // 2, 1)


def _place(contender: Contender) -> int:
    return list(Role).index(contender.role)
