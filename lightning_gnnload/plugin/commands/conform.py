"""``gnnload conform``: samplers, ours, a user's and those of other libraries, held against contract and chance."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from lightning_gnnload.conform.case import Promise
from lightning_gnnload.conform.figure import can_be_drawn, draw_figure
from lightning_gnnload.conform.peers import peers
from lightning_gnnload.conform.report import ReportRow, examine, num_rows, table, write_csv, write_json
from lightning_gnnload.conform.subjects import Subject, own_subjects, subjects_of
from lightning_gnnload.conform.suites import FAMILY_ERROR, LAWS
from lightning_gnnload.data.progress import drawn
from lightning_gnnload.errors import GnnLoadError, SamplerConfigError
from lightning_gnnload.plugin.commands.arguments import Parser, output_file

_EPILOG = f"""
p is the probability of so large a deviation, approximately, times the settings of the check: for reading. bound is
proven to be no less, for any number of trials, and decides: a correct sampler fails one of its suites with a
probability of at most {FAMILY_ERROR:g}. The exit status is 1 if a sampler that is not a peer fails. Seeds are fixed.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; the exit status."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        subjects = _users(options) if options.sampler else own_subjects()
        missing: list[str] = []
        if options.peers:
            found, missing = peers()
            subjects += found
        drawable = [subject for subject in subjects if can_be_drawn(subject)]
        if options.figure and not drawable:
            raise SamplerConfigError("--figure shows samplers that draw uniformly: give --law uniform, or --peers.")
        rows = _examine_all(subjects, options.quick, console)
        if options.csv:
            write_csv(rows, options.csv)
        if options.json:
            write_json(rows, options.json)
        if options.figure:
            draw_figure(drawable, options.figure, num_trials=20_000 if options.quick else 100_000)
    except GnnLoadError as error:
        console.print(f"gnnload conform: {type(error).__name__}: {error}", markup=False)
        return 2
    for reason in missing:
        console.print(f"not examined: {reason}", markup=False)
    return _conclude(rows, console)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("gnnload conform", description=__doc__, epilog=_EPILOG)
    own = parser.add_argument_group("a sampler of your own, instead of this package's")
    own.add_argument("--sampler", metavar="CLASS", help="package.module.Class; looked for in the current folder, too")
    own.add_argument("--fanouts", type=int, nargs="+", default=[], help="its first argument, if it takes any")
    own.add_argument("--args", type=_json_object, default={}, metavar="JSON", help="its other arguments, as an object")
    own.add_argument("--promise", type=_json_object, default={}, metavar="JSON", help="fields of conform.Promise")
    laws = ", ".join(f'"{law}"' for law in LAWS)
    own.add_argument(
        "--law", choices=LAWS, metavar="LAW", help=f"how it draws, for any fanouts: {laws}; without it, no statistics"
    )
    parser.add_argument("--peers", action="store_true", help="also examine DGL and PyG, where they are installed")
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials")
    for kind in ("csv", "json", "figure"):
        parser.add_argument(f"--{kind}", type=output_file, metavar="FILE", help=f"write {_KINDS[kind]}")
    return parser


_KINDS = {
    "csv": "the rows as CSV",
    "json": "the rows as JSON",
    "figure": "a PNG: how often each neighbour is drawn, by library",
}


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object, such as '{{\"k\": 2}}'")
    return value


def _users(options: argparse.Namespace) -> list[Subject]:
    try:
        promise = Promise(**options.promise)
        return subjects_of(options.sampler, options.fanouts, options.args, promise, options.law)
    except TypeError as error:
        raise SamplerConfigError(f"--args or --promise do not fit: {error}.") from error


def _examine_all(subjects: Sequence[Subject], quick: bool, console: Console) -> list[ReportRow]:
    every: list[ReportRow] = []
    columns = (*Progress.get_default_columns()[:2], TimeElapsedColumn())
    with drawn(Progress(*columns, console=console, transient=True)) as progress:
        task = progress.add_task("", total=sum(map(num_rows, subjects)))
        for subject in subjects:
            progress.update(task, description=subject.name)
            rows = []
            for row in examine(subject, quick):
                rows.append(row)
                progress.advance(task)
            progress.console.print(table(rows))
            every += rows
    return every


def _conclude(rows: Sequence[ReportRow], console: Console) -> int:
    for subject, known in {row.subject: row.known for row in rows if row.known}.items():
        console.print(f"known: {subject}: {known}.", markup=False)
    # Other libraries' failures are findings, not errors of what is examined here.
    failed = [row for row in rows if not row.passed and not row.peer]
    num_ours = sum(not row.peer for row in rows)
    console.print(
        f"{num_ours - len(failed)} of {num_ours} checks pass; a correct sampler fails a suite with a probability of at "
        f"most {FAMILY_ERROR:g}. Peers are reported, not judged."
    )
    return 1 if failed else 0
