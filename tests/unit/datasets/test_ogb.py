import math
import os
import zipfile

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphDataModule, NeighborSampler
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.datasets import ogb_files
from lightning_gnnload.datasets.ogb import OGB
from lightning_gnnload.errors import DatasetError
from lightning_gnnload.pipeline.slots import Slot
from tests.unit.datasets.ogb_folders import EDGES, FEATURES, LABELS, csv_folder, made, npz_folder, write_csv


def sorted_edges(data) -> list[tuple[int, int]]:
    graph = data.graph
    return sorted((int(src), dst) for dst in range(graph.num_nodes) for src in graph.in_neighbors(dst))


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-papers100M"])
def test_extras_are_read_where_they_are_asked_for(tmp_path, name) -> None:
    if name == "ogbn-arxiv":
        write_csv(csv_folder(tmp_path) / "raw" / "node_year.csv.gz", np.full((5, 1), 2020))
    else:
        npz_folder(tmp_path)
    assert made(name, tmp_path).tables == {}
    data = made(name, tmp_path, extras=True)
    assert data.tables["node_year"].rows.tolist() == [[2020]] * 5
    assert data.edge_x is None


@pytest.mark.parametrize("piece", [3, 1 << 20])
def test_edge_features_belong_to_their_edges_both_ways(tmp_path, piece, monkeypatch) -> None:
    monkeypatch.setattr(ogb_files, "_PIECE", piece)
    raw = csv_folder(tmp_path, "ogbn_proteins", "species") / "raw"
    ends = np.array([[0, 1, 4, 2], [1, 2, 0, 3]])
    write_csv(raw / "edge.csv.gz", ends.T)
    write_csv(raw / "edge-feat.csv.gz", np.stack([ends.sum(0), abs(ends[0] - ends[1])], 1) / 2)  # alike both ways
    write_csv(raw / "node_species.csv.gz", [[7], [7], [8], [8], [9]])
    data = made("ogbn-proteins", tmp_path, extras=True)
    assert data.tables["node_species"].rows.tolist() == [[7], [7], [8], [8], [9]]
    source = GraphDataModule(data, NeighborSampler([-1], edge_ids=True), num_threads=0, predict="all").source("predict")
    slot = Slot()
    block = source.make(BatchRequest(0, 0, 0, 1), slot).view(slot.buffer()).blocks[0]
    assert block.num_edges == 8
    src, dst = block.indices.long(), block.edge_dst()  # all nodes are seeds: local ids are node ids
    assert torch.equal(block.x, torch.stack([src + dst, (src - dst).abs()], 1) / 2)


def test_a_column_of_another_length_is_named(tmp_path) -> None:
    write_csv(csv_folder(tmp_path) / "raw" / "node_year.csv.gz", np.full((4, 1), 2020))
    with pytest.raises(
        DatasetError, match=r"node_year\.csv\.gz: it is int64 \[4, 1\], but whole numbers \[5, 1\] are needed"
    ):
        made("ogbn-arxiv", tmp_path, extras=True)


LAYOUTS = [("ogbn-arxiv", csv_folder), ("ogbn-papers100M", npz_folder)]


@pytest.mark.parametrize("piece", [2, 1 << 20])  # 2: several pieces, cut in the middle of a row of the matrix
@pytest.mark.parametrize(("name", "write"), LAYOUTS)
def test_both_layouts_are_read_whole(tmp_path, name, write, piece, monkeypatch):
    monkeypatch.setattr(ogb_files, "_PIECE", piece)
    write(tmp_path)
    data = made(name, tmp_path)
    assert sorted_edges(data) == sorted(zip(*EDGES.tolist(), strict=True))
    assert data.graph.in_neighbors(0).tolist() == [4, 4]  # an edge 4 -> 0 makes 4 an in-neighbour of 0
    assert np.array_equal(data.x.rows, FEATURES)
    assert data.x.rows.numpy().dtype == np.float32
    assert data.y.tolist() == [2, 0, 1, -1, 2]
    assert (data.train.tolist(), data.val.tolist(), data.test.tolist()) == ([4, 0], [1], [2])
    assert data.num_classes == {"ogbn-arxiv": 40, "ogbn-papers100M": 172}[name]
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {
        name.replace("-", "_"),
        f"{name}-one-way",
    }


