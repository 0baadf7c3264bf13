"""EdgeListFile: text files of edges, as SNAP and WebGraph have them, become the graph that they say."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import EdgeListFile, GraphData
from lightning_gnnload.errors import DatasetError

SNAP = "# Undirected graph: com-toy\n# Nodes: 40 Edges: 300\n# FromNodeId\tToNodeId\n"


def built(path: Path, text: str, **settings: Any) -> GraphData:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    dataset = EdgeListFile(path, path.parent / "graphs", **settings)
    dataset.prepare()
    return dataset.load()


def row_table(data: GraphData) -> torch.Tensor:
    assert data.x is not None
    out = torch.empty(data.x.shape)
    data.x.gather(torch.arange(data.num_nodes), out)
    return out


def pairs_of(data: GraphData) -> list[tuple[int, int]]:
    dst = np.repeat(np.arange(data.num_nodes), data.graph.in_degrees)
    return sorted(zip(data.graph.indices.tolist(), dst.tolist(), strict=True))


def test_snap_with_gaps_between_ids_and_edges_in_both_directions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    # Beyond 32 bits, with repeats and edges of a node to itself.
    edges = rng.integers(0, 40, (300, 2)) * 1_000_000_007
    lines = [f"{src}\t{dst}\n" for src, dst in edges.tolist()]
    text = SNAP + "".join(lines[:100]) + "# amid\n" + "".join(lines[100:])
    data = built(tmp_path / "com-toy.ungraph.txt.gz", text, undirected=True)
    ids, numbers = np.unique(edges, return_inverse=True)
    src, dst = numbers.reshape(-1, 2).T
    once = src != dst
    both = [*zip(src, dst, strict=True), *zip(dst[once], src[once], strict=True)]
    assert pairs_of(data) == sorted((int(src), int(dst)) for src, dst in both)
    assert data.user_ids[""].take(np.arange(data.num_nodes)).tolist() == ids.tolist()
    assert (data.x, data.y) == (None, None)


def test_webgraphs_arcs_have_the_numbers_of_nodes(tmp_path: Path) -> None:
    # Node 3 has no arc, and stays; the last line has no end.
    data = built(tmp_path / "toy.arcs", "0 1\n1 2\n4 2\n2 0", num_nodes=5)
    assert pairs_of(data) == [(0, 1), (1, 2), (2, 0), (4, 2)]
    assert data.num_nodes == 5
    assert not data.user_ids


def test_random_features_labels_and_splits(tmp_path: Path) -> None:
    text = "% konect\n" + "".join(f"{node},{(node + 1) % 2000}\n" for node in range(2000))
    settings: dict[str, Any] = {"num_features": 7, "num_classes": 3, "val_fraction": 0.05, "test_fraction": 0.04}
    data = built(tmp_path / "ring.txt", text, **settings)
    assert data.x is not None
    assert data.x.shape == (2000, 7)
    assert np.bincount(data.y).min() > 500  # of 2,000 in three classes: six sigma from what is expected
    assert [len(data.train), len(data.val), len(data.test)] == [20, 100, 80]
    assert len(np.unique(np.concatenate([data.train, data.val, data.test]))) == 200
    [again, other] = [built(tmp_path / "ring.txt", text, **settings, seed=seed) for seed in (0, 1)]
    rows = [row_table(each) for each in (data, again, other)]
    assert torch.equal(rows[0], rows[1])
    assert np.array_equal(again.train, data.train)
    assert not torch.equal(rows[0], rows[2])


def test_a_file_that_has_changed_is_read_again_and_columns_left_out_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pairs_of(built(tmp_path / "toy.txt", "5\t6\n")) == [(0, 1)]
    assert "left out" not in capsys.readouterr().out
    assert pairs_of(built(tmp_path / "toy.txt", "5\t6\t0.5\n6\t5\tword\n")) == [(0, 1), (1, 0)]
    assert "lines have 3 columns; those after the first two are left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        ("# a\nalice\tbob\n", {}, r"the first line after comments is 'alice\\tbob'; two whole numbers are needed"),
        ("1\t2\n1 3\n", {}, 'two whole numbers, but .*line 2 of .*bad.txt.*"1 3"'),
        ("1\t2\n1\t\n", {}, "two whole numbers, but .*1 rows have no 'id'"),
        ("# only\n", {}, "there is no edge in the first"),
        ("# a\n% b\n1 2\n", {}, r"begin with # and others with %\. .*one kind.*grep -v"),
        ("% b\n# a\n1 2\n", {}, r"begin with # and others with %\. .*one kind.*grep -v"),
        ("% b\n1 2\n# a\n2 3\n", {}, r"line 3 of .*Comments may be of one kind.*grep -v"),
        ("0\t7\n", {"num_nodes": 7}, "two whole numbers below 7, but .* name no node"),
    ],
    ids=["words", "another separator", "one end", "comments alone", "both", "both too", "both later", "no node"],
)
def test_lines_that_are_no_edges(tmp_path: Path, text: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        built(tmp_path / "bad.txt", text, **settings)


@pytest.mark.parametrize(
    "settings",
    [{"num_nodes": 0}, {"num_features": -1}, {"seed": True}, {"train_fraction": 0.9, "val_fraction": 0.2}],
)
def test_settings_that_cannot_work(settings: dict[str, Any]) -> None:
    with pytest.raises(DatasetError, match=next(iter(settings))):
        EdgeListFile("edges.txt", **settings)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"none\.txt cannot be read: .*Give the path of a file"):
        EdgeListFile(tmp_path / "none.txt", tmp_path).prepare()
