"""The report: comparisons as Markdown tables, and their place in a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.measure import Comparison, Contender, Role

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def markdown(comparisons: Sequence[Comparison], command: str, machine: Sequence[str], figure: str | None) -> str:
    """All results, with the command and the machine that they belong to."""
    parts = [f"`{command}`", "\n".join(f"- {line}" for line in machine)]
    if figure is not None:
        parts.append(f"![How many times better than the peer's best setting]({figure})")
    topic = None
    for comparison in comparisons:
        if comparison.topic != topic:
            topic = comparison.topic
            parts.append(f"### {topic}")
        parts.append(f"{comparison.setting}; {comparison.unit}:\n\n{_table(comparison)}")
    return "\n\n".join(parts)


def around_results(page: Path) -> tuple[str, str]:
    """What stands before and after the results in ``page``, the marks included.

    Raises:
        BenchmarkError: the page is missing, or its marks are.
    """
    text = page.read_text() if page.exists() else ""
    if not 0 <= text.find(BEGIN) < text.find(END):
        raise BenchmarkError(
            f"{page} must exist and have a line {BEGIN!r} and, below it, {END!r}: results go between them."
        )
    return text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]


def _table(comparison: Comparison) -> str:
    columns = list(dict.fromkeys(column for contender in comparison.contenders for column in contender.notes))
    best = comparison.best_peer
    header = ["", "median", "quartiles", *([f"times better than {best.name}"] if best else []), *columns]
    rows = [header, ["---", *["---:"] * (len(header) - 1)]]
    rows += [_row(comparison, contender, columns) for contender in comparison.contenders]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(comparison: Comparison, contender: Contender, columns: Sequence[str]) -> list[str]:
    low, high = contender.quartiles
    ratio = comparison.ratio(contender)
    name = f"*{contender.name}*" if contender.role is Role.CEILING else contender.name
    cells = [name, number(contender.median), f"{number(low)} to {number(high)}"]
    cells += [] if ratio is None else [f"{number(ratio)}"]
    return cells + [number(value) if (value := contender.note(column)) is not None else "" for column in columns]


def number(value: float) -> str:
    """Three digits, or all before the point: ``0.123``, ``12.3``, ``1,235``."""
    if value == 0:
        return "0"
    for limit, form in ((1, ".3f"), (10, ".2f"), (100, ".1f")):
        if abs(value) < limit:
            return format(value, form)
    return f"{value:,.0f}"
