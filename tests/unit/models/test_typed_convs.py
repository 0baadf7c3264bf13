"""The layers by edge type: each type has weights of its own, and what is empty tells nothing."""

from __future__ import annotations

import pytest
import torch

from lightning_gnnload import Block
from lightning_gnnload.data.types import GraphTypes
from lightning_gnnload.models.edge_rows import age_rows
from lightning_gnnload.models.first_rows import FirstRows
from lightning_gnnload.models.gat import GATConv
from lightning_gnnload.models.hgt import HGTConv
from lightning_gnnload.models.rgcn import RGCNConv
from lightning_gnnload.models.sage import MessageConv
from tests.runif import RunIf

BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")
SIZES = {"num_features": {"user": 3, "item": 3}, "edge_types": [BUYS, BACK]}
USER, ITEM = "0", "1"
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


def test_first_rows_are_of_features_categories_types_and_nodes() -> None:
    sizes = {"num_features": {"user": 6, "item": 0, "shop": 0}, "num_codes": {"shop": [3]}, "num_rows": {"item": 5}}
    layer = FirstRows(sizes, 3, dropout=0.0)
    nodes = {"user": torch.tensor([3, 1]), "item": torch.tensor([4, 5]), "shop": torch.tensor([0, 1])}
    x = torch.randn(2, 6)
    rows = layer.encode(nodes, {"user": x}, {"shop": {"codes": torch.tensor([[2], [7]])}})
    embed = layer.embed["2"][0].weight
    torch.testing.assert_close(rows["user"], (layer.row["0"] + layer.project["0"](x)).relu())
    # Node 5, and code 7, came after training.
    torch.testing.assert_close(rows["item"][0], (layer.row["1"] + layer.node_rows["1"].weight[4]).relu())
    torch.testing.assert_close(rows["item"][1], layer.row["1"].relu())
    torch.testing.assert_close(rows["shop"], (layer.row["2"] + embed[[2, 0]]).relu())


def test_rgcn_adds_a_mean_by_edge_type(blocks: dict, x: dict) -> None:
    conv = RGCNConv(SIZES, 3, None)
    rows = conv(blocks, NUM_DST, x, {})
    mean = conv.neighbors[1](x["item"][[2, 1]].mean(0))
    torch.testing.assert_close(rows["user"][0], conv.self_rows[USER](x["user"][0]) + mean)
    torch.testing.assert_close(rows["user"][1], conv.self_rows[USER](x["user"][1]))
    torch.testing.assert_close(rows["item"], conv.self_rows[ITEM](x["item"][:1]))


def test_gat_shares_attention_among_all_edges_into_a_node(x: dict) -> None:
    """A softmax by edge type would let each type count as much as the other."""
    follows = ("user", "follows", "user")
    conv = GATConv(SIZES | {"edge_types": [BACK, follows]}, {"user": 3, "item": 3}, 2, heads=1)
    one = {"indptr": torch.tensor([0, 1]).int(), "num_dst": 1}
    blocks = {
        BACK: Block(indices=torch.tensor([2]).int(), num_src=3, **one),
        follows: Block(indices=torch.tensor([3]).int(), num_src=4, **one),
    }
    rows = conv(blocks, {"user": 1, "item": 0}, x, {})
    scores = [
        conv.src[number](row) + conv.dst[number](x["user"][0])
        for number, row in enumerate((x["item"][2], x["user"][3]))
    ]
    first, second = torch.nn.functional.leaky_relu(torch.cat(scores), 0.2).softmax(0)
    wanted = first * conv.neighbors[0](x["item"][2]) + second * conv.neighbors[1](x["user"][3])
    torch.testing.assert_close(rows["user"][0], conv.self_rows[USER](x["user"][0]) + wanted)


@RunIf(extras="pyg")
def test_hgt_equals_pygs_of_the_same_weights() -> None:
    """Two edge types lead to users, whose attention they share; item 0 and user 2 are told nothing."""
    from torch_geometric.nn import HGTConv as PyGs

    torch.manual_seed(0)
    follows = ("user", "follows", "user")
    types = GraphTypes(("user", "item"), (4, 5), (BUYS, BACK, follows))
    sizes = SIZES | {"edge_types": list(types.edge_types)}
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
    ours, theirs = HGTConv(sizes, 6, heads=2), PyGs(6, 6, (list(types.node_types), list(types.edge_types)), heads=2)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.randn_like(parameter))
        for name, key in ((name, str(number)) for number, name in enumerate(types.node_types)):
            lins = [ours.key[key], ours.query[key], ours.value[key]]
            theirs.kqv_lin.lins[name].weight.copy_(torch.cat([lin.weight for lin in lins]))
            theirs.kqv_lin.lins[name].bias.copy_(torch.cat([lin.bias for lin in lins]))
            theirs.out_lin.lins[name].load_state_dict(ours.out[key].state_dict())
            theirs.skip[name].copy_(ours.gate[key])
        by_type = ["__".join(kind) for kind in types.edge_types]
        for at, (head, name) in enumerate((head, name) for head in range(2) for name in by_type):
            number = by_type.index(name)
            theirs.k_rel.weight[at], theirs.v_rel.weight[at] = ours.match[number][head], ours.tell[number][head]
            theirs.p_rel[name][0, head] = ours.prior[number][head]
    expected, rows = theirs(x, pairs), ours(blocks, {"user": 4, "item": 3}, x, {})
    for name, each in rows.items():
        torch.testing.assert_close(each, expected[name], rtol=1e-4, atol=1e-5)


def test_messages_know_sum_maximum_and_age(blocks: dict, x: dict) -> None:
    edges = {"by_type": [{}, {"age": True}], "spans": [1.0, 30.0]}
    conv = MessageConv(
        SIZES | {"edges": edges}, {"user": USER, "item": ITEM}, {"user": 3, "item": 3}, 3, ["sum", "max"]
    )
    ages = {BACK: torch.tensor([2.0, 50.0])}
    rows = conv(blocks, NUM_DST, x, ages)
    messages = (conv.src[1](x["item"][[2, 1]]) + conv.edges[1].age(age_rows(ages[BACK], [1.0, 30.0]))).relu()
    sums = conv.neighbors[1](torch.cat([messages.sum(0), messages.amax(0)]))
    torch.testing.assert_close(rows["user"][0], conv.own[USER](x["user"][0]) + sums)
    torch.testing.assert_close(rows["user"][1], conv.own[USER](x["user"][1]))
    assert not torch.allclose(rows["user"], conv(blocks, NUM_DST, x, {BACK: ages[BACK].flip(0)})["user"])


def test_ages_tell_the_past_from_the_future() -> None:
    rows = age_rows(torch.tensor([0.0, -10.0, 1e6]), [1.0, 3.0, 10.0])
    assert rows[:, -1].tolist() == [0, 1, 0]
    assert rows[0, :-1].tolist() == [1] * 3
    assert (rows[1, :-1].diff() > 0).all()
    assert rows[2, :-1].tolist() == [0] * 3
