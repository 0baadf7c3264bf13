"""A newcomer with a LightningModule and PyG's NeighborLoader: the script runs with ours by one changed line."""

from __future__ import annotations

import difflib
import importlib.util
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runif import RunIf

OURS = Path(__file__).parents[2] / "examples" / "pyg_one_import.py"
LINE, LINE_OF_PYG = (
    "from lightning_gnnload.pyg import NeighborLoader",
    "from torch_geometric.loader import NeighborLoader",
)
LEAST_ACCURACY = 0.8  # features alone reach 0.5 to 0.6, guesses 0.25


def script_of_pyg() -> str:
    """The same script with PyG's own import."""
    return re.sub(rf"^{LINE}.*$", LINE_OF_PYG, OURS.read_text(), flags=re.MULTILINE)


def accuracy(script: Path, folder: Path) -> float:
    """Runs a script in an interpreter of its own, and tells how long it took."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    num_lines = sum(1 for line in script.read_text().splitlines() if line.strip())
    print(f"{script.name}: {num_lines} lines that are not empty, {time.monotonic() - began:.1f} s with all imports")
    found = re.search(r"accuracy\D*([01]\.\d+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


def test_the_scripts_differ_in_one_line() -> None:
    changed = list(difflib.ndiff(script_of_pyg().splitlines(), OURS.read_text().splitlines()))
    removed = [line for line in changed if line.startswith("- ")]
    added = [line for line in changed if line.startswith("+ ")]
    assert removed == [f"- {LINE_OF_PYG}"]
    assert len(added) == 1
    assert added[0].startswith(f"+ {LINE}")
    compile(script_of_pyg(), "pyg_one_import.py", "exec")


@RunIf(extras="pyg")
def test_ours_trains(tmp_path: Path) -> None:
    assert accuracy(OURS, tmp_path) > LEAST_ACCURACY


@RunIf(extras="pyg")
@pytest.mark.skipif(
    not (importlib.util.find_spec("pyg_lib") or importlib.util.find_spec("torch_sparse")),
    reason="PyG's NeighborLoader needs pyg-lib or torch-sparse",
)
def test_pygs_own_trains(tmp_path: Path) -> None:
    script = tmp_path / "pyg.py"
    script.write_text(script_of_pyg())
    assert accuracy(script, tmp_path) > LEAST_ACCURACY
