"""HGTLoader: PyG's fields, by PyG's filter; what its mini-batches hold, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import LoaderConfigError, SamplerConfigError, SamplerUnsupportedError, SeedError
from lightning_gnnload.sample.hgt import HGTSampler
from tests.unit.pyg.test_loaders import A_TO_A, A_TO_B, check_equal, check_loader, homogeneous, typed

if TYPE_CHECKING:
    import torch_geometric
    from torch_geometric.data import HeteroData
    from torch_geometric.loader import NodeLoader
    from torch_geometric.sampler import EdgeSamplerInput

    from lightning_gnnload.pyg import GnnloadHGTSampler, HGTLoader


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_samples": [5]},
        {"num_samples": {"b": [3, 1], "alone": [1, 1], "a": [9, 0]}},
        {"input_nodes": ("a", torch.tensor([5, 3, 8]))},
        {"input_nodes": ("b", torch.arange(40) % 3 == 0), "input_time": torch.arange(14)},
        {"input_nodes": "alone"},
    ],
)
def test_batches_are_pygs(settings: dict[str, Any], num_workers: int) -> None:
    settings = {"num_samples": [4, 3], "input_nodes": "b", "batch_size": 16, "seed": 3, **settings}
    check_loader(HGTLoader(typed(), num_workers=num_workers, **settings))


@pytest.mark.parametrize("num_hops", [1, 3])
def test_batches_are_those_of_the_sampler_and_have_all_edges_among_their_nodes(num_hops: int) -> None:
    data = typed()
    graph = Graph.from_hetero(
        {name: store.num_nodes for name, store in data.node_items()},
        {kind: tuple(store.edge_index) for kind, store in data.edge_items()},
    )
    assert graph.types is not None
    first = {name: graph.types.range_of(name).start for name in data.node_types}
    for step, batch in enumerate(HGTLoader(data, [4] * num_hops, ("a", None), batch_size=30, seed=3)):
        drawn = HGTSampler([4] * num_hops).sample(graph, batch["a"].input_id + first["a"], 3, 0, step)
        nodes = torch.cat([batch[name].n_id + start for name, start in first.items()])
        assert nodes.sort().values.equal(drawn.nodes.sort().values)
        for kind in data.edge_types:
            src, dst = data[kind].edge_index
            within = torch.isin(src, batch[kind[0]].n_id) & torch.isin(dst, batch[kind[2]].n_id)
            assert batch[kind].e_id.sort().values.equal(within.nonzero().view(-1))
            ends = torch.stack([batch[end].n_id[of] for end, of in zip(kind[::2], batch[kind].edge_index, strict=True)])
            assert ends.equal(data[kind].edge_index[:, batch[kind].e_id])
            assert batch[kind].edge_attr.equal(data[kind].edge_attr[batch[kind].e_id])


def test_fields_are_pygs() -> None:
    batch = next(iter(HGTLoader(typed(), [4, 3], "b", batch_size=4)))
    assert set(batch["b"].keys()) == {"num_nodes", "y", "train_mask", "n_id", "input_id", "batch_size"}
    assert set(batch[A_TO_B].keys()) == {"edge_index", "edge_attr", "weight", "edge_label", "e_id"}
    assert batch["b"].n_id[:4].tolist() == [0, 1, 2, 3]
    assert batch["alone"].x.shape == (0, 2)


def test_epochs_and_resuming() -> None:
    def loader() -> Any:
        return HGTLoader(typed(), [4, 3], "b", batch_size=8, shuffle=True, seed=5)

    first, again = loader(), loader()
    epochs = [list(first), list(first)]
    assert epochs[0][0]["b"].n_id.tolist() != epochs[1][0]["b"].n_id.tolist()
    for batch, other in zip(epochs[0], again, strict=True):
        check_equal(batch, other)
    half = loader()
    batches = iter(half)
    for _ in range(2):
        next(batches)
    rest = loader()
    rest.load_state_dict(half.state_dict())
    for batch, other in zip(epochs[0][2:], rest, strict=True):
        check_equal(batch, other)


def test_a_transform_of_who_was_sampled() -> None:
    seen = []
    loader = HGTLoader(typed(), [4], "b", transform_sampler_output=lambda out: seen.append(out) or out, batch_size=40)
    [batch] = loader
    assert len(seen) == 1
    assert seen[0].num_sampled_nodes is None
    assert batch["b"].n_id.equal(seen[0].node["b"])


def test_the_sampler_in_pygs_own_loader() -> None:
    data = typed()
    loader = NodeLoader(data, GnnloadHGTSampler(data, [4, 3], seed=5), input_nodes="b", batch_size=16)
    batches = list(loader)
    assert isinstance(batches[0], HeteroData)
    assert len(batches) == 3
    assert batches[0]["a"].num_nodes == 4 + 3
    assert batches[0]["b"].input_id.tolist() == list(range(16))
    with pytest.raises(SamplerUnsupportedError, match="seeds that are nodes"):
        loader.node_sampler.sample_from_edges(EdgeSamplerInput(None, torch.tensor([0]), torch.tensor([0])))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"data": homogeneous}, SamplerUnsupportedError, "a Data has no types"),
        ({"num_samples": {"a": [1], "b": [1]}}, SamplerConfigError, "lacks 'alone'"),
        ({"num_samples": {"a": [1], "b": [1, 2], "alone": [1]}}, SamplerConfigError, "differs by type"),
        ({"num_samples": [-1]}, SamplerConfigError, "must be 0 or more"),
        ({"input_nodes": "c"}, SeedError, "no nodes of type 'c'"),
        ({"input_nodes": None}, SeedError, "must name the type of the seeds"),
        ({"timeout": 3}, LoaderConfigError, "HGTLoader does not support timeout=3"),
        ({"seed": -1}, LoaderConfigError, "seed=-1"),
    ],
)
def test_what_it_refuses(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"data": typed, "num_samples": [4], "input_nodes": "a", **settings}
    with pytest.raises(error, match=message):
        HGTLoader(arguments.pop("data")(), **arguments)


def test_seeds_that_repeat() -> None:
    loader = HGTLoader(typed(), [4], ("a", torch.tensor([3, 5, 5])), batch_size=2)
    batches = iter(loader)
    next(batches)
    assert len(list(batches)) == 1  # of two mini-batches
    with pytest.raises(SeedError, match="node 5 of type 'a' is in a mini-batch's seeds twice"):
        list(HGTLoader(typed(), [4], ("a", torch.tensor([3, 5, 5])), batch_size=3))


def test_a_hub_keeps_its_edges() -> None:
    data = HeteroData()
    data["a"].x = torch.arange(700.0)
    data[A_TO_A].edge_index = torch.stack([torch.arange(700), torch.zeros(700, dtype=torch.long)])
    data[A_TO_A].edge_attr = torch.arange(700) * 2
    [batch] = HGTLoader(data, [700], ("a", torch.tensor([0])), seed=1)
    assert batch["a"].num_nodes in (50, 51)  # the hub is its own in-neighbour
    assert batch[A_TO_A].edge_attr.equal(2 * batch["a"].n_id[batch[A_TO_A].edge_index[0]])
    assert batch[A_TO_A].num_edges == batch["a"].num_nodes


def test_it_is_pygs_class() -> None:
    loader = HGTLoader(typed(), [4], "a")
    assert isinstance(loader, torch_geometric.loader.HGTLoader)
    assert str(loader) == "HGTLoader()"
