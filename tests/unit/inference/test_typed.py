"""Graphs with types and times over all nodes, layer by layer."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_gnnload import Graph, GraphData, GraphDataModule, NeighborSampler, SeedTable, infer
from lightning_gnnload.data.clock import TimeForm
from lightning_gnnload.data.task import Task
from lightning_gnnload.errors import InferenceError
from lightning_gnnload.inference.neighborhoods import ABSENT, BLANK
from lightning_gnnload.inference.stages import Key, StageReads, _find_tables
from tests.runif import RunIf
from tests.unit.typed import KINDS, NODES, typed_edges, typed_graph

QUIET: dict[str, Any] = {"max_edges": 40, "progress": False}
WIDTHS = {"paper": 8, "author": 5, "venue": 4, "field": 3}


def typed_data() -> GraphData:
    torch.manual_seed(1)
    x = {name: torch.randn(count, WIDTHS[name]) for name, count in NODES.items()}
    return GraphData(typed_graph(), x=x, y={"paper": torch.arange(30) % 4}, train={"paper": range(10)})


def whole_batch(data: GraphData, batch_format: Any) -> Any:
    """A mini-batch whose seeds are all papers, with all their neighbours."""
    module = GraphDataModule(
        data,
        NeighborSampler([-1, -1], expand="new"),
        batch_size=30,
        batch_format=batch_format,
        predict={"paper": range(30)},
        num_threads=0,
    )
    return next(iter(module.predict_dataloader()))


def hetero_model() -> nn.Module:
    from torch_geometric.nn import HeteroConv, SAGEConv

    class Hetero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.ModuleDict({name: nn.Linear(width, 16) for name, width in WIDTHS.items()})
            self.convs = nn.ModuleList(HeteroConv({kind: SAGEConv(16, 16) for kind in KINDS}) for _ in range(2))

        def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
            x_dict = {name: self.encode[name](x) for name, x in x_dict.items()}
            for conv in self.convs:
                found = conv(x_dict, edge_index_dict)
                x_dict = {name: found[name].relu() + x for name, x in x_dict.items() if name in found}
            return x_dict

    return Hetero()


@RunIf(extras="pyg")
def test_heteroconv_gives_rows_of_all_types() -> None:
    import torch_geometric

    data, model = typed_data(), hetero_model().eval()
    graph = torch_geometric.data.HeteroData()
    for name in NODES:
        graph[name].x = data.tables_of(name)["x"].store.rows
    for kind, pairs in typed_edges().items():
        graph[kind].edge_index = torch.from_numpy(pairs)
    with torch.no_grad():
        wanted = model(graph.x_dict, graph.edge_index_dict)
    found = infer(model, data, batch_format="pyg", nodes=dict.fromkeys(wanted, "all"), **QUIET)
    assert found.keys() == wanted.keys() > {"paper"}
    for name, rows in wanted.items():
        torch.testing.assert_close(found[name], rows, rtol=1e-5, atol=1e-5)


@RunIf(extras="pyg")
def test_to_hetero_has_one_convolution_for_each_edge_type() -> None:
    import torch_geometric

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch_geometric.nn.SAGEConv((-1, -1), 16)
            self.second = torch_geometric.nn.SAGEConv((-1, -1), 16)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.second(self.first(x, edge_index).relu(), edge_index)

    data = typed_data()
    kinds = [kind for kind in KINDS if kind[0] != "venue" and kind[2] != "venue"]
    names = ["paper", "author", "field"]
    edges = {kind: torch.from_numpy(pairs) for kind, pairs in typed_edges().items() if kind in kinds}
    x = {name: data.tables_of(name)["x"].store.rows for name in names}
    graph = Graph.from_hetero({name: NODES[name] for name in names}, edges, keep_order=True)
    data = GraphData(graph, x=x, train={"paper": range(10)})
    model = torch_geometric.nn.to_hetero(Flat(), (names, kinds)).eval()
    with torch.no_grad():
        wanted = model(x, edges)
    signature = infer(TwoDicts(model), data, batch_format="pyg", nodes="paper", **QUIET)
    torch.testing.assert_close(signature["paper"], wanted["paper"], rtol=1e-5, atol=1e-5)


class TwoDicts(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any) -> dict[str, Tensor]:
        return self.model(batch.x_dict, batch.edge_index_dict)


@RunIf(extras="dgl")
def test_dgls_convolutions_by_type() -> None:
    import dgl.nn

    class Relational(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(
                dgl.nn.HeteroGraphConv({kind: dgl.nn.SAGEConv(8, 8, "mean") for _, kind, _ in KINDS}) for _ in range(2)
            )

        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            _, _, blocks = batch
            rows = {name: blocks[0].srcnodes[name].data["feat"] for name in blocks[0].srctypes}
            for conv, block in zip(self.convs, blocks, strict=True):
                rows = {name: each.relu() for name, each in conv(block, rows).items()}
            return rows["paper"]

    graph = typed_graph()
    data = GraphData(graph, x={name: torch.randn(count, 8) for name, count in NODES.items()}, train={"paper": range(9)})
    model = Relational().eval()
    module = GraphDataModule(
        data, NeighborSampler([-1, -1]), batch_size=30, batch_format="dgl", predict={"paper": range(30)}, num_threads=0
    )
    with torch.no_grad():
        wanted = model.predict_step(next(iter(module.predict_dataloader())), 0)
    torch.testing.assert_close(infer(model, module, **QUIET)["paper"], wanted, rtol=1e-5, atol=1e-5)


class Counting(nn.Module):
    """Counts the walks that lead to a node, by two layers."""

    num_layers = 2

    def layer(self, number: int, block: Any, rows: Tensor) -> Tensor:
        told = rows.new_zeros(block.num_dst, 1).index_add_(0, block.edge_dst(), rows[block.indices.long()])
        return told + rows[: block.num_dst]


def test_only_edges_up_to_the_time_count(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    src, dst, times = rng.integers(50, size=400), rng.integers(50, size=400), rng.integers(100, size=400)
    data = GraphData(Graph.from_coo(src, dst, 50, edge_time=times, keep_order=True), x=torch.ones(50, 1))

    def walks(until: int) -> Tensor:
        known, rows = times <= until, torch.ones(50, 1)
        for _ in range(2):
            rows = rows + rows.new_zeros(50, 1).index_add_(0, torch.from_numpy(dst[known]), rows[src[known]])
        return rows

    torch.testing.assert_close(infer(Counting(), data, time=30, **QUIET), walks(30))
    torch.testing.assert_close(infer(Counting(), data, **QUIET), walks(99))
    seeds = SeedTable([1, 2], time=[10, 60])
    seen = GraphData(data.graph, x=torch.ones(50, 1), train=seeds)
    torch.testing.assert_close(infer(Counting(), seen, **QUIET), walks(60))
    # Where the user's times count seconds, so does a number here.
    dated = Graph.from_coo(src, dst, 50, edge_time=times.astype("datetime64[s]"), keep_order=True)
    form = TimeForm("s", is_number=True)
    counted = GraphData(dated, x=torch.ones(50, 1), train=SeedTable([1], time=[10 * 10**9], time_form=form))
    torch.testing.assert_close(infer(Counting(), counted, time=30, **QUIET), walks(30))
    asked = GraphData(data.graph, x=torch.ones(50, 1), tasks={"t": Task({"train": seeds}, as_of=20)}).with_task("t")
    with caplog.at_level(logging.INFO, logger="lightning_gnnload"):
        torch.testing.assert_close(infer(Counting(), asked, **QUIET), walks(20))
        infer(Counting(), seen, **QUIET)
    said = [record.message for record in caplog.records if "edges" in record.message]
    assert said[0] == "infer: edges up to 20 count, the time of the task."
    assert said[1].startswith("infer: edges up to 60 count, the latest time of the seeds")
    by_path = GraphDataModule(seen, NeighborSampler([3, 3], order="path"))
    with pytest.raises(InferenceError, match="the path that leads to it"):
        infer(Counting(), by_path, **QUIET)


def test_a_table_of_one_row_is_not_left_out_of_the_trial() -> None:
    """A sum of one row and none is none, so that a model does not miss the row there, but among several."""

    def is_enough(reads: StageReads) -> bool:
        count = 0 if reads.unread.get("codes") == ABSENT else 1
        return (torch.ones(1, 2) + torch.ones(count, 2)).shape[1] == 2

    for call in (0, 1):
        reads = _find_tables(Key(call), {"codes": 1, "x": 2}, StageReads(), is_enough)
        assert reads.unread == {"codes": BLANK, "x": ABSENT}
