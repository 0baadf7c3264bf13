"""``python -m tests.fuzz``: runs fuzz cases until a time or a number of cases is over; ends at the first finding."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.case import Finding, limits, run_case
from tests.fuzz.targets import TARGETS


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="how long; a case that has begun is ended")
    parser.add_argument("--cases", type=int, help="how many of each target, whatever the time")
    parser.add_argument("--seed", type=int, default=0, help="each seed has cases of its own")
    parser.add_argument("--target", choices=TARGETS, help="one target alone")
    parser.add_argument("--case", type=int, help="one case alone, as a finding names it, with its traceback")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    targets = [TARGETS[options.target]] if options.target else list(TARGETS.values())
    numbers = itertools.count() if options.case is None else [options.case]
    num_cases, num_results, began = 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, limits():
        for number, target in ((number, target) for number in numbers for target in targets):
            seconds = time.monotonic() - began
            if seconds > options.seconds if options.cases is None else number >= options.cases:
                break
            num_results += run_case(target, options.seed, number, Path(folder))
            num_cases += 1
    print(
        f"fuzz: {num_cases} cases of {len(targets)} targets in {seconds:.1f} s, {num_cases / seconds:.0f} a second "
        f"(seed {options.seed}): {num_results} came to a result, the others to an error of ours; no finding"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Finding as finding:
        if "--case" in sys.argv:
            raise
        sys.exit(f"fuzz: {finding}")
