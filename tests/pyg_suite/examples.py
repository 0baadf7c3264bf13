"""Train RelBench's own example scripts by PyG's loaders with pyg-lib, and by ours without: metrics must be equal.

    make test-relbench RELBENCH=path [PYG_PYTHON=path]
    (or: python -m tests.pyg_suite.examples path [--pyg-python path] [--seeds 5] [--epochs 5])

``path`` is a checkout of RelBench's repository. This interpreter needs what its examples import, and pandas 2;
``--pyg-python`` names one that has pyg-lib besides, and may be this one: it is hidden from our side. Nothing is
downloaded. :mod:`tests.pyg_suite.side` says what is run, and on which databases.

Two sides are equal within noise where Welch's t-test over the seeds does not tell them apart. It may do so wrongly
for one table in a hundred: each of its M rows has the error probability 0.01 / M. What the test can see is said, too:
the smallest difference that it would have told, and two ways to sample wrongly that it tells.

It writes the table to ``docs/pyg_tests.md``. It fails if a metric differs, if a mini-batch of ours is not
disjoint or sees the future, or if wrong samples would not have been seen.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.pyg_suite.__main__ import PAGE, ROOT, write
from tests.pyg_suite.side import EXAMPLES

ERROR = 0.01  # that a table says of equal sides that they differ
_METRICS = {"roc_auc": "ROC AUC", "mae": "MAE", "link_prediction_map": "MAP"}
_NODES = "nodes a mini-batch"
_WRONG = ("future", "strangers")

Figures = Mapping[tuple[str, str, str, str], list[float]]
"""Database, script, task and what was measured -> a figure for each seed."""


class Difference(NamedTuple):
    """Whether two means are apart: by a two-sided p, and from which difference on they would be."""

    p: float
    smallest: float


def welch(one: Sequence[float], other: Sequence[float], error: float) -> Difference:
    """Welch's t-test of two independent samples, with its degrees of freedom.

    Args:
        one: figures, two or more.
        other: likewise.
        error: probability to tell equal means apart; decides ``smallest``.

    Example:
        >>> welch([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.01).p
        1.0
    """
    from scipy import stats

    shares = [float(np.var(each, ddof=1)) / len(each) for each in (one, other)]
    apart = abs(float(np.mean(one) - np.mean(other)))
    if sum(shares) == 0:
        return Difference(float(apart == 0), 0.0)
    freedom = sum(shares) ** 2 / sum(
        share**2 / (len(each) - 1) for share, each in zip(shares, (one, other), strict=True)
    )
    spread = sum(shares) ** 0.5
    return Difference(float(2 * stats.t.sf(apart / spread, freedom)), float(stats.t.isf(error / 2, freedom)) * spread)


def figures_of(lines: Sequence[Mapping[str, Any]]) -> Figures:
    """The runs' lines as figures by what was measured."""
    figures: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for line in lines:
        if "error" in line:
            continue
        name = _METRICS[EXAMPLES[line["script"], line["task"]]]
        nodes = line["batches"]["nodes"] / line["batches"]["batches"]
        for what, figure in ((f"{name}, val", line["val"]), (f"{name}, test", line["test"]), (_NODES, nodes)):
            figures[line["database"], line["script"], line["task"], what].append(figure)
    return figures


def batches_of(lines: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Mini-batches of all runs, and how many have which fault."""
    total: Counter[str] = Counter()
    for line in lines:
        total.update(line["batches"])
    return total


def judge(lines: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Lines: what must not be.

    Args:
        lines: those of the runs, by side.
    """
    problems = [
        f"FAILED: {side}, {line['script']}, {line['task']}: {line['error']}"
        for side, runs in lines.items()
        if side != "without"
        for line in runs
        if "error" in line
    ]
    figures = {side: figures_of(runs) for side, runs in lines.items()}
    error = ERROR / max(len(figures["ours"]), 1)
    for key, ours in figures["ours"].items():
        if key not in figures["pyg"] or welch(figures["pyg"][key], ours, error).p < error:
            problems.append(f"DIFFERS: {', '.join(key)}: {figures['pyg'].get(key)} by PyG's, {ours} by ours")
    for side in ("pyg", "ours"):
        found = batches_of(lines[side])
        problems += [
            f"FAULT: {found[word]} mini-batches of {side} are {word}" for word in ("shared", "later") if found[word]
        ]
    if not batches_of(lines["future"])["later"]:
        problems.append("NOT SEEN: no mini-batch of a graph without times has nodes that are later than its rows")
    for side in _WRONG:
        told = [key for key, ours in figures["ours"].items() if welch(figures[side][key], ours, error).p < error]
        if not any(what != _NODES for *_, what in told):
            problems.append(f"NOT SEEN: no metric tells {side} from ours, so that equal ones mean nothing")
    return problems


def table(lines: Mapping[str, Sequence[Mapping[str, Any]]], release: str) -> list[str]:
    """The lines of the guide: what was run, the table, and what was found in mini-batches."""
    figures = {side: figures_of(runs) for side, runs in lines.items()}
    error = ERROR / max(len(figures["ours"]), 1)
    seeds = len(next(iter(figures["ours"].values())))
    told = [
        f"RelBench {release}, mean ± standard deviation over {seeds} seeds. Two figures are equal within noise where "
        f"Welch's t-test has p ≥ {ERROR:g} / {len(figures['ours'])}: one table in {1 / ERROR:.0f} of equal sides would "
        "name a difference. `≠` marks what is not equal to ours.",
        "",
        "| database | example | | PyG with pyg-lib | ours | within noise | seen from | future | strangers |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for key, ours in figures["ours"].items():
        database, script, task, what = key
        p, smallest = welch(figures["pyg"][key], ours, error)
        wrong = [figures[side][key] for side in _WRONG]
        marks = ["≠ " if welch(each, ours, error).p < error else "" for each in wrong]
        told.append(
            f"| {database} | `{script}` {task} | {what} | {_plus_minus(figures['pyg'][key])} | {_plus_minus(ours)} "
            f"| {'yes' if p >= error else 'NO'}, p = {p:.2g} | {smallest:.2g} "
            f"| {' | '.join(mark + _rounded(float(np.mean(each))) for mark, each in zip(marks, wrong, strict=True))} |"
        )
    ours_found, theirs, future = (batches_of(lines[side]) for side in ("ours", "pyg", "future"))
    told += [
        "",
        f"Of our {ours_found['batches']:,} mini-batches {ours_found['shared'] or 'none'} had rows that share a node or "
        f"an edge, and {ours_found['later'] or 'none'} a node later than its row; of PyG's {theirs['batches']:,}, "
        f"{theirs['shared'] or 'none'} and {theirs['later'] or 'none'}; of `future`'s {future['batches']:,}, "
        f"{future['shared'] or 'none'} and {future['later']:,}.",
    ]
    without = lines["without"]
    stopped = sorted({line["script"] for line in without if "error" in line})
    found = batches_of(without)
    told[-1] += (
        f" Without pyg-lib PyG's loaders made {found['batches'] or 'no'} mini-batch{'es' if found['batches'] else ''}"
        + (f", {found['shared']} of them not disjoint" if found["batches"] else "")
        + (f": {', '.join(f'`{each}`' for each in stopped)} ended with `{_errors(without)}`" if stopped else "")
        + "."
    )
    return told


def _errors(lines: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(sorted({line["error"] for line in lines if "error" in line}))


def _plus_minus(figures: Sequence[float]) -> str:
    return f"{_rounded(float(np.mean(figures)))} ± {_rounded(float(np.std(figures, ddof=1)))}"


def _rounded(figure: float) -> str:
    return f"{figure:.3f}" if abs(figure) < 100 else f"{figure:.1f}"


def problem_with(checkout: str, seeds: int) -> str | None:
    """Why the examples of this folder cannot be run, and what to do; None if they can."""
    if not checkout or not all(Path(checkout, "examples", f"{script}.py").is_file() for script, _ in EXAMPLES):
        return (
            f"RELBENCH={checkout} is no checkout of RelBench's repository, with examples/gnn_entity.py: "
            "git clone https://github.com/snap-stanford/relbench, and give its folder."
        )
    if seeds < 2:
        return f"--seeds {seeds} has no deviation: give 2 or more."
    return None


def run(side: str, python: str, checkout: Path, folder: Path, seeds: int, epochs: int) -> list[dict[str, Any]]:
    """The lines that a side's runs report, in a file of the folder. Raises SystemExit: it broke off."""
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / f"{side}.jsonl"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "GNNLOAD_LIGHTNING": "pytorch_lightning",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",  # texts are embedded by their hashes
        "PYTHONPATH": os.pathsep.join(paths),
        "TQDM_DISABLE": "1",
    }
    command = [python, "-W", "ignore", "-m", "tests.pyg_suite.side", side, str(checkout), str(report)]
    command += ["--seeds", str(seeds), "--epochs", str(epochs)]
    code = subprocess.run(command, cwd=ROOT, env=environment).returncode
    if code:
        raise SystemExit(f"make test-relbench: side {side} broke off with exit code {code}; it says above why.")
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    return [line for line in lines if line["seed"] < seeds and line["epochs"] == epochs]


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if all is well, 1 if something differs, 2 if there is nothing to run."""
    parser = argparse.ArgumentParser(prog="make test-relbench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", help="folder of RelBench's repository; RELBENCH=... for make")
    parser.add_argument("--pyg-python", default="", help="interpreter that has pyg-lib; PYG_PYTHON=... for make")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder of reports: runs that are in it are not made again")
    given = parser.parse_args(arguments)
    if problem := problem_with(given.checkout, given.seeds):
        print(f"make test-relbench: {problem}", file=sys.stderr)
        return 2
    start = time.monotonic()
    checkout = Path(given.checkout).resolve()
    # What must differ, does so by much: fewer seeds show it.
    seeds = {"pyg": given.seeds, "ours": given.seeds, **dict.fromkeys(_WRONG, min(given.seeds, 3)), "without": 1}
    lines = {}
    with tempfile.TemporaryDirectory(prefix="gnnload-sides-") as folder:
        for side, count in seeds.items():
            python = given.pyg_python if side == "pyg" and given.pyg_python else sys.executable
            lines[side] = run(side, python, checkout, (given.keep or Path(folder)).resolve(), count, given.epochs)
    [release] = [
        line.split('"')[1]
        for line in (checkout / "pyproject.toml").read_text().splitlines()
        if line.startswith("version")
    ]
    problems, told = judge(lines), table(lines, release)
    print(*told, f"It took {time.monotonic() - start:.0f} seconds.", *problems, sep="\n")
    if not problems:
        write(PAGE, told, "examples", "make test-relbench")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
