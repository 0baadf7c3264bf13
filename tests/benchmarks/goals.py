"""Goals: the figures that this project set itself, and whether a comparison reached them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lightning_gnnload import ops
from tests.benchmarks.timing import PROCESSOR_MS

if TYPE_CHECKING:  # measure knows of goals, and not the other way round
    from tests.benchmarks.measure import Comparison, Contender


class State(Enum):
    AIM_MET = "aim met"
    MET = "met"
    NOT_MET = "**not met**"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Goal:
    """How ours has to compare.

    Attributes:
        ours: names of contenders; the best of them counts, as the peer's best does.
        against: the family of a peer, whose best setting counts, or the name of another contender.
        at_least: how many times better ours has to be; None for a goal of the other kind.
        at_most: how many times the other's figure ours may be.
        aim: what it should better be, in the same direction.
    """

    ours: Sequence[str]
    against: str
    at_least: float | None = None
    at_most: float | None = None
    aim: float | None = None

    @property
    def bound(self) -> str:
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"

    def judge(self, comparison: Comparison) -> Verdict:
        ours = [contender for contender in comparison.measured if contender.name in self.ours]
        others = [c for c in comparison.measured if self.against in (c.family, c.name) and c not in ours]
        if not ours or not others:
            return Verdict(self, State.NOT_MEASURED)
        best, other = comparison.best(ours), comparison.best(others)
        if self.at_least is not None:
            figure = comparison.times_better(best, other)
            aim_met, met = self.aim is not None and figure >= self.aim, figure >= self.at_least
        else:
            assert self.at_most is not None
            figure = best.median / other.median
            aim_met, met = self.aim is not None and figure <= self.aim, figure <= self.at_most
        state = State.AIM_MET if aim_met else State.MET if met else State.NOT_MET
        return Verdict(self, state, figure, best, other, _by_processor_time(best, other, self))


@dataclass(frozen=True)
class Verdict:
    """What became of a goal.

    Attributes:
        figure: how many times; None where it was not measured. Likewise ``ours`` and ``other``, who gave it.
        by_processor: the same without the time that other processes had, where both were measured so. It does not
            decide, but tells how far to trust ``figure``.
    """

    goal: Goal
    state: State
    figure: float | None = None
    ours: Contender | None = None
    other: Contender | None = None
    by_processor: float | None = None


def _by_processor_time(ours: Contender, other: Contender, goal: Goal) -> float | None:
    sides = ours.note(PROCESSOR_MS), other.note(PROCESSOR_MS)
    if not sides[0] or not sides[1]:
        return None
    return sides[1] / sides[0] if goal.at_least is not None else sides[0] / sides[1]


OURS = ("ours", "ours, topology in memory")  # the same work: what the user may choose, the peer's user may, too
OURS_NEW = tuple(f'{name}, expand="new"' for name in OURS)  # what PyG's samplers do
AVX2 = OURS if ops.instruction_sets()[-1] == "avx2" else tuple(f"{name}, avx2" for name in OURS)  # or forced
REPLAY = "memory replay"
REPLAY_NEW = f'{REPLAY}, expand="new"'
PROMISE = "promise"
ASKED = "what was asked for"
BYTES_AN_EDGE = 9.0  # of a graph with types and times

_PYG = ("pyg-lib",)
_SAMPLING: dict[tuple[str, tuple[int, ...]], dict[str, tuple[float, float]]] = {
    ("g1", (15, 10, 5)): {"DGL": (5, 9), "GraphBolt": (8, 15), "pyg-lib": (9, 14)},
    ("g1", (10, 25)): {"DGL": (3.5, 6), "GraphBolt": (4.5, 8), "pyg-lib": (6, 8)},
    ("g2", (15, 10, 5)): {"DGL": (7, 13), "GraphBolt": (9, 17), "pyg-lib": (6, 10)},
}


_SAMPLING_AVX2 = {(15, 10, 5): (6, 9), (10, 25): (5, 9), (5, 5, 5): (7, 9)}


def of_sampling(graph: str, fanouts: Sequence[int]) -> list[Goal]:
    """Against each peer's best setting, and against the machine's memory."""
    figures = _SAMPLING.get((graph, tuple(fanouts)), {})
    goals = [
        Goal(OURS_NEW if family in _PYG else OURS, family, at_least=least, aim=aim)
        for family, (least, aim) in figures.items()
    ]
    if graph in ("g1", "g2", "g3"):
        least, aim = _SAMPLING_AVX2[tuple(fanouts)]
        goals.append(Goal(AVX2, "DGL", at_least=least, aim=aim))
    if graph == "g1" and list(fanouts) != [5, 5, 5]:  # smaller graphs lie in cache: computing is the limit there
        goals.append(Goal(OURS, REPLAY, at_most=1.6, aim=1.2))
    return goals


def of_loader(graph: str, fanouts: Sequence[int], ours: Sequence[str]) -> list[Goal]:
    wanted = (graph, list(fanouts)) == ("g1", [15, 10, 5])
    return [Goal(ours, "DGL", at_least=7, aim=10)] if wanted else []


def of_training(cores: int) -> list[Goal]:
    """Of whole epochs, each precision against DGL's example in the same."""
    least = {"float32": 1.5, "bf16": 2.5} if cores == 2 else {}
    return [Goal((f"ours, {name}",), f"DGL's example, {name}", at_least=figure) for name, figure in least.items()]


