"""to_pyg and GraphData.from_pyg: nothing of a mini-batch or graph is lost or moved on the way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    GraphDataModule,
    LaborSampler,
    LayerSampler,
    MiniBatch,
    NeighborSampler,
    RandomWalkSampler,
    ShadowSampler,
    WeightedNeighborSampler,
)
from lightning_gnnload.adapters.pyg.write import to_pyg
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
    # What NeighborLoader documents and its filter_fn sets, less seed_time and batch.
    data = to_pyg(a_batch(edge_ids=True))
    assert set(data.keys()) == {
        "x", "edge_index", "y", "n_id", "e_id", "input_id", "batch_size", "num_sampled_nodes", "num_sampled_edges",
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
    graph = GraphData.from_pyg(Data(edge_index=edge_index, num_nodes=N)).graph
    batch = NeighborSampler([3, 2], expand="new", edge_ids=True).sample(graph, SEEDS)
    data = to_pyg(batch, graph)
    assert torch.equal(edge_index[:, data.e_id], data.n_id[data.edge_index])
    assert torch.equal(to_pyg(batch).e_id, batch.blocks[0].edge_ids)


@needs_pyg
def test_a_graph_keeps_its_edges_columns_and_splits() -> None:
    from torch_geometric.data import Data

    src, dst = edge_list()
    mine = Data(x=torch.randn(N, 5), edge_index=torch.stack([src, dst]), y=torch.arange(N), edge_weight=torch.rand(E))
    mine.train_mask, mine.test_mask = torch.arange(N) < 4, torch.arange(N) >= 38
    data = GraphData.from_pyg(mine)
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
    graph = GraphData.from_pyg(Data(adj_t=rows, num_nodes=N)).graph
    for node in range(N):
        assert set(graph.in_neighbors(node)) == set(src[dst == node].tolist())


@needs_pyg
def test_nodes_without_edges_are_counted() -> None:
    from torch_geometric.data import Data

    data = GraphData.from_pyg(Data(x=torch.zeros(5, 1), edge_index=torch.tensor([[0], [1]])))
    assert data.num_nodes == 5


def graph_with_everything(**more: Any) -> Any:
    """What users put into a Data: columns and tables of nodes and edges, arrays, and what is of the graph itself."""
    from torch_geometric.data import Data

    return Data(
        x=torch.randn(N, 2, 3),
        edge_index=torch.stack(edge_list()),
        y=torch.arange(N),
        pos=torch.randn(N, 3),
        node_type=torch.arange(N) % 3,
        batch=torch.arange(N) // 10,
        year=np.arange(N, dtype=np.float32),
        train_mask=torch.arange(N) < 20,
        edge_weight=torch.rand(E),
        edge_attr=torch.randn(E, 4).half(),
        edge_type=torch.arange(E) % 5,
        edge_time=np.arange(E)[:, None],
        name="toy",
        num_classes=torch.tensor(7),
        **more,
    )


SAMPLERS = [
    lambda: NeighborSampler([3, 2, 2], expand="new"),
    lambda: NeighborSampler([dict.fromkeys(range(5), 1), {0: 2, 3: -1}], expand="new"),
    lambda: WeightedNeighborSampler([3, 2], expand="new"),
    lambda: LaborSampler([3, 2], expand="new"),
    lambda: LayerSampler([20, 20], "dsp", expand="new"),
    lambda: ShadowSampler([3, 2], num_layers=1),
    lambda: ShadowSampler([3, 2], num_layers=3),
]


@needs_pyg
@pytest.mark.parametrize("make", SAMPLERS)
def test_a_batch_carries_what_pygs_own_filter_does(make: Callable[[], Any]) -> None:
    from torch_geometric.loader.utils import filter_data

    mine, sampler = graph_with_everything(), make()
    module = GraphDataModule.from_pyg(mine, sampler=sampler, batch_size=4)
    for batch in module.train_dataloader():
        wanted = filter_data(mine, batch.n_id, *batch.edge_index, batch.e_id)
        assert batch.num_edges > 0
        assert set(wanted.keys()) - set(batch.keys()) == set()
        for name in wanted.keys():  # noqa: SIM118
            if name == "y":  # of the seeds alone
                assert torch.equal(batch.y, wanted.y[: batch.batch_size])
            elif name == "edge_weight" and isinstance(sampler, LayerSampler):
                assert not torch.equal(batch.edge_weight, wanted.edge_weight)  # its own, for an unbiased sum
            elif isinstance(wanted[name], torch.Tensor):
                assert batch[name].dtype == wanted[name].dtype, name
                assert torch.equal(batch[name], wanted[name]), name
            else:
                assert batch[name] == wanted[name], name
    assert (batch.name, batch.num_classes.item(), type(batch)) == ("toy", 7, type(mine))


@needs_pyg
def test_a_batch_carries_the_attributes_that_were_asked_for() -> None:
    settings: dict[str, Any] = {"sampler": NeighborSampler([3, 2], expand="new"), "batch_size": 4}
    mine = graph_with_everything()
    fields = {"x", "y", "edge_index", "n_id", "input_id", "batch_size", "num_sampled_nodes", "num_sampled_edges"}
    batch = next(iter(GraphDataModule.from_pyg(mine, tables=[], edge_tables=[], **settings).train_dataloader()))
    assert set(batch.keys()) == {*fields, "name", "num_classes"}
    only = {"tables": ["year"], "edge_tables": ["edge_time"], "edge_feature_name": "edge_attr"}
    batch = next(iter(GraphDataModule.from_pyg(mine, **only, **settings).train_dataloader()))
    assert set(batch.keys()) == {*fields, "name", "num_classes", "e_id", "year", "edge_time", "edge_attr"}
    assert torch.equal(batch.edge_attr, mine.edge_attr[batch.e_id])


@needs_pyg
def test_samplers_draw_by_the_weights_and_types_of_a_data() -> None:
    mine = graph_with_everything()
    graph = GraphData.from_pyg(mine, edge_tables=[]).graph
    assert np.array_equal(graph.edge_weight, mine.edge_weight.numpy()[graph.edge_order])
    assert np.array_equal(graph.edge_type, mine.edge_type.numpy()[graph.edge_order])
    with pytest.warns(UserWarning, match="edge_weight of the graph: mini-batches carry it, but no sampler can draw"):
        signed = GraphData.from_pyg(graph_with_everything().update({"edge_weight": torch.randn(E)}))
    assert signed.graph.edge_weight is None
    assert "edge_weight" in signed.edge_tables


@needs_pyg
def test_a_weighted_graph_of_any_origin_has_its_weights_in_the_batch() -> None:
    # Absent, GCNConv(x, edge_index, batch.edge_weight) trains unweighted: a Data gives None for it.
    weight = np.random.default_rng(1).random(E, np.float32)
    for keep_order in (True, False):
        graph = Graph.from_coo(*edge_list(), N, edge_weight=weight, edge_type=np.arange(E), keep_order=keep_order)
        sampler = NeighborSampler([3, 2], expand="new")
        module = GraphDataModule(GraphData(graph, train=SEEDS), sampler, batch_size=4, batch_format="pyg")
        batch = next(iter(module.train_dataloader()))
        src, dst = edge_list()
        order = np.arange(E) if keep_order else Graph.from_coo(src, dst, N, keep_order=True).edge_order
        assert torch.equal(batch.edge_weight, torch.from_numpy(weight[order])[batch.e_id])
        assert torch.equal(batch.edge_type, torch.from_numpy(order)[batch.e_id])
        assert torch.equal(src[order[batch.e_id]], batch.n_id[batch.edge_index[0]])


@needs_pyg
def test_splits_may_be_given() -> None:
    mine = graph_with_everything(val_mask=torch.ones(N, 2, dtype=torch.bool))
    data = GraphData.from_pyg(mine, train=[3, 1], val=mine.val_mask[:, 0], test=torch.tensor([5]))
    assert (data.train.tolist(), len(data.val), data.test.tolist()) == ([3, 1], N, [5])
    with pytest.raises(GraphDataError, match=r"val_mask has the shape \[40, 2\].*val=val_mask\[:, 0\]"):
        GraphData.from_pyg(mine)


@needs_pyg
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"texts": ["a"] * N},
            r"'texts' of the PyG graph is a list, but a tensor.*without=\['texts'\]; or.*user_ids='texts'",
        ),
        ({"my_index": torch.zeros(2, N)}, r"'my_index' of the PyG graph is \[2, 40\] with its entries in another dim"),
        ({"edge_names": ["a"] * E}, r"'edge_names' of the PyG graph is a list"),
        ({"a-b": torch.zeros(N)}, r"'a-b' cannot name a table.*Rename it, or leave it out"),
        ({"x": torch.zeros(N)}, r"features x must be \[rows, F\]"),
        ({"x": torch.zeros(N - 1, 2), "num_nodes": N}, r"'x' of the PyG graph has 39 rows, but there are 40 nodes"),
    ],
)
def test_what_cannot_be_carried_is_named(more: dict[str, Any], message: str) -> None:
    mine = graph_with_everything().update(more)
    with pytest.raises(GraphDataError, match=message):
        GraphData.from_pyg(mine)
    if "x" not in more:
        assert GraphData.from_pyg(mine, tables=["year"], edge_tables=[]).tables.keys() == {"year"}


@needs_pyg
def test_attributes_that_are_not_there_or_fit_no_edge() -> None:
    mine = graph_with_everything()
    with pytest.raises(GraphDataError, match=r"tables='age', but the PyG graph holds only .*'year'"):
        GraphData.from_pyg(mine, tables=["age"])
    with pytest.raises(GraphDataError, match=r"edge_feature_name='year', but the PyG graph holds only .*'edge_time'"):
        GraphData.from_pyg(mine, edge_feature_name="year")
    mine.adj_t = torch.sparse_coo_tensor(mine.edge_index.flip(0), torch.ones(E), (N, N)).coalesce()
    mine.edge_index = None
    with pytest.raises(
        GraphDataError, match=r"'edge_attr': which row belongs to which entry of adj_t.*edge_tables=\[\]"
    ):
        GraphData.from_pyg(mine)
    assert GraphData.from_pyg(mine, edge_tables=[]).edge_x is None


@needs_pyg
@pytest.mark.parametrize("name", ["edge_index", "batch_size", "n_id", "num_nodes", "keys"])
def test_a_table_hides_no_attribute(name: str) -> None:
    batch = a_batch()
    with pytest.raises(GraphDataError, match=rf"'{name}' of the tables is another attribute"):
        to_pyg(replace(batch, tables={name: torch.zeros(batch.num_nodes, 1)}))


@needs_pyg
def test_a_table_of_edges_hides_none_of_nodes() -> None:
    batch = a_batch(edge_ids=True)
    tables = {"year": torch.zeros(batch.num_nodes)}
    blocks = [replace(block, tables={"year": torch.zeros(block.num_edges)}) for block in batch.blocks]
    with pytest.raises(GraphDataError, match="'year' names two columns"):
        to_pyg(replace(batch, tables=tables, blocks=blocks))


def without_edges() -> Any:
    from torch_geometric.data import Data

    return Data(x=torch.zeros(3, 1))


@needs_pyg
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (without_edges, r"neither edge_index nor adj_t, but only \['x'\]"),
        (lambda: "Cora", "HeteroData of torch_geometric is needed, but a str"),
    ],
)
def test_what_is_no_graph_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        GraphData.from_pyg(make())


@pytest.mark.parametrize("use", [lambda: to_pyg(a_batch()), lambda: GraphData.from_pyg(None)])
def test_without_pyg_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, use: Callable[[], Any]) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[pyg\]"):
        use()


def test_a_sampler_that_pyg_cannot_follow_is_refused_by_the_data_module() -> None:
    data = GraphData(Graph.from_coo(*edge_list(), N), train=SEEDS)
    with pytest.raises(LoaderConfigError, match="expand='new'"):
        GraphDataModule(data, NeighborSampler([2, 2], expand="all"), batch_format="pyg")


@pytest.mark.parametrize(
    "sampler",
    [NeighborSampler([3, 2]), LaborSampler([3, 2]), LayerSampler([20, 20]), RandomWalkSampler(2)],
    ids=lambda sampler: type(sampler).__name__,
)
def test_the_format_chooses_what_to_expand_where_nobody_did(sampler: Any) -> None:
    data = GraphData(Graph.from_coo(*edge_list(), N), train=SEEDS)
    before = repr(sampler)
    module = GraphDataModule(data, sampler, batch_format="pyg", num_threads=0)
    assert (module.sampler.expand, module.eval_sampler.expand) == ("new", "new")
    next(iter(module.train_dataloader()))
    assert repr(sampler) == before  # the user's own may serve others
    assert GraphDataModule(data, sampler).sampler is sampler
    [fanout] = GraphDataModule(data, NeighborSampler([3]), batch_format="pyg").sampler.fanouts  # makes no difference
    assert fanout == 3
