"""ToDGL and GraphData.from_dgl with types: what DGL's own sampler and DataLoader give on a heterograph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphData, GraphDataModule, NeighborSampler, SeedTable
from lightning_gnnload.adapters.dgl.relations import block_of, dgl_graph_of
from lightning_gnnload.adapters.dgl.write import ToDGL
from lightning_gnnload.adapters.graphs import to_dgl_graph
from lightning_gnnload.data.block import Block
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.errors import GraphDataError, SamplerConfigError
from tests.runif import RunIf
from tests.unit.typed import KINDS, NODES, typed_edges, typed_flat, typed_graph

pytestmark = RunIf(extras="dgl")


def heterograph() -> Any:
    import dgl

    return dgl.heterograph({kind: tuple(map(torch.from_numpy, ends)) for kind, ends in typed_edges().items()}, NODES)


def flat_with_columns(seeds: Any = (3, 0, 29), expand: Any = "all", seed: int = 1) -> Any:
    """A mini-batch whose papers have features, and whose citations have a column: both tell the ids they are of."""
    graph = typed_graph()
    flat = typed_flat(graph, seeds, expand=expand, seed=seed)
    papers = flat.nodes[flat.nodes < NODES["paper"]]
    blocks = []
    for block in flat.blocks:
        cites = block.edge_ids[torch.from_numpy(edge_types(block, graph)) == 1]
        blocks.append(replace(block, tables={"c": torch.from_numpy(graph.edge_order)[cites]}))
    flat = replace(flat, tables={"p": papers[:, None] / 2}, blocks=blocks)
    return graph, flat, {"p": ("paper", "x"), "edge.c": (KINDS[1], "row")}


def test_graphs_are_those_that_dgl_makes_of_the_same() -> None:
    """Types of nodes and edges in DGL's order, two edge types between one pair of node types, and none of one."""
    import dgl

    pairs = {
        ("user", "likes", "item"): (torch.tensor([1, 0]), torch.tensor([2, 2])),
        ("user", "buys", "item"): (torch.tensor([0, 1, 1]), torch.tensor([0, 0, 2])),
        ("item", "like", "item"): (torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64)),
    }
    num_src, num_dst = {"user": 2, "item": 4}, {"user": 0, "item": 3}
    blocks = {
        kind: Block(torch.bincount(dst + 1, minlength=4).cumsum(0).int(), src.int(), 3, num_src[kind[0]])
        for kind, (src, dst) in pairs.items()
    }
    made = block_of(blocks, num_src, num_dst), dgl_graph_of(pairs, num_src)
    wanted = dgl.create_block(pairs, num_src, num_dst), dgl.heterograph(pairs, num_src)
    for own, other in zip(made, wanted, strict=True):
        assert type(own) is type(other)
        assert (own.srctypes, own.dsttypes) == (other.srctypes, other.dsttypes)
        assert own.canonical_etypes == other.canonical_etypes
        for name in num_src:
            assert own.num_src_nodes(name) == other.num_src_nodes(name)
            assert own.num_dst_nodes(name) == other.num_dst_nodes(name)
        for kind in pairs:
            for end, expected in zip(own.edges(etype=kind), other.edges(etype=kind), strict=True):
                torch.testing.assert_close(end, expected)


def test_blocks_are_those_that_dgls_own_sampler_makes() -> None:
    import dgl

    theirs = next(
        iter(
            dgl.dataloading.DataLoader(
                heterograph(),
                {"paper": torch.tensor([3, 0, 29])},
                dgl.dataloading.NeighborSampler([5, 4, 3]),
                batch_size=3,
            )
        )
    )
    graph = typed_graph()
    mine = ToDGL(graph=graph)(replace(typed_flat(graph, expand="all"), y=None))
    for own, wanted in zip(mine[:2], theirs[:2], strict=True):
        assert own.keys() == wanted.keys()
        assert {ids.dtype for ids in own.values()} == {ids.dtype for ids in wanted.values()} == {torch.int64}
    assert mine[1]["paper"].tolist() == theirs[1]["paper"].tolist() == [3, 0, 29]
    for own, wanted in zip(mine[2], theirs[2], strict=True):
        assert type(own) is type(wanted)
        assert (own.ntypes, own.canonical_etypes) == (wanted.ntypes, wanted.canonical_etypes)
        assert (own.srctypes, own.dsttypes, own.idtype) == (wanted.srctypes, wanted.dsttypes, wanted.idtype)
        for kind in NODES:
            assert own.srcnodes[kind].data.keys() == wanted.srcnodes[kind].data.keys() == {dgl.NID}
            assert own.dstnodes[kind].data.keys() == wanted.dstnodes[kind].data.keys()
        for kind in KINDS:
            assert own.edges[kind].data.keys() == wanted.edges[kind].data.keys() == {dgl.EID}
    assert mine[2][-1].num_dst_nodes("paper") == 3


