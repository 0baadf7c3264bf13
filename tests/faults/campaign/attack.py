"""Attack: the contract of all attacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar

from tests.faults.campaign.jobs import Jobs


@dataclass(frozen=True)
class Verdict:
    """What came of a trial.

    Attributes:
        what: in a few words, by which trials are counted.
        seen: all that helps to understand it, shown where it is bad.
        figures: numbers that were measured, by name and unit.
    """

    what: str
    seen: str = ""
    figures: dict[str, float] = field(default_factory=dict)


class Attack(ABC):
    """A kind of harm that is done to the package.

    Attributes:
        name: on the command line.
        good: what may come of a trial; all else is bad.
        ways: of doing it; trials take them in turn.
    """

    name: ClassVar[str]
    good: ClassVar[frozenset[str]]
    ways: ClassVar[Sequence[str]]

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs

    def obstacle(self, way: str) -> str:
        """Says why this way cannot be tried here; empty where it can."""
        return ""

    @abstractmethod
    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        """Makes one trial in an empty folder; what is random about it comes from ``choose``."""
