"""Run the tests of Lightning's repository with FactoredStrategy in the place of DDPStrategy.

    make test-lightning LIGHTNING=path        (or: python -m tests.lightning path [arguments of pytest])

``path`` is a checkout of the release that is installed, up to its last number (``git checkout 2.6.5`` for 2.6.6). What
its tests need comes by ``make setup`` and ``pip install tensorboard tensorboardX fastapi uvicorn omegaconf hydra-core
scikit-learn pandas jsonnet onnx onnxscript onnxruntime pytest-rerunfailures``; those that miss something are skipped,
and counted. They run in a copy of the checkout's tests, so that they leave it as it is.

It takes hours. ``--record folder`` (``ARGS="--record folder"`` for make) writes there what becomes of each test when it
ends, so that the same command goes on where an earlier one was broken off; changed code needs another folder.

1. All tests, with :mod:`tests.lightning.stand_in`. Those of :mod:`tests.lightning.left_out` must fail.
2. Those that want a process of their own, one by one: they start their script again for each rank.
3. What failed, once more without the others, whose imports and processes may have been in the way.
4. What failed again, likewise with DDPStrategy itself: what fails there too is no fault of FactoredStrategy.

It ends with how many tests ran, passed, at the second try too, and were left out, and why. It fails if any other test
fails, if a test that is left out passes, or if no test answers to an entry.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests import guards
from tests.lightning.left_out import LEFT_OUT

ROOT = Path(__file__).parents[2]
STANDALONE = "Requires: [Standalone execution]"  # Lightning's words for a test that wants a process of its own
PASSES = "[XPASS(strict)]"  # pytest's words for a test that was to fail, and passes
_OPTIONS = (
    *("-p", "tests.lightning.stand_in", "-p", "no:cacheprovider", "-q", "-rN", "--tb", "short"),
    *("--timeout", "900", "--timeout-method", "signal", "--continue-on-collection-errors"),
    *("-W", "ignore:torch.distributed.nn.functional:FutureWarning"),  # of a newer torch; an error to Lightning's tests
)
_TOGETHER = ("--numprocesses", "logical", "--maxprocesses", "4")  # as make test has it
_SEVERITY = ("passed", "skipped", "left out", "failed")


@dataclass(frozen=True)
class Outcome:
    """What became of a test (a word of ``_SEVERITY``), why, and the roles that FactoredStrategy's ranks had in it."""

    outcome: str
    why: str = ""
    roles: str = ""


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if all is well, 1 if a test says otherwise, 2 if there is nothing to run."""
    parser = argparse.ArgumentParser(prog="make test-lightning", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", help="folder of Lightning's repository; LIGHTNING=... for make")
    parser.add_argument("--record", type=Path, help="folder to write outcomes to, and to go on from")
    given, selection = parser.parse_known_args(arguments)
    if problem := problem_with(given.checkout):
        print(f"make test-lightning: {problem}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # cleans up, as Ctrl-C does
    start = time.monotonic()
    guards.mark_run()
    with tempfile.TemporaryDirectory(prefix="gnnload-lightning-") as temporary:
        copy = Path(temporary)
        shutil.copytree(Path(given.checkout, "tests"), copy / "tests")
        shutil.copy(Path(given.checkout, "pyproject.toml"), copy)
        record = (given.record or copy / "record").resolve()
        record.mkdir(parents=True, exist_ok=True)
        try:
            found = run(copy, record / "factored", selection, _TOGETHER)
            standalone = [test for test, each in found.items() if each.why.endswith(STANDALONE)]
            for test in standalone:
                found |= run(copy, record / "factored-alone", [test], PL_RUN_STANDALONE_TESTS="1")
            first = failures(found)
            if together := [test for test in first if test not in standalone]:
                found |= run(copy, record / "factored-again", together, _TOGETHER)
            failed = failures(found)
            with_ddp: dict[str, Outcome] = {}
            if together := [test for test in failed if test not in standalone]:
                with_ddp |= run(copy, record / "ddp", together, _TOGETHER, GNNLOAD_STAND_IN="ddp")
            for test in failed:
                if test in standalone:
                    alone = {"GNNLOAD_STAND_IN": "ddp", "PL_RUN_STANDALONE_TESTS": "1"}
                    with_ddp |= run(copy, record / "ddp-alone", [test], **alone)
        finally:
            guards.kill(guards.orphans())
    problems = judge(found, with_ddp, LEFT_OUT if not selection else {})
    again = f"{len(first) - len(failed)} passed at the second try only."
    print(
        *summary(found, with_ddp), again, f"It took {(time.monotonic() - start) / 60:.0f} minutes.", *problems, sep="\n"
    )
    return 1 if problems else 0


def failures(found: Mapping[str, Outcome]) -> list[str]:
    """Node ids of what failed, but for what passed though it was to fail."""
    return [test for test, each in found.items() if each.outcome == "failed" and PASSES not in each.why]


def problem_with(checkout: str) -> str | None:
    """Why the tests of this folder cannot be run here, and what to do; None if they can."""
    how = "git clone https://github.com/Lightning-AI/pytorch-lightning, and give its folder: LIGHTNING=path"
    if not checkout:
        return f"Lightning's repository is needed, for its tests: {how}"
    about = Path(checkout, "src", "version.info")
    if not Path(checkout, "tests", "tests_pytorch").is_dir() or not about.is_file():
        return f"LIGHTNING={checkout} is no checkout of Lightning's repository, with src/version.info and tests: {how}"
    try:
        installed = {name: version(name) for name in ("pytorch-lightning", "lightning")}
    except PackageNotFoundError as error:
        return f"{error.name} is not installed, whose tests these are: pip install lightning pytorch-lightning"
    release = about.read_text().strip()
    for name, here in installed.items():
        if release.split(".")[:2] != here.split(".")[:2]:
            return (
                f"LIGHTNING={checkout} is release {release}, but {name} {here} is installed: the first two numbers "
                f"must be equal. git tag --list '{'.'.join(here.split('.')[:2])}*' names what to check out."
            )
    return None


def run(
    copy: Path, record: Path, tests: Sequence[str], options: Sequence[str] = (), **variables: str
) -> dict[str, Outcome]:
    """Outcomes by node id. Raises SystemExit: pytest broke off.

    Args:
        copy: folder with Lightning's pyproject.toml and tests.
        record: file that outcomes are added to, a line a test's phase. Tests that it has the end of do not run again.
        tests: what pytest is to take them from; nothing for all.
        options: of pytest, besides the usual ones.
        variables: of the environment, likewise.
    """
    done = outcomes_in(record)
    left = [test for test in tests if test not in done]
    if tests and not left:
        return done
    folder, done_file = copy / "tests" / "tests_pytorch", copy / "done"
    done_file.write_text("\n".join(done))
    # A test of this very script may run in a worker of pytest-xdist's, which the one started here is not.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    environment = own | {
        # What FactoredStrategy tells gloo by it stays set, where Lightning's tests see that the environment changed.
        "GLOO_SOCKET_IFNAME": "lo",
        "GNNLOAD_DONE": str(done_file),
        "GNNLOAD_LIGHTNING": "lightning",
        "GNNLOAD_REPORT": str(record),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "pytest", "-c", str(copy / "pyproject.toml"), "--rootdir", str(folder)]
    command += [*_OPTIONS, *options, *left]
    code = subprocess.run(command, cwd=folder, env=environment | variables).returncode
    if code not in (0, 1, 5):
        raise SystemExit(f"make test-lightning: pytest broke off with exit code {code}; what it wrote above says why.")
    return outcomes_in(record)


def outcomes_in(record: Path) -> dict[str, Outcome]:
    """Outcomes by node id of the tests that have ended, the worst of each test's phases, and of its ranks'."""
    outcomes: dict[str, Outcome] = {}
    ended = set()
    for line in map(json.loads, record.read_text().splitlines() if record.exists() else ()):
        phase, before = Outcome(line["outcome"], line["why"], line["roles"]), outcomes.get(line["test"])
        if before is None or _SEVERITY.index(phase.outcome) >= _SEVERITY.index(before.outcome):
            outcomes[line["test"]] = phase
        if line["ended"]:
            ended.add(line["test"])
    return {test: each for test, each in outcomes.items() if test in ended}


def summary(found: Mapping[str, Outcome], with_ddp: Mapping[str, Outcome]) -> list[str]:
    """Lines: how many tests ran, passed, were left out by which reason."""
    counts = Counter(each.outcome for each in found.values())
    roles = Counter(each.roles for each in found.values() if each.outcome == "passed" and each.roles)
    apart = sum(count for words, count in roles.items() if "apart" in words)
    lines = [
        f"{sum(counts.values()) - counts['skipped']} of {sum(counts.values())} tests ran.",
        f"{counts['passed']} passed, {roles.total()} of them with FactoredStrategy: {apart} with a sampler's rank of "
        f"its own, {roles.total() - apart} with one rank for both.",
    ]
    for head, words, reason in (
        ("failed, as they must", "left out", lambda each: each.why.removeprefix("reason: ")),
        ("were skipped by themselves", "skipped", lambda each: each.why.removeprefix("Skipped: ")),
    ):
        reasons = Counter(reason(each) for each in found.values() if each.outcome == words)
        lines += [f"{reasons.total()} {head}:", *(f"  {count:5} {why}" for why, count in reasons.most_common())]
    alike = sum(each.outcome == "failed" for each in with_ddp.values())
    return [*lines, f"{alike} failed with DDPStrategy in its place too."]


def judge(found: Mapping[str, Outcome], with_ddp: Mapping[str, Outcome], entries: Iterable[str]) -> list[str]:
    """Lines: what must not be.

    Args:
        found: outcomes with FactoredStrategy, by node id.
        with_ddp: outcomes with DDPStrategy, of those that failed.
        entries: of the list of tests that are left out, those that must be answered to.
    """
    problems = []
    for test, each in found.items():
        if each.outcome == "failed" and PASSES in each.why:
            problems.append(f"PASSES, though it is left out (take it off the list): {test}")
        elif each.outcome == "failed" and with_ddp[test].outcome != "failed":
            problems.append(f"FAILED with FactoredStrategy, and not with DDPStrategy: {test}")
    answered = {name for test in found for name in (test, test.partition("[")[0])}
    return problems + [f"NO TEST answers to this entry: {entry}" for entry in entries if entry not in answered]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
