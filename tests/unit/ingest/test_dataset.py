"""Tables: a folder is built once, and again where the description or a file has changed; nothing else is."""

import os
from pathlib import Path

import pytest

from lightning_gnnload import Tables
from lightning_gnnload.errors import DatasetError, GraphSpecError

GRAPH_YAML = """\
version: 1
nodes: {paper: {from: papers.csv, id: doi}}
edges: {cites: {from: "cites*.csv", src: paper.citing, dst: paper.cited}}
tasks:
  field: {seed: paper.doi, y: field, split: {share: [1.0, 0.0, 0.0]}}
  pages: {seed: paper.doi, y: pages, split: {share: [1.0, 0.0, 0.0]}}
"""


@pytest.fixture
def tables(tmp_path) -> Path:
    (tmp_path / "papers.csv").write_text("doi,field,pages\na,art,1.5\nb,math,2.5\nc,art,3.5\n")
    (tmp_path / "cites-1.csv").write_text("citing,cited\na,b\nc,b\n")
    (tmp_path / "graph.yaml").write_text(GRAPH_YAML)
    return tmp_path


def built(home: Path, **given) -> int:
    """Prepares the data set, and returns when its folder was made."""
    Tables(str(home / "graph.yaml"), folder=str(home / "graph"), **given).prepare()
    return (home / "graph").stat().st_ino


def test_it_is_built_once_and_again_when_something_changed(tables, capsys):
    first = built(tables)
    assert "cites" in capsys.readouterr().out  # the report
    assert built(tables) == first
    assert capsys.readouterr().out == ""
    (tables / "cites-2.csv").write_text("citing,cited\nb,a\n")  # the glob finds one more
    second = built(tables)
    assert second != first
    os.utime(tables / "papers.csv", ns=(1, 1))
    third = built(tables)
    assert third != second
    (tables / "graph.yaml").write_text(GRAPH_YAML.replace("src: paper.citing", "reverse: true, src: paper.citing"))
    assert built(tables) != third
    data = Tables(str(tables / "graph.yaml"), folder=str(tables / "graph"), task="field").load()
    assert (data.class_names, data.graph.num_edges) == (("art", "math"), 6)
    assert data.with_task("pages").table("train").y.tolist() == [1.5, 2.5, 3.5]


def test_the_description_may_stand_in_the_configuration(tables, monkeypatch):
    monkeypatch.chdir(tables)
    nodes, edges = (
        {"paper": {"from": "papers.csv", "id": "doi"}},
        {"cites": {"from": "cites-1.csv", "src": "paper.citing", "dst": "paper.cited"}},
    )
    dataset = Tables(nodes=nodes, edges=edges, folder="graph")
    with pytest.raises(DatasetError, match=r"Call prepare\(\) first"):
        dataset.load()
    dataset.prepare()
    assert dataset.load().user_ids[""].take([1]).tolist() == ["b"]


def test_what_is_wrong_is_told(tables):
    with pytest.raises(GraphSpecError, match="one of the two"):
        Tables(folder="graph")
    with pytest.raises(GraphSpecError, match="one of the two"):
        Tables("graph.yaml", nodes={}, folder="graph")
    (tables / "papers.csv").unlink()
    with pytest.raises(DatasetError, match=r"papers\.csv.*no such file"):
        built(tables)
    assert not (tables / "graph").exists()


def test_a_folder_that_holds_other_things_stays(tables):
    (tables / "graph").mkdir()
    (tables / "graph" / "thesis.tex").write_text("all of it")
    with pytest.raises(DatasetError, match="graph"):
        built(tables)
    assert (tables / "graph" / "thesis.tex").read_text() == "all of it"
