"""Negatives: what each mode gives, and what none may give."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, Negatives
from lightning_gnnload.data.origin import Origin
from lightning_gnnload.errors import GraphDataError, SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.workload import FIXED_DRAWS_EPOCH

BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")
KEY = DrawKey(5, 1, 2)
EVALUATION = DrawKey(5, FIXED_DRAWS_EPOCH, 0)
MODES = [
    Negatives("binary", 5),
    Negatives("triplet", 4, corrupt="src"),
    Negatives("triplet", 5, corrupt="both", tries=3),
    Negatives("joint", 7),
    Negatives("in_batch"),
    Negatives("in_batch", 4),
    Negatives("hard"),
    Negatives("hard", 3, corrupt="both"),
]


class Shop:
    """A random graph of users and items, dense enough that many guesses are edges, and rows that ask about it."""

    def __init__(self, seed: int, edge_times: bool = True, node_times: bool = True, num_rows: int = 12) -> None:
        rng = np.random.default_rng(seed)
        self.num_users, self.num_items = int(rng.integers(3, 12)), int(rng.integers(3, 12))
        ends = rng.integers(0, self.num_users, 60), rng.integers(0, self.num_items, 60)
        times = rng.integers(0, 20, 60)
        self.joined = rng.integers(0, 20, self.num_users)
        self.added = rng.integers(0, 20, self.num_items)
        self.graph = Graph.from_hetero(
            {"user": self.num_users, "item": self.num_items},
            {BUYS: ends, BACK: ends[::-1]},
            edge_time={BUYS: times, BACK: times} if edge_times else None,
            node_time={"user": self.joined, "item": self.added} if node_times else None,
            keep_order=True,
        )
        since = np.maximum(times, self.joined[ends[0]]) if node_times else times
        self.bought = list(zip(*(each.tolist() for each in (*ends, since)), strict=True))
        self.edge_times, self.node_times = edge_times, node_times
        self.rows = rng.permutation(1000)[:num_rows]
        self.src = rng.integers(0, self.num_users, num_rows)
        self.dst = self.num_users + rng.integers(0, self.num_items, num_rows)
        self.at = rng.integers(-1, 22, num_rows)
        self.given = rng.integers(self.num_users, self.num_users + self.num_items, (num_rows, 4))

    def draw(self, negatives: Negatives, key: DrawKey = KEY, which: np.ndarray | None = None) -> np.ndarray:
        at = slice(None) if which is None else which
        until = None if self.graph.clock is None else self.graph.clock.until(self.at[at], "<=")
        given = self.given[at] if negatives.mode == "hard" else None
        if given is not None and negatives.corrupt == "both":
            given = given.copy()
            given[:, 2:] %= self.num_users
        ends = self.src[at], self.dst[at]
        return negatives.draw(self.graph, "buys", self.rows[at], *ends, until, key, given)

    def is_false(self, negatives: Negatives, found: np.ndarray) -> bool:
        """Whether each negative of each row is of the right type, there by then, and no edge by then."""
        num_dst = negatives.num_dst(found.shape[1])
        for i, row in enumerate(found.tolist()):
            now = self.at[i] if self.edge_times or self.node_times else 99
            for j, node in enumerate(row):
                if node < 0:
                    continue
                pair = (int(self.src[i]), node) if j < num_dst else (node, int(self.dst[i]))
                user, item = pair[0], pair[1] - self.num_users
                if not (0 <= user < self.num_users and 0 <= item < self.num_items):
                    return False
                joined = self.added[item] if j < num_dst else self.joined[user]
                timed = self.edge_times or self.node_times
                known = any((u, v) == (user, item) and (t <= now or not timed) for u, v, t in self.bought)
                if known or pair == (self.src[i], self.dst[i]) or (self.node_times and joined > now):
                    return False
        return True


@pytest.mark.parametrize("negatives", MODES, ids=str)
def test_no_negative_is_an_edge_or_from_the_future(negatives: Negatives) -> None:
    """Among 250 rows of each mode are hundreds that a missing test of the edge, its time, the node's or its own end
    would let through."""
    num_found = num_masked = 0
    for seed in range(60):
        timed = {"edge_times": seed % 3 > 0, "node_times": seed % 2 > 0}
        if timed == {"edge_times": False, "node_times": True}:
            continue  # edges are then there since their source is: is_false() takes each edge's own time as well
        shop = Shop(seed, **timed)
        found = shop.draw(negatives)
        assert found.dtype == np.int64
        assert len(found) == len(shop.rows)
        assert shop.is_false(negatives, found)
        num_found += (found >= 0).sum()
        num_masked += (found < 0).sum()
    assert min(num_found, num_masked) > 100


def test_edges_of_users_who_have_times_are_there_with_their_users() -> None:
    shop = Shop(3, edge_times=False)
    shop.bought = [(u, v, shop.joined[u]) for u, v, _ in shop.bought]
    for negatives in MODES:
        assert shop.is_false(negatives, shop.draw(negatives))


def test_drawn_negatives_belong_to_their_row_alone() -> None:
    shop = Shop(0, num_rows=40)
    other = np.random.default_rng(0).permutation(40)
    for negatives in (Negatives("triplet", 5), Negatives("binary", 3, corrupt="both")):
        whole = shop.draw(negatives)
        np.testing.assert_array_equal(shop.draw(negatives, which=other), whole[other])
        np.testing.assert_array_equal(shop.draw(negatives, DrawKey(5, 1, 99)), whole)  # whatever the step
        assert (shop.draw(negatives, DrawKey(5, 2, 2)) != whole).any()  # others in the next epoch
        assert (shop.draw(negatives, DrawKey(6, 1, 2)) != whole).any()


@pytest.mark.parametrize("negatives", [Negatives("triplet", 6), Negatives("joint", 6)], ids=str)
def test_those_of_evaluation_are_the_same_whatever_the_batch_size_and_the_ranks(negatives: Negatives) -> None:
    shop = Shop(1, num_rows=48)
    whole = shop.draw(negatives, EVALUATION)
    for num_ranks, batch_size in ((1, 48), (1, 7), (3, 5), (2, 16)):
        again = np.full_like(whole, -2)
        for rank in range(num_ranks):
            mine = np.arange(rank, 48, num_ranks)
            for begin in range(0, len(mine), batch_size):
                which = mine[begin : begin + batch_size]
                again[which] = shop.draw(negatives, EVALUATION, which)
        np.testing.assert_array_equal(again, whole)


def test_joint_negatives_are_those_of_the_step() -> None:
    shop = Shop(2, edge_times=False, node_times=False)
    found = shop.draw(Negatives("joint", 9))
    for column in found.T:
        assert len(set(column[column >= 0].tolist())) <= 1
    assert (shop.draw(Negatives("joint", 9), DrawKey(5, 1, 3)).max(0) != found.max(0)).any()


def test_in_batch_negatives_are_the_destinations_of_other_rows() -> None:
    graph = Graph.from_coo(src=[0], dst=[7], num_nodes=10)
    src, dst, rows = np.array([0, 1, 2, 3]), np.array([5, 6, 7, 5]), np.arange(4)
    assert Negatives("in_batch").draw(graph, 0, rows, src, dst, None, KEY).tolist() == [
        [6, -1, -1],  # 7 is known, and the last row has the same end
        [7, 5, 5],
        [5, 5, 6],
        [-1, 6, 7],
    ]
    wide = Negatives("in_batch", 5).draw(graph, 0, rows, src, dst, None, KEY)
    assert wide.shape == (4, 5)
    assert (wide[:, 3:] == -1).all()
    assert Negatives("in_batch").draw(graph, 0, rows[:1], src[:1], dst[:1], None, KEY).shape == (1, 0)
    none = rows[:0], src[:0], dst[:0]
    assert [Negatives(mode).draw(graph, 0, *none, None, KEY).shape for mode in ("in_batch", "binary", "joint")] == [
        (0, 0),
        (0, 1),
        (0, 1),
    ]


def test_hard_negatives_are_those_given() -> None:
    graph = Graph.from_coo(src=[0], dst=[7], num_nodes=10)
    src, dst, rows = np.array([0, 1]), np.array([5, 6]), np.arange(2)
    given = np.array([[7, 5, -1, 9], [7, 6, 0, 3]])
    found = Negatives("hard").draw(graph, 0, rows, src, dst, None, KEY, given)
    assert found.tolist() == [[-1, -1, -1, 9], [7, -1, 0, 3]]
    assert Negatives("hard", 1).draw(graph, 0, rows, src, dst, None, KEY, given).tolist() == [[-1], [7]]
    for wrong, message in (
        (None, "int64"),
        (given[:1], r"\[2, num\]"),
        (given + 0.5, "float64"),
        (given + 5, r"cannot be the dest.*\[0, 10\)"),
    ):
        with pytest.raises(SeedError, match=message):
            Negatives("hard").draw(graph, 0, rows, src, dst, None, KEY, wrong)
    with pytest.raises(SeedError, match="has 4 a row"):
        Negatives("hard", 5).draw(graph, 0, rows, src, dst, None, KEY, given)


@pytest.mark.parametrize("end", ["src", "dst"])
def test_the_end_that_is_kept_needs_no_weights(end: Any) -> None:
    shop = Shop(4, edge_times=False, node_times=False)
    is_user = np.arange(shop.graph.num_nodes) < shop.num_users
    weight = np.where(is_user == (end == "src"), 1.0, 0.0)
    ends, weights = (shop.rows, shop.src, shop.dst, None, KEY), Negatives.weigh(shop.graph, "buys", weight)
    negatives = Negatives("triplet", 3, corrupt=end, weight="w")
    assert shop.is_false(negatives, negatives.draw(shop.graph, "buys", *ends, weights=weights))
    with pytest.raises(SamplerConfigError, match="all weights are 0"):
        Negatives("triplet", 3, corrupt="both", weight="w").draw(shop.graph, "buys", *ends, weights=weights)


def test_nodes_of_weight_0_are_never_drawn() -> None:
    shop = Shop(4, edge_times=False, node_times=False)
    weight = np.ones(shop.graph.num_nodes)
    weight[[0, shop.num_users]] = 0
    weights = Negatives.weigh(shop.graph, "buys", weight)
    ends = shop.rows, shop.src, shop.dst, None, KEY
    for negatives in (Negatives("binary", 20, corrupt="both", weight="w"), Negatives("joint", 50, weight="w")):
        found = negatives.draw(shop.graph, "buys", *ends, weights=weights)
        assert shop.is_false(negatives, found)
        drawn = set(found.ravel().tolist())
        assert len(drawn) > 2
        assert not drawn & {0, shop.num_users}
    with pytest.raises(SamplerConfigError, match="needs weights"):
        Negatives(weight="w").draw(shop.graph, "buys", *ends)
    with pytest.raises(SamplerConfigError, match="takes no weights"):
        Negatives().draw(shop.graph, "buys", *ends, weights=weights)
    with pytest.raises(SamplerConfigError, match="draws nothing"):
        Negatives("in_batch", weight="w")
    for wrong in (weight[:-1], -weight, weight * np.nan):
        with pytest.raises(GraphDataError, match="one a node"):
            Negatives.weigh(shop.graph, "buys", wrong)


def test_a_graph_where_every_pair_is_an_edge_is_refused() -> None:
    src, dst = np.divmod(np.arange(12), 4)
    graph = Graph.from_hetero({"a": 3, "b": 4}, {("a", "to", "b"): (src, dst), ("b", "of", "a"): (dst[:11], src[:11])})
    with pytest.raises(GraphDataError, match="all 12 pairs of 3 sources and 4 destinations are edges"):
        Negatives().check(graph, "to")
    Negatives().check(graph, "of")
    repeated = Graph.from_coo(src=[0] * 9, dst=[1] * 9, num_nodes=2)  # as many edges as pairs, but one pair only
    Negatives().check(repeated)


@pytest.mark.parametrize("number", [np.int64(2), np.uint8(2), torch.tensor(2)])
def test_counts_are_plain_integers(number: Any) -> None:
    made = Negatives("triplet", num=number, tries=number)
    assert (type(made.num), type(made.tries)) == (int, int)
    assert made == Negatives("triplet", num=2, tries=2)
    assert repr(made) == repr(Negatives("triplet", num=2, tries=2))
    assert json.loads(json.dumps([made.num])) == [2]


def test_settings_and_graphs_that_cannot_be() -> None:
    for wrong, message in (
        ({"mode": "uniform"}, "mode is 'uniform'"),
        ({"corrupt": "ends"}, "corrupt is 'ends'"),
        ({"num": 0}, "num is 0"),
        ({"num": 1.5}, "num is 1.5"),
        ({"num": True}, "num is True.*must be an integer"),
        ({"num": torch.tensor([1, 2])}, "num is tensor.*must be an integer"),
        ({"tries": np.True_}, "tries is .*True.*must be an integer"),
        ({"tries": 0}, "tries is 0"),
        ({"mode": "joint", "corrupt": "src"}, "in common"),
    ):
        with pytest.raises(SamplerConfigError, match=message):
            Negatives(**wrong)
    graph = Graph.from_coo(src=[0], dst=[1])
    one = np.array([0]), np.array([0]), np.array([1])
    with pytest.raises(SamplerConfigError, match="the graph has no types"):
        Negatives().draw(graph, "buys", *one, None, KEY)
    part = Graph(graph.indptr, graph.indices, origin=Origin(np.arange(2), np.zeros(2, np.uint8), np.zeros(2, np.int64)))
    with pytest.raises(SamplerConfigError, match="part of one"):
        Negatives().draw(part, 0, *one, None, KEY)
    with pytest.raises(SeedError, match=r"dst\[0\] is 2"):
        Negatives().draw(graph, 0, one[0], one[1], np.array([2]), None, KEY)


@pytest.mark.parametrize("negatives", [negatives for negatives in MODES if negatives.mode != "in_batch"], ids=repr)
def test_edges_of_any_type_are_no_negatives(negatives) -> None:
    """Also where types have only numbers, and a later edge lies before an earlier one."""
    src, dst = (ends.ravel() for ends in np.meshgrid(np.arange(4), np.arange(4, 8)))
    late, early = np.full(len(src), 9), np.where(dst < 6, 3, 8)
    graph = Graph.from_coo(
        np.append(src, src), np.append(dst, dst), 8, edge_type=[0] * 16 + [1] * 16, edge_time=np.append(late, early)
    )
    rows, until = np.arange(20), graph.clock.until(np.full(20, 5), "<=")
    src, dst = rows % 4, 6 + rows % 2
    given = 4 + np.stack([rows, rows + 1, rows + 2, rows + 3], axis=1) % 4
    found = negatives.draw(graph, None, rows, src, dst, until, KEY, given if negatives.mode == "hard" else None)
    num_dst = negatives.num_dst(found.shape[1])
    assert not np.isin(found[:, :num_dst], [4, 5]).any()
    assert (found >= 0).any()
