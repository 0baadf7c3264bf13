"""Machines, simulated beside measured: ``python -m tests.benchmarks.machines`` prints Markdown tables.

Ranks that sample together over cables with a rate, owners behind links with a latency and a rate, and a machine that
samples for another one (``--kinds``). What the simulation is told comes from runs that nothing holds up, and from the
cores that other programs leave: so a busy machine may be compared, too, if less well. Five minutes, as root; a kind in
less than three. ``--again FILE`` simulates anew what an earlier run has measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning_gnnload.datasets.synthetic import Synthetic
from tests.benchmarks import machines_owners, machines_ranks, machines_samplers
from tests.benchmarks.compared import Compared, summary, table

KINDS = ("ranks", "owners", "samplers")
RATES_MBIT = (200, 100, 40)
DATASET = Synthetic("chung-lu", num_nodes=100_000, num_edges=1_500_000, num_features=0)


def measured(kinds: Sequence[str], rates_mbit: Sequence[int]) -> dict[str, Any]:
    DATASET.prepare()
    data = DATASET.load()
    found: dict[str, Any] = {"alone": machines_ranks.alone(data)}
    if "ranks" in kinds:
        found["ranks"] = machines_ranks.measured(data, rates_mbit)
    if "owners" in kinds:
        found["owners"] = machines_owners.measured(data, machines_owners.CASES)
    if "samplers" in kinds:
        found["samplers"] = machines_samplers.measured(machines_samplers.CASES)
    return found


def compared(found: dict[str, Any]) -> list[Compared]:
    """``found``: as its file has it."""
    rows, core_ms = [], found["alone"]
    if "ranks" in found:
        runs = {
            int(rate): {float(step_ms): machines_ranks.RanksRun(**run) for step_ms, run in by_step.items()}
            for rate, by_step in found["ranks"].items()
        }
        rows += machines_ranks.compared(runs, core_ms)
    if "owners" in found:
        pairs = {
            case: tuple(machines_owners.OwnersRun(**run) for run in runs) for case, runs in found["owners"].items()
        }
        rows += machines_owners.compared([case for case in machines_owners.CASES if str(case) in pairs], pairs, core_ms)
    if "samplers" in found:
        nodes = {case: machines_samplers.SamplersRun(**run) for case, run in found["samplers"].items()}
        rows += machines_samplers.compared(machines_samplers.CASES, nodes)
    return rows


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--rates", type=int, nargs="*", default=RATES_MBIT, help="of ranks' cables, in Mbit/s")
    parser.add_argument("--out", type=Path, default=Path("machines.json"), help="what is measured")
    parser.add_argument("--again", type=Path, help="simulate beside what such a file has")
    options = parser.parse_args(arguments)
    if options.again is None:
        options.out.write_text(json.dumps(measured(options.kinds, options.rates), default=asdict))
    rows = compared(json.loads((options.again or options.out).read_text()))
    print(f"{table(rows)}\n\n{summary(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
