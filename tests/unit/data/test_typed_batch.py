"""TypedMiniBatch: the flat mini-batch, cut by type; nothing is lost, moved or drawn anew."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Block, Graph, MiniBatch, NeighborSampler
from lightning_gnnload.data.seedform import SeedForm
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError
from tests.unit.typed import KINDS, NODES, typed_edges, typed_flat, typed_graph

FIRST = dict(zip(NODES, np.cumsum([0, *NODES.values()])[:-1].tolist(), strict=True))


def kind_of(graph: Graph) -> np.ndarray:
    """The type of every edge of the graph, found by going through its lists node by node."""
    found = np.empty(graph.num_edges, np.int64)
    assert graph.types is not None
    assert graph.run_ptr is not None
    for t, slots in enumerate(graph.types.slots):
        for i in range(graph.types.num_nodes[t]):
            for s, kind in enumerate(slots):
                run = int(graph.types.first_run[t]) + i * len(slots) + s
                found[graph.run_ptr[run] : graph.run_ptr[run + 1]] = kind
    return found


@pytest.mark.parametrize("expand", ["new", "all"])
@pytest.mark.parametrize("shared_memory", [True, False])
def test_edges_of_a_type_are_those_of_the_flat_batch_in_its_order(expand: Any, shared_memory: bool) -> None:
    graph = typed_graph()
    flat, of_edge = typed_flat(graph, expand=expand), kind_of(graph)
    if shared_memory and expand == "new":  # as a sampler leaves them in its arena; sample() clones each tensor
        outer = flat.blocks[0]
        flat = replace(flat, blocks=[outer, *(beginning(outer, block) for block in flat.blocks[1:])])
    typed = TypedMiniBatch.of(flat, graph)
    for hop, block in enumerate(flat.blocks):
        src, dst = flat.nodes[block.indices], flat.nodes[block.edge_dst()]
        assert list(typed.blocks[hop]) == KINDS
        for number, kind in enumerate(KINDS):
            mine, chosen = typed.blocks[hop][kind], torch.from_numpy(of_edge[block.edge_ids.numpy()] == number)
            # Places that count in the wrong type, or edges in another order, lead to other nodes.
            assert (typed.nodes[kind[0]][mine.indices] + FIRST[kind[0]]).tolist() == src[chosen].tolist()
            assert (typed.nodes[kind[2]][mine.edge_dst()] + FIRST[kind[2]]).tolist() == dst[chosen].tolist()
            assert mine.edge_ids.tolist() == block.edge_ids[chosen].tolist()
            assert mine.indices.dtype == mine.indptr.dtype == torch.int32
            assert len(mine.indptr) == mine.num_dst + 1
            for end, count, total in (
                (0, mine.num_src, block.num_src),
                (2, mine.num_dst, block.num_dst),
            ):
                first = FIRST[kind[end]]
                met = (flat.nodes[:total] >= first) & (flat.nodes[:total] < first + NODES[kind[end]])
                assert count == int(met.sum())


def beginning(outer: Block, inner: Block) -> Block:
    return Block(
        outer.indptr[: inner.num_dst + 1],
        outer.indices[: inner.num_edges],
        inner.num_dst,
        inner.num_src,
        outer.edge_ids[: inner.num_edges],
    )


def test_nodes_keep_their_order_and_columns_follow_them() -> None:
    graph = typed_graph()
    flat = typed_flat(graph)
    flat = replace(flat, x=flat.nodes[:, None] / 2, tables={"at": flat.nodes * 3}, rows=flat.nodes.int() % 5)
    typed = TypedMiniBatch.of(flat, graph)
    for kind, first in FIRST.items():
        ids = [v for v in flat.nodes.tolist() if first <= v < first + NODES[kind]]
        assert typed.nodes[kind].tolist() == [v - first for v in ids]
        assert typed.x[kind].tolist() == [[v / 2] for v in ids]
        assert typed.tables[kind]["at"].tolist() == [v * 3 for v in ids]
        assert typed.rows[kind].tolist() == [v % 5 for v in ids]
    assert typed.num_seeds == {"paper": 3, "author": 0, "venue": 0, "field": 0}
    assert {kind: ids.tolist() for kind, ids in typed.seeds.items()} == {"paper": [3, 0, 29]}
    assert typed.num_src[0] == {kind: len(ids) for kind, ids in typed.nodes.items()}
    assert typed.num_dst[-1] == typed.num_seeds
    assert typed.y == {"paper": flat.y}


def test_seeds_of_several_types() -> None:
    typed = TypedMiniBatch.of(typed_flat(typed_graph(), seeds=[31, 4, 51, 30]), typed_graph())
    assert {kind: ids.tolist() for kind, ids in typed.seeds.items()} == {"paper": [4], "author": [1, 0], "field": [1]}
    # Labels are those of the flat batch, id % 7, and go with their seeds.
    assert {kind: y.tolist() for kind, y in typed.y.items()} == {"paper": [4], "author": [3, 2], "field": [2]}


def test_tables_of_one_type_come_as_they_are() -> None:
    graph = typed_graph()
    flat = typed_flat(graph)
    papers = flat.nodes[flat.nodes < 30]
    hops = []
    for block in flat.blocks:
        cites = edge_types(block, graph) == 1
        column = block.edge_ids * 10
        hops.append(replace(block, x=block.edge_ids[:, None], tables={"w": column, "c": block.edge_ids[cites]}))
    flat = replace(flat, tables={"paper_x": papers, "paper_at": -papers}, blocks=hops)
    columns = {"paper_x": ("paper", "x"), "paper_at": ("paper", "at"), "edge.c": (KINDS[1], "x")}
    typed = TypedMiniBatch.of(flat, graph, columns)
    assert typed.x["paper"].data_ptr() == papers.data_ptr()
    assert list(typed.x) == ["paper"]
    assert typed.tables["paper"]["at"].tolist() == (-papers).tolist()
    assert typed.tables["author"] == {}
    for hop in typed.blocks:
        for kind, block in hop.items():
            assert block.tables["w"].tolist() == (block.edge_ids * 10).tolist()
            assert set(block.tables) == {"w"}
            expected = block.edge_ids if kind == KINDS[1] else block.edge_ids[:, None]
            assert block.x.tolist() == expected.tolist()


def test_types_that_the_sampler_gives_are_taken() -> None:
    graph = typed_graph()
    flat = typed_flat(graph)
    with_types = [
        replace(block, edge_ids=None, edge_type=torch.from_numpy(edge_types(block, graph))) for block in flat.blocks
    ]
    by_position, given = TypedMiniBatch.of(flat, graph), TypedMiniBatch.of(replace(flat, blocks=with_types), graph)
    for mine, other in zip(by_position.blocks, given.blocks, strict=True):
        for kind in KINDS:
            assert mine[kind].indices.tolist() == other[kind].indices.tolist()
            assert other[kind].edge_type is None  # it says nothing new


def test_edges_whose_type_nobody_knows_are_refused() -> None:
    batch = NeighborSampler([2]).sample(typed_graph(), [0])
    batch = replace(batch, blocks=[replace(block, edge_type=None) for block in batch.blocks])
    with pytest.raises(SamplerConfigError, match="edge_ids=True"):
        TypedMiniBatch.of(batch, typed_graph())


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"edge_type": [9, 0]}, "type 9"),
        ({"edge_type": [1, 1]}, "leads from"),  # an author cites a paper
        ({"indices": [1, 3]}, "node 3"),
        ({"indices": [1, -1]}, "node -1"),
        ({"indptr": [0, 3, 2]}, "ascend"),
        ({"indptr": [0, 1, 1]}, "spans"),
    ],
)
def test_bad_blocks_are_refused(broken: dict[str, Any], says: str) -> None:
    held = {"indptr": [0, 2, 2], "indices": [1, 2], "edge_type": [1, 0], **broken}
    block = Block(num_dst=2, num_src=3, **{name: torch.tensor(each).int() for name, each in held.items()})
    with pytest.raises(GraphFormatError, match=says):
        TypedMiniBatch.of(MiniBatch(torch.tensor([3, 4, 30]), 1, [block]), typed_graph())


def test_a_node_of_no_type_is_refused() -> None:
    with pytest.raises(GraphFormatError, match=r"nodes\[1\] is 57"):
        TypedMiniBatch.of(MiniBatch(torch.tensor([3, 57]), 1), typed_graph())


def test_the_graph_must_have_types() -> None:
    with pytest.raises(SamplerConfigError, match="no types"):
        TypedMiniBatch.of(MiniBatch(torch.tensor([0]), 1), Graph.from_coo([0], [0]))


def test_moving_and_copying_reaches_every_tensor() -> None:
    graph = typed_graph()
    flat = typed_flat(graph)
    flat = replace(
        flat,
        x=torch.rand(flat.num_nodes, 2),
        tables={"at": flat.nodes},
        rows=flat.nodes.int(),
        blocks=[
            replace(block, x=torch.rand(block.num_edges, 1), tables={"w": block.edge_ids}) for block in flat.blocks
        ],
    )
    typed = TypedMiniBatch.of(flat, graph)
    met: list[int] = []
    typed._map(lambda tensor: met.append(1) or tensor)
    # Of 4 node types: nodes, x, a table, rows; one y; of 3 hops' edge types: indptr, indices, edge_ids, x, a table.
    assert len(met) == 4 * 4 + 1 + 3 * len(KINDS) * 5
    copied = typed.clone()
    assert copied.nodes["paper"].data_ptr() != typed.nodes["paper"].data_ptr()
    assert copied.blocks[0][KINDS[0]].tables["w"].tolist() == typed.blocks[0][KINDS[0]].tables["w"].tolist()
    assert typed.to("meta").blocks[2][KINDS[1]].indptr.device.type == "meta"
    assert copy.copy(typed).num_dst == typed.num_dst
    assert repr(typed).startswith("TypedMiniBatch(num_seeds={'paper': 3}, num_nodes={'paper': ")
    typed.expect_layers(3)
    with pytest.raises(SamplerConfigError, match="2 layers"):
        typed.expect_layers(2)


def test_columns_of_links_point_into_the_types_of_their_ends() -> None:
    graph = typed_graph()
    flat = typed_flat(graph, seeds=[31, 4, 30, 7])  # two authors and two papers, in turn
    columns = {
        "input_id": torch.tensor([9, 8]),
        "src": torch.tensor([0, 2]),
        "dst": torch.tensor([1, 3]),
        "negatives": torch.tensor([[3, -1], [1, 1]]),
    }
    typed = TypedMiniBatch.of(
        replace(flat, y=torch.tensor([1, 0]), seed_columns=columns, seed_form=SeedForm("links")), graph
    )
    found = typed.seed_columns
    assert typed.nodes["author"][found["src"]].tolist() == [1, 0]
    assert typed.nodes["paper"][found["dst"]].tolist() == [4, 7]
    assert found["negatives"].tolist() == [[1, -1], [0, 0]]
    assert (found["input_id"].tolist(), found["y"].tolist(), typed.y) == ([9, 8], [1, 0], {})
    assert columns["src"].tolist() == [0, 2]


def test_no_hops() -> None:
    typed = TypedMiniBatch.of(typed_flat(typed_graph(), fanouts=()), typed_graph())
    assert typed.blocks == []
    assert typed.nodes["paper"].tolist() == [3, 0, 29]


def test_edges_lie_as_they_were_given() -> None:
    # The order of an edge type's list is found again through the graph: e_id and DGL's EID rest on it.
    graph, edges = typed_graph(), typed_edges()
    typed = TypedMiniBatch.of(typed_flat(graph), graph)
    for kind, block in typed.blocks[0].items():
        rows = graph.edge_order[block.edge_ids.numpy()]
        assert edges[kind][0][rows].tolist() == typed.nodes[kind[0]][block.indices].tolist()
        assert edges[kind][1][rows].tolist() == typed.nodes[kind[2]][block.edge_dst()].tolist()
