"""Builds of one folder exclude each other, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightning_gnnload import load_graph_data
from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.ingest.build import build_graph_folder
from lightning_gnnload.ingest.spec import GraphSpec

# Stops where the edges lie in scratch, and the ids in the folder: says so, and waits for a line.
STOPPED = """
import sys
from pathlib import Path
from lightning_gnnload.ingest import build
from lightning_gnnload.ingest.spec import GraphSpec

def stopped(*arguments, then=build.write_lists, **options):
    print("here", flush=True)
    sys.stdin.readline()
    return then(*arguments, **options)

build.write_lists = stopped
spec = Path(sys.argv[1])
build.build_graph_folder(GraphSpec.read(spec), Path(sys.argv[2]), home=spec.parent, show_progress=False)
"""


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    """A graph of two nodes."""
    for folder in ("tables", "out"):
        (tmp_path / folder).mkdir()
    pq.write_table(pa.table({"name": ["ann", "bob"]}), tmp_path / "tables" / "people.parquet")
    pq.write_table(pa.table({"a": ["ann", "bob"], "b": ["bob", "bob"]}), tmp_path / "tables" / "knows.parquet")
    file = tmp_path / "tables" / "graph.yaml"
    file.write_text(
        "version: 1\n"
        "nodes: {person: {from: people.parquet, id: name}}\n"
        "edges: {knows: {from: knows.parquet, src: person.a, dst: person.b}}\n"
    )
    return file


def stopped_build(spec_file: Path, folder: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", STOPPED, spec_file, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    return child


def build(spec_file: Path, folder: Path) -> None:
    build_graph_folder(GraphSpec.read(spec_file), folder, home=spec_file.parent, show_progress=False)


@pytest.mark.matrix
def test_a_second_build_of_a_folder_is_refused_while_the_first_goes_on(spec_file, tmp_path):
    folder = tmp_path / "out" / "graph"
    with stopped_build(spec_file, folder) as child:
        with pytest.raises(StoreFormatError, match=r"graph is being written by another process, in .*partial"):
            build(spec_file, folder)
        build(spec_file, tmp_path / "out" / "other")  # a folder of its own
        child.communicate("go on\n", timeout=60)
    assert child.returncode == 0
    assert load_graph_data(folder, verify=True).num_nodes == 2
    assert sorted(os.listdir(tmp_path / "out")) == ["graph", "other"]
