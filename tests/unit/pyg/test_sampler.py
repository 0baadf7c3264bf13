"""GnnloadSampler called by itself, as PyG's samplers are: backward, by PyG's bidirectional sampler, without ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from lightning_gnnload.errors import GraphDataError, SamplerConfigError, SamplerUnsupportedError, SeedError

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.loader import NodeLoader
    from torch_geometric.sampler import EdgeSamplerInput, NodeSamplerInput, neighbor_sampler
    from torch_geometric.testing import MyFeatureStore, MyGraphStore

    from lightning_gnnload.pyg import GnnloadSampler, NeighborLoader

N, E = 60, 400
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


def ends(seed: int, num_src: int = N, num_dst: int = N) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(count, (E,), generator=generator) for count in (num_src, num_dst)]
    return torch.stack(rows)


def graph(*, turned: bool = False) -> Data:
    edge_index = ends(1)
    return Data(
        edge_index=edge_index.flip(0) if turned else edge_index,
        x=torch.arange(N),
        edge_attr=torch.arange(E) * 10,
        weight=torch.rand(E, generator=torch.Generator().manual_seed(3)),
        time=torch.arange(N),
    )


def typed_graph(*, turned: bool = False) -> HeteroData:
    data = HeteroData()
    data["author"].num_nodes, data["paper"].num_nodes = 40, N
    for kind, edge_index in ((WRITES, ends(1, num_src=40)), (CITES, ends(2))):
        kind, edge_index = (kind[::-1], edge_index.flip(0)) if turned else (kind, edge_index)
        data[kind].edge_index, data[kind].edge_attr = edge_index, torch.arange(E) * 10
    return data


def stores() -> tuple[MyFeatureStore, MyGraphStore]:
    features, edges = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.arange(N), group_name=None, attr_name="x", index=None)
    edges.put_edge_index(tuple(ends(1)), edge_type=None, layout="coo", size=(N, N))
    return features, edges


@pytest.mark.parametrize("settings", [{}, {"weight_attr": "weight"}, {"disjoint": True}, {"replace": True}])
def test_backward_is_forward_in_the_graph_turned_around(settings: dict[str, Any]) -> None:
    seeds = NodeSamplerInput(torch.arange(9), torch.arange(9))
    made = GnnloadSampler(graph(), [3, 2], sample_direction="backward", **settings).sample_from_nodes(seeds)
    expected = GnnloadSampler(graph(turned=True), [3, 2], **settings).sample_from_nodes(seeds)
    assert torch.equal(made.node, expected.node)
    assert torch.equal(made.row, expected.col)
    assert torch.equal(made.col, expected.row)
    assert torch.equal(made.edge, expected.edge)
    assert made.num_sampled_edges == expected.num_sampled_edges
    assert len(made.edge) > 9
    assert torch.equal(torch.stack([made.node[made.row], made.node[made.col]]), graph().edge_index[:, made.edge])


def test_backward_keeps_the_names_of_types() -> None:
    seeds = NodeSamplerInput(None, torch.arange(9), input_type="author")
    # Papers that an author writes, then papers that these cite; no fanout is taken for another type's.
    fanouts = {WRITES: [3, 0], CITES: [0, 2]}
    made = GnnloadSampler(typed_graph(), fanouts, sample_direction="backward").sample_from_nodes(seeds)
    turned = {kind[::-1]: hops for kind, hops in fanouts.items()}
    expected = GnnloadSampler(typed_graph(turned=True), turned).sample_from_nodes(seeds)
    assert set(made.row) == set(made.col) == set(made.edge) == set(made.num_sampled_edges) == {WRITES, CITES}
    for kind in (WRITES, CITES):
        assert torch.equal(made.row[kind], expected.col[kind[::-1]])
        assert torch.equal(made.col[kind], expected.row[kind[::-1]])
        assert torch.equal(made.edge[kind], expected.edge[kind[::-1]])
        assert len(made.edge[kind]) > 0
        global_ends = torch.stack([made.node[kind[0]][made.row[kind]], made.node[kind[2]][made.col[kind]]])
        assert torch.equal(global_ends, typed_graph()[kind].edge_index[:, made.edge[kind]])
    assert made.num_sampled_edges[WRITES][1] == made.num_sampled_edges[CITES][0] == 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_gathers_what_a_backward_sampler_draws(num_workers: int) -> None:
    for data, kinds, nodes in ((graph(), [None], None), (typed_graph(), [WRITES, CITES], ("author", torch.arange(40)))):
        sampler = GnnloadSampler(data, [3, 2], sample_direction="backward")
        loader = NeighborLoader(
            data, [3, 2], nodes, neighbor_sampler=sampler, batch_size=10, num_workers=num_workers, seed=1
        )
        for batch in loader:
            for kind in kinds:
                store, of_all = (batch, data) if kind is None else (batch[kind], data[kind])
                src, dst = (batch.n_id, batch.n_id) if kind is None else (batch[kind[0]].n_id, batch[kind[2]].n_id)
                row, col = store.edge_index
                assert torch.equal(torch.stack([src[row], dst[col]]), of_all.edge_index[:, store.e_id])
                assert torch.equal(store.edge_attr, of_all.edge_attr[store.e_id])


def test_what_pyg_does_not_implement_is_refused_as_such() -> None:
    for data, settings in (
        (graph(), {"sample_direction": "backward", "time_attr": "time"}),
        (stores(), {"weight_attr": "weight"}),
    ):
        with pytest.raises(NotImplementedError) as refused:
            GnnloadSampler(data, [1], **settings)
        assert isinstance(refused.value, SamplerUnsupportedError)
    with pytest.raises(SeedError, match="the seeds have no type; give input_type=, one of author, paper"):
        GnnloadSampler(typed_graph(), [1]).sample_from_nodes(NodeSamplerInput(None, torch.arange(3)))
    with pytest.raises(SamplerConfigError, match="sample_direction='inward'"):
        GnnloadSampler(graph(), [1], sample_direction="inward")


@pytest.mark.parametrize("disjoint", [False, True])
def test_pygs_bidirectional_sampler_draws_by_ours(monkeypatch: pytest.MonkeyPatch, disjoint: bool) -> None:
    monkeypatch.setattr(neighbor_sampler, "NeighborSampler", GnnloadSampler)
    sampler = neighbor_sampler.BidirectionalNeighborSampler(graph(), [-1], disjoint=disjoint)
    assert isinstance(sampler.forward_sampler, GnnloadSampler)
    seeds = torch.tensor([4, 7])
    made = sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
    src, dst = graph().edge_index
    touching = torch.isin(src, seeds) | torch.isin(dst, seeds)
    assert sorted(set(made.edge.tolist())) == touching.nonzero().view(-1).tolist()
    assert torch.equal(torch.stack([made.node[made.row], made.node[made.col]]), graph().edge_index[:, made.edge])


def test_rows_of_one_number_draw_apart_and_the_first_as_if_alone() -> None:
    """RelBench numbers destinations by their nodes. Two rows draw the same 5 of 100 with probability 1e-8."""
    star = Data(edge_index=torch.stack([torch.arange(1, 101), torch.zeros(100, dtype=torch.long)]), num_nodes=101)

    def drawn(*numbers: int) -> list[tuple[int, ...]]:
        inputs = NodeSamplerInput(torch.tensor(numbers, dtype=torch.long), torch.zeros(len(numbers), dtype=torch.long))
        out = GnnloadSampler(star, [5], disjoint=True).sample_from_nodes(inputs)
        return [tuple(sorted(out.node[(out.batch == row) & (out.node > 0)].tolist())) for row in range(len(numbers))]

    repeated = drawn(7, 3, 7, 7)
    assert len(set(repeated)) == 4
    assert repeated[:2] == drawn(7, 3)
    assert drawn() == []


def test_rows_without_ids_are_known_by_their_place() -> None:
    sampler = GnnloadSampler(graph(), [2], time_attr="time")
    made = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([30, 40]), torch.tensor([31, 41])))
    assert made.metadata[0] is None
    assert made.metadata[1].tolist() == [31, 41]
    assert made.batch[:2].tolist() == [0, 1]
    assert GnnloadSampler(graph(), [2]).sample_from_nodes(NodeSamplerInput(None, torch.arange(3))).metadata == (
        None,
        None,
    )
    # Of a link, the row's number is both ends'.
    links = EdgeSamplerInput(None, torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6]))
    made = GnnloadSampler(graph(), [2], disjoint=True).sample_from_edges(links)
    assert made.batch[:6].tolist() == [0, 1, 2, 0, 1, 2]
    assert made.metadata[1].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_pygs_own_loader_draws_anew_each_epoch(num_workers: int, disjoint: bool) -> None:
    data = graph()

    def epochs() -> list[torch.Tensor]:
        torch.manual_seed(7)  # decides the seeds of worker processes
        sampler = GnnloadSampler(data, [2, 2], disjoint=disjoint, seed=5)
        loader = NodeLoader(data, sampler, input_nodes=torch.arange(20), batch_size=20, num_workers=num_workers)
        return [batch.e_id for _ in range(2) for batch in loader]

    first, second = epochs()
    assert sorted(first.tolist()) != sorted(second.tolist())
    assert all(map(torch.equal, epochs(), (first, second)))


def ladder() -> Data:
    """Ten edges into node 0, from nodes of times 0 to 9, whose edges have them too."""
    edge_index = torch.stack([torch.arange(1, 11), torch.zeros(10, dtype=torch.long)])
    return Data(edge_index=edge_index, edge_time=torch.arange(10), num_nodes=11)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"before": "<"}, [0, 1, 2, 3, 4]),
        ({"time_window": 2}, [3, 4, 5]),
        ({"time_window": 2, "before": "<"}, [3, 4]),
        ({"before": "<", "subgraph_type": "induced"}, [0, 1, 2, 3, 4]),
    ],
)
def test_which_edges_count_by_time(settings: dict[str, Any], expected: list[int]) -> None:
    seeds = {"input_nodes": torch.tensor([0]), "input_time": torch.tensor([5]), "time_attr": "edge_time"}
    [batch] = NeighborLoader(ladder(), [-1], **seeds, **settings)
    assert sorted(batch.edge_time.tolist()) == expected


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"time_window": 2}, SamplerConfigError, "need times"),
        ({"before": "<"}, SamplerConfigError, "need times"),
        (
            {"time_attr": "edge_time", "temporal_strategy": "last", "replace": True},
            SamplerConfigError,
            "temporal_strategy='last'",
        ),
        ({"before": None, "time_attr": "edge_time"}, SamplerConfigError, "before=None is not known"),
        ({"time_window": -1, "time_attr": "edge_time"}, SamplerConfigError, "window=-1"),
        (
            {"time_window": 2, "time_attr": "edge_time", "subgraph_type": "induced"},
            SamplerUnsupportedError,
            "of any age. Give subgraph_type='directional'",
        ),
    ],
)
def test_times_that_cannot_count(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GnnloadSampler(ladder(), [-1], **settings)


def weighted_by_type() -> HeteroData:
    data = typed_graph()
    data[WRITES].odd = torch.arange(E) % 2
    data[CITES].third = torch.arange(E) % 3 == 0
    return data


@pytest.mark.parametrize("weights", [{WRITES: "odd", CITES: "third"}, {WRITES: "odd"}])
def test_weights_by_edge_type(weights: dict[Any, str]) -> None:
    loader = NeighborLoader(weighted_by_type(), [-1], input_nodes="paper", weight_attr=weights, batch_size=N)
    [batch] = loader
    assert batch[WRITES].odd.unique().tolist() == [1]
    assert batch[CITES].third.unique().tolist() == [True] if CITES in weights else [False, True]
    assert batch[CITES].num_edges == (len(torch.arange(0, E, 3)) if CITES in weights else E)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ({("a", "b", "c"): "odd"}, GraphDataError, r"names edges of type \('a', 'b', 'c'\), but the types are"),
        ({CITES: "odd"}, GraphDataError, "these edges have no such attribute. They have edge_attr, edge_index, third"),
        ({CITES: 3}, SamplerConfigError, "weight_attr=3: must be the name of an attribute, or {edge type: attribute}"),
        ({}, GraphDataError, "no edges have such an attribute"),
    ],
)
def test_weights_of_no_edges(weights: dict[Any, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GnnloadSampler(weighted_by_type(), [2], weight_attr=weights)
    if error is GraphDataError and weights:
        with pytest.raises(GraphDataError, match=r"the types are none: give one name"):
            GnnloadSampler(graph(), [2], weight_attr=weights)


def test_seeds_of_several_types_say_what_takes_them() -> None:
    with pytest.raises(SeedError, match=r"GraphDataModule.from_pyg\(.*train=\{type: ids\}\).*ZipLoader"):
        NeighborLoader(typed_graph(), [2], input_nodes={"author": torch.arange(3), "paper": torch.arange(3)})