@pytest.mark.parametrize(("name", "write"), LAYOUTS)
def test_inverse_edges_are_added_when_asked(tmp_path, name, write):
    write(tmp_path)
    both = np.concatenate([EDGES, EDGES[::-1]], axis=1)
    assert sorted_edges(made(name, tmp_path, add_inverse_edge=True)) == sorted(zip(*both.tolist(), strict=True))
    assert made(name, tmp_path).num_nodes == 5  # the one-way folder lies beside it


@pytest.mark.parametrize(("name", "both_ways"), [("ogbn-arxiv", False), ("ogbn-products", True)])
def test_inverse_edges_default_to_what_ogb_does(tmp_path, name, both_ways):
    csv_folder(tmp_path, name.replace("-", "_"), {"ogbn-arxiv": "time", "ogbn-products": "sales_ranking"}[name])
    assert made(name, tmp_path).graph.num_edges == (8 if both_ways else 4)


def test_edges_agree_with_ogbs_own_reader(tmp_path):
    reader = pytest.importorskip("ogb.io.read_graph_raw", reason="ogb is not installed")
    home = csv_folder(tmp_path)
    graph = reader.read_csv_graph_raw(str(home / "raw"), add_inverse_edge=True)[0]
    data = made("ogbn-arxiv", tmp_path, add_inverse_edge=True)
    assert sorted_edges(data) == sorted(zip(*graph["edge_index"].tolist(), strict=True))
    assert np.array_equal(data.x.rows, graph["node_feat"])


def test_facts_agree_with_ogbs_table():
    import csv
    from importlib.util import find_spec
    from pathlib import Path

    from lightning_gnnload.datasets.ogb import _FACTS, _SITE

    found = find_spec("ogb")
    if found is None:
        pytest.skip("ogb is not installed")
    rows = {}
    for kind in ("nodeproppred", "linkproppred"):
        with open(Path(found.submodule_search_locations[0]) / kind / "master.csv") as file:
            rows[kind] = {row[""]: row for row in csv.DictReader(file)}
    known = {name for of_kind in rows.values() for name in of_kind["split"] if name}
    assert _FACTS.keys() == known
    for name, facts in _FACTS.items():
        kind = "linkproppred" if facts.num_outputs is None else "nodeproppred"
        of_kind = {fact: of_name[name] for fact, of_name in rows[kind].items()}
        assert facts.split == of_kind["split"]
        assert facts.add_inverse_edge == (of_kind["add_inverse_edge"] == "True")
        assert f"http://{_SITE}/{kind}/{facts.archive}.zip" == of_kind["url"]
        assert facts.typed == (of_kind["is hetero"] == "True")
        assert str(facts.table) == of_kind["additional node files"]
        assert ",".join(facts.edge_columns or ("None",)) == of_kind["additional edge files"]
        assert facts.edge_features == (of_kind["has_edge_attr"] == "True")
        if kind == "nodeproppred":
            tasks, classes = int(of_kind["num tasks"]), int(of_kind["num classes"])
            assert facts.num_outputs == (classes if tasks == 1 else tasks)


def test_arrays_stored_by_column_are_read(tmp_path):
    npz_folder(tmp_path, edge_index=np.asfortranarray(EDGES), node_feat=np.asfortranarray(FEATURES))
    data = made("ogbn-papers100M", tmp_path)
    assert sorted_edges(data) == sorted(zip(*EDGES.tolist(), strict=True))
    assert np.array_equal(data.x.rows, FEATURES)


