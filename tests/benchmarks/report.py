"""The report: comparisons as Markdown tables, what became of the goals, and their place in a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.goals import Verdict
from tests.benchmarks.measure import Comparison, Contender, Role

_FEW = 2  # settings
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def markdown(comparisons: Sequence[Comparison], command: str, machine: Sequence[str], figure: str | None) -> str:
    """All results, with the command and the machine that they belong to."""
    parts = [f"`{command}`", "\n".join(f"- {line}" for line in machine)]
    if goals := _goals(comparisons):
        parts += ["### What was asked for", goals]
    if figure is not None:
        parts.append(f"![How many times better than the peers' best settings]({figure})")
    topic = None
    for comparison in comparisons:
        if comparison.topic != topic:
            topic = comparison.topic
            parts.append(f"### {topic}")
        parts.append(f"{comparison.setting}; {comparison.unit}{_turns(comparison)}:")
        texts = _table(comparison), _other_settings(comparison), comparison.remark, _missing(comparison)
        parts += [text for text in texts if text]
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


def _goals(comparisons: Sequence[Comparison]) -> str:
    rows = [_goal_row(comparison, goal.judge(comparison)) for comparison in comparisons for goal in comparison.goals]
    header = ["", "against", "asked", "aim", "measured", "by processor time", "", "ours", "theirs"]
    return _grid(header, rows, left=(0, 1, 2, 6, 7, 8)) if rows else ""


def _goal_row(comparison: Comparison, verdict: Verdict) -> list[str]:
    goal = verdict.goal
    aim = "" if goal.aim is None else f"{goal.aim:g}"
    row = [f"{comparison.topic}: {comparison.setting}", goal.against, goal.bound, aim]
    if verdict.figure is None or verdict.ours is None or verdict.other is None:
        return [*row, "", "", verdict.state.value, "", ""]
    sides = [f"{one.name}: {number(one.median)}" for one in (verdict.ours, verdict.other)]
    by_processor = "" if verdict.by_processor is None else number(verdict.by_processor)
    return [*row, number(verdict.figure), by_processor, verdict.state.value, *sides]


def _table(comparison: Comparison) -> str:
    if not comparison.measured:
        return ""
    # What ceilings alone note is in the remark.
    noted = [one for one in comparison.measured if one.role is not Role.CEILING] or comparison.measured
    columns = list(dict.fromkeys(column for contender in noted for column in contender.notes))
    counts = [] if len(_counts(comparison)) == 1 else ["figures"]
    header = ["", "median", "p10 to p90", *counts, *_ratio_titles(comparison), *columns]
    shown = [one for one in comparison.measured if one not in _slower_settings(comparison)]
    return _grid(header, [_row(comparison, contender, columns, bool(counts)) for contender in shown])


def _slower_settings(comparison: Comparison) -> list[Contender]:
    """Of a library with three settings or more, those that are neither its best nor how it comes."""
    slower = list[Contender]()
    for family in filter(None, comparison.families):
        settings = [one for one in comparison.measured if one.role is Role.PEER and one.family == family]
        best = comparison.best_peer(family)
        slower += [one for one in settings if len(settings) > _FEW and one is not best and one.name != family]
    return slower


def _other_settings(comparison: Comparison) -> str:
    slower = _slower_settings(comparison)
    return f"Other settings: {'; '.join(f'{one.name} {number(one.median)}' for one in slower)}." if slower else ""


def _counts(comparison: Comparison) -> set[int]:
    return {len(contender.values) for contender in comparison.measured}


def _turns(comparison: Comparison) -> str:
    """Of how many figures medians are, where it is one number for all."""
    counts = _counts(comparison)
    return f", of {counts.pop()} figures each" if len(counts) == 1 else ""


def _ratio_titles(comparison: Comparison) -> list[str]:
    names = [f"{family}'s best" if family else comparison.best_peer(family).name for family in comparison.families]
    return [f"times better than {name}" for name in names]


def _row(comparison: Comparison, contender: Contender, columns: Sequence[str], counted: bool) -> list[str]:
    low, high = contender.spread
    name = f"*{contender.name}*" if contender.role is Role.CEILING else contender.name
    cells = [name, number(contender.median), f"{number(low)} to {number(high)}"]
    cells += [str(len(contender.values))] if counted else []
    cells += [number(comparison.ratio(contender, family)) for family in comparison.families]
    return cells + [number(value) if (value := contender.note(column)) is not None else "" for column in columns]


def _missing(comparison: Comparison) -> str:
    lines = [f"- {one.name}: {one.missing}" for one in comparison.contenders if one.missing is not None]
    return "\n".join(["Not measured:", "", *lines]) if lines else ""


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    rule = ["---" if column in left else "---:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])


def number(value: float) -> str:
    """Three digits, or all before the point: ``0.123``, ``12.3``, ``1,235``."""
    if value == 0:
        return "0"
    for limit, form in ((1, ".3f"), (10, ".2f"), (100, ".1f")):
        if abs(value) < limit:
            return format(value, form)
    return f"{value:,.0f}"
