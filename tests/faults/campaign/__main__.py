"""``python -m tests.faults.campaign``: makes trials, attack by attack in turn, and counts what came of them."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from tests import guards
from tests.faults.campaign import network
from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.damage import Damage
from tests.faults.campaign.hangs import Hangs
from tests.faults.campaign.jobs import Jobs
from tests.faults.campaign.kills import Kills
from tests.faults.campaign.overwriters import Overwriters
from tests.faults.campaign.owners import Owners
from tests.faults.campaign.resumes import Resumes
from tests.faults.campaign.stops import Stops
from tests.faults.campaign.strangers import Strangers
from tests.faults.campaign.trainings import Trainings

ATTACKS: dict[str, type[Attack]] = {
    each.name: each for each in (Kills, Stops, Hangs, Strangers, Overwriters, Damage, Resumes, Owners, Trainings)
}
DOCS = Path(__file__).parents[3] / "docs" / "security.md"
_BEGIN = "<!-- campaign: begin, written by python -m tests.faults.campaign --docs -->"
_END = "<!-- campaign: end -->"
_OF_TORCH = ("torchinductor_", "torchelastic_", "pytorch-errorfile-")  # its compiler's, agent's and launcher's


@dataclass(frozen=True)
class Row:
    """One trial and what came of it, as the JSON has it."""

    attack: str
    way: str
    trial: int
    what: str
    is_good: bool
    seconds: float
    figures: dict[str, float]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.campaign", description=__doc__)
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="ATTACK")
    parser.add_argument("--ways", nargs="+", default=[], metavar="TEXT", help="only ways that contain one of these")
    parser.add_argument("--seed", type=int, default=0, help="each seed has trials of its own")
    parser.add_argument("--trials", type=int, help="of each attack; without --minutes, 10")
    parser.add_argument("--minutes", type=float, help="after which no trial begins")
    parser.add_argument("--trial", type=int, metavar="NUMBER", help="one trial alone, as a finding names it")
    parser.add_argument("--how", default="script", choices=("script", "torchrun", "spawn", "fork"))
    parser.add_argument("--json", type=Path, default=Path("runs/campaign.json"), metavar="FILE")
    parser.add_argument("--docs", action="store_true", help=f"write a table to {DOCS.name}, too")
    options = parser.parse_args(arguments)
    if options.trials is None and options.minutes is None:
        options.trials = 10
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    guards.mark_run()
    network.leave()  # before the first process starts: all are to be in it
    with tempfile.TemporaryDirectory(prefix="campaign-") as root:
        jobs = Jobs(options.how, Path(root) / "undisturbed")
        rows = campaign([ATTACKS[name](jobs) for name in options.attacks], options, Path(root))
    _report(rows, options)
    return int(not rows or not all(row.is_good for row in rows))


def campaign(attacks: list[Attack], options: argparse.Namespace, root: Path) -> list[Row]:
    """Makes the trials, one attack after the other in each round."""
    until = time.monotonic() + 60 * (options.minutes if options.minutes is not None else 1e6)
    rows: list[Row] = []
    numbers = itertools.count() if options.trials is None else range(options.trials)
    for number in numbers if options.trial is None else [options.trial]:
        for attack in attacks:
            way = _way(attack, number, options)
            if time.monotonic() > until:
                print(f"{attack.name}: no time was left for trial {number}", flush=True)
            elif way is None or (reason := attack.obstacle(way)):
                print(f"{attack.name} {number}: {way}: skipped: {reason if way else 'no such way'}", flush=True)
            else:
                print(f"{attack.name} {number}: {way} ...", end=" ", flush=True)
                rows.append(_trial(attack, way, number, options, root / f"{attack.name}-{number}"))
        if time.monotonic() > until:
            break
    return rows


def _way(attack: Attack, number: int, options: argparse.Namespace) -> str | None:
    ways = [way for way in attack.ways if not options.ways or any(text in way for text in options.ways)]
    # Shuffled by the seed, or short campaigns would try the same few for ever.
    Random(f"{options.seed}/{attack.name}").shuffle(ways)
    return ways[number % len(ways)] if ways else None


def _trial(attack: Attack, way: str, number: int, options: argparse.Namespace, folder: Path) -> Row:
    (folder / "tmp").mkdir(parents=True)
    os.environ["TMPDIR"] = str(folder / "tmp")  # of the trial's processes
    before, began = guards.footprint(), time.monotonic()
    choose = Random(f"{options.seed}/{attack.name}/{number}")
    try:
        verdict = attack.trial(way, choose, folder / "work")
    except (Exception, KeyboardInterrupt) as error:  # of the attack itself, which says nothing of the package
        raise RuntimeError(f"trial {number} of {attack.name} ({way}) could not be made") from error
    seconds = time.monotonic() - began
    if left := leftovers(folder / "tmp", before):
        verdict = Verdict("left something behind", "\n".join([*left, verdict.what, verdict.seen]), verdict.figures)
    is_good = verdict.what in attack.good
    print(f"{verdict.what} ({seconds:.1f} s)", flush=True)
    if not is_good:
        again = f"--attacks {attack.name} --seed {options.seed} --trial {number} --how {options.how}"
        ways = "".join(f" {text!r}" for text in options.ways)
        print(f"{_indented(verdict.seen)}\n  seen: python -m tests.faults.campaign {again}", end="", flush=True)
        print(f" --ways{ways}" if ways else "", flush=True)
    return Row(attack.name, way, number, verdict.what, is_good, round(seconds, 2), verdict.figures)


def leftovers(tmp: Path, before: guards.Footprint, grace_s: float = guards.GRACE_S) -> list[str]:
    """Lists what a trial left: files for a while, shared memory, processes, and what these still hold. Ends these."""
    files = [str(path) for path in tmp.iterdir() if not (path.name.startswith(_OF_TORCH) or _is_lightnings(path))]
    held = guards.leaks(before, grace_s)
    guards.kill(guards.new_children(before))
    return files + held


def _is_lightnings(path: Path) -> bool:
    """Whether it is the folder in which Lightning's launcher of spawned ranks hands weights back."""
    return path.name.startswith("tmp") and path.is_dir() and {file.name for file in path.iterdir()} <= {".temp.ckpt"}