@pytest.mark.parametrize("expand", ["all", "new"])
def test_ids_columns_and_labels_are_those_of_the_users_graph(expand: Any) -> None:
    import dgl

    graph, flat, columns = flat_with_columns(expand=expand)
    typed, whole = TypedMiniBatch.of(flat, graph, columns), heterograph()
    input_nodes, output_nodes, blocks = ToDGL("h", "target", graph, columns)(flat)
    assert all(torch.equal(input_nodes[kind], blocks[0].srcdata[dgl.NID][kind]) for kind in NODES)
    assert output_nodes["paper"].tolist() == [3, 0, 29]
    for hop, block in enumerate(blocks):
        assert torch.equal(block.srcdata["h"]["paper"][:, 0] * 2, block.srcdata[dgl.NID]["paper"])
        assert torch.equal(block.dstdata["h"]["paper"][:, 0] * 2, block.dstdata[dgl.NID]["paper"])
        for kind in KINDS:
            src, dst = block.edges(etype=kind, order="eid")
            rows = block.edges[kind].data[dgl.EID]
            wanted = whole.find_edges(rows, etype=kind)
            assert torch.equal(block.srcnodes[kind[0]].data[dgl.NID][src], wanted[0])
            assert torch.equal(block.dstnodes[kind[2]].data[dgl.NID][dst], wanted[1])
            assert rows.dtype == torch.int64
            assert len(rows) == typed.blocks[hop][kind].num_edges
        assert torch.equal(block.edges[KINDS[1]].data["row"], block.edges[KINDS[1]].data[dgl.EID])
    assert blocks[-1].dstdata["target"]["paper"].tolist() == [3, 0, 1]


def test_frames_of_all_types_are_converted() -> None:
    from lightning_gnnload.adapters.formats import FORMATS

    graph, flat, columns = flat_with_columns()
    batch = FORMATS["dgl"].converted(ToDGL(graph=graph, columns=columns)(flat), torch.Tensor.double)
    assert batch[2][0].srcnodes["paper"].data["feat"].dtype == torch.float64
    assert batch[2][0].edges[KINDS[1]].data["row"].dtype == torch.float64


def test_features_without_a_block_to_carry_them_are_refused() -> None:
    graph = typed_graph()
    with pytest.raises(SamplerConfigError, match="drew no hops"):
        ToDGL(graph=graph)(typed_flat(graph, fanouts=()))
    assert ToDGL(graph=graph)(NeighborSampler([]).sample(graph, [3]))[2] == []


def test_a_table_hides_no_features() -> None:
    graph, flat, columns = flat_with_columns()
    flat = replace(flat, tables={**flat.tables, "q": flat.tables["p"]})
    with pytest.raises(GraphDataError, match="'feat' has the name of the features"):
        ToDGL(graph=graph, columns={**columns, "q": ("paper", "feat")})(flat)


