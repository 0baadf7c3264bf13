"""Negatives by PyG's names: none is later than its link, and where there is none, nothing is learned of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import SeedError
from lightning_gnnload.ops import DrawKey

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

    from lightning_gnnload.pyg import GnnloadSampler, LightningLinkData, LinkNeighborLoader

N, E, FIRST = 40, 150, 6
TO = ("a", "to", "b")
EARLY = rf"\b{E // 3} of {E} links are earlier than every node that could be their negative"


def times(seed: int) -> torch.Tensor:
    return torch.randint(FIRST, 20, (N,), generator=torch.Generator().manual_seed(seed))


def link_times() -> torch.Tensor:
    """A third are before every node."""
    return torch.where(torch.arange(E) % 3 == 0, FIRST - 1, 19 - torch.arange(E) % 14)


def edge_index() -> torch.Tensor:
    return torch.randint(N, (2, E), generator=torch.Generator().manual_seed(7))


def homogeneous() -> tuple[Data, Any]:
    return Data(edge_index=edge_index(), time=times(1), num_nodes=N), edge_index()


def typed() -> tuple[HeteroData, Any]:
    data = HeteroData()
    data["a"].time, data["b"].time, data[TO].edge_index = times(2), times(3), edge_index()
    data["a"].num_nodes = data["b"].num_nodes = N
    return data, (TO, edge_index())


def batches(graph: Any, neg_sampling: Any) -> Any:
    data, links = graph
    settings = {"num_neighbors": [2], "neg_sampling": neg_sampling, "time_attr": "time", "batch_size": 32, "seed": 3}
    loader = LinkNeighborLoader(data, edge_label_index=links, edge_label_time=link_times(), **settings)
    module = LightningLinkData(
        data, input_train_edges=links, input_train_time=link_times(), order="sequential", **settings
    )
    made, carried = list(loader), list(module.train_dataloader())
    for batch, same in zip(made, carried, strict=True):
        assert batch.to_dict().keys() == same.to_dict().keys()
    return made + carried


def stores(batch: Any) -> tuple[Any, Any, Any]:
    return (batch["a"], batch["b"], batch[TO]) if isinstance(batch, HeteroData) else (batch, batch, batch)


@pytest.mark.filterwarnings("ignore:.*links are earlier", "ignore:.*without in-neighbours")
@pytest.mark.parametrize("graph", [homogeneous, typed])
@pytest.mark.parametrize("amount", [0.5, 1, 2.5])
def test_a_binary_negative_is_not_later_or_left_out(graph: Any, amount: float) -> None:
    for batch in batches(graph(), {"mode": "binary", "amount": amount}):
        src, dst, links = stores(batch)
        assert links.edge_label_index.shape == (2, len(links.edge_label)) == (2, len(links.edge_label_time))
        num_links = len(links.input_id)
        asked = link_times()[links.input_id]
        assert torch.equal(links.edge_label_time[:num_links], asked)
        all_times = asked.repeat(3)[: int(np.ceil(num_links * amount))]
        assert torch.equal(links.edge_label_time[num_links:], all_times[all_times >= FIRST])
        assert links.edge_label.tolist() == [1.0] * num_links + [0.0] * int((all_times >= FIRST).sum())
        for end, place in ((src, 0), (dst, 1)):
            negative = links.edge_label_index[place, num_links:]
            assert (end.time[negative] <= links.edge_label_time[num_links:]).all()
            assert torch.equal(asked[end.batch[negative]], links.edge_label_time[num_links:])


@pytest.mark.filterwarnings("ignore:.*links are earlier", "ignore:.*without in-neighbours")
@pytest.mark.parametrize("graph", [homogeneous, typed])
@pytest.mark.parametrize("amount", [1, 3])
def test_a_triplet_negative_is_not_later_or_the_positive_one(graph: Any, amount: int) -> None:
    for batch in batches(graph(), {"mode": "triplet", "amount": amount}):
        _, dst, links = stores(batch)
        negative = dst.dst_neg_index.view(len(links.input_id), amount)
        asked = link_times()[links.input_id][:, None]
        is_positive = negative == dst.dst_pos_index[:, None]
        assert torch.equal(is_positive, (asked < FIRST).expand_as(negative))
        assert ((dst.time[negative] <= asked) | is_positive).all()


@pytest.mark.filterwarnings("ignore:.*without in-neighbours")
@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_links_without_a_negative_are_counted(mode: str) -> None:
    data, links = homogeneous()
    with pytest.warns(UserWarning, match=EARLY):
        LinkNeighborLoader(data, [2], links, None, link_times(), neg_sampling=mode, time_attr="time")
    kinds, of_kind = typed()
    kinds["a"].time, kinds["b"].time[0] = torch.full((N,), 100), FIRST  # of triplets the source is the link's own
    with pytest.warns(UserWarning, match=EARLY if mode == "triplet" else f"{E} of {E} links are earlier"):
        LinkNeighborLoader(kinds, [2], of_kind, None, link_times(), neg_sampling=mode, time_attr="time")


@pytest.mark.parametrize("amount", [0.5, 1, 2.5])
@pytest.mark.parametrize("input_id", [None, torch.arange(E) // 2], ids=["rows", "numbers that come twice"])
def test_no_two_ends_of_a_batch_draw_by_the_same_name(amount: float, input_id: torch.Tensor | None) -> None:
    sampler, links = GnnloadSampler(homogeneous()[0], [2], disjoint=True), edge_index()
    inputs = EdgeSamplerInput(input_id, *links)
    names = sampler.seed_batch(inputs, DrawKey(0, 0, 0), NegativeSampling("binary", amount)).draw.queries.name
    assert len(np.unique(names)) == len(names) == 2 * (E + int(np.ceil(E * amount)))


def test_every_node_that_is_not_later_is_drawn_as_often_as_its_weight_says() -> None:
    """Of 9,000 draws each count is within five standard deviations, which chance exceeds once in a million."""
    data = Data(edge_index=torch.zeros(2, 1, dtype=torch.long), time=torch.tensor([4, 1, 3, 2, 9]), num_nodes=5)
    weight = torch.tensor([1.0, 2.0, 0.0, 3.0, 50.0])
    links = torch.zeros(9000, dtype=torch.long)
    for dst_weight, shares in ((None, [0.25, 0.25, 0.25, 0.25, 0]), (weight, [1 / 6, 2 / 6, 0, 3 / 6, 0])):
        sampler = GnnloadSampler(data, [1], time_attr="time", seed=2)
        inputs = EdgeSamplerInput(None, links, links, None, torch.full((9000,), 4))
        output = sampler.sample_from_edges(inputs, NegativeSampling("triplet", 1, None, dst_weight))
        drawn = np.bincount(output.node[output.metadata[3]].numpy(), minlength=5)
        for count, share in zip(drawn, shares, strict=True):
            assert abs(count - 9000 * share) <= 5 * np.sqrt(9000 * share * (1 - share))
    with pytest.raises(SeedError, match="negatives are drawn by the nodes' times, but the links have none"):
        sampler.sample_from_edges(EdgeSamplerInput(None, links, links), NegativeSampling("triplet"))
