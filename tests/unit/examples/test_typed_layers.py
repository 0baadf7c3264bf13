"""The layers by edge type: each type has weights of its own, and what is empty tells nothing."""

from __future__ import annotations

import pytest
import torch

from examples.models.temporal import TemporalConv, age_rows
from examples.models.typed import NodeEncoder, RGCNConv
from lightning_gnnload import Block
from lightning_gnnload.data.types import GraphTypes

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
