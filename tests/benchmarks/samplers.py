"""The other samplers, on one thread, each beside DGL's where DGL has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks import goals
from tests.benchmarks.contenders import FORCED_SETS, MALLOC_2MB, TITLES, contender
from tests.benchmarks.measure import Comparison, Report, Role, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.workers import HUGE_PAGE_MALLOC, Workers

_FANOUTS = [15, 10, 5]
# GNNLab's PinSAGE, section 7.1.
_PINSAGE = {"num_neighbors": 5, "num_layers": 3, "num_walks": 4, "walk_length": 3, "termination_prob": 0.5}
_WALKS = {"num_walks": 10, "length": 10}


@dataclass(frozen=True)
class Case:
    """One kind of sampler.

    Attributes:
        title: its settings.
        ours: (name, class, arguments) of each of ours.
        peers: (name, method of :class:`PeerDGLSamplers`, arguments) of each of DGL's.
        weighted: the graph has edge weights.
        task: of the worker of ours.
        goals: what it has to show.
        remark: where the two do not do the same.
        replay: the method of :class:`Replay` that repeats what ours reads; None where there is none.
    """

    title: str
    ours: Sequence[tuple[str, str, dict[str, Any]]]
    peers: Sequence[tuple[str, str, dict[str, Any]]] = ()
    weighted: bool = False
    task: str = "sample"
    goals: Sequence[goals.Goal] = ()
    remark: str = ""
    replay: str | None = None


CASES = (
    Case(
        "weighted, fanouts 15, 10, 5",
        [
            ("ours", "WeightedNeighborSampler", {"fanouts": _FANOUTS}),
            ('ours, expand="new"', "WeightedNeighborSampler", {"fanouts": _FANOUTS, "expand": "new"}),
        ],
        [
            ("DGL", "weighted", {"fanouts": _FANOUTS, "fused": True}),
            ("DGL, not fused", "weighted", {"fanouts": _FANOUTS, "fused": False}),
        ],
        weighted=True,
        goals=goals.of_sampler(["ours"]),
        replay="replay_weighted",
    ),
    Case(
        "PinSAGE, 5 of the nodes that 4 walks of up to 3 steps visit, 3 layers",
        [("ours", "RandomWalkSampler", _PINSAGE)],
        [("DGL", "pinsage", _PINSAGE)],
        goals=goals.of_sampler(["ours"]),
    ),
    Case(
        "random walks, 10 of 10 steps from each seed",
        [("ours", "random_walk", _WALKS)],
        [("DGL", "walks", _WALKS)],
        task="walk",
        remark="The edges are steps.",
    ),
    Case(
        "LABOR, fanouts 15, 10, 5",
        [("ours", "LaborSampler", {"fanouts": _FANOUTS})],
        [("DGL", "labor", {"fanouts": _FANOUTS})],
    ),
    Case(
        "ShaDow, fanouts 10, 5",
        [("ours", "ShadowSampler", {"fanouts": [10, 5], "num_layers": 2})],
        [("DGL", "shadow", {"fanouts": [10, 5]})],
        remark="DGL draws again for the nodes that a hop started from, so that its subgraphs are larger.",
    ),
    Case(
        "layer-wise, 4096 nodes in each of 3 layers",
        [
            (f"ours, {method}", "LayerSampler", {"budgets": [4096] * 3, "method": method})
            for method in ("ladies", "fastgcn")
        ],
    ),
)


def samplers(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    work: dict[str, Any] = {"num_batches": max(scale.sampled_batches // 2, 1)}
    with Workers(workers.found.values()) as own:  # weights and tables are large: they go when this is done
        ours = own.get("our_samplers", graph=graph)
        settings = {"": {}, MALLOC_2MB: HUGE_PAGE_MALLOC} if scale.every_setting else {"": {}}
        for case in CASES:
            contenders = [
                contender(
                    f"{name}, {instruction_set}" if instruction_set else name,
                    Role.OURS,
                    ours,
                    case.task,
                    **work,
                    sampler=kind,
                    settings=arguments,
                    weighted=case.weighted,
                    instruction_set=instruction_set,
                )
                for instruction_set in (None, *FORCED_SETS)
                for name, kind, arguments in case.ours
            ]
            contenders += [
                contender(
                    f"{name}{how}",
                    Role.PEER,
                    own.get("peer_dgl_samplers", environment, graph=graph),
                    "sample_by",
                    family="DGL",
                    **work,
                    way=way,
                    settings=arguments,
                )
                for name, way, arguments in (case.peers if "DGL" in own.found else ())
                for how, environment in settings.items()
            ]
            if case.replay is not None:
                replay = own.get("replay", graph=graph)
                contenders.append(contender(goals.REPLAY, Role.CEILING, replay, case.replay, **work, fanouts=_FANOUTS))
            setting = f"{TITLES[graph]}, {case.title}"
            compared = Comparison("Samplers", setting, "ms a batch", contenders, goals=case.goals, remark=case.remark)
            yield take_turns(compared, scale.loader_turns, report)
