import hashlib

import numpy as np
import pytest

from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.datasets import random_edges
from lightning_gnnload.datasets.synthetic import Synthetic
from lightning_gnnload.errors import DatasetError

KINDS = ["chung-lu", "rmat", "citation", "web"]
NUM_NODES, NUM_EDGES = 3000, 40_000


def made(root, kind: str, **settings) -> GraphData:
    dataset = Synthetic(kind, **{"num_nodes": NUM_NODES, "num_edges": NUM_EDGES, "root": root, **settings})
    dataset.prepare()
    return dataset.load()


def edge_list(data: GraphData) -> tuple[np.ndarray, np.ndarray]:
    graph = data.graph
    return np.asarray(graph.indices), np.repeat(np.arange(graph.num_nodes), graph.in_degrees)


def fingerprint(data: GraphData) -> str:
    arrays = [data.graph.indptr, data.graph.indices, data.x.rows.numpy(), data.y.numpy()]
    digest = hashlib.sha256()
    for array in [*arrays, *(data.split(name) for name in SPLITS)]:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


# A changed number means that every user's graphs change: raise _RECIPE with it.
PINNED = {
    "chung-lu": "ad365e72b7e18a09",
    "rmat": "4e3b38d5c46b471a",
    "citation": "88de7c34500c8a67",
    "web": "60c343f4c19c63fc",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes_everywhere(tmp_path, kind):
    assert fingerprint(made(tmp_path, kind)) == PINNED[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_gives_another_graph(tmp_path, kind):
    first, second = made(tmp_path, kind), made(tmp_path, kind, seed=1)
    assert not np.array_equal(first.graph.indptr, second.graph.indptr)
    assert not np.array_equal(first.x.rows, second.x.rows)


@pytest.mark.parametrize("kind", KINDS)
def test_chunk_sizes_change_nothing(tmp_path, kind, monkeypatch):
    whole = fingerprint(made(tmp_path / "whole", kind))
    monkeypatch.setattr(random_edges, "CHUNK", 1000)
    monkeypatch.setattr("lightning_gnnload.datasets.synthetic._STRETCH_ROWS", 34)
    assert fingerprint(made(tmp_path / "pieces", kind)) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_edges_are_simple_symmetric_and_about_as_many_as_asked(tmp_path, kind):
    data = made(tmp_path, kind)
    src, dst = edge_list(data)
    assert (src != dst).all()
    keys = dst.astype(np.int64) * NUM_NODES + src
    # Strictly ascending keys: no edge twice, and in-neighbours sorted.
    assert (np.diff(keys) > 0).all()
    assert np.array_equal(np.sort(src.astype(np.int64) * NUM_NODES + dst), keys)
    assert 0.7 * NUM_EDGES < len(src) <= NUM_EDGES


@pytest.mark.parametrize("kind", KINDS)
def test_one_way_graphs_keep_one_direction(tmp_path, kind):
    src, dst = edge_list(made(tmp_path, kind, symmetric=False))
    keys = dst.astype(np.int64) * NUM_NODES + src
    assert (np.diff(keys) > 0).all()
    assert not np.array_equal(np.sort(src.astype(np.int64) * NUM_NODES + dst), keys)
    assert 0.7 * NUM_EDGES < len(src) <= NUM_EDGES


def test_citations_point_from_new_to_old(tmp_path):
    src, dst = edge_list(made(tmp_path, "citation", symmetric=False))
    assert (src > dst).all()


def test_each_node_cites_as_often_as_asked():
    community = np.zeros(100, np.int64)
    pairs = list(random_edges.citations(community, 250, exponent=3, homophily=0, seed=0))
    assert sum(len(first) for first, _ in pairs) == 250
    cited_by = np.bincount(np.concatenate([first for first, _ in pairs]), minlength=100)
    assert set(cited_by) == {2, 3}


def test_citing_attracts_citations(tmp_path):
    _, dst = edge_list(made(tmp_path, "citation", symmetric=False, homophily=0))
    share_of_top = np.sort(np.bincount(dst, minlength=NUM_NODES))[-30:].sum() / len(dst)
    # Uniform citing gives the oldest hundredth 0.01 * (1 + ln 100) < 6 % of all citations; copying, far more.
    assert share_of_top > 0.12


def test_links_stay_within_hosts_whose_ids_are_neighbours(tmp_path):
    src, dst = edge_list(made(tmp_path, "web", symmetric=False, homophily=0.8))
    bounds = random_edges.hosts(NUM_NODES, seed=0)
    assert [bounds[0], bounds[-1]] == [0, NUM_NODES]
    assert (np.diff(bounds) > 0).all()
    host = np.searchsorted(bounds, np.arange(NUM_NODES), side="right")
    # Repeats within small hosts are dropped, so it is less than was drawn; ids that are shuffled give 6 %.
    assert 0.5 < (host[src] == host[dst]).mean() < 0.85
    assert np.bincount(host).max() > 5 * np.bincount(host)[1:].mean()
    # Front pages attract links: the first tenth of each host takes 0.1 ** 0.25 = 56 % of them, before repeats.
    size, place = np.diff(bounds)[host - 1], np.arange(NUM_NODES) - bounds[host - 1]
    assert (place[dst] * 10 < size[dst]).mean() > 0.35


def test_chung_lu_degrees_follow_their_power_law(tmp_path):
    exponent = 2.4
    data = made(tmp_path, "chung-lu", num_nodes=50_000, num_edges=1_000_000, max_degree=1000, homophily=0,
                num_features=0, exponent=exponent)  # fmt: skip
    degrees = data.graph.in_degrees
    assert 800 < degrees.max() < 1150  # repeats take from the hub, Poisson noise is +-3 sigma = 95
    assert data.x is None
    # Below 60 the mean degree's noise rules, above 400 the offset bends the law.
    assert abs(tail_exponent(degrees, 60, 400) - exponent) < 0.2


def tail_exponent(degrees: np.ndarray, low: int, high: int) -> float:
    """One more than the slope of log(number of nodes with degree >= d) over log(d), between two degrees."""
    above = [(degrees >= d).sum() for d in (low, high)]
    return 1 + np.log(above[0] / above[1]) / np.log(high / low)


def test_rmat_falls_into_its_quadrants():
    first, second = (np.concatenate(ends) for ends in zip(*random_edges.rmat(64, 100_000, seed=0), strict=True))
    share = [((first >= 32) == i) & ((second >= 32) == j) for i in (0, 1) for j in (0, 1)]
    # Binomial: five sigma of a share of 100,000 is below 0.008.
    assert np.allclose([s.mean() for s in share], [0.57, 0.19, 0.19, 0.05], atol=0.008)
    fine = (first % 2 == 0) & (second % 2 == 0)  # the last level is drawn like the first
    assert abs(fine.mean() - 0.57) < 0.008


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("homophily", [0, 0.6])
def test_homophily_is_the_share_of_planted_edges(tmp_path, kind, homophily):
    data = made(tmp_path, kind, homophily=homophily, num_classes=10, num_nodes=20_000, num_edges=200_000)
    src, dst = edge_list(data)
    labels = data.y.numpy()
    by_chance = 0.1
    # R-MAT's own structure, and repeats dropped within communities, move it a little.
    assert abs((labels[src] == labels[dst]).mean() - (homophily + (1 - homophily) * by_chance)) < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_features_tell_the_label_and_neighbours_tell_more(tmp_path, kind):
    data = made(tmp_path, kind, homophily=0.7, feature_noise=0.5)
    x, labels = data.x.rows.numpy(), data.y.numpy()
    src, dst = edge_list(data)
    mean = np.zeros_like(x)
    np.add.at(mean, dst, x[src])
    mean /= np.maximum(data.graph.in_degrees, 1)[:, None]

    def accuracy(rows: np.ndarray) -> float:
        train, test = data.train, data.test
        centroids = np.stack([rows[train][labels[train] == c].mean(0) for c in range(16)])
        distance = (centroids**2).sum(1) - 2 * rows[test] @ centroids.T
        return float((distance.argmin(1) == labels[test]).mean())

    alone, together = accuracy(x), accuracy(x / 4 + mean)
    assert alone > 4 / 16
    assert together > alone + 0.05
    assert abs(x.std() - 1) < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_splits_are_disjoint_and_have_neighbours(tmp_path, kind):
    data = made(tmp_path, kind, max_test=500)
    connected = int((data.graph.in_degrees > 0).sum())
    assert [len(data.split(name)) for name in SPLITS] == [
        round(0.08 * connected),
        round(0.02 * connected),
        500,
    ]
    named = np.concatenate([data.split(name) for name in SPLITS])
    assert len(np.unique(named)) == len(named)
    assert (data.graph.in_degrees[named] > 0).all()


def test_other_settings_get_another_folder_and_another_root_does_not_count(tmp_path):
    dataset = Synthetic("rmat", 100, 500, root=tmp_path)
    assert Synthetic("rmat", 100, 500, root=tmp_path, homophily=0.1).folder != dataset.folder
    assert Synthetic("rmat", 100, 500, root=tmp_path / "b").folder.name == dataset.folder.name
    assert Synthetic("rmat", np.int64(100), 500, root=tmp_path, feature_noise=0.35).folder == dataset.folder
    whole = [Synthetic("rmat", 100, 500, root=tmp_path, homophily=one).folder for one in (1, 1.0)]
    assert whole[0] == whole[1] != dataset.folder


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"kind": "lattice"}, "chung-lu, rmat, citation, web"),
        ({"num_nodes": 1}, "num_nodes is 1"),
        ({"num_nodes": 2**31}, "num_nodes"),
        ({"num_nodes": 1e2}, "whole number"),
        ({"num_edges": 10**10}, "num_edges"),
        ({"num_features": -1}, "num_features"),
        ({"num_classes": 0}, "num_classes"),
        ({"seed": -1}, "seed"),
        ({"homophily": 1.1}, "homophily"),
        ({"homophily": float("nan")}, "homophily"),
        ({"train_fraction": 0.9, "val_fraction": 0.2}, "val_fraction"),
        ({"exponent": 2}, "above 2"),
        ({"kind": "rmat", "exponent": 2.5}, "leave it out"),
        ({"kind": "rmat", "max_degree": 10}, "leave it out"),
        ({"kind": "web", "exponent": 2.5}, "leave it out"),
        ({"max_degree": 100}, "max_degree"),
    ],
)
def test_arguments_that_make_no_graph_are_named(wrong, word):
    with pytest.raises(DatasetError, match=word):
        Synthetic(**{"kind": "chung-lu", "num_nodes": 100, "num_edges": 500, **wrong})


def test_a_hub_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="above the mean"):
        Synthetic("chung-lu", 100, 500, max_degree=2, root=tmp_path).prepare()


@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_graphs_can_be_made(tmp_path, kind):
    data = made(tmp_path, kind, num_nodes=2, num_edges=2, num_classes=1, num_features=1)
    assert data.num_nodes == 2
    assert data.x.shape == (2, 1)
