"""``gnnload doctor``: what this machine offers, and which CUDA devices can be used."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from rich.console import Console

from lightning_gnnload.plugin.commands.cuda_state import cuda_findings
from lightning_gnnload.plugin.commands.machine import Finding, machine_findings


def main(arguments: Sequence[str]) -> int:
    """Runs the command; the exit status."""
    parser = argparse.ArgumentParser("gnnload doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print findings as JSON, for reports of errors")
    options = parser.parse_args(arguments)
    findings = [*machine_findings(), *cuda_findings()]
    if options.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        _show(findings)
    return 0


def _show(findings: Sequence[Finding]) -> None:
    console, width = Console(), max(len(finding.about) for finding in findings)
    lines = [f"{finding.about:<{width}}  {finding.found}" for finding in findings]
    lines += [f"\n{finding.about}: {finding.advice}" for finding in findings if finding.advice]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
