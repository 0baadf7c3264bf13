"""OGB's splits of links, written by ``torch.save`` as OGB's are, and read without unpickling objects."""

import pickle

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphDataModule, Negatives, NeighborSampler
from lightning_gnnload.datasets.ogb import OGB
from lightning_gnnload.errors import DatasetError
from tests.unit.datasets.ogb_folders import EDGES, csv_folder, link_folder, made, typed_csv_folder, write_csv

PAIRS = {
    "train": {"edge": np.array([[0, 1], [1, 2], [4, 0]])},
    "valid": {"edge": np.array([[2, 3]]), "edge_neg": np.array([[0, 3], [1, 4]])},
    "test": {"edge": np.array([[3, 4]]), "edge_neg": np.array([[2, 0]])},
}
TRIPLES = {"head": np.array([0, 4]), "relation": np.array([1, 0]), "tail": np.array([1, 0])}


@pytest.mark.parametrize("as_held", [lambda rows: rows, torch.from_numpy])
def test_given_false_edges_are_rows_of_label_0(tmp_path, as_held) -> None:
    splits = {split: {key: as_held(rows) for key, rows in held.items()} for split, held in PAIRS.items()}
    link_folder(tmp_path, "ogbl_ddi", "target", splits)
    data = made("ogbl-ddi", tmp_path)
    assert data.graph.num_edges == 8  # both ways
    assert data.table("train").ends.tolist() == [[0, 1], [1, 2], [4, 0]]
    assert data.table("train").y is None
    assert data.table("val").ends.tolist() == [[2, 3], [0, 3], [1, 4]]
    assert data.table("val").y.tolist() == [1, 0, 0]
    assert data.table("test").y.tolist() == [1, 0]
    assert data.y is None
    module = GraphDataModule(data, NeighborSampler([-1]), batch_size=3, num_threads=0)
    [batch] = module.val_dataloader()
    ends = torch.stack([batch.seeds[batch.seed_columns[end]] for end in ("src", "dst")], 1)
    assert (ends.tolist(), batch.y.tolist()) == ([[2, 3], [0, 3], [1, 4]], [1, 0, 0])


def test_weights_and_years_are_of_edges_and_of_rows(tmp_path) -> None:
    splits = {
        split: {**held, "weight": np.arange(2, 2 + len(held["edge"])), "year": np.full(len(held["edge"]), year)}
        for (split, held), year in zip(PAIRS.items(), (2016, 2018, 2019), strict=True)
    }
    link_folder(tmp_path, "ogbl_collab", "time", splits, edge_weight=[1, 2, 3, 4], edge_year=[2010, 2011, 2012, 2013])
    data = made("ogbl-collab", tmp_path, extras=True)
    assert sorted(data.graph.edge_weight.tolist()) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert data.graph.clock is None
    assert data.edge_tables["edge_year"].rows.view(-1).tolist() == [2010, 2011, 2012, 2013] * 2
    assert data.table("train").columns["weight"].tolist() == [2, 3, 4]
    assert data.table("val").columns["weight"].tolist() == [2, 1, 1]
    assert data.table("val").columns["year"].tolist() == [2018] * 3
    timed = made("ogbl-collab", tmp_path, times=True)
    assert timed.table("test").time.tolist() == [2019, 2019]
    assert timed.graph.clock is not None


def test_false_targets_of_rows_are_a_column(tmp_path) -> None:
    rows = {"source_node": np.array([0, 1]), "target_node": np.array([1, 2])}
    false = {**rows, "target_node_neg": np.array([[3, 4], [4, 3]])}
    link_folder(tmp_path, "ogbl_citation2", "time", {"train": rows, "valid": false, "test": false})
    data = made("ogbl-citation2", tmp_path)
    assert data.table("val").columns["negatives"].tolist() == [[3, 4], [4, 3]]
    module = GraphDataModule(
        data, NeighborSampler([-1]), batch_size=2, num_threads=0, eval_negatives=Negatives("hard"), order="sequential"
    )
    [batch] = module.val_dataloader()
    assert batch.seeds[batch.seed_columns["negatives"]].tolist() == [[3, 4], [4, 3]]


