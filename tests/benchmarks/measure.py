"""Comparison: contenders that took turns at the same work, and how they compare."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.benchmarks.errors import BenchmarkError, Unavailable
from tests.benchmarks.goals import Goal

Reply = dict[str, Any]
Report = Callable[[str], None]


class Role(Enum):
    OURS = "ours"
    PEER = "peer"
    CEILING = "ceiling"


@dataclass
class Contender:
    """Someone who can take a turn.

    Attributes:
        name: what the table calls it.
        role: whether it is ours, a peer, or what the machine itself could do.
        take_turn: does the work of one turn, named by a number; returns ``"values"``, one or more measured
            figures, and what else there is to say, by name of a column.
        family: the library of a peer; its best setting is what ours is compared with.
        values: the figures of all its turns.
        notes: the other columns, of each turn.
        missing: why it could not take a turn; None where it could.
        failure: what went wrong, in full, where that was the reason.
    """

    name: str
    role: Role
    take_turn: Callable[[int], Reply]
    family: str = ""
    values: list[float] = field(default_factory=list)
    notes: dict[str, list[float]] = field(default_factory=dict)
    missing: str | None = None
    failure: str | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The 10th and 90th percentile, between the measured figures next to them."""
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        deciles = statistics.quantiles(self.values, n=10, method="inclusive")
        return deciles[0], deciles[-1]

    def note(self, column: str) -> float | None:
        """The median over the turns, or None where it says nothing."""
        return statistics.median(self.notes[column]) if column in self.notes else None


@dataclass
class Comparison:
    """Contenders for the same work.

    Attributes:
        topic: the kind of work; a title of the report.
        setting: what is special in this comparison.
        unit: of the values.
        contenders: in the order of the table.
        more_is_better: of values such as GB/s.
        goals: the figures that this comparison has to show.
        remark: what the figures mean, in words.
    """

    topic: str
    setting: str
    unit: str
    contenders: list[Contender]
    more_is_better: bool = False
    goals: Sequence[Goal] = ()
    remark: str = ""

    @property
    def measured(self) -> list[Contender]:
        return [contender for contender in self.contenders if contender.missing is None and contender.values]

    @property
    def families(self) -> list[str]:
        """The libraries among the peers, in the order of the table."""
        return list(dict.fromkeys(peer.family for peer in self.measured if peer.role is Role.PEER))

    def best_peer(self, family: str) -> Contender:
        """A library's best setting: ours are compared with no less."""
        return self.best([peer for peer in self.measured if peer.role is Role.PEER and peer.family == family])

    def best(self, contenders: Sequence[Contender]) -> Contender:
        choose = max if self.more_is_better else min
        return choose(contenders, key=lambda contender: contender.median)

    def ratio(self, contender: Contender, family: str) -> float:
        """How many times better than the best peer of ``family``."""
        return self.times_better(contender, self.best_peer(family))

    def times_better(self, contender: Contender, other: Contender) -> float:
        ratio = contender.median / other.median
        return ratio if self.more_is_better else 1 / ratio


def take_turns(comparison: Comparison, num_turns: int, report: Report) -> Comparison:
    """Lets all contenders take turns, so that the machine's noise meets all of them; returns the comparison.

    Turn 0 is not counted: memory, caches and files are warm after it. A contender that cannot go on is left out
    and says why; the others' figures stand without it.
    """
    for turn in range(num_turns + 1):
        for contender in comparison.contenders:
            if contender.missing is None:
                report(f"{comparison.topic}, {comparison.setting}: {contender.name}, turn {turn} of {num_turns}")
                _take_turn(contender, turn)
    return comparison


def _take_turn(contender: Contender, turn: int) -> None:
    try:
        reply = contender.take_turn(turn)
    except Unavailable as reason:
        contender.missing = str(reason)
    except BenchmarkError as error:
        contender.missing = f"failed: {_reason(str(error))}"
        contender.failure = str(error)
    else:
        if turn > 0:
            contender.values += reply.pop("values")
            for column, value in reply.items():
                contender.notes.setdefault(column, []).append(value)


def _reason(failure: str) -> str:
    """The line of a traceback that says what happened; libraries append their own stacks below it."""
    lines = failure.strip().splitlines()
    telling = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)] or lines
    return telling[-1].removeprefix(f"{BenchmarkError.__module__}.{BenchmarkError.__name__}: ")


def check_same_work(contenders: Sequence[Contender], column: str, tolerance: float = 0.03) -> None:
    """Raises BenchmarkError: the medians of ``column`` differ by more, so the work was not the same."""
    medians = {c.name: c.note(column) or 0.0 for c in contenders if c.missing is None and c.values}
    if medians and max(medians.values()) > (1 + tolerance) * min(medians.values()):
        raise BenchmarkError(
            f"these did not do the same work; {column} were {medians}. Are graph, seeds and fanouts the same?"
        )
