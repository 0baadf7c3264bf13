"""batch_format="graphbolt": the fields of GraphBolt's MiniBatch, over the same draws as the mini-batch itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, Negatives, NeighborSampler, SeedTable
from lightning_gnnload.adapters.dgl.graphbolt import SampledCSC
from tests.runif import RunIf


def data(**settings: Any) -> GraphData:
    draw = np.random.default_rng(0)
    graph = Graph.from_coo(*draw.integers(0, 60, (2, 600)), 60, keep_order=True)
    table = {"x": torch.arange(60.0)[:, None], "y": torch.arange(60) % 3, "tables": {"age": torch.arange(60)}}
    return GraphData(graph, **{**table, "train": np.arange(40), **settings}, edge_x=torch.arange(600.0)[:, None])


def batches(graph_data: GraphData, batch_format: Any, **settings: Any) -> list[Any]:
    sampler = NeighborSampler([3, 4], edge_ids=True)
    module = GraphDataModule(graph_data, sampler, batch_size=15, batch_format=batch_format, num_threads=0, **settings)
    return list(module.train_dataloader())


def test_nodes_features_and_hops_are_the_mini_batchs_own() -> None:
    for ours, plain in zip(batches(data(), "graphbolt"), batches(data(), "blocks"), strict=True):
        assert torch.equal(ours.input_nodes, plain.nodes)
        assert torch.equal(ours.seeds, plain.seeds)
        assert torch.equal(ours.labels, plain.y)
        assert ours.node_features.keys() == {"feat", "age"}
        assert torch.equal(ours.node_features["feat"][:, 0].long(), ours.input_nodes)
        assert ours.num_layers() == 2
        for part, block, columns in zip(ours.sampled_subgraphs, plain.blocks, ours.edge_features, strict=True):
            assert isinstance(part.sampled_csc, SampledCSC)
            assert part.sampled_csc.indptr.tolist() == block.indptr.tolist()
            assert part.sampled_csc.indices.tolist() == block.indices.tolist()
            assert torch.equal(part.original_row_node_ids, plain.nodes[: block.num_src])
            assert torch.equal(part.original_column_node_ids, plain.nodes[: block.num_dst])
            # Features of edges are their numbers in the user's list.
            assert torch.equal(columns["feat"][:, 0].long(), part.original_edge_ids)


@RunIf(extras="dgl")
def test_blocks_are_dgls_of_the_same_edges() -> None:
    for ours, (_, _, blocks) in zip(batches(data(), "graphbolt"), batches(data(), "dgl"), strict=True):
        for block, expected in zip(ours.blocks, blocks, strict=True):
            for first, second in zip(block.edges(order="eid"), expected.edges(order="eid"), strict=True):
                assert torch.equal(first, second)
            for frame in ("srcdata", "dstdata", "edata"):
                for name, rows in getattr(block, frame).items():
                    assert torch.equal(rows, getattr(expected, frame)[name])


@pytest.mark.parametrize("mode", ["binary", "triplet", None])
def test_links_come_with_negatives_labels_and_the_rows_that_they_belong_to(mode: Any) -> None:
    graph_data = data(y=None)
    src, dst = graph_data.graph.indices[:40].astype(np.int64), np.arange(40) % 60
    links = data(y=None, train=SeedTable(src=src, dst=dst, y=torch.arange(40.0)))
    settings = {} if mode is None else {"negatives": Negatives(mode, num=2)}
    seen = []
    for batch in batches(links, "graphbolt", **settings):
        ends = batch.input_nodes[batch.compacted_seeds]
        assert torch.equal(ends, batch.seeds)
        positive = batch.input_nodes[batch.positive_node_pairs]
        seen += positive.tolist()
        if mode is None:
            assert batch.indexes is None
            assert len(batch.negative_node_pairs) == 0
            continue
        assert batch.labels.tolist() == [1.0] * len(positive) + [0.0] * (len(ends) - len(positive))
        negative, row = batch.input_nodes[batch.negative_node_pairs], batch.indexes[len(positive) :]
        assert len(negative) > len(positive)
        assert batch.indexes[: len(positive)].tolist() == list(range(len(positive)))
        # Each has an end of the link that it belongs to.
        assert bool((negative == positive[row]).any(dim=1).all())
    assert sorted(map(tuple, seen)) == sorted(zip(src.tolist(), dst.tolist(), strict=True))


def test_types_are_keys_and_edge_types_are_joined_by_colons() -> None:
    users, items = np.random.default_rng(0).integers(0, 20, (2, 80))
    buys, back = ("user", "buys", "item"), ("item", "by", "user")
    graph = Graph.from_hetero({"user": 20, "item": 20}, {buys: (users, items), back: (items, users)})
    typed = GraphData(
        graph, x={"user": torch.arange(20.0)[:, None]}, y={"item": torch.arange(20)}, train={"item": np.arange(20)}
    )
    module = GraphDataModule(typed, NeighborSampler([2, 2]), batch_size=10, batch_format="graphbolt", num_threads=0)
    for batch in module.train_dataloader():
        assert batch.seeds.keys() == {"item"}
        assert torch.equal(batch.labels["item"], batch.seeds["item"])
        assert torch.equal(batch.node_features["user", "feat"][:, 0].long(), batch.input_nodes["user"])
        assert batch.sampled_subgraphs[0].sampled_csc.keys() == {"user:buys:item", "item:by:user"}
        moved = batch.to("meta")
        assert moved.sampled_subgraphs[0].sampled_csc["item:by:user"].indices.device.type == "meta"
    links = GraphData(graph, train=SeedTable(src=users, dst=items, edge_type=buys))
    module = GraphDataModule(links, NeighborSampler([2]), batch_size=40, batch_format="graphbolt", num_threads=0)
    for batch in module.train_dataloader():
        pairs = batch.compacted_seeds["user:buys:item"]
        ends = [batch.input_nodes[name][pairs[:, end]] for end, name in enumerate(("user", "item"))]
        assert torch.equal(torch.stack(ends, dim=1), batch.seeds["user:buys:item"])
