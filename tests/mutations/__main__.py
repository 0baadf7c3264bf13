"""``python -m tests.mutations``: plants faults in a copy of the tree, one by one, and lists those that law lets pass.

``planted.txt`` has one in each paragraph: what it breaks, lines that the package and its CUDA kernels hold exactly
once, and others in their place. It names no file, so that files may move. CUDA kernels are compiled for the emulator by
the tests that run them; the CPU's are not compiled anew, and so have no faults here.

Tests run from the nearest on, until one fails: those that mirror the changed file, those that name what it defines,
those of its folder and, with ``--whole``, all of law. A paragraph whose lines have changed since is reported as stale,
to be mended or dropped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# An editable install's finder would lead back to the repository.
SITE = "import sys\nsys.meta_path[:] = [each for each in sys.meta_path if 'ScikitBuild' not in type(each).__name__]\n"
MOST_S = 900  # of one run of tests: a mutation may hang
MOST_NAMING = 12  # files: a name that more of them hold says little


class Mutation(NamedTuple):
    """``old`` becomes ``new``, which ``breaks`` something."""

    breaks: str
    old: str
    new: str


def parse(text: str) -> list[Mutation]:
    """Reads paragraphs of a line of words, lines after ``- ``, and lines after ``+ ``."""
    found = []
    for paragraph in text.strip().split("\n\n"):
        breaks, *lines = paragraph.splitlines()
        old, new = ("\n".join(line[2:] for line in lines if line.startswith(sign)) for sign in "-+")
        found.append(Mutation(breaks, old, new))
    return found


def every() -> list[Mutation]:
    return parse((Path(__file__).parent / "planted.txt").read_text())


def sources(root: Path = ROOT) -> dict[Path, str]:
    """The text of each file of the package, and of what only devices run, by its path below the root."""
    kernels = root / "kernels"
    files = [
        *(root / "lightning_gnnload").rglob("*.py"),
        *kernels.rglob("*.cu"),
        *(kernels / "common/cuda").glob("*.h"),
    ]
    return {path.relative_to(root): path.read_text() for path in sorted(files)}


def file_of(mutation: Mutation, texts: dict[Path, str]) -> Path | None:
    """The file that holds the old lines, if they are there exactly once."""
    counts = {path: count for path, text in texts.items() if (count := text.count(mutation.old))}
    return next(iter(counts)) if sum(counts.values()) == 1 else None


def nearest(path: Path, whole: bool) -> Iterator[list[str]]:
    """Paths of tests for a file of the package: those that mirror it, those that name what it defines, and so on."""
    if path.parts[0] == "kernels":
        yield from _nearest_kernel(path)
        return
    layer, *within = path.with_suffix("").parts[1:]
    if layer == "ops" or "device" in within:
        folder = Path("tests/cuda" if {"cuda", "device"} & {*within} else "tests/ops")
    else:
        folder = Path("tests/unit", layer, *within[:-1])
    mirrored = folder / f"test_{(within or [layer])[-1].strip('_')}.py"
    if (ROOT / mirrored).exists():
        yield [str(mirrored)]
    names = "|".join(re.findall(r"^(?:def|class) ([a-zA-Z]\w+)", (ROOT / path).read_text(), re.M))
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    naming = [file for file in files if names and re.search(rf"\b({names})\b", file.read_text())]
    if 0 < len(naming) <= MOST_NAMING:
        yield [str(file.relative_to(ROOT)) for file in naming]
    while not (ROOT / folder).exists():
        folder = folder.parent
    if folder != Path("tests/unit"):
        yield [str(folder)]
    if whole:
        yield ["tests"]


def _nearest_kernel(path: Path) -> Iterator[list[str]]:
    """For a kernel: the tests of its operation, and those of what all kernels share."""
    op = path.stem.removesuffix("_cuda")
    files = sorted((ROOT / "tests/cuda").glob("test_*.py"))
    yield [
        str(file.relative_to(ROOT)) for file in files if op in file.stem or re.search(rf"\b{op}\b", file.read_text())
    ]
    yield ["tests/cuda/test_neighbors.py", "tests/cuda/test_scan.py"]
    yield ["tests/cuda"]


def copy_tree(target: Path) -> None:
    """What git knows of the tree, and what it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    (target / "sitecustomize.py").write_text(SITE)


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Runs Python on the copy; None if it takes too long."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"}
    try:
        return subprocess.run(
            [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True, timeout=MOST_S
        )
    except subprocess.TimeoutExpired:
        return None


def first_failure(tree: Path, lists: Iterable[list[str]]) -> str | None:
    """The first test of law that fails on the copy, of lists that are run in turn."""
    for tests in lists:
        done = run(tree, "-m", "pytest", "-x", "-q", "-n0", "--timeout=120", "-pno:cacheprovider", "-mlaw", *tests)
        if done is None:
            return f"{MOST_S} s in {' '.join(tests)}"
        if done.returncode not in (0, 5):  # passed, or nothing to run
            failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)
            return failed[1] if failed else f"status {done.returncode} of {' '.join(tests)}"
    return None


def outcome(tree: Path, mutation: Mutation, path: Path | None, texts: dict[Path, str], whole: bool) -> tuple[bool, str]:
    """Whether a test fails on the copy with the mutation, and not without it; and what is to be said."""
    if path is None:
        return False, "STALE, its lines are not in the package exactly once"
    (tree / path).write_text(texts[path].replace(mutation.old, mutation.new))
    failure = first_failure(tree, nearest(path, whole))
    (tree / path).write_text(texts[path])
    if failure and failure.startswith("tests/") and first_failure(tree, [[failure]]):
        return False, f"UNKNOWN, {failure} fails without it, too"
    return bool(failure), failure or "NOT CAUGHT"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--whole", action="store_true", help="try all of law where the nearest tests pass")
    parser.add_argument("--only", default="", help="those whose words or file match this regular expression")
    options = parser.parse_args(arguments)
    texts, missed = sources(), []
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        where = run(tree, "-c", "from lightning_gnnload import ops; ops.instruction_sets(); print(ops.__file__)")
        assert where is not None, "Python does not start on the copy"
        assert where.stdout.startswith(folder), f"the copy is not what is imported:\n{where.stdout}{where.stderr}"
        for mutation in every():
            path = file_of(mutation, texts)
            if re.search(options.only, f"{mutation.breaks}\n{path}"):
                is_caught, said = outcome(tree, mutation, path, texts, options.whole)
                print(line := f"{path}: {mutation.breaks}: {said}", flush=True)
                missed += [] if is_caught else [line]
    print(f"\n{len(missed)} not caught", *missed, sep="\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
