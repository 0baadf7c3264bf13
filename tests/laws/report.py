"""Reports of what was examined, row by row: as a table for people, as CSV and JSON for programs."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from lightning_gnnload.conform.contract import contract_report, violation_text
from lightning_gnnload.conform.suites import FAMILY_ERROR, CheckResult, run
from tests.laws.subjects import Contract, Subject


@dataclass(frozen=True)
class ReportRow:
    """A row of the report tells of one check of one subject.

    Attributes:
        subject: what was examined.
        check: the check's name, or "contract".
        hypothesis: what was put to the test.
        num_trials: choices that were counted, or inputs that were tried.
        p: approximate probability of so large a deviation; None for rules without exceptions.
        bound: proven upper bound of it; None likewise.
        threshold: the check fails where the bound is below it; None likewise.
        passed: the verdict.
        peer: the subject is of another library.
        known: why it fails, where that is known.
        worst: the setting, and the count, that lie farthest from what is expected; of a contract, the sampler and
            the first property that it breaks.
        seconds: how long it took.
    """

    subject: str
    check: str
    hypothesis: str
    num_trials: int
    p: float | None
    bound: float | None
    threshold: float | None
    passed: bool
    peer: bool
    known: str
    worst: str
    seconds: float

    @property
    def verdict(self) -> str:
        if self.passed:
            return "passes"
        return "fails (known)" if self.known else "fails" if self.peer else "FAILS"


def examine(subject: Subject, quick: bool) -> Iterator[ReportRow]:
    """Examines a subject and yields its rows as they come, contracts first."""
    for contract in subject.contracts:
        yield _contract_row(subject, contract)
    if subject.draw is not None:
        for result in run(subject.draw, subject.suite_of(quick)):
            yield _check_row(subject, result)


def num_rows(subject: Subject) -> int:
    # A quick suite has fewer trials, not fewer checks.
    return len(subject.contracts) + len(subject.suite_of(True))


def table(rows: Sequence[ReportRow]) -> Any:
    """Makes a rich table of one subject's rows, of 80 columns; below it, what those that fail were farthest from."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    made = Table(title=rows[0].subject, title_justify="left", title_style="bold")
    for name in ("check", "n", "p", "bound", "verdict", "seconds"):
        made.add_column(name, justify="right" if name in ("n", "p", "bound", "seconds") else "left")
    for row in rows:
        chances = ["exact" if value is None else f"{value:.2g}" for value in (row.p, row.bound)]
        style = "" if row.passed else "red" if not row.peer else "yellow"
        made.add_row(
            row.check,
            f"{row.num_trials:,}",
            *chances,
            row.verdict,
            f"{row.seconds:.2f}",
            style=style,
        )
    # Text: lists in brackets are not rich's markup.
    return Group(made, *(Text(f"{row.check}: {row.worst}") for row in rows if not row.passed and row.worst))


def write_csv(rows: Sequence[ReportRow], file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, [field.name for field in fields(ReportRow)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def write_json(rows: Sequence[ReportRow], file: Path) -> None:
    report = {"family_error": FAMILY_ERROR, "rows": [asdict(row) for row in rows]}
    file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _contract_row(subject: Subject, contract: Contract) -> ReportRow:
    began, sampler = time.perf_counter(), contract.sampler
    report = contract_report(sampler, contract.graphs, promise=contract.promise)
    return ReportRow(
        subject=subject.name,
        check="contract",
        hypothesis=f"keeps all {len(report.properties)} properties of the contract",
        num_trials=sum(each.num_cases for each in report.properties),
        p=None,
        bound=None,
        threshold=None,
        passed=report.passed,
        peer=subject.peer,
        known="",
        worst=repr(sampler) if report.broken is None else f"{sampler!r}, {violation_text(report.broken)}",
        seconds=time.perf_counter() - began,
    )


def _check_row(subject: Subject, result: CheckResult) -> ReportRow:
    worst = result.worst
    return ReportRow(
        subject=subject.name,
        check=result.name,
        hypothesis=result.hypothesis,
        num_trials=result.num_trials,
        p=None if result.exact else result.chance.p,
        bound=None if result.exact else result.chance.bound,
        threshold=None if result.exact else result.threshold,
        passed=result.passed,
        peer=subject.peer,
        known="" if result.passed else subject.known,
        worst=f"{worst.setting}: {worst.worst}" if worst.worst else "",
        seconds=result.seconds,
    )
