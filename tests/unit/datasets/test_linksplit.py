import numpy as np
import pytest

from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.datasets.debian import Debian
from lightning_gnnload.datasets.linksplit import LinkSplit
from lightning_gnnload.datasets.synthetic import Synthetic
from lightning_gnnload.errors import DatasetError


def made(root, **settings) -> tuple[GraphData, GraphData]:
    """The data with all edges, and those of the split."""
    whole = Synthetic("citation", num_nodes=400, num_edges=3000, symmetric=False, root=root)
    split = LinkSplit(whole, **settings)
    split.prepare()
    return whole.load(), split.load()


def edges_of(data: GraphData) -> set[tuple[int, int]]:
    dst = np.repeat(np.arange(data.num_nodes), data.graph.in_degrees)
    return set(zip(data.graph.indices.tolist(), dst.tolist(), strict=True))


def rows_of(data: GraphData, name: str) -> list[tuple[int, int]]:
    return [tuple(row) for row in data.table(name).ends.tolist()]


def test_held_out_edges_are_in_the_graph_in_neither_direction(tmp_path):
    whole, split = made(tmp_path, val=0.1, test=0.2)
    left = edges_of(split)
    rows = {name: rows_of(split, name) for name in SPLITS}
    assert sorted(rows["train"] + rows["val"] + rows["test"]) == sorted(edges_of(whole))
    for src, dst in rows["val"] + rows["test"]:
        assert not {(src, dst), (dst, src)} & left
    assert left == {pair for src, dst in rows["train"] for pair in ((src, dst), (dst, src))}
    # Five standard deviations of a binomial around the shares.
    for name, share in (("val", 0.1), ("test", 0.2)):
        assert abs(len(rows[name]) / whole.graph.num_edges - share) < 5 * (share / whole.graph.num_edges) ** 0.5


def test_both_directions_of_an_edge_fall_on_the_same_side(tmp_path):
    """Else the model is asked for an edge whose reverse it sees."""
    split = LinkSplit(Synthetic("chung-lu", num_nodes=200, num_edges=2000, root=tmp_path), val=0.2, test=0.2)
    split.prepare()
    data = split.load()
    for name in SPLITS:
        rows = set(rows_of(data, name))
        assert {(dst, src) for src, dst in rows} == rows


def test_training_rows_name_their_edges(tmp_path):
    _, split = made(tmp_path)
    graph, table = split.graph, split.table("train")
    src = np.empty(graph.num_edges, np.int64)
    src[graph.edge_order] = graph.indices
    assert src[table.edge_ids].tolist() == table.ends[:, 0].tolist()


def test_other_seeds_hold_out_other_edges(tmp_path):
    first, second = (made(tmp_path, seed=seed)[1] for seed in (0, 1))
    assert set(rows_of(first, "test")) != set(rows_of(second, "test"))


def test_what_cannot_be_split_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="shares of the edges"):
        LinkSplit(Debian(), val=0.5, test=0.5)
    with pytest.raises(DatasetError, match="is a str"):
        LinkSplit("debian")