def test_several_tasks_stay_a_table_and_features_may_be_missing(tmp_path):
    home = csv_folder(tmp_path, "ogbn_proteins", "species")
    (home / "raw" / "node-feat.csv.gz").unlink()
    tasks = np.array([[0, 1], [1, 1], [0, 0], [1, np.nan], [0, 1]])
    write_csv(home / "raw" / "node-label.csv.gz", tasks)
    data = made("ogbn-proteins", tmp_path)
    assert data.x is None
    assert np.array_equal(data.y, tasks, equal_nan=True)


def test_the_raw_files_are_not_needed_once_prepared(tmp_path):
    home = csv_folder(tmp_path)
    made("ogbn-arxiv", tmp_path)
    (home / "raw" / "edge.csv.gz").unlink()
    assert made("ogbn-arxiv", tmp_path).num_nodes == 5


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-12])


@pytest.mark.parametrize(
    ("file", "spoil"),
    [
        ("raw/edge.csv.gz", cut),
        ("raw/edge.csv.gz", lambda path: path.write_bytes(b"no archive")),
        ("raw/edge.csv.gz", lambda path: write_csv(path, EDGES.T[:3])),
        ("raw/edge.csv.gz", lambda path: write_csv(path, np.vstack([EDGES.T, EDGES.T]))),
        ("raw/edge.csv.gz", lambda path: write_csv(path, EDGES.T + 1)),
        ("raw/edge.csv.gz", lambda path: write_csv(path, EDGES.T - 2**32)),  # would be sound in 32 bits
        ("raw/edge.csv.gz", lambda path: write_csv(path, np.zeros((4, 3), int))),
        ("raw/edge.csv.gz", lambda path: write_csv(path, EDGES.T + 0.5)),
        ("raw/node-feat.csv.gz", lambda path: write_csv(path, FEATURES[:4])),
        ("raw/node-label.csv.gz", lambda path: write_csv(path, LABELS[:4])),
        ("raw/node-label.csv.gz", lambda path: path.unlink()),
        ("raw/num-node-list.csv.gz", lambda path: write_csv(path, [[2], [3]])),
        ("split/time/valid.csv.gz", lambda path: path.unlink()),
    ],
)
def test_a_broken_csv_file_is_named(tmp_path, file, spoil):
    path = csv_folder(tmp_path) / file
    spoil(path)
    with pytest.raises(DatasetError, match=path.name):
        made("ogbn-arxiv", tmp_path)
    assert not OGB("ogbn-arxiv", tmp_path).folder.exists()


@pytest.mark.parametrize("kind", ["num-node-list", "num-edge-list"])
def test_a_count_beyond_what_the_files_hold_reserves_nothing(tmp_path, monkeypatch, kind):
    # Reserving what a damaged file claims would fill the disk before anything is read.
    reserve = ogb_files.scratch_array

    def reserve_little(file, dtype, shape):
        assert math.prod(shape) < 10**6
        return reserve(file, dtype, shape)

    monkeypatch.setattr(ogb_files, "scratch_array", reserve_little)
    write_csv(csv_folder(tmp_path) / "raw" / f"{kind}.csv.gz", [[10**12]])
    with pytest.raises(DatasetError, match=r"has \d+ bytes, too few for what it, or its count, claims"):
        made("ogbn-arxiv", tmp_path)


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("raw/node-label", LABELS + 0.5, r"2\.5 is no label"),  # would be class 2
        ("raw/node-label", np.full((5, 1), np.inf), r"inf is no label"),
        ("raw/node-label", LABELS - 5, r"-3\.0 is no label"),
        ("raw/num-node-list", [["9" * 30]], r"num-node-list\.csv\.gz cannot be read"),
        (
            "split/time/valid",
            [[1, 2]],
            r"valid\.csv\.gz: it is int64 \[1, 2\], but whole numbers \[R, 1\]",
        ),  # would be two ids
    ],
)
def test_numbers_that_mean_nothing_are_named(tmp_path, file, rows, message):
    write_csv(csv_folder(tmp_path) / f"{file}.csv.gz", np.array(rows))
    with pytest.raises(DatasetError, match=message):
        made("ogbn-arxiv", tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path):
    file = csv_folder(tmp_path) / "raw" / "node-label.csv.gz"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(DatasetError, match=r"node-label\.csv\.gz is missing"):
        made("ogbn-arxiv", tmp_path)


