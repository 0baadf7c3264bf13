"""Run the tests of PyG's repository, and RelBench's, with our classes in the place of PyG's.

    make test-pyg PYG=path [RELBENCH=path]        (or: python -m tests.pyg_suite path [--relbench path] [pytest's])

``path`` is a checkout of the release that is installed, up to its last number (``git checkout 2.8.0`` for 2.8.1). Of
its tests these run: those of the loaders, samplers and data modules that ``lightning_gnnload.pyg`` has, and of what
takes them. They run in a copy of the checkout's tests, with neither pyg-lib nor torch-sparse: the exchange is
:mod:`tests.pyg_suite.stand_in`. RelBench's need ``pip install relbench pytorch_frame``, and run the checkout's code.

It ends with how many tests passed with a class of ours, and why others did not run; the table is written to
``docs/pyg_tests.md``. It fails if a test fails, if one passes that cannot apply, or if one passes without ours.

With ``--own`` it runs PyG's own classes, by pyg-lib and torch-sparse if these are installed, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.pyg_suite.left_out import LEFT_OUT, NOTHING_OF_OURS, entry_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pyg_tests.md"
PASSES = "[XPASS(strict)]"  # pytest's words for a test that was to fail, and passes
_SEVERITY = ("passed", "skipped", "left out", "failed")
# Files whose tests are of loaders, samplers and data modules; and tests of other files that take them.
PYG_TESTS = (
    "loader/test_neighbor_loader.py",
    "loader/test_link_neighbor_loader.py",
    "loader/test_hgt_loader.py",
    "loader/test_shadow.py",
    "loader/test_cluster.py",
    "loader/test_graph_saint.py",
    "loader/test_random_node_loader.py",
    "sampler/test_sampler_neighbor_sampler.py",
    "data/lightning/test_datamodule.py",
    "loader/test_zip_loader.py",
    "loader/test_cache.py",
    "loader/test_mixin.py",
    "loader/test_imbalanced_sampler.py::test_neighbor_loader_with_imbalanced_sampler",
    "loader/test_imbalanced_sampler.py::test_hetero_neighbor_loader_with_imbalanced_sampler",
    "utils/test_trim_to_layer.py::test_trim_to_layer_with_neighbor_loader",
    "nn/conv/test_pna_conv.py::test_pna_conv_get_degree_histogram_neighbor_loader",
    "nn/models/test_basic_gnn.py::test_basic_gnn_inference",
    "nn/models/test_basic_gnn.py::test_trim_to_layer",
    "nn/models/test_basic_gnn.py::test_basic_gnn_cache",
)
NOT_OURS = "data/lightning/test_datamodule.py::test_lightning_dataset"  # LightningDataset is of many small graphs
RELBENCH_TESTS = (
    "modeling/test_loader.py",
    "modeling/test_node_nn.py",
    "modeling/test_link_nn.py",
    "modeling/test_link_idgnn.py",
)

_OPTIONS = (
    *(
        "-p",
        "tests.pyg_suite.without",
        "-p",
        "tests.pyg_suite.stand_in",
        "-p",
        "no:cacheprovider",
        "-q",
        "-rN",
        "--tb",
        "short",
    ),
    *("--timeout", "180", "--continue-on-collection-errors", "-W", "ignore", "--deselect", NOT_OURS),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a test (a word of ``_SEVERITY``), why, and the classes of ours that it made."""

    outcome: str
    why: str = ""
    used: str = ""


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if all is well, 1 if a test says otherwise, 2 if there is nothing to run."""
    parser = argparse.ArgumentParser(prog="make test-pyg", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", help="folder of PyG's repository; PYG=... for make")
    parser.add_argument("--relbench", default="", help="folder of RelBench's repository; RELBENCH=... for make")
    parser.add_argument("--own", action="store_true", help="run PyG's own classes")
    given, selection = parser.parse_known_args(arguments)
    if problem := problem_with(given.checkout, given.relbench):
        print(f"make test-pyg: {problem}", file=sys.stderr)
        return 2
    start = time.monotonic()
    stand_in = "pyg" if given.own else "ours"
    found = run(Path(given.checkout, "test"), PYG_TESTS, selection, GNNLOAD_STAND_IN=stand_in)
    of_relbench: dict[str, Outcome] = {}
    if given.relbench:
        home = Path(given.relbench).resolve()
        paths = f"{ROOT}{os.pathsep}{home}"
        of_relbench = run(home / "test", RELBENCH_TESTS, selection, GNNLOAD_STAND_IN=stand_in, PYTHONPATH=paths)
    everything = found | of_relbench
    whole = not selection and not given.own
    entries = [entry for entry in {**LEFT_OUT, **NOTHING_OF_OURS} if given.relbench or "modeling/" not in entry]
    problems = [] if given.own else judge(everything, entries if whole else [])
    print(*summary(everything), f"It took {time.monotonic() - start:.0f} seconds.", *problems, sep="\n")
    if given.own:
        print(*(f"FAILED: {test}" for test, each in everything.items() if each.outcome == "failed"), sep="\n")
    elif whole and not problems:
        write(PAGE, table(found, "PyG", version("torch-geometric")), "pyg")
        if of_relbench:
            [line] = [line for line in (home / "pyproject.toml").read_text().splitlines() if line.startswith("version")]
            write(PAGE, table(of_relbench, "RelBench", line.split('"')[1]), "relbench")
    return 1 if problems else 0


def problem_with(checkout: str, relbench: str = "") -> str | None:
    """Why the tests of these folders cannot be run here, and what to do; None if they can."""
    how = "git clone https://github.com/pyg-team/pytorch_geometric, and give its folder: PYG=path"
    if not checkout:
        return f"PyG's repository is needed, for its tests: {how}"
    about = Path(checkout, "torch_geometric", "__init__.py")
    if not Path(checkout, "test", "loader").is_dir() or not about.is_file():
        return f"PYG={checkout} is no checkout of PyG's repository, with torch_geometric and test: {how}"
    try:
        here = version("torch-geometric")
    except PackageNotFoundError:
        return "torch-geometric is not installed, whose tests these are: pip install torch-geometric"
    [release] = [line.split("'")[1] for line in about.read_text().splitlines() if line.startswith("__version__")]
    if release.split(".")[:2] != here.split(".")[:2]:
        return (
            f"PYG={checkout} is release {release}, but torch-geometric {here} is installed: the first two numbers "
            f"must be equal. git tag --list '{'.'.join(here.split('.')[:2])}*' names what to check out."
        )
    if relbench and not Path(relbench, "test", "modeling").is_dir():
        return f"RELBENCH={relbench} is no checkout of RelBench's repository, with test/modeling."
    return None


def run(tests: Path, chosen: Iterable[str], selection: Sequence[str], **variables: str) -> dict[str, Outcome]:
    """Outcomes by node id. Raises SystemExit: pytest broke off.

    Args:
        tests: folder of the repository's tests; a copy of it is run.
        chosen: of it, files and tests.
        selection: further arguments of pytest.
        variables: of the environment, besides the plugin's own.
    """
    with tempfile.TemporaryDirectory(prefix="gnnload-pyg-") as copy:
        folder, report, settings = Path(copy, "tests"), Path(copy, "report"), Path(copy, "pytest.ini")
        shutil.copytree(tests, folder)
        report.touch()
        settings.write_text("[pytest]\naddopts = --import-mode=importlib\nmarkers = dataset\n")
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        environment = own | {
            "GNNLOAD_LIGHTNING": "pytorch_lightning",
            "GNNLOAD_REPORT": str(report),
            "OMP_NUM_THREADS": "2",  # as many as a test of PyG's asks for
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(folder), *_OPTIONS]
        code = subprocess.run([*command, *selection, *chosen], cwd=folder, env=environment | variables).returncode
        if code not in (0, 1, 5):
            raise SystemExit(f"make test-pyg: pytest broke off with exit code {code}; what it wrote above says why.")
        outcomes: dict[str, Outcome] = {}
        for line in map(json.loads, report.read_text().splitlines()):
            phase, before = Outcome(line["outcome"], line["why"], line["used"]), outcomes.get(line["test"])
            worst = max([phase, *([before] if before else [])], key=lambda each: _SEVERITY.index(each.outcome))
            outcomes[line["test"]] = replace(worst, used=phase.used or (before.used if before else ""))
        return outcomes


def summary(found: Mapping[str, Outcome]) -> list[str]:
    """Lines: how many tests passed, with which classes of ours; how many did not run, by which reason."""
    counts = Counter(each.outcome for each in found.values())
    ours = Counter(kind for each in found.values() if each.outcome == "passed" for kind in each.used.split())
    lines = [f"{counts['passed']} of {len(found)} tests passed."]
    lines += [f"  {count:5} with {kind}" for kind, count in ours.most_common()]
    for words in ("skipped", "left out"):
        reasons = Counter(_reason(test, each) for test, each in found.items() if each.outcome == words)
        lines += [f"{counts[words]} {words}:", *(f"  {count:5} {why}" for why, count in reasons.most_common())]
    return lines


def judge(found: Mapping[str, Outcome], entries: Iterable[str]) -> list[str]:
    """Lines: what must not be.

    Args:
        found: outcomes by node id.
        entries: of the lists of tests that are left out, those that must be answered to.
    """
    problems = []
    for test, each in found.items():
        with_nothing = entry_of(test, NOTHING_OF_OURS) is not None
        if each.outcome == "failed" and PASSES in each.why:
            problems.append(f"PASSES, though it is left out (take it off the list): {test}")
        elif each.outcome == "failed":
            problems.append(f"FAILED: {test}: {each.why.strip().splitlines()[-1] if each.why.strip() else ''}")
        elif each.outcome == "passed" and not each.used and not with_nothing:
            problems.append(f"PASSES WITHOUT A CLASS OF OURS: {test}")
        elif each.outcome == "passed" and each.used and with_nothing:
            problems.append(f"USES {each.used}, though it is listed as one that does not: {test}")
    answered = {name for test in found for name in (test, test.partition("[")[0])}
    return problems + [f"NO TEST answers to this entry: {entry}" for entry in entries if entry not in answered]


def table(found: Mapping[str, Outcome], whose: str, release: str) -> list[str]:
    """The lines of a Markdown table, one for the tests of a function that fared alike."""
    functions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for test, each in found.items():
        name, _, parameters = test.partition("[")
        if (why := entry_of(test, NOTHING_OF_OURS)) is not None:
            became = why
        else:
            became = "passes" if each.outcome == "passed" else _reason(test, each)
        functions[name][became].append(parameters.rstrip("]"))
    passed = sum(each.outcome == "passed" and bool(each.used) for each in found.values())
    lines = [
        f"{whose} {release}: {passed} of {len(found)} tests pass with our classes.",
        "",
        "| test | |",
        "| --- | --- |",
    ]
    for name, outcomes in functions.items():
        for became, parameters in outcomes.items():
            file, _, function = name.partition("::")
            which = ""
            if len(outcomes) > 1 and became != "passes":
                which = " " + ", ".join(f"`[{each}]`" for each in parameters)
            times = f" ({len(parameters)} times)" if len(parameters) > 1 else ""
            lines.append(f"| {Path(file).name} `{function}`{which} | {became}{times} |")
    return lines


def write(page: Path, lines: Sequence[str], mark: str, by: str = "make test-pyg") -> None:
    """Puts these lines between the page's marks of this name, which tell the command that they are written by."""
    begin, end = f"<!-- {mark}: begin, written by {by} -->", f"<!-- {mark}: end -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text("\n".join([f"{before}{begin}", "", *lines, "", f"{end}{after}"]))


def _reason(test: str, each: Outcome) -> str:
    """Why it did not pass: our words, or those of the test's own authors."""
    words = {"skipped": "skipped by its authors: ", "left out": "expected to fail by its authors: "}
    is_ours = entry_of(test, LEFT_OUT) is not None
    why = each.why.removeprefix("reason: ").removeprefix("Skipped: ").rstrip(".")
    return "fails" if each.outcome == "failed" else f"{'' if is_ours else words[each.outcome]}{why}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