def test_an_r_gcn_runs_and_trains() -> None:
    import dgl

    torch.manual_seed(0)
    embed = torch.nn.ModuleDict({kind: torch.nn.Embedding(max(count, 1), 8) for kind, count in NODES.items()})
    layers = [
        dgl.nn.HeteroGraphConv({kind[1]: dgl.nn.GraphConv(8, width, norm="right") for kind in KINDS}, aggregate="sum")
        for width in (8, 7)
    ]
    model = torch.nn.ModuleList([embed, *layers])
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.03), []
    for _ in range(6):
        for step in range(6):
            graph = typed_graph()
            flat = typed_flat(graph, [step, 20 - step, 29], expand="all", fanouts=(4, 3), seed=step)
            input_nodes, _, blocks = ToDGL(graph=graph)(flat)
            h = {kind: embed[kind](ids) for kind, ids in input_nodes.items()}
            for layer, block in zip(layers, blocks, strict=True):
                h = layer(block, h)
            loss = torch.nn.functional.cross_entropy(h["paper"], blocks[-1].dstdata["label"]["paper"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert sum(losses[-6:]) < 0.8 * sum(losses[:6])


def filled() -> Any:
    graph = heterograph()
    papers, authors = graph.nodes["paper"].data, graph.nodes["author"].data
    papers["feat"], papers["label"] = torch.randn(30, 5), torch.arange(30) % 4
    papers["train_mask"] = torch.arange(30) < 12
    authors["feat"], authors["age"] = torch.randn(20, 3), torch.arange(20)
    graph.edges["cites"].data["feat"] = torch.randn(150, 2)
    graph.edges["cites"].data["w"] = torch.rand(150)
    graph.edges["knows"].data["at"] = torch.arange(40).flip(0)
    return graph


def test_a_heterograph_keeps_its_types_columns_and_splits() -> None:
    graph = filled()
    mine = GraphData.from_dgl(graph, edge_weight_name="w", time_name="at")
    types = mine.graph.types
    assert types is not None
    assert set(types.edge_types) == set(KINDS)
    assert dict(zip(types.node_types, types.num_nodes, strict=True)) == NODES
    assert set(mine.tables) == {"x.paper", "x.author", "train_mask.paper", "age.author"}
    assert set(mine.edge_tables) == {"x.paper__cites__paper", "w.paper__cites__paper", "at.author__knows__author"}
    assert len(mine.train) == 12
    own = mine.graph.edge_types_of(np.arange(mine.graph.num_edges)) == types.edge_type_number("cites")
    assert np.array_equal(mine.graph.edge_weight[own], graph.edges["cites"].data["w"][mine.graph.edge_order[own]])
    assert mine.graph.clock is not None
    assert sum(mine.graph.clock.timed) == 1
    links = GraphData.from_dgl(graph, val={kind: SeedTable(src=[0], dst=[1]) for kind in KINDS[:2]}).table("val")
    assert links is not None
    assert list(links.rows_by_type) == list(KINDS[:2])
    for settings in ({"feature_name": "h"}, {"label_name": "h"}, {"edge_weight_name": "h"}, {"time_name": "h"}):
        with pytest.raises(GraphDataError, match="='h'"):
            GraphData.from_dgl(graph, **settings)


def test_the_way_back_gives_the_same_graph() -> None:
    graph = filled()
    again = to_dgl_graph(GraphData.from_dgl(graph))
    assert (again.ntypes, again.canonical_etypes) == (graph.ntypes, graph.canonical_etypes)
    frames = [(again.nodes[kind].data, graph.nodes[kind].data) for kind in graph.ntypes]
    frames += [(again.edges[kind].data, graph.edges[kind].data) for kind in graph.canonical_etypes]
    for mine, wanted in frames:
        assert mine.keys() == wanted.keys()
        assert all(torch.equal(mine[name], wanted[name]) for name in wanted)
    for kind in KINDS:
        for mine, wanted in zip(
            again.edges(etype=kind, order="eid"), graph.edges(etype=kind, order="eid"), strict=True
        ):
            assert torch.equal(mine, wanted)


def test_times_and_the_way_back_without_types() -> None:
    import dgl

    graph = dgl.graph(([1, 2, 3], [0, 0, 0]), num_nodes=5)
    graph.ndata["feat"], graph.edata["at"] = torch.randn(5, 2), torch.tensor([30, 10, 20])
    mine = GraphData.from_dgl(graph, time_name="at")
    assert mine.graph.in_neighbors(0).tolist() == [2, 3, 1]
    again = to_dgl_graph(mine)
    assert torch.equal(again.edges(order="eid")[0], graph.edges(order="eid")[0])
    assert torch.equal(again.edata["at"], graph.edata["at"])
    assert torch.equal(again.ndata["feat"], graph.ndata["feat"])


def test_a_data_module_gives_every_column_of_the_users_graph() -> None:
    import dgl

    graph = filled()
    module = GraphDataModule.from_dgl(graph, sampler=NeighborSampler([4, 3]), batch_size=5)
    for input_nodes, output_nodes, blocks in module.train_dataloader():
        assert list(output_nodes) == ["paper"]
        assert torch.equal(input_nodes["author"], blocks[0].srcnodes["author"].data[dgl.NID])
        labels = graph.nodes["paper"].data["label"][output_nodes["paper"]]
        assert torch.equal(blocks[-1].dstdata["label"]["paper"], labels)
        for block in blocks:
            for kind in graph.ntypes:
                for frame in (block.srcnodes[kind].data, block.dstnodes[kind].data):
                    names = graph.nodes[kind].data.keys() - {"label"}
                    assert names <= frame.keys()
                    assert all(torch.equal(frame[name], graph.nodes[kind].data[name][frame[dgl.NID]]) for name in names)
            for kind in graph.canonical_etypes:
                frame, whole = block.edges[kind].data, graph.edges[kind].data
                assert frame.keys() == {*whole.keys(), dgl.EID}
                assert all(torch.equal(frame[name], whole[name][frame[dgl.EID]]) for name in whole)


def test_rows_of_a_table_are_columns_of_their_seeds() -> None:
    rows = SeedTable([3, 3, 7], node_type="paper", time=[500, 2500, 2500], y=[0, 1, 0])
    data = GraphData(GraphData.from_dgl(heterograph()).graph, train=rows)
    sampler = NeighborSampler([4, 3], sharing="disjoint")
    module = GraphDataModule(data, sampler, batch_size=3, batch_format="dgl", order="sequential")
    [(_, output_nodes, blocks)] = module.train_dataloader()
    papers = blocks[-1].dstnodes["paper"].data
    assert output_nodes["paper"].tolist() == [3, 3, 7]
    assert (papers["input_id"].tolist(), papers["seed_time"].tolist()) == ([0, 1, 2], [500, 2500, 2500])
    assert papers["label"].tolist() == [0, 1, 0]