def in_header(old: bytes, new: bytes):
    """Changes an npy header, whose length its spaces keep."""
    return lambda npy: npy.replace(old, new, 1).replace(b" " * (len(new) - len(old)) + b"\n", b"\n", 1)


def npz_with_header(home, change) -> None:
    """``data.npz`` with the header of edge_index changed."""
    file = home / "raw" / "data.npz"
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["edge_index.npy"] = change(members["edge_index.npy"])
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_header(b"(2, 4)", b"(2, 4000000000000)"), r"says that it is .*\[2, 4000000000000\], but it is not"),
        (in_header(b"(2, 4)", b"(-2, -4)"), r"says that it is .*\[-2, -4\], but it is not"),
        (in_header(b"(2, 4)", b"(2, 5)"), r"says that it is .*\[2, 5\], but it is not"),
        (in_header(b"{", b"((({"), r"data\.npz cannot be read"),  # an error of the parser's own
        (in_header(b"<i8", b"<f8"), r"names nodes by float64; integers"),
    ],
)
def test_headers_are_not_believed(tmp_path, change, message):
    npz_with_header(npz_folder(tmp_path), change)
    with pytest.raises(DatasetError, match=message):
        made("ogbn-papers100M", tmp_path)


def test_what_numpy_does_not_write_is_refused(tmp_path):
    # bzip2 packs so much more than deflate that its size bounds nothing.
    home = npz_folder(tmp_path)
    with zipfile.ZipFile(home / "raw" / "data.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(home / "raw" / "data.npz", "w", zipfile.ZIP_BZIP2) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(DatasetError, match="compressed in a way that NumPy does not write"):
        made("ogbn-papers100M", tmp_path)


def test_features_beyond_float32_are_refused(tmp_path):
    npz_folder(tmp_path, node_feat=FEATURES.astype(np.float64) * 1e300)
    with pytest.raises(DatasetError, match=r"data\.npz cannot be read: overflow"):
        made("ogbn-papers100M", tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"edge_index": EDGES[:, :3]},
        {"edge_index": EDGES + 1},
        {"edge_index": EDGES.astype(object)},  # pickled: must not be opened
        {"node_feat": FEATURES[:4]},
        {"num_nodes_list": np.array([2, 3])},
    ],
)
def test_broken_npz_arrays_are_named(tmp_path, changed):
    npz_folder(tmp_path, **changed)
    with pytest.raises(DatasetError, match=r"data\.npz"):
        made("ogbn-papers100M", tmp_path)


def test_a_cut_npz_file_is_named(tmp_path):
    cut(npz_folder(tmp_path) / "raw" / "data.npz")
    with pytest.raises(DatasetError, match=r"data\.npz cannot be read"):
        made("ogbn-papers100M", tmp_path)


def test_a_split_that_names_no_node_is_refused(tmp_path):
    home = csv_folder(tmp_path)
    write_csv(home / "split" / "time" / "test.csv.gz", [[5]])
    with pytest.raises(DatasetError, match=r"test\.csv\.gz: it names node 5, but ids must lie in \[0, 5\)"):
        made("ogbn-arxiv", tmp_path)


@pytest.mark.parametrize("node", [5, -1])
def test_a_split_that_names_no_node_has_no_time(tmp_path, node):
    home = csv_folder(tmp_path)
    write_csv(home / "raw" / "node_year.csv.gz", np.arange(2010, 2015)[:, None])
    write_csv(home / "split" / "time" / "test.csv.gz", [[node]])
    with pytest.raises(DatasetError, match=rf"test\.csv\.gz: it names node {node}"):
        made("ogbn-arxiv", tmp_path, times=True)


@pytest.mark.parametrize("name", ["cora", "ogbg-molhiv"])
def test_other_data_sets_are_refused(name):
    with pytest.raises(DatasetError, match="no such data set"):
        OGB(name)