def of_sampler(ours: Sequence[str]) -> list[Goal]:
    """For weighted sampling and PinSAGE."""
    return [Goal(ours, "DGL", at_least=3)]


def of_memory(graph: str, ours: str) -> list[Goal]:
    # Beside a small graph, what Python itself takes on the way counts for more than what is measured.
    return [Goal((ours,), PROMISE, at_most=1)] if graph == "g1" else []


def of_growth(ours: str, small: str) -> list[Goal]:
    return [Goal((ours,), small, at_most=2.5)]


_PYG_WITH_IDS = "pyg-lib, edge ids, malloc on 2 MB pages"
_MARKETS = ("m10", "m100")
_LIKE_DGL = ("ours, edge ids",)  # DGL's blocks carry edge ids
_LIKE_PYG = ('ours, expand="new", edge ids',)


def of_typed(graph: str) -> list[Goal]:
    """Each against a peer that does the same: pyg-lib expands what the last hop found."""
    if graph not in _MARKETS:
        return []
    return [Goal(_LIKE_PYG, _PYG_WITH_IDS, at_least=6), Goal(_LIKE_DGL, "DGL", at_least=4.5)]


def of_types(graph: str, typed: str, untyped: str) -> list[Goal]:
    return [Goal((typed,), untyped, at_most=1.15)] if graph in _MARKETS else []


def of_timed(graph: str) -> list[Goal]:
    return [Goal(_LIKE_DGL, _PYG_WITH_IDS, at_least=6)] if graph in _MARKETS else []


def of_links(graph: str) -> list[Goal]:
    if graph not in _MARKETS:
        return []
    return [Goal(_LIKE_PYG, _PYG_WITH_IDS, at_least=6), Goal(_LIKE_DGL, "DGL", at_least=4)]


def of_made_links(graph: str) -> list[Goal]:
    if graph not in _MARKETS:
        return []
    return [Goal(_LIKE_PYG, "pyg-lib", at_least=6), Goal(_LIKE_DGL, "DGL", at_least=4)]


def of_link_loader(graph: str, ours_beside: Mapping[str, str]) -> list[Goal]:
    """Each contender of ours beside the peer's that does the same on one thread."""
    return [Goal((ours,), theirs, at_least=4) for theirs, ours in ours_beside.items()] if graph in _MARKETS else []


def of_pyg_loaders(ours_beside: Mapping[str, str]) -> list[Goal]:
    """Each contender of ours beside PyG's own loader with as many workers."""
    return [Goal((ours,), theirs, at_least=4, aim=7) for theirs, ours in ours_beside.items()]


def of_build(graph: str, ours: str, sort: str) -> list[Goal]:
    return [Goal((ours,), sort, at_least=2)] if graph in _MARKETS else []


def of_rest(graph: str, ours: str) -> list[Goal]:
    return [Goal((ours,), ASKED, at_most=1)] if graph in _MARKETS else []
