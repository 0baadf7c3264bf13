"""Comparison: contenders that took turns at the same work, and how they compare."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.benchmarks.errors import BenchmarkError

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
        values: the figures of all its turns.
        notes: the other columns, of each turn.
    """

    name: str
    role: Role
    take_turn: Callable[[int], Reply]
    values: list[float] = field(default_factory=list)
    notes: dict[str, list[float]] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high

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
    """

    topic: str
    setting: str
    unit: str
    contenders: list[Contender]
    more_is_better: bool = False

    @property
    def best_peer(self) -> Contender | None:
        """The peer's best setting: ours are compared with no less."""
        peers = [contender for contender in self.contenders if contender.role is Role.PEER]
        choose = max if self.more_is_better else min
        return choose(peers, key=lambda peer: peer.median) if peers else None

    def ratio(self, contender: Contender) -> float | None:
        """How many times better than the best peer; None without a peer."""
        if self.best_peer is None:
            return None
        ratio = contender.median / self.best_peer.median
        return ratio if self.more_is_better else 1 / ratio


def take_turns(comparison: Comparison, num_turns: int, report: Report) -> Comparison:
    """Lets all contenders take turns, so that the machine's noise meets all of them; returns the comparison.

    Turn 0 is not counted: memory, caches and files are warm after it.
    """
    for turn in range(num_turns + 1):
        for contender in comparison.contenders:
            report(f"{comparison.topic}, {comparison.setting}: {contender.name}, turn {turn} of {num_turns}")
            reply = contender.take_turn(turn)
            if turn > 0:
                contender.values += reply.pop("values")
                for column, value in reply.items():
                    contender.notes.setdefault(column, []).append(value)
    return comparison


def check_same_work(contenders: Sequence[Contender], column: str, tolerance: float = 0.03) -> None:
    """Raises BenchmarkError: the medians of ``column`` differ by more, so the work was not the same."""
    medians = {contender.name: contender.note(column) or 0.0 for contender in contenders}
    if max(medians.values()) > (1 + tolerance) * min(medians.values()):
        raise BenchmarkError(
            f"these did not do the same work; {column} were {medians}. Are graph, seeds and fanouts the same?"
        )
