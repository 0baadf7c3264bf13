"""In a notebook or at a prompt, where no script can be started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.scripts import launch

NOTEBOOK = Path(__file__).parent / "scripts" / "notebook.py"


def test_ranks_are_forked_at_a_prompt(tmp_path: Path) -> None:
    # More threads than one a rank, as on any machine with more cores than ranks: forked ranks would hang with them.
    environment = os.environ | {"PYTHONPATH": str(launch.ROOT), "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-i", NOTEBOOK],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert "trained True" in done.stdout, done.stdout + done.stderr
    assert "forks its ranks, as this session is interactive" in done.stderr


def test_cells_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="pip install nbclient ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="pip install nbclient ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(launch.ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cells = [nbformat.v4.new_code_cell(cell) for cell in NOTEBOOK.read_text().split("# %%\n")[1:]]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=tmp_path)
    printed = [output["text"] for cell in notebook.cells for output in cell.outputs if output.get("name") == "stdout"]
    assert any("trained True" in text for text in printed), printed
