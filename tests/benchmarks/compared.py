"""Compared: what was measured of a case, beside what the simulation says, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Compared(NamedTuple):
    kind: str
    case: str
    measured_ms: float
    simulated_ms: float

    @property
    def off(self) -> float:
        return self.simulated_ms / self.measured_ms - 1


def table(rows: Iterable[Compared]) -> str:
    lines = ["| | case | measured, ms a step | simulated | off |", "| --- | --- | ---: | ---: | ---: |"]
    lines += [
        f"| {row.kind} | {row.case} | {row.measured_ms:.1f} | {row.simulated_ms:.1f} | {row.off:+.0%} |" for row in rows
    ]
    return "\n".join(lines)


def summary(rows: Iterable[Compared]) -> str:
    """The mean and the largest error, by kind, and how far off on which side."""
    by_kind: dict[str, list[float]] = {}
    for row in rows:
        by_kind.setdefault(row.kind, []).append(row.off)
    lines = [
        "| | cases | mean error | median | largest | too fast by, mean |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind, offs in by_kind.items():
        size = np.abs(offs)
        lines.append(
            f"| {kind} | {len(offs)} | {size.mean():.0%} | {np.median(size):.0%} | {size.max():.0%} "
            f"| {-np.mean(offs):+.0%} |"
        )
    return "\n".join(lines)
