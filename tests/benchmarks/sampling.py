"""Uniform sampling, deduplication and relabelling on one thread: the suite with most of the goals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.benchmarks import goals
from tests.benchmarks.contenders import FANOUTS, FORCED_SETS, SAMPLING_PEERS, comparison, contender, peers
from tests.benchmarks.measure import Comparison, Contender, Report, Role, check_same_work, take_turns
from tests.benchmarks.report import number
from tests.benchmarks.scale import Scale
from tests.benchmarks.workers import Workers

REPLAY_PARTS = ("indptr", "adjacency", "dedup")
_NEW_ONLY = ("pyg-lib", "torch-sparse")  # what they do is less than expand="all"


def sampling(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    ours, in_memory = workers.get("ours", graph=graph), workers.get("ours", graph=graph, in_memory=True)
    replay = workers.get("replay", graph=graph)
    for fanouts in (*FANOUTS, [5, 5, 5]):
        work: dict[str, Any] = {"num_batches": scale.sampled_batches, "fanouts": fanouts}
        expands_all = [
            contender("ours", Role.OURS, ours, "sample", **work),
            contender("ours, topology in memory", Role.OURS, in_memory, "sample", **work),
            contender("ours, with edge ids", Role.OURS, ours, "sample", **work, edge_ids=True),
            contender("ours, NeighborSampler.sample", Role.OURS, ours, "sample_once", **work),
            contender(goals.REPLAY, Role.CEILING, replay, "replay", **work),
        ]
        expands_all += [
            contender(f"{name}, {forced}", Role.OURS, worker, "sample", **work, instruction_set=forced)
            for forced in FORCED_SETS
            for name, worker in zip(goals.OURS, (ours, in_memory), strict=True)
        ]
        expands_new = [
            contender(goals.OURS_NEW[0], Role.OURS, ours, "sample", **work, expand="new"),
            contender(goals.OURS_NEW[1], Role.OURS, in_memory, "sample", **work, expand="new"),
            contender(goals.REPLAY_NEW, Role.CEILING, replay, "replay", **work, expand="new"),
        ]
        for family, setting, worker in peers(SAMPLING_PEERS, graph, scale, workers):
            peer = contender(setting.name, Role.PEER, worker, "sample", family=family, **work | setting.work)
            (expands_new if family in _NEW_ONLY else expands_all).append(peer)
        contenders = sorted(expands_all + expands_new, key=_place)
        wanted = goals.of_sampling(graph, fanouts)
        measured = take_turns(comparison("Sampling", graph, fanouts, contenders, goals=wanted), scale.num_turns, report)
        check_same_work(expands_all, "edges")
        check_same_work(expands_new, "edges")
        measured.remark = _where_time_goes(measured)
        yield measured


def _where_time_goes(measured: Comparison) -> str:
    """Reading memory at random, or the rest: deciding what to read, numbering, writing."""
    ours = [one for one in measured.measured if one.name in goals.OURS]
    replays = [one for one in measured.measured if one.name == goals.REPLAY]
    if not ours or not replays:
        return ""
    best, replay = measured.best(ours), replays[0]
    parts = ", ".join(f"{number(replay.note(part) or 0)} for {part}" for part in REPLAY_PARTS)
    rest = best.median - replay.median
    return (
        f"Where the time of *{best.name}* goes: of {number(best.median)} ms, the random accesses alone take "
        f"{number(replay.median)} ({parts}); the other {number(rest)} go into drawing, numbering and writing, and "
        f"into what of the accesses is not hidden. It takes {number(best.median / replay.median)} times the replay."
    )


def _place(contender: Contender) -> int:
    """In the table ours come first, the ceilings last."""
    return list(Role).index(contender.role)
