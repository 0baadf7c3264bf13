"""The example of tables runs as its files say: two Parquet files, a graph folder, a trained model."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_gnnload import load_graph_data
from tests.runif import RunIf

EXAMPLE = Path(__file__).parents[2] / "examples" / "tables"
COMMANDS = ("build examples/tables/graph.yaml runs/papers", "fit --config examples/tables/train.yaml")


@pytest.mark.slow
@RunIf(extras="tables")
def test_a_model_learns_the_field_of_papers(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "tables")
    gnnload = Path(sys.executable).with_name("gnnload")
    run = [[sys.executable, "examples/tables/make_tables.py"], *([gnnload, *each.split()] for each in COMMANDS)]
    for command in run:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    data = load_graph_data(tmp_path / "runs" / "papers")
    assert data.class_names == ("art", "biology", "mathematics")
    metrics = (tmp_path / "runs" / "papers_model" / "version_0" / "metrics.csv").read_text().splitlines()
    column = metrics[0].split(",").index("test_accuracy")
    [accuracy] = [float(line.split(",")[column]) for line in metrics[1:] if line.split(",")[column]]
    assert accuracy > 0.8  # a third by chance