def test_triples_have_relations_and_false_ends_of_both_sides(tmp_path) -> None:
    false = {**TRIPLES, "tail_neg": np.array([[2], [3]]), "head_neg": np.array([[3], [1]])}
    splits = {"train": TRIPLES, "valid": false, "test": false}
    link_folder(tmp_path, "ogbl_wikikg2", "time", splits, edge_reltype=[1, 0, 0, 2])
    data = made("ogbl-wikikg2", tmp_path)
    assert data.table("train").columns["relation"].tolist() == [1, 0]
    assert data.table("test").columns["negatives"].tolist() == [[2, 3], [3, 1]]  # of tails, then of heads
    assert data.graph.edge_type[list(data.graph.indices).index(0)] == 1  # of the edge 0 -> 1
    both = made("ogbl-wikikg2", tmp_path, add_inverse_edge=True)
    assert sorted(both.graph.edge_type.tolist()) == [0, 0, 1, 2, 3, 3, 4, 5]


def test_typed_triples_count_in_one_range(tmp_path) -> None:
    home = typed_csv_folder(tmp_path, "ogbl_biokg", "random", labels=False)
    rows = {
        "head_type": ["paper", "author"],
        "head": np.array([0, 0]),
        "relation": np.array([1, 0]),
        "tail_type": ["paper", "paper"],
        "tail": np.array([1, 2]),
    }
    false = {**rows, "head_neg": np.array([[2], [1]]), "tail_neg": np.array([[0], [1]])}
    (home / "split" / "random").mkdir(parents=True)
    for split, held in (("train", rows), ("valid", false), ("test", false)):
        torch.save(held, home / "split" / "random" / f"{split}.pt")
    data = made("ogbl-biokg", tmp_path)
    assert data.tables["node_type"].rows.view(-1).tolist() == [0, 0, 1, 1, 1]
    assert data.table("train").ends.tolist() == [[2, 3], [0, 4]]
    assert data.table("val").columns["negatives"].tolist() == [[2, 4], [3, 1]]
    assert data.graph.in_neighbors(4).tolist() == [0, 0, 3]
    assert data.graph.edge_type[data.graph.indptr[4] : data.graph.indptr[5]].tolist() == [0, 0, 1]


@pytest.mark.parametrize("column", ["head", "tail", "head_neg", "tail_neg"])
@pytest.mark.parametrize("wrong", [2, -1])
def test_ids_beyond_their_type_are_refused(tmp_path, column, wrong) -> None:
    """In one range they would be nodes of the next type, or of the one before."""
    home = typed_csv_folder(tmp_path, "ogbl_biokg", "random", labels=False)
    one, several = np.array([0]), np.array([[1]])
    kinds = {"head_type": ["author"], "tail_type": ["author"], "relation": one}
    rows = {**kinds, "head": one, "tail": one, "head_neg": several, "tail_neg": several}
    (home / "split" / "random").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        torch.save(rows, home / "split" / "random" / f"{split}.pt")
    made("ogbl-biokg", tmp_path)
    torch.save(rows | {column: np.full_like(rows[column], wrong)}, home / "split" / "random" / "test.pt")
    with pytest.raises(DatasetError, match=f"test.pt: .*{wrong} is no node of its row's type"):
        made("ogbl-biokg", tmp_path, extras=True)


def test_columns_of_edges_are_read_of_the_binary_layout(tmp_path) -> None:
    splits = {
        split: {**held, "weight": np.ones(len(held["edge"])), "year": np.ones(len(held["edge"]), int)}
        for split, held in PAIRS.items()
    }
    home = link_folder(tmp_path, "ogbl_collab", "time", splits)
    arrays = {"edge_index": EDGES, "num_nodes_list": np.array([5]), "num_edges_list": np.array([4])}
    columns = {"edge_weight": np.array([[1], [2], [3], [4]]), "edge_year": np.full((4, 1), 2010)}
    np.savez_compressed(home / "raw" / "data.npz", **arrays, **columns)
    assert sorted(made("ogbl-collab", tmp_path).graph.edge_weight.tolist()) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_edge_features_of_the_binary_layout(tmp_path) -> None:
    home = link_folder(tmp_path, "ogbl_vessel", "spatial", {**PAIRS, "train": PAIRS["valid"]})
    edge_x = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.savez_compressed(
        home / "raw" / "data.npz",
        edge_index=EDGES,
        edge_feat=edge_x,
        node_feat=np.ones((5, 3), np.float32),
        num_nodes_list=np.array([5]),
        num_edges_list=np.array([4]),
    )
    data = made("ogbl-vessel", tmp_path, extras=True)
    assert np.array_equal(data.edge_x.rows, edge_x)
    assert data.table("train").y.tolist() == [1, 0, 0]


