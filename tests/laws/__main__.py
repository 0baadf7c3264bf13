"""Examine samplers, this package's, a user's and those of other libraries, by their contract and by chance.

python -m tests.laws                                    this package's samplers
python -m tests.laws --peers --figure docs/inclusion.png    and DGL's and PyG's, where they are installed
python -m tests.laws --sampler mine.Sampler --fanouts 5 3 --law uniform
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from lightning_gnnload.conform.suites import FAMILY_ERROR
from lightning_gnnload.errors import GnnLoadError, SamplerConfigError
from lightning_gnnload.host.progress import shown_display
from lightning_gnnload.plugin.commands.arguments import Parser, output_file
from lightning_gnnload.plugin.commands.conform import add_sampler_options
from tests.laws.figure import can_be_drawn, draw_figure
from tests.laws.peers import peers
from tests.laws.report import ReportRow, examine, num_rows, table, write_csv, write_json
from tests.laws.subjects import Subject, own_subjects, subjects_of

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
        subjects = subjects_of(options) if options.sampler else own_subjects()
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
        console.print(f"tests.laws: {type(error).__name__}: {error}", markup=False)
        return 2
    for reason in missing:
        console.print(f"not examined: {reason}", markup=False)
    return _conclude(rows, console)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("python -m tests.laws", description=(__doc__ or "").partition("\n")[0], epilog=_EPILOG)
    own = parser.add_argument_group("a sampler of your own, instead of this package's")
    add_sampler_options(own)
    parser.add_argument("--peers", action="store_true", help="also examine DGL and PyG, where they are installed")
    for kind, what in _KINDS.items():
        parser.add_argument(f"--{kind}", type=output_file, metavar="FILE", help=f"write {what}")
    return parser


_KINDS = {
    "csv": "the rows as CSV",
    "json": "the rows as JSON",
    "figure": "a PNG: how often each neighbour is drawn, by library",
}


def _examine_all(subjects: Sequence[Subject], quick: bool, console: Console) -> list[ReportRow]:
    every: list[ReportRow] = []
    columns = (*Progress.get_default_columns()[:2], TimeElapsedColumn())
    with shown_display(Progress(*columns, console=console, transient=True)) as progress:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
