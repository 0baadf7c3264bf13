"""to_pyg and graph_data_from_pyg: nothing of a mini-batch or graph is lost or moved on the way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, MiniBatch, NeighborSampler
from lightning_gnnload.adapters.pyg import graph_data_from_pyg, to_pyg
from lightning_gnnload.errors import GraphDataError, LoaderConfigError, MissingExtraError, SamplerConfigError
from tests.runif import RunIf

N, E, SEEDS = 40, 300, [7, 3, 39, 0]
needs_pyg = RunIf(extras="pyg")


def edge_list(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    # No edge into 39, a seed; repeated edges and loops are there by chance.
    return torch.from_numpy(random.integers(N, size=E)), torch.from_numpy(random.integers(N - 1, size=E))


def a_batch(fanouts: tuple[int, ...] = (3, 2, 2), edge_ids: bool = False, expand: Any = "new") -> MiniBatch:
    sampler = NeighborSampler(fanouts, edge_ids=edge_ids, expand=expand)
    batch = sampler.sample(Graph.from_coo(*edge_list(), N), SEEDS, seed=1)
    return replace(batch, x=torch.randn(batch.num_nodes, 5), y=torch.arange(len(SEEDS)))


@needs_pyg
def test_data_holds_what_the_mini_batch_holds() -> None:
    from torch_geometric.data import Data

    batch = a_batch()
    data = to_pyg(batch)
    outermost = batch.blocks[0]
    assert isinstance(data, Data)
    # Sources above destinations: swapped rows would send messages backward.
    assert data.edge_index.dtype == torch.int64
    assert torch.equal(data.edge_index, torch.stack([outermost.indices.long(), outermost.edge_dst()]))
    assert torch.equal(data.n_id, batch.nodes)
    assert data.x.data_ptr() == batch.x.data_ptr()  # a view, not a copy
    assert torch.equal(data.y, batch.y)
    assert (data.batch_size, data.num_nodes) == (len(SEEDS), batch.num_nodes)
    assert "e_id" not in data


@needs_pyg
def test_names_are_those_of_pygs_loader() -> None:
    # What NeighborLoader documents and its filter_fn sets, less input_id, seed_time and batch.
    data = to_pyg(a_batch(edge_ids=True))
    assert set(data.keys()) == {
        "x", "edge_index", "y", "n_id", "e_id", "batch_size", "num_sampled_nodes", "num_sampled_edges",
    }  # fmt: skip
    assert data.validate(raise_on_error=True)


@needs_pyg
def test_without_features_and_labels() -> None:
    data = to_pyg(replace(a_batch(), x=None, y=None))
    assert data.num_nodes == len(data.n_id)
    assert (data.x, data.y) == (None, None)


@needs_pyg
def test_hops_are_counted_nearest_first() -> None:
    batch = a_batch()
    data = to_pyg(batch)
    assert data.num_sampled_nodes[0] == len(SEEDS)
    assert np.cumsum(data.num_sampled_nodes)[1:].tolist() == [block.num_src for block in batch.blocks[::-1]]
    assert np.cumsum(data.num_sampled_edges).tolist() == [block.num_edges for block in batch.blocks[::-1]]
    assert all(isinstance(count, int) for count in data.num_sampled_nodes + data.num_sampled_edges)
    # Each hop's edges end in nodes that the hop before found; 39 has none, so counts, not positions, decide.
    found = np.concatenate([[0], np.cumsum(data.num_sampled_nodes)])
    edges = np.concatenate([[0], np.cumsum(data.num_sampled_edges)])
    for hop in range(3):
        ends = data.edge_index[1, edges[hop] : edges[hop + 1]]
        assert found[hop] <= ends.min()
        assert ends.max() < found[hop + 1]


@needs_pyg
def test_trimming_leaves_the_inner_blocks() -> None:
    from torch_geometric.utils import trim_to_layer

    batch = a_batch()
    data = to_pyg(batch)
    x, edge_index = data.x, data.edge_index
    for layer, block in enumerate(batch.blocks):
        x, edge_index, _ = trim_to_layer(layer, data.num_sampled_nodes, data.num_sampled_edges, x, edge_index)
        assert torch.equal(edge_index, torch.stack([block.indices.long(), block.edge_dst()]))
        assert torch.equal(x, batch.x[: block.num_src])


@needs_pyg
def test_no_hops() -> None:
    data = to_pyg(a_batch(fanouts=()))
    assert (tuple(data.edge_index.shape), data.num_sampled_nodes, data.num_sampled_edges) == ((2, 0), [4], [])


@needs_pyg
def test_hops_that_draw_a_node_twice_are_refused() -> None:
    # One edge_index cannot hold them: the inner layer would see the outer draws.
    with pytest.raises(
        SamplerConfigError, match=r"blocks\[0\] draws afresh for the nodes of blocks\[1\].*expand='new'"
    ):
        to_pyg(a_batch(expand="all", fanouts=(2, 2)))
    # The inner hop takes one of two parallel edges, the outer both: indices agree, counts do not.
    twice = Graph.from_coo(src=[1, 1], dst=[0, 0])
    with pytest.raises(SamplerConfigError, match=r"expand='new'"):
        to_pyg(NeighborSampler([1, -1]).sample(twice, [0]))


@needs_pyg
def test_edge_ids_are_columns_of_the_users_edge_index() -> None:
    from torch_geometric.data import Data

    edge_index = torch.stack(edge_list())
    graph = graph_data_from_pyg(Data(edge_index=edge_index, num_nodes=N)).graph
    batch = NeighborSampler([3, 2], expand="new", edge_ids=True).sample(graph, SEEDS)
    data = to_pyg(batch, edge_order=graph.edge_order)
    assert torch.equal(edge_index[:, data.e_id], data.n_id[data.edge_index])
    assert torch.equal(to_pyg(batch).e_id, batch.blocks[0].edge_ids)


@needs_pyg
def test_a_graph_keeps_its_edges_columns_and_splits() -> None:
    from torch_geometric.data import Data

    src, dst = edge_list()
    mine = Data(x=torch.randn(N, 5), edge_index=torch.stack([src, dst]), y=torch.arange(N), edge_weight=torch.rand(E))
    mine.train_mask, mine.test_mask = torch.arange(N) < 4, torch.arange(N) >= 38
    data = graph_data_from_pyg(mine)
    order = data.graph.edge_order
    assert order is not None
    assert np.array_equal(data.graph.indices, src.numpy()[order])
    assert np.array_equal(np.repeat(np.arange(N), data.graph.in_degrees), dst.numpy()[order])
    assert np.array_equal(data.graph.edge_weight, mine.edge_weight.numpy()[order])
    assert data.x is not None
    assert data.x.rows.data_ptr() == mine.x.data_ptr()
    assert torch.equal(data.y, mine.y)
    assert (data.train.tolist(), data.val.tolist(), data.test.tolist()) == ([0, 1, 2, 3], [], [38, 39])


@needs_pyg
def test_a_sparse_adjacency_is_read_by_rows_as_destinations() -> None:
    from torch_geometric.data import Data

    src, dst = edge_list()
    rows = torch.sparse_coo_tensor(torch.stack([dst, src]), torch.ones(E), (N, N)).coalesce().to_sparse_csr()
    graph = graph_data_from_pyg(Data(adj_t=rows, num_nodes=N)).graph
    for node in range(N):
        assert set(graph.in_neighbors(node)) == set(src[dst == node].tolist())


@needs_pyg
def test_nodes_without_edges_are_counted() -> None:
    from torch_geometric.data import Data

    data = graph_data_from_pyg(Data(x=torch.zeros(5, 1), edge_index=torch.tensor([[0], [1]])))
    assert data.num_nodes == 5


def graph_with_extras() -> Any:
    from torch_geometric.data import Data

    extras = {"year": torch.arange(N)[:, None], "edge_attr": torch.arange(E)[:, None].half()}
    return Data(edge_index=torch.stack(edge_list()), num_nodes=N, **extras)


@needs_pyg
def test_attributes_and_edge_features_are_those_of_the_users_graph() -> None:
    mine = graph_with_extras()
    sampler = NeighborSampler([3, 2, 2], edge_ids=True, expand="new")
    module = GraphDataModule.from_pyg(
        mine, sampler=sampler, batch_size=4, predict=SEEDS, tables=["year"], edge_feature_name="edge_attr"
    )
    batch = next(iter(module.predict_dataloader()))
    assert torch.equal(batch.year, mine.year[batch.n_id])
    assert torch.equal(batch.edge_attr, mine.edge_attr[batch.e_id])
    assert len(batch.edge_attr) == batch.num_edges > 0
    assert "year" not in next(iter(GraphDataModule.from_pyg(mine, sampler=sampler).predict_dataloader()))


@needs_pyg
def test_attributes_that_are_not_there_or_fit_no_edge() -> None:
    mine = graph_with_extras()
    with pytest.raises(GraphDataError, match=r"tables='age', but the PyG graph holds only .*'year'"):
        graph_data_from_pyg(mine, tables=["age"])
    mine.adj_t = torch.sparse_coo_tensor(mine.edge_index.flip(0), torch.ones(E), (N, N)).coalesce()
    mine.edge_index = None
    with pytest.raises(GraphDataError, match=r"which row belongs to which entry of adj_t.*edge_index"):
        graph_data_from_pyg(mine, edge_feature_name="edge_attr")


@needs_pyg
@pytest.mark.parametrize("name", ["edge_index", "batch_size", "n_id", "num_nodes", "keys"])
def test_a_table_hides_no_attribute(name: str) -> None:
    batch = a_batch()
    with pytest.raises(GraphDataError, match=rf"'{name}' of the tables is another attribute"):
        to_pyg(replace(batch, tables={name: torch.zeros(batch.num_nodes, 1)}))


def heterogeneous() -> Any:
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["user"].num_nodes, data["item"].num_nodes = 2, 2
    data["user", "likes", "item"].edge_index = torch.tensor([[0], [1]])
    return data


def without_edges() -> Any:
    from torch_geometric.data import Data

    return Data(x=torch.zeros(3, 1))


@needs_pyg
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (heterogeneous, "heterogeneous.*'user', 'item'.*to_homogeneous"),
        (without_edges, r"neither edge_index nor adj_t, but only \['x'\]"),
        (lambda: "Cora", "Data is needed, but a str"),
    ],
)
def test_what_is_no_homogeneous_graph_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        graph_data_from_pyg(make())


@pytest.mark.parametrize("use", [lambda: to_pyg(a_batch()), lambda: graph_data_from_pyg(None)])
def test_without_pyg_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, use: Callable[[], Any]) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[pyg\]"):
        use()


def test_a_sampler_that_pyg_cannot_follow_is_refused_by_the_data_module() -> None:
    data = GraphData(Graph.from_coo(*edge_list(), N), train=SEEDS)
    with pytest.raises(LoaderConfigError, match="expand='new'"):
        GraphDataModule(data, NeighborSampler([2, 2]), batch_format="pyg")