class Opener:
    """What runs a command where it is unpickled."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def spoiled(tmp_path, write) -> str:
    home = link_folder(tmp_path, "ogbl_ddi", "target", PAIRS)
    write(home / "split" / "target" / "valid.pt")
    with pytest.raises(DatasetError) as caught:
        OGB("ogbl-ddi", tmp_path).prepare()
    return str(caught.value)


def test_objects_are_not_unpickled(tmp_path) -> None:
    evil = {"edge": Opener(tmp_path / "touched")}
    message = spoiled(tmp_path, lambda file: torch.save(evil, file))
    assert "valid.pt cannot be read" in message
    assert "Objects are not unpickled here" in message
    assert "torch.save({k: v" in message
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"edges": np.ones((2, 2))}, "has edges, but one of edge, source_node, head is needed"),
        ({"edge": np.array(["a"])}, "valid.pt cannot be read"),
        ({"edge": np.array([object()])}, "valid.pt cannot be read"),
        ({"edge": np.array([1, 2])}, "make no table of links"),
        ({"edge": np.array([[0, 1, 2]])}, r"pairs are \[1, 3\], but \[R, 2\] is needed"),
        ({1: np.ones((2, 2))}, "has 1, but one of edge, source_node, head is needed"),
        ({"edge": np.array([[1, 9]])}, "is 9, which is not a node"),
        ({"head": np.array([1])}, "make no table of links"),
        ([1], "valid.pt cannot be read"),
    ],
)
def test_splits_that_are_none_are_named(tmp_path, held, message) -> None:
    home = link_folder(tmp_path, "ogbl_ddi", "target", PAIRS)
    torch.save(held, home / "split" / "target" / "valid.pt")
    with pytest.raises(Exception, match=message) as caught:
        OGB("ogbl-ddi", tmp_path).prepare()
    assert type(caught.value).__module__ == "lightning_gnnload.errors"


def test_damaged_and_missing_files_are_named(tmp_path) -> None:
    assert "valid.pt cannot be read" in spoiled(tmp_path / "a", lambda file: file.write_bytes(file.read_bytes()[:-40]))
    assert "valid.pt cannot be read" in spoiled(tmp_path / "b", lambda file: file.write_bytes(pickle.dumps(PAIRS)))
    assert "valid.pt is missing" in spoiled(tmp_path / "c", lambda file: file.unlink())


@pytest.mark.parametrize("dtype", ["<i4", ">i8", "<u2", "<f8", "|u1"])
def test_arrays_of_every_dtype_are_read_as_numpy_wrote_them(tmp_path, dtype) -> None:
    from lightning_gnnload.datasets.ogb_links import read_links

    rows = np.asfortranarray(np.arange(6).reshape(3, 2).astype(dtype))
    for split in ("train", "valid", "test"):
        torch.save({"edge": rows}, tmp_path / f"{split}.pt")
    for found in read_links(tmp_path):
        assert np.array_equal(found["edge"], rows)
        assert found["edge"].dtype.kind == rows.dtype.kind


def test_years_are_asked_of_data_sets_that_have_some(tmp_path) -> None:
    with pytest.raises(DatasetError, match=r"ogbl-ddi has no years for times=True; these have: ogbn-arxiv"):
        OGB("ogbl-ddi", tmp_path, times=True)
    home = csv_folder(tmp_path)
    write_csv(home / "raw" / "node_year.csv.gz", np.arange(2010, 2015)[:, None])
    data = made("ogbn-arxiv", tmp_path, times=True)
    assert data.graph.node_time.tolist() == [2010, 2011, 2012, 2013, 2014]
    assert data.table("train").time.tolist() == [2014, 2010]


def test_an_older_torch_reads_no_files_of_others(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.5.1+cpu"))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was unpickled"))
    message = spoiled(tmp_path, lambda file: torch.save({"edge": torch.zeros(2, 2)}, file))
    assert "train.pt" in message
    assert "CVE-2025-32434). Install torch 2.6 or newer" in message
