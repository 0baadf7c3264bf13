"""Several benchmarks in one run, as a page: those of the strategy, those of features."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from tests.benchmarks import machine, report


def run(page: str, parts: dict[str, str], arguments: list[str]) -> int:
    """Runs them one after the other and prints their tables.

    Args:
        page: the module beside this one that names them.
        parts: modules beside this one, each of which measures when it is run and prints Markdown, and their titles.
        arguments: of the command line.

    Returns:
        The exit status: 1 where some part failed.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks.{page}")
    parser.add_argument("--parts", nargs="+", choices=tuple(parts), default=tuple(parts), help="all by default")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the tables between the marks of this page")
    options = parser.parse_args(arguments)
    if options.out is not None:
        report.around_results(options.out)  # a page that cannot take them should say so now
    progress, neighbours = Console(stderr=True), machine.Neighbours()
    sections, failed = [], []
    for part in options.parts:
        began = time.monotonic()
        with progress.status(parts[part]):
            done = subprocess.run([sys.executable, "-m", f"tests.benchmarks.{part}"], stdout=subprocess.PIPE, text=True)
        progress.print(f"{part}: {time.monotonic() - began:.0f} s")
        if done.returncode:
            failed.append(part)
        sections.append(f"### {parts[part]}\n\n`python -m tests.benchmarks.{part}`\n\n{done.stdout.strip()}")
    command = " ".join([f"python -m tests.benchmarks.{page}", *arguments])
    head = "\n".join(f"- {line}" for line in (f"`{command}`", *machine.describe(), neighbours.describe()))
    text = "\n\n".join([head, *sections])
    if options.out is not None:
        before, after = report.around_results(options.out)
        options.out.write_text(f"{before}\n\n{text}\n\n{after}")
    print(text)
    for part in failed:
        progress.print(f"{part} failed: see its output above")
    return int(bool(failed))