def _indented(text: str, most: int = 60) -> str:
    lines = text.splitlines()
    if len(lines) > most:
        lines[most // 2 : -most // 2] = [f"... {len(lines) - most} lines ..."]
    return "\n".join(f"  | {line[:300]}" for line in lines)


def _report(rows: list[Row], options: argparse.Namespace) -> None:
    counted: defaultdict[tuple[str, str, str, bool], list[Row]] = defaultdict(list)
    for row in rows:
        counted[row.attack, row.way, row.what, row.is_good].append(row)
    print("\n| attack | way | what came of it | trials | good | medians |\n| --- | --- | --- | ---: | --- | --- |")
    for (attack, way, what, good), found in sorted(counted.items()):
        print(f"| {attack} | {way} | {what} | {len(found)} | {'yes' if good else '**no**'} | {_medians(found)} |")
    bad = sum(not row.is_good for row in rows)
    print(f"\n{len(rows)} trials (seed {options.seed}, {options.how}), {bad} of them bad", flush=True)
    told = {"seed": options.seed, "how": options.how, "trials": [asdict(row) for row in rows]}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(told, indent=1) + "\n")
    if options.docs:
        _write_docs(rows, options)


def _write_docs(rows: list[Row], options: argparse.Namespace) -> None:
    """Writes what the documentation shows: one line an attack. Those of attacks that were not tried now stay."""
    head, _, rest = DOCS.read_text().partition(_BEGIN)
    before, _, rest = rest.partition(_END)
    told = {line.split("|")[1].strip(): line for line in before.splitlines() if line.startswith("| ")}
    for attack in ATTACKS:
        if found := [row for row in rows if row.attack == attack]:
            came = Counter(row.what if row.is_good else f"**{row.what}**" for row in found)
            outcomes = ", ".join(f"{what} {number}" for what, number in came.most_common())
            bad, ranks = sum(not row.is_good for row in found), f"{options.seed}, {options.how}, {os.cpu_count()}"
            told[attack] = f"| {attack} | {ranks} | {len(found)} | {bad} | {outcomes} | {_medians(found)} |"
    lines = ["| attack | seed, how ranks start, cores | trials | bad | what came of it | medians |"]
    lines += ["| --- | --- | ---: | ---: | --- | --- |", *(told[attack] for attack in ATTACKS if attack in told)]
    DOCS.write_text("\n".join([f"{head}{_BEGIN}", *lines, f"{_END}{rest}"]))


def _medians(rows: list[Row]) -> str:
    measured: defaultdict[str, list[float]] = defaultdict(list)
    for name, number in (each for row in rows for each in row.figures.items()):
        measured[name].append(number)
    return ", ".join(f"{statistics.median(numbers):.3g} {name}" for name, numbers in measured.items())


if __name__ == "__main__":
    # As an error, so that what a trial has started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
