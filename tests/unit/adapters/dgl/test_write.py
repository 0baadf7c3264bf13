"""ToDGL and GraphData.from_dgl: nothing of a mini-batch or graph is lost or moved on the way."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    GraphDataModule,
    MiniBatch,
    NeighborSampler,
    RandomWalkSampler,
    WeightedNeighborSampler,
)
from lightning_gnnload.adapters.dgl.write import ToDGL
from lightning_gnnload.errors import GraphDataError, MissingExtraError, SamplerConfigError
from tests.runif import RunIf

N, E, SEEDS = 40, 300, [7, 3, 39, 0]
needs_dgl = RunIf(extras="dgl")


def edge_list(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    # No edge into 39, a seed; repeated edges and loops are there by chance.
    return torch.from_numpy(random.integers(N, size=E)), torch.from_numpy(random.integers(N - 1, size=E))


def a_batch(fanouts: tuple[int, ...] = (3, 4), edge_ids: bool = False, graph: Graph | None = None) -> MiniBatch:
    batch = NeighborSampler(fanouts, edge_ids=edge_ids).sample(graph or Graph.from_coo(*edge_list(), N), SEEDS, seed=1)
    return replace(batch, x=torch.randn(batch.num_nodes, 5), y=torch.arange(len(SEEDS)))


@needs_dgl
def test_a_block_is_what_dgl_itself_makes() -> None:
    # It is made without dgl.create_block, which looks through all ids: nobody downstream may tell.
    import dgl

    batch = a_batch()
    for mine, block in zip(ToDGL()(batch)[2], batch.blocks, strict=True):
        csc = block.indptr.long(), block.indices.long(), torch.arange(block.num_edges)
        theirs = dgl.create_block(("csc", csc), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
        assert (mine.idtype, mine.ntypes, mine.canonical_etypes) == (
            theirs.idtype,
            theirs.ntypes,
            theirs.canonical_etypes,
        )
        for make in (lambda each: each, deepcopy, dgl.block_to_graph):
            ours, wanted = make(mine), make(theirs)
            assert (ours.srctypes, ours.dsttypes, ours.is_block) == (wanted.srctypes, wanted.dsttypes, wanted.is_block)
            for form in ("csc", "csr", "coo"):
                pairs = zip(ours.adj_tensors(form), wanted.adj_tensors(form), strict=True)
                assert all(torch.equal(one, other) for one, other in pairs)


@needs_dgl
def test_blocks_hold_what_the_mini_batch_holds() -> None:
    import dgl

    batch = a_batch()
    input_nodes, output_nodes, blocks = ToDGL("h", "target")(batch)
    assert torch.equal(input_nodes, batch.nodes)
    assert torch.equal(output_nodes, torch.tensor(SEEDS))
    for made, block in zip(blocks, batch.blocks, strict=True):
        assert (made.num_src_nodes(), made.num_dst_nodes()) == (block.num_src, block.num_dst)
        # Swapped directions or another edge order fail here.
        src, dst = made.edges(order="eid")
        assert torch.equal(src, block.indices.long())
        assert torch.equal(dst, block.edge_dst())
        assert torch.equal(made.srcdata[dgl.NID], batch.nodes[: block.num_src])
        assert torch.equal(made.dstdata[dgl.NID], batch.nodes[: block.num_dst])
        assert dgl.EID not in made.edata
    assert blocks[0].srcdata["h"].data_ptr() == batch.x.data_ptr()  # a view, not a copy
    assert torch.equal(blocks[-1].dstdata["target"], batch.y)


@needs_dgl
def test_a_batch_without_features_and_labels() -> None:
    import dgl

    _, _, blocks = ToDGL()(replace(a_batch(), x=None, y=None))
    assert set(blocks[0].srcdata) == set(blocks[-1].dstdata) == {dgl.NID}


@needs_dgl
def test_blocks_without_edges() -> None:
    # 39 has no in-neighbours: sizes guessed from the edges would be zero.
    _, _, blocks = ToDGL()(NeighborSampler([2, 2]).sample(Graph.from_coo(*edge_list(), N), [39]))
    assert [(b.num_src_nodes(), b.num_dst_nodes(), b.num_edges()) for b in blocks] == [(1, 1, 0)] * 2


@needs_dgl
def test_messages_read_the_rows_of_edata_that_belong_to_their_edges() -> None:
    import dgl.function as fn

    batch = RandomWalkSampler(num_layers=2, num_neighbors=3).sample(Graph.from_coo(*edge_list(), N), SEEDS, seed=1)
    for made, block in zip(ToDGL()(batch)[2], batch.blocks, strict=True):
        weight, dst = block.edge_weight, block.edge_dst()
        assert weight is not None
        assert len(weight.unique()) > 1
        for name in ("edge_weights", "weights"):  # of LaborSampler, of PinSAGESampler
            assert made.edata[name].data_ptr() == weight.data_ptr()
        # Blocks whose edges have no numbers fail here, in DGL's CPU kernel; numbers in another order differ.
        made.srcdata["h"] = torch.arange(1.0, block.num_src + 1)
        made.update_all(fn.copy_e("weights", "m"), fn.sum("m", "weights"))
        made.update_all(fn.u_mul_e("h", "weights", "m"), fn.sum("m", "weighted"))
        zeros = torch.zeros(block.num_dst)
        assert torch.allclose(made.dstdata["weights"], zeros.index_add(0, dst, weight))
        assert torch.allclose(made.dstdata["weighted"], zeros.index_add(0, dst, weight * (block.indices + 1)))


@needs_dgl
def test_what_dgl_writes_to_one_block_reaches_no_other() -> None:
    import dgl

    def tensors(block: Any) -> list[torch.Tensor]:
        return list(block.adj_tensors("csc"))

    whole = NeighborSampler([-1]).sample(Graph.from_coo(*edge_list(), N), range(N))
    (_, _, [one]), (_, _, [other]) = ToDGL()(whole), ToDGL()(whole)
    before = [tensor.clone() for tensor in tensors(other)]
    graph = dgl.graph(("csc", tensors(one)), num_nodes=N)
    dgl.sampling.global_uniform_negative_sampling(graph, 5)  # sorts the graph's arrays in place
    assert not torch.equal(tensors(one)[2], before[2])
    assert all(torch.equal(*pair) for pair in zip(tensors(other), before, strict=True))


@needs_dgl
def test_types_are_dgls_integers() -> None:
    import dgl

    src, dst = edge_list()
    typed = Graph.from_coo(src, dst, N, edge_type=torch.arange(E) % 3)
    batch = NeighborSampler([{0: 2, 2: -1}]).sample(typed, SEEDS)
    [block] = ToDGL()(batch)[2]
    homogeneous = dgl.to_homogeneous(dgl.heterograph({("n", name, "n"): ([0], [0]) for name in "ab"}))
    assert block.edata[dgl.ETYPE].dtype == homogeneous.edata[dgl.ETYPE].dtype
    assert block.edata[dgl.ETYPE].tolist() == batch.blocks[0].edge_type.tolist()


@needs_dgl
def test_features_without_a_block_to_carry_them_are_refused() -> None:
    with pytest.raises(SamplerConfigError, match=r"drew no hops.*batch_format='blocks'"):
        ToDGL()(a_batch(fanouts=()))


@needs_dgl
def test_the_structure_is_that_of_dgls_own_loader() -> None:
    import dgl

    graph = dgl.graph(edge_list(), num_nodes=N)
    graph.ndata["feat"], graph.ndata["label"] = torch.randn(N, 5), torch.arange(N)
    sampler = dgl.dataloading.NeighborSampler([4, 3], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    theirs = next(iter(dgl.dataloading.DataLoader(graph, torch.tensor(SEEDS), sampler, batch_size=4)))
    module = GraphDataModule.from_dgl(
        graph, sampler=NeighborSampler([3, 4], edge_ids=True), batch_size=4, predict=SEEDS
    )
    ours = next(iter(module.predict_dataloader()))
    assert [type(part) for part in ours] == [type(part) for part in theirs] == [torch.Tensor, torch.Tensor, list]
    assert torch.equal(ours[1], theirs[1])
    for mine, their in zip(ours[2], theirs[2], strict=True):
        assert type(mine) is type(their)
        assert (mine.idtype, mine.device, mine.is_block) == (their.idtype, their.device, True)
        assert (mine.srctypes, mine.dsttypes, mine.canonical_etypes) == (
            their.srctypes,
            their.dsttypes,
            their.canonical_etypes,
        )
        # Theirs lists all columns of the graph in every frame; ours those that a prefetching sampler fills.
        for my_frame, their_frame in (
            (mine.srcdata, their.srcdata),
            (mine.dstdata, their.dstdata),
            (mine.edata, their.edata),
        ):
            for name in my_frame:
                assert (my_frame[name].dtype, my_frame[name].shape[1:]) == (
                    their_frame[name].dtype,
                    their_frame[name].shape[1:],
                )
        assert {dgl.NID} <= set(mine.srcdata)
        assert {dgl.EID} == set(mine.edata)
    assert set(ours[2][0].srcdata) == set(theirs[2][0].srcdata) - {"label"}
    assert torch.equal(ours[2][0].srcdata["feat"], graph.ndata["feat"][ours[0]])
    assert torch.equal(ours[2][-1].dstdata["label"], graph.ndata["label"][ours[1]])


@needs_dgl
@pytest.mark.parametrize("created", ["coo", "csc"])
def test_columns_and_edge_features_are_those_of_the_users_graph(created: str) -> None:
    import dgl

    graph = dgl.graph(edge_list(), num_nodes=N)
    if created == "csc":
        graph = dgl.graph(("csc", (*graph.adj_tensors("csc")[:2], [])), num_nodes=N)
    graph.ndata["year"] = torch.arange(N)[:, None]
    graph.edata["w"] = torch.arange(E)[:, None].half()
    module = GraphDataModule.from_dgl(
        graph,
        sampler=NeighborSampler([3, 4], edge_ids=True),
        batch_size=4,
        predict=SEEDS,
        tables=["year"],
        edge_feature_name="w",
    )
    nodes, _, blocks = next(iter(module.predict_dataloader()))
    assert torch.equal(blocks[0].srcdata["year"], graph.ndata["year"][nodes])
    for block in blocks:
        assert torch.equal(block.edata["w"], graph.edata["w"][block.edata[dgl.EID]])
        assert len(block.edata["w"]) > 0


@needs_dgl
def test_tables_that_a_frame_cannot_carry_are_refused() -> None:
    batch = a_batch()
    rows = torch.zeros(batch.num_nodes, 1)
    with pytest.raises(GraphDataError, match=r"table 'paper' has rows for one node type alone.*'blocks'"):
        ToDGL()(replace(batch, tables={"paper": rows}, positions={"paper": torch.arange(batch.num_nodes)}))
    with pytest.raises(GraphDataError, match=r"table 'feat' has the name of the features"):
        ToDGL()(replace(batch, tables={"feat": rows}))


@needs_dgl
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("created", ["coo", "csc"])
def test_edge_ids_are_those_of_the_users_graph(idtype: torch.dtype, created: str) -> None:
    import dgl

    graph = dgl.graph(edge_list(), num_nodes=N, idtype=idtype)
    if created == "csc":  # DGL then leaves the edge ids out
        graph = dgl.graph(("csc", (*graph.adj_tensors("csc")[:2], [])), num_nodes=N, idtype=idtype)
    data = GraphData.from_dgl(graph)
    batch = a_batch(edge_ids=True, graph=data.graph)
    _, _, blocks = ToDGL(graph=data.graph)(batch)
    for block in blocks:
        assert block.edata[dgl.EID].dtype == torch.int64
        src, dst = graph.find_edges(block.edata[dgl.EID].to(idtype))
        u, v = block.edges(order="eid")
        assert torch.equal(src.long(), block.srcdata[dgl.NID][u])
        assert torch.equal(dst.long(), block.dstdata[dgl.NID][v])


@needs_dgl
def test_edge_ids_without_an_order_are_positions_in_the_graph() -> None:
    import dgl

    batch = a_batch(edge_ids=True)
    assert torch.equal(ToDGL()(batch)[2][0].edata[dgl.EID], batch.blocks[0].edge_ids)


@needs_dgl
def test_it_travels_to_spawned_processes() -> None:
    graph = Graph.from_coo(*edge_list(), N, keep_order=True)
    convert = pickle.loads(pickle.dumps(ToDGL("h", "target", graph)))  # noqa: S301  what multiprocessing does
    assert (convert.feature_name, convert.label_name) == ("h", "target")
    assert np.array_equal(convert.graph.edge_order, graph.edge_order)


@needs_dgl
def test_a_graph_keeps_its_edges_columns_and_splits() -> None:
    import dgl

    src, dst = edge_list()
    graph = dgl.graph((src, dst), num_nodes=N)
    graph.ndata["feat"], graph.ndata["label"] = torch.randn(N, 5), torch.arange(N)
    graph.ndata["train_mask"], graph.ndata["test_mask"] = torch.arange(N) < 4, torch.arange(N) >= 38
    data = GraphData.from_dgl(graph)
    ends = np.repeat(np.arange(N), data.graph.in_degrees)
    assert data.graph.edge_order is not None
    assert np.array_equal(data.graph.indices, src.numpy()[data.graph.edge_order])
    assert np.array_equal(ends, dst.numpy()[data.graph.edge_order])
    assert data.x is not None
    assert data.x.rows.data_ptr() == graph.ndata["feat"].data_ptr()
    assert torch.equal(data.y, graph.ndata["label"])
    assert (data.train.tolist(), data.val.tolist(), data.test.tolist()) == ([0, 1, 2, 3], [], [38, 39])


@needs_dgl
def test_columns_that_are_not_there() -> None:
    import dgl

    graph = dgl.graph(([0], [1]))
    data = GraphData.from_dgl(graph)
    assert (data.x, data.y) == (None, None)
    with pytest.raises(GraphDataError, match=r"label_name='year'.*\[\]"):
        GraphData.from_dgl(graph, label_name="year")


@needs_dgl
def test_tables_and_edge_features_that_are_not_there() -> None:
    import dgl

    graph = dgl.graph(edge_list(), num_nodes=N)
    with pytest.raises(GraphDataError, match=r"tables='year', but the graph's ndata holds only \[\]"):
        GraphData.from_dgl(graph, tables=["year"])
    for argument in ("edge_feature_name", "edge_weight_name"):
        with pytest.raises(GraphDataError, match=rf"{argument}='w', but the graph's edata holds only \[\]"):
            GraphData.from_dgl(graph, **{argument: "w"})


def graph_with_everything() -> Any:
    import dgl

    src, dst = edge_list()
    graph = dgl.graph((src, dst), num_nodes=N)
    graph.ndata.update(
        feat=torch.randn(N, 2, 3),
        label=torch.arange(N),
        year=torch.arange(N, dtype=torch.int16),
        train_mask=torch.arange(N) < 20,
        **{dgl.NTYPE: torch.arange(N) % 3, dgl.NID: torch.arange(N) + 1000},
    )
    graph.edata.update(
        feat=torch.randn(E, 4).half(),
        w=torch.rand(E),
        when=torch.arange(E),
        **{dgl.ETYPE: torch.arange(E) % 5, dgl.EID: torch.arange(E) + 1000},
    )
    return graph


@needs_dgl
@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([3, 2]),
        NeighborSampler([dict.fromkeys(range(5), 1), {0: 2, 3: -1}]),
        WeightedNeighborSampler([3, 2], expand="new"),
    ],
)
def test_blocks_carry_every_column_of_a_graph(sampler: NeighborSampler) -> None:
    import dgl

    mine = graph_with_everything()
    module = GraphDataModule.from_dgl(mine, sampler=sampler, batch_size=4, edge_weight_name="w")
    for _, _, blocks in module.train_dataloader():
        for block in blocks:
            for frame, ids in ((block.srcdata, block.srcdata[dgl.NID]), (block.dstdata, block.dstdata[dgl.NID])):
                for name in mine.ndata.keys() - {dgl.NID, "label"}:
                    assert frame[name].dtype == mine.ndata[name].dtype
                    assert torch.equal(frame[name], mine.ndata[name][ids]), name
            for name in mine.edata.keys() - {dgl.EID}:
                assert torch.equal(block.edata[name], mine.edata[name][block.edata[dgl.EID]]), name
    assert torch.equal(blocks[-1].dstdata["label"], mine.ndata["label"][blocks[-1].dstdata[dgl.NID]])


@needs_dgl
def test_blocks_carry_the_columns_that_were_asked_for() -> None:
    import dgl

    names = {"tables": ["year"], "edge_tables": ["when"], "sampler": NeighborSampler([3]), "batch_size": 4}
    _, _, (block,) = next(iter(GraphDataModule.from_dgl(graph_with_everything(), **names).train_dataloader()))
    assert block.srcdata.keys() == {dgl.NID, "feat", "year"}
    assert block.edata.keys() == {dgl.EID, "when"}


@needs_dgl
def test_splits_may_be_given() -> None:
    data = GraphData.from_dgl(graph_with_everything(), val=[3, 1], test=torch.arange(N) > 37)
    assert (len(data.train), data.val.tolist(), data.test.tolist()) == (20, [3, 1], [38, 39])


@needs_dgl
def test_samplers_draw_by_the_weights_and_types_of_a_graph() -> None:
    mine = graph_with_everything()
    assert GraphData.from_dgl(mine).graph.edge_weight is None  # none of its columns is one until it is named
    graph = GraphData.from_dgl(mine, edge_weight_name="w").graph
    assert np.array_equal(graph.edge_weight, mine.edata["w"].numpy()[graph.edge_order])
    assert np.array_equal(graph.edge_type, (np.arange(E) % 5)[graph.edge_order])


@needs_dgl
def test_a_weighted_graph_of_any_origin_has_its_weights_in_the_blocks() -> None:
    import dgl

    graph = Graph.from_coo(*edge_list(), N, edge_weight=np.random.default_rng(1).random(E))
    module = GraphDataModule(GraphData(graph, train=SEEDS), NeighborSampler([3, 2]), batch_size=4, batch_format="dgl")
    _, _, blocks = next(iter(module.train_dataloader()))
    for block in blocks:
        assert torch.equal(block.edata["edge_weight"], torch.from_numpy(graph.edge_weight)[block.edata[dgl.EID]])


@needs_dgl
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ToDGL()(a_batch())[2][0], "but a block"),
        (lambda: "ogbn-products", "a DGLGraph is needed, but a str"),
    ],
)
def test_what_is_no_graph_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        GraphData.from_dgl(make())


@pytest.mark.parametrize("use", [ToDGL, lambda: GraphData.from_dgl(None)])
def test_without_dgl_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, use: Callable[[], Any]) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[dgl\]"):
        use()


def test_a_data_module_says_so_before_it_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    data = GraphData(Graph.from_coo(*edge_list(), N), train=SEEDS)
    with pytest.raises(MissingExtraError, match="batch_format='dgl'"):
        GraphDataModule(data, NeighborSampler([2]), batch_format="dgl").train_dataloader()


def test_a_dgl_that_fails_to_import_keeps_its_cause(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    # As DGL 2.x does under a newer torch.
    (tmp_path / "dgl.py").write_text("raise FileNotFoundError('no graphbolt library for this torch')")
    monkeypatch.delitem(sys.modules, "dgl", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match=r"no graphbolt library.*torch <= 2\.2\.1.*\[dgl\]") as raised:
        ToDGL()
    assert isinstance(raised.value.__cause__, FileNotFoundError)
