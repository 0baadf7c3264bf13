"""``python -m tests.benchmarks.strategy``: what the strategy's parts win and cost, in one run, as a page."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from tests.benchmarks import machine, report

PARTS = {
    "jitter": "Bounded staleness: late steps hidden",
    "switching": "Dynamic switching: idle samplers train",
    "transport": "The queue beside a loader in process",
    "resources": "Cores by role",
    "epochs": "Epochs beside DDP and DGL",
    "monitoring": "What PipelineMonitor costs",
}
"""Modules beside this one, each of which measures when it is run and prints Markdown."""


def main(arguments: list[str]) -> int:
    """Returns the exit status: 1 where some part failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.strategy", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), help="all by default")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the tables between the marks of this page")
    options = parser.parse_args(arguments)
    if options.out is not None:
        report.around_results(options.out)  # a page that cannot take them should say so now
    progress, neighbours = Console(stderr=True), machine.Neighbours()
    sections, failed = [], []
    for part in options.parts:
        began = time.monotonic()
        with progress.status(PARTS[part]):
            done = subprocess.run([sys.executable, "-m", f"tests.benchmarks.{part}"], stdout=subprocess.PIPE, text=True)
        progress.print(f"{part}: {time.monotonic() - began:.0f} s")
        if done.returncode:
            failed.append(part)
        sections.append(f"### {PARTS[part]}\n\n`python -m tests.benchmarks.{part}`\n\n{done.stdout.strip()}")
    command = " ".join(["python -m tests.benchmarks.strategy", *arguments])
    head = "\n".join(f"- {line}" for line in (f"`{command}`", *machine.describe(), neighbours.describe()))
    text = "\n\n".join([head, *sections])
    if options.out is not None:
        before, after = report.around_results(options.out)
        options.out.write_text(f"{before}\n\n{text}\n\n{after}")
    print(text)
    for part in failed:
        progress.print(f"{part} failed: see its output above")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
