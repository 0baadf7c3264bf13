"""MessageCosts: what messages between machines take of cores, as it was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.work import check_number


@dataclass(frozen=True)
class MessageCosts:
    """The time that messages take of a core, beside what they are about.

    Attributes:
        ask_ms: of who asks, for a request and its answer, whatever their size.
        answer_ms: of who answers, likewise.
        ask_gb_s: what one core of who asks writes and reads of messages.
        answer_gb_s: likewise of who answers.

    Raises:
        PlanError: a number cannot be.
    """

    ask_ms: float = 0.2
    answer_ms: float = 0.2
    ask_gb_s: float = 2.0
    answer_gb_s: float = 4.0

    def __post_init__(self) -> None:
        for name in ("ask_ms", "answer_ms"):
            check_number(f"costs: {name}", getattr(self, name), 1e5)
        for name in ("ask_gb_s", "answer_gb_s"):
            check_number(f"costs: {name}", getattr(self, name), 1e6, least=1e-6)

    def asked_ms(self, num_bytes: float) -> float:
        """What so many bytes take of who asks.

        Example:
            >>> MessageCosts(ask_gb_s=2.0).asked_ms(4e6)
            2.0
        """
        return num_bytes / self.ask_gb_s / 1e6

    def answered_ms(self, num_bytes: float) -> float:
        """What so many bytes take of who answers."""
        return num_bytes / self.answer_gb_s / 1e6

    @classmethod
    def of(cls, values: Any) -> MessageCosts:
        """Makes them of values by their names; those that are missing are the defaults. PlanError: they are none."""
        names = [field.name for field in fields(cls)]
        if not isinstance(values, Mapping) or (unknown := [str(name) for name in values if name not in names]):
            wrong = ", ".join(unknown) if isinstance(values, Mapping) else f"{values!r:.100}"
            raise PlanError(f"costs: {wrong} not known; there are {', '.join(names)}.")
        return cls(**values)


ASSUMED = MessageCosts()
"""Where nothing was measured: what ``gnnload plan`` measured over loopback on two cores of a virtual machine, in round
figures."""


def read_costs(file: Path) -> MessageCosts:
    """Reads a file of costs: JSON, an object of these four numbers, or a plan's file, which has one.

    Raises:
        PlanError: the file cannot be read, or has something else.
    """
    try:
        values = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"the costs {file} cannot be read: {' '.join(str(error).split())}") from error
    if isinstance(values, Mapping) and "measured" in values:  # a plan of one machine has none
        values = values.get("costs", {})
    try:
        return MessageCosts.of(values)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from None
