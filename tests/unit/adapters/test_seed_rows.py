"""What belongs to seeds, in the formats of other libraries: rows of nodes, columns of seeds, in graphs of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    GraphDataModule,
    NeighborSampler,
    RandomWalkSampler,
    SeedTable,
    ShadowSampler,
)
from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from tests.runif import RunIf
from tests.unit.typed import KINDS, NODES, typed_edges, typed_graph

FORMS = [pytest.param("pyg", marks=RunIf(extras="pyg")), pytest.param("dgl", marks=RunIf(extras="dgl"))]
PLAIN = Graph.from_coo([1, 2, 3, 0, 2], [0, 0, 1, 3, 3], 4, keep_order=True)
DISJOINT = NeighborSampler([3, 2], expand="new", sharing="disjoint")


def first_batch(data: GraphData, form: Any, sampler: Any = DISJOINT, **settings: Any) -> Any:
    settings = {"order": "sequential", "num_threads": 0, **settings}
    return next(iter(GraphDataModule(data, sampler, 6, form, **settings).train_dataloader()))


@RunIf(extras="dgl")
@pytest.mark.parametrize("types", [False, True])
@pytest.mark.parametrize("links", [False, True])
def test_dgls_nodes_tell_the_row_that_they_belong_to(types: bool, links: bool) -> None:
    graph = typed_graph() if types else PLAIN
    if links:
        ends = typed_edges()[KINDS[0]][:, :3] if types else np.array([[1, 2, 3], [0, 0, 1]])
        table = SeedTable(src=ends[0], dst=ends[1], edge_type=KINDS[0] if types else None)
    else:
        table = SeedTable([3, 3, 1], node_type="paper" if types else None)
    data = GraphData(graph, train=table)
    flat = GraphDataModule(data, DISJOINT, 6, order="sequential", num_threads=0)
    [wanted] = flat.train_dataloader()
    for block in first_batch(data, "dgl")[-1]:
        for kind in block.srctypes:
            rows = wanted.rows[kind] if types else wanted.rows
            for frame in (block.srcnodes[kind].data, block.dstnodes[kind].data):
                if len(rows):
                    assert frame["row"].dtype == torch.int64
                    assert frame["row"].tolist() == rows[: len(frame["row"])].tolist()
    if links:  # whose edges are left out, for all rows together
        [block] = first_batch(data, "dgl", NeighborSampler([3]))[-1]
        assert not any("row" in block.srcnodes[kind].data for kind in block.srctypes)


@pytest.mark.parametrize("form", FORMS)
def test_seeds_of_several_types_have_the_columns_of_their_own_rows(form: str) -> None:
    graph = typed_graph()
    papers, authors = graph.types.range_of("paper"), graph.types.range_of("author")
    nodes = [papers[4], authors[1], papers[2], authors[7], authors[3]]
    table = SeedTable(nodes, time=[10, 11, 12, 13, 14], y=[0, 1, 2, 3, 4], columns={"region": [5, 6, 7, 8, 9]})
    batch = first_batch(GraphData(graph, train=table), form, NeighborSampler([2], expand="new"))
    for kind, rows in (("paper", [0, 2]), ("author", [1, 3, 4])):
        of_type: Any = batch[kind] if form == "pyg" else batch[-1][-1].dstnodes[kind].data
        assert of_type["input_id"].tolist() == rows
        assert of_type["seed_time"].tolist() == [10 + row for row in rows]
        assert of_type["region"].tolist() == [5 + row for row in rows]
        assert of_type["y" if form == "pyg" else "label"].tolist() == rows


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("types", [False, True])
@pytest.mark.parametrize("name", ["x", "feat", "region", "row", "batch", "num_nodes"])
def test_columns_of_seeds_hide_nothing(form: str, types: bool, name: str) -> None:
    """A column is refused where it would take another one's place, and carried where it does not."""
    graph, count = (typed_graph(), NODES["paper"]) if types else (PLAIN, 4)
    region: Any = torch.arange(count)
    x: Any = torch.rand(count, 2)
    if types:
        region, x = {"paper": {"region": region}}, {"paper": x}
    columns = {} if name == "row" else {"columns": {name: [1.0, 2.0, 3.0]}}
    table = SeedTable([3, 2, 1], node_type="paper" if types else None, **columns)
    if name == "row":
        region = {"paper": {"row": region["paper"]["region"]}} if types else {"row": region}
    elif not types:
        region = {"region": region}
    data = GraphData(graph, x, train=table, tables=region)
    taken = {"pyg": {"x", "region", "batch", "num_nodes"}, "dgl": {"feat", "region", "row"}}[form]
    if types and name == "num_nodes":
        taken = taken - {"num_nodes"}  # which PyG's stores count by x
    if name in taken:
        with pytest.raises(GraphDataError, match=name):
            first_batch(data, form)
    else:
        batch = first_batch(data, form)
        of_seeds = (batch["paper"] if types else batch) if form == "pyg" else batch[-1][-1].dstdata
        held = of_seeds[name]
        held = held["paper"] if isinstance(held, dict) else held
        assert held.tolist()[:3] == [1, 2, 3] or name == "row"


@RunIf(extras="pyg")
def test_layers_of_a_shadow_are_one_data_that_can_be_trimmed() -> None:
    from torch_geometric.utils import trim_to_layer

    table = GraphData(PLAIN, torch.rand(4, 2), train=[0])
    flat = first_batch(table, "blocks", ShadowSampler([-1, -1], num_layers=3))
    batch = first_batch(table, "pyg", ShadowSampler([-1, -1], num_layers=3))
    assert (batch.num_sampled_nodes, batch.num_edges) == ([1, 3, 0, 0], 5)
    x, edge_index = batch.x, batch.edge_index
    for layer, block in enumerate(flat.blocks):
        sizes = batch.num_sampled_nodes, batch.num_sampled_edges
        x, edge_index, _ = trim_to_layer(layer, *sizes, x, edge_index)
        assert edge_index.tolist() == [block.indices.tolist(), block.edge_dst().tolist()]
        assert len(x) == block.num_src


@pytest.mark.parametrize("form", FORMS)
def test_walks_between_types_are_blocks_alone(form: Any) -> None:
    sampler = RandomWalkSampler(1, metapath=["rev_writes", "writes"], expand="new")
    with pytest.raises(LoaderConfigError, match="batch_format='blocks'"):
        GraphDataModule(GraphData(typed_graph()), sampler, 6, form)


def test_predictions_of_nodes_by_type() -> None:
    graph = typed_graph()
    module = GraphDataModule(GraphData(graph), NeighborSampler([2]), 6, predict={"author": [3, 1]}, num_threads=0)
    [batch] = module.predict_dataloader()
    assert batch.seeds["author"].tolist() == [3, 1]
    for predict, message in (({"reader": [0]}, "'reader' is no node type"), ({"author": [20]}, "20 .* is not a node")):
        module.predict = predict
        with pytest.raises(GraphDataError, match=message):
            module.predict_dataloader()
    plain = GraphDataModule(GraphData(PLAIN), NeighborSampler([2]), predict={"author": [0]})
    with pytest.raises(GraphDataError, match="predict is a dict by type, but the graph has no types"):
        plain.predict_dataloader()
