"""OGB's raw files with several types of nodes, written by hand and read in both layouts."""

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphDataModule, NeighborSampler
from lightning_gnnload.datasets.ogb import OGB
from lightning_gnnload.errors import DatasetError
from tests.unit.datasets.ogb_folders import (
    FEATURES,
    TYPED_EDGES,
    made,
    typed_csv_folder,
    typed_npz_folder,
    write_csv,
)
from tests.unit.datasets.test_relbench import edges_of


@pytest.mark.parametrize("write", [typed_csv_folder, typed_npz_folder])
def test_both_layouts_are_read_whole(tmp_path, write) -> None:
    write(tmp_path)
    data = made("ogbn-mag", tmp_path, extras=True)
    assert data.graph.types.node_types == ("author", "paper")
    assert data.graph.types.num_nodes == (2, 3)
    for kind, ends in TYPED_EDGES.items():
        assert edges_of(data.graph, kind) == sorted(zip(*ends.tolist(), strict=True))
    assert torch.equal(data.tables["x.paper"].store.rows, torch.from_numpy(FEATURES[:3]))
    assert data.tables["node_year.paper"].store.rows.view(-1).tolist() == [2010, 2012, 2014]
    assert data.labels_of("paper").tolist() == [3, 5, 1]
    assert [data.split(name, "paper").tolist() for name in ("train", "val")] == [[2], [0]]
    assert data.num_classes == 349


def test_a_split_without_a_label_is_refused(tmp_path) -> None:
    home = typed_csv_folder(tmp_path)
    write_csv(home / "raw" / "node-label" / "paper" / "node-label.csv.gz", np.array([[3], [np.nan], [1]]))
    with pytest.raises(Exception, match=r"test: node 1 of type 'paper' has no label"):
        OGB("ogbn-mag", tmp_path).prepare()


def test_edges_and_tables_agree_with_ogbs_own_reader(tmp_path) -> None:
    reader = pytest.importorskip("ogb.io.read_graph_raw", reason="ogb is not installed")
    home = typed_csv_folder(tmp_path)
    theirs = reader.read_csv_heterograph_raw(
        str(home / "raw"), additional_node_files=["node_year"], additional_edge_files=["edge_reltype"]
    )[0]
    ours = made("ogbn-mag", tmp_path, extras=True)
    assert dict(zip(ours.graph.types.node_types, ours.graph.types.num_nodes, strict=True)) == theirs["num_nodes_dict"]
    assert list(ours.graph.types.edge_types) == list(theirs["edge_index_dict"])
    for kind, ends in theirs["edge_index_dict"].items():
        assert edges_of(ours.graph, kind) == sorted(zip(*ends.tolist(), strict=True))
    assert np.array_equal(ours.tables["x.paper"].store.rows, theirs["node_feat_dict"]["paper"])
    assert np.array_equal(ours.tables["node_year.paper"].store.rows, theirs["node_year"]["paper"])
    labels = reader.read_node_label_hetero(str(home / "raw"))["paper"][:, 0]
    assert np.array_equal(ours.labels_of("paper"), np.where(np.isnan(labels), -1, labels))
    splits = reader.read_nodesplitidx_split_hetero(str(home / "split" / "time"))
    for name, ids in zip(("train", "val"), splits, strict=False):
        assert np.array_equal(ours.split(name, "paper"), ids["paper"])


def test_the_binary_layout_agrees_with_ogbs_own_reader(tmp_path) -> None:
    reader = pytest.importorskip("ogb.io.read_graph_raw", reason="ogb is not installed")
    home = typed_npz_folder(tmp_path)
    theirs = reader.read_binary_heterograph_raw(str(home / "raw"))[0]
    ours = made("ogbn-mag", tmp_path, extras=True)
    for kind, ends in theirs["edge_index_dict"].items():
        assert edges_of(ours.graph, kind) == sorted(zip(*ends.tolist(), strict=True))
    assert np.array_equal(ours.tables["x.paper"].store.rows, theirs["node_feat_dict"]["paper"])
    assert np.array_equal(ours.tables["node_year.paper"].store.rows, theirs["node_year"]["paper"])


def test_inverse_edges_are_types_of_their_own(tmp_path) -> None:
    typed_csv_folder(tmp_path)
    graph = made("ogbn-mag", tmp_path, add_inverse_edge=True).graph
    assert edges_of(graph, ("paper", "rev_writes", "author")) == [(0, 0), (2, 0), (2, 0)]
    assert edges_of(graph, ("paper", "rev_cites", "paper")) == [(1, 0), (2, 1)]


def test_years_are_times_where_they_are_asked_for(tmp_path) -> None:
    typed_csv_folder(tmp_path)
    data = made("ogbn-mag", tmp_path, times=True)
    assert data.tables.keys() == {"x.paper"}
    assert data.table("train").time.tolist() == [2014]
    [batch] = GraphDataModule(data, NeighborSampler([-1]), batch_size=1, num_threads=0).train_dataloader()
    assert batch.y["paper"].tolist() == [1]
    assert made("ogbn-mag", tmp_path).table("train") is None  # the folder without times lies beside it


@pytest.mark.parametrize("write", [typed_csv_folder, typed_npz_folder])
def test_years_that_no_type_has_are_missed(tmp_path, write) -> None:
    """Without them the graph would have no times, and all of the future be seen."""
    raw = write(tmp_path) / "raw"
    for file in raw.rglob("node_year*"):
        file.unlink()
    with pytest.raises(DatasetError, match="no nodes have node_year"):
        made("ogbn-mag", tmp_path, times=True)


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("raw/triplet-type-list", [["author", "writes", "book"]], r"is no edge type between author, paper"),
        ("raw/triplet-type-list", [["author", "../x", "paper"]], r"'../x' cannot name a type"),
        (
            "raw/num-node-dict",
            [["author", "paper"], [2, -3]],
            r"num-node-dict\.csv\.gz: 1 rows of counts, \[\[ 2 -3\]\]; one is needed",
        ),
        ("raw/relations/paper___cites___paper/edge", [[0, 1], [1, 3]], r"names node 3, but ids must lie in \[0, 3\)"),
        ("raw/relations/author___writes___paper/edge", [[2, 1], [0, 0], [0, 0]], r"names node 2, .* \[0, 2\)"),
        (
            "raw/nodetype-has-label",
            [["book"], [True]],
            r"nodetype-has-label\.csv\.gz: 'book' is none of the types author, paper",
        ),
        ("raw/nodetype-has-label", [["paper"], [False]], r"names no type of nodes"),
        (
            "raw/node-feat/paper/node_year",
            [[1], [2]],
            r"node_year\.csv\.gz: it is int64 \[2, 1\], but whole numbers \[3, 1\]",
        ),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, file, rows, message) -> None:
    write_csv(typed_csv_folder(tmp_path) / f"{file}.csv.gz", np.array(rows, dtype=object))
    with pytest.raises(DatasetError, match=message):
        OGB("ogbn-mag", tmp_path, extras=True).prepare()
    assert not OGB("ogbn-mag", tmp_path, extras=True).folder.exists()
