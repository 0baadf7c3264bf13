"""The layers by edge type: each type has weights of its own, and what is empty tells nothing."""

from __future__ import annotations

import pytest
import torch

from examples.models.hgt import HGTConv
from examples.models.temporal import TemporalConv, age_rows
from examples.models.typed import NodeEncoder, RGCNConv
from lightning_gnnload import Block
from lightning_gnnload.data.types import GraphTypes
from tests.runif import RunIf

BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")
TYPES = GraphTypes(("user", "item"), (4, 5), (BUYS, BACK))
NUM_DST = {"user": 2, "item": 1}


@pytest.fixture
def blocks() -> dict[tuple[str, str, str], Block]:
    """Item 0 has no buyer; user 0 bought items 2 and 1, user 1 nothing."""
    return {
        BUYS: Block(torch.tensor([0, 0]).int(), torch.tensor([]).int(), 1, 4),
        BACK: Block(torch.tensor([0, 2, 2]).int(), torch.tensor([2, 1]).int(), 2, 3),
    }


@pytest.fixture
def x() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"user": torch.randn(4, 3), "item": torch.randn(3, 3)}


def test_types_without_features_are_embedded() -> None:
    encoder = NodeEncoder(TYPES, {"user": 6}, width=3)
    rows = encoder({"user": torch.tensor([3, 1]), "item": torch.tensor([4])}, {"user": torch.ones(2, 6)})
    assert {name: list(each.shape) for name, each in rows.items()} == {"user": [2, 3], "item": [1, 3]}
    torch.testing.assert_close(rows["item"][0], encoder.embed["item"].weight[4])


def test_rgcn_adds_a_mean_by_edge_type(blocks: dict, x: dict) -> None:
    conv = RGCNConv(TYPES, 3, 2)
    rows = conv(blocks, NUM_DST, x)
    told = conv.neighbors["item__rev_buys__user"](x["item"][[2, 1]].mean(0))
    torch.testing.assert_close(rows["user"][0], conv.own["user"](x["user"][0]) + told)
    torch.testing.assert_close(rows["user"][1], conv.own["user"](x["user"][1]))
    torch.testing.assert_close(rows["item"], conv.own["item"](x["item"][:1]))


@RunIf(extras="pyg")
def test_hgt_equals_pygs_of_the_same_weights() -> None:
    """Two edge types lead to users, whose attention they share; item 0 and user 2 are told nothing."""
    from torch_geometric.nn import HGTConv as PyGs

    torch.manual_seed(0)
    follows = ("user", "follows", "user")
    types = GraphTypes(("user", "item"), (4, 5), (BUYS, BACK, follows))
    pairs = {
        BUYS: torch.empty(2, 0, dtype=torch.int64),
        BACK: torch.tensor([[2, 1, 1], [0, 0, 1]]),
        follows: torch.tensor([[3, 1, 0], [0, 0, 3]]),
    }
    counts = {"user": 4, "item": 3}
    blocks = {
        kind: Block(torch.bincount(dst + 1, minlength=count + 1).cumsum(0).int(), src.int(), count, counts[kind[0]])
        for kind, (src, dst) in pairs.items()
        for count in [counts[kind[2]]]
    }
    x = {"user": torch.randn(4, 6), "item": torch.randn(3, 6)}
    ours, theirs = HGTConv(types, 6, heads=2), PyGs(6, 6, (list(types.node_types), list(types.edge_types)), heads=2)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn_like(parameter))
        for name in types.node_types:
            lins = [ours.key[name], ours.query[name], ours.value[name]]
            theirs.kqv_lin.lins[name].weight.copy_(torch.cat([lin.weight for lin in lins]))
            theirs.kqv_lin.lins[name].bias.copy_(torch.cat([lin.bias for lin in lins]))
            theirs.out_lin.lins[name].load_state_dict(ours.out[name].state_dict())
            theirs.skip[name].copy_(ours.gate[name])
        by_type = ["__".join(kind) for kind in types.edge_types]
        for at, (head, name) in enumerate((head, name) for head in range(2) for name in by_type):
            theirs.k_rel.weight[at], theirs.v_rel.weight[at] = ours.match[name][head], ours.tell[name][head]
            theirs.p_rel[name][0, head] = ours.prior[name][head]
    expected, rows = theirs(x, pairs), ours(blocks, {"user": 4, "item": 3}, x)
    for name, each in rows.items():
        torch.testing.assert_close(each, expected[name], rtol=1e-4, atol=1e-5)


def test_temporal_layer_knows_sum_maximum_and_age(blocks: dict, x: dict) -> None:
    conv = TemporalConv(TYPES, 3)
    ages = {BUYS: torch.empty(0), BACK: torch.tensor([2.0, 50.0])}
    rows = conv(blocks, NUM_DST, x, ages)
    name = "item__rev_buys__user"
    messages = (conv.src[name](x["item"][[2, 1]]) + conv.age[name](age_rows(ages[BACK]))).relu()
    told = conv.told[name](torch.cat([messages.sum(0), messages.amax(0)]))
    torch.testing.assert_close(rows["user"][0], conv.own["user"](x["user"][0]) + told)
    torch.testing.assert_close(rows["user"][1], conv.own["user"](x["user"][1]))
    assert not torch.allclose(rows["user"], conv(blocks, NUM_DST, x, ages | {BACK: torch.tensor([50.0, 2.0])})["user"])


def test_ages_tell_the_past_from_the_future() -> None:
    rows = age_rows(torch.tensor([0.0, -10.0, 1e6]))
    assert rows[:, -1].tolist() == [0, 1, 0]
    assert rows[0, :-1].tolist() == [1] * 6
    assert (rows[1, :-1].diff() > 0).all()
    assert rows[2, :-1].tolist() == [0] * 6
