"""Batches of links from a data module, in PyG's and DGL's words, with types and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, Negatives, NeighborSampler, SeedTable
from tests.runif import RunIf
from tests.unit.typed import KINDS, NODES, typed_edges, typed_graph

N = 60
RNG = np.random.default_rng(4)
SRC, DST = RNG.integers(N, size=200), RNG.integers(N, size=200)
WRITES = KINDS[0]


def module(form: str, negatives: Negatives | None, *, types: bool, **columns: Any) -> GraphDataModule:
    if types:
        graph, (src, dst) = typed_graph(), typed_edges()[WRITES][:, :6]
        rows = SeedTable(src=src, dst=dst, edge_type=WRITES, **columns)
    else:
        graph = Graph.from_coo(SRC, DST, N, keep_order=True)
        rows = SeedTable(src=SRC[:6], dst=DST[:6], **columns)
    sampler = NeighborSampler([3, 2], expand="new")
    return GraphDataModule(
        GraphData(graph, train=rows), sampler, 6, form, order="sequential", num_threads=0, negatives=negatives
    )  # type: ignore[arg-type]


def wanted(types: bool) -> tuple[list[int], list[int]]:
    src, dst = typed_edges()[WRITES][:, :6] if types else (SRC[:6], DST[:6])
    return src.tolist(), dst.tolist()


@RunIf(extras="pyg")
@pytest.mark.parametrize("types", [False, True])
def test_pyg_labels_pairs_and_binary_negatives(types: bool) -> None:
    [batch] = module("pyg", Negatives("binary", num=2), types=types).train_dataloader()
    store = batch[WRITES] if types else batch
    ids = (batch["author"].n_id, batch["paper"].n_id) if types else (batch.n_id, batch.n_id)
    src, dst = store.edge_label_index
    assert (ids[0][src[:6]].tolist(), ids[1][dst[:6]].tolist()) == wanted(types)
    assert store.edge_label.tolist() == [1.0] * 6 + [0.0] * (len(src) - 6)
    assert 6 < len(src) <= 18
    assert (store.input_id.tolist(), store.batch_size) == (list(range(6)), 6)
    edges = set(zip(*(typed_edges()[WRITES] if types else (SRC, DST)), strict=True))
    assert not edges & set(zip(ids[0][src[6:]].tolist(), ids[1][dst[6:]].tolist(), strict=True))
    if types:
        assert "batch_size" not in batch["paper"]
        assert batch["author"].n_id.max() < NODES["author"]


@RunIf(extras="pyg")
@pytest.mark.parametrize("types", [False, True])
@pytest.mark.parametrize("corrupt", ["dst", "both"])
def test_pyg_triplets_are_in_the_stores_of_their_ends(types: bool, corrupt: Any) -> None:
    [batch] = module("pyg", Negatives("triplet", num=4, corrupt=corrupt), types=types).train_dataloader()
    of_src, of_dst = (batch["author"], batch["paper"]) if types else (batch, batch)
    assert of_src.n_id[of_src.src_index].tolist() == wanted(types)[0]
    assert of_dst.n_id[of_dst.dst_pos_index].tolist() == wanted(types)[1]
    assert of_dst.dst_neg_index.shape == (6, 4 if corrupt == "dst" else 2)
    assert ("src_neg_index" in of_src) == (corrupt == "both")
    edges = set(zip(*(typed_edges()[WRITES] if types else (SRC, DST)), strict=True))
    for row, src in enumerate(wanted(types)[0]):
        there = of_dst.dst_neg_index[row][of_dst.dst_neg_mask[row]]
        assert len(there)
        assert not edges & {(src, dst) for dst in of_dst.n_id[there].tolist()}


@RunIf(extras="pyg")
def test_labels_and_times_of_links() -> None:
    plain = module("pyg", None, types=True, y=[3, 1, 2, 3, 1, 2])
    [batch] = plain.train_dataloader()
    assert batch[WRITES].edge_label.tolist() == [3, 1, 2, 3, 1, 2]
    for y, wanted in (([3, 1, 2, 3, 1, 2], [3, 1, 2, 3, 1, 2]), ([2, 0, 1, 2, 0, 1], [3, 1, 2, 3, 1, 2])):
        # One more is added by the whole table's labels, not by a mini-batch's.
        binary = module("pyg", Negatives("binary"), types=True, y=y, time=range(6))
        binary.batch_size = 1
        batches = list(binary.train_dataloader())
        assert [batch[WRITES].edge_label[0].item() for batch in batches] == wanted
        assert all(not batch[WRITES].edge_label[1:].any() for batch in batches)
        times = [set(batch[WRITES].edge_label_time.tolist()) for batch in batches]
        assert times == [{row} for row in range(6)]


@pytest.mark.parametrize("form", ["blocks", pytest.param("pyg", marks=RunIf(extras="pyg"))])
@pytest.mark.parametrize("types", [False, True])
@pytest.mark.parametrize("mode", [None, "binary"])
def test_labels_of_nodes_are_none_of_links(form: str, types: bool, mode: Any) -> None:
    trained = module(form, None if mode is None else Negatives(mode), types=types)
    y: Any = {"paper": torch.arange(NODES["paper"])} if types else torch.arange(N)
    data = GraphData(trained.data.graph, y=y, train=trained.data.table("train"))
    trained._data = data
    [batch] = trained.train_dataloader()
    if form == "blocks":
        assert not batch.y if types else batch.y is None
        assert "y" not in batch.seed_columns
    else:
        store = batch[WRITES] if types else batch
        assert (store.edge_label.unique().tolist() == [0, 1]) if mode else "edge_label" not in store
        assert (batch["paper"] if types else batch).get("y") is None


@pytest.mark.parametrize(
    "form", [pytest.param("pyg", marks=RunIf(extras="pyg")), pytest.param("dgl", marks=RunIf(extras="dgl"))]
)
@pytest.mark.parametrize("types", [False, True])
def test_links_that_no_split_has_can_be_predicted(form: str, types: bool) -> None:
    trained = module(form, None, types=types)
    table = trained.data.table("train")
    alone = GraphDataModule(GraphData(trained.data.graph), trained.sampler, 6, form, num_threads=0, predict=table)  # type: ignore[arg-type]
    [batch] = alone.predict_dataloader()
    if form == "pyg":
        store = batch[WRITES] if types else batch
        assert store.edge_label_index.shape == (2, 6)
    else:
        assert batch[1].num_edges(WRITES if types else None) == 6


@RunIf(extras="dgl")
@pytest.mark.parametrize("types", [False, True])
@pytest.mark.parametrize("mode", ["binary", "triplet", None])
def test_dgl_gives_pair_graphs(types: bool, mode: Any) -> None:
    import dgl

    negatives = None if mode is None else Negatives(mode, num=2)
    [batch] = module("dgl", negatives, types=types, y=[0, 1, 0, 1, 0, 1]).train_dataloader()
    positive, blocks = batch[1], batch[-1]
    assert len(batch) == (3 if mode is None else 4)
    kind = WRITES if types else positive.canonical_etypes[0]

    def ends(graph: Any) -> tuple[list[int], list[int]]:
        src, dst = graph.edges(etype=kind, order="eid")
        return tuple(  # type: ignore[return-value]
            graph.nodes[name].data[dgl.NID][rows].tolist() for name, rows in ((kind[0], src), (kind[2], dst))
        )

    assert ends(positive) == wanted(types)
    assert positive.edges[kind].data["label"].tolist() == [0, 1, 0, 1, 0, 1]
    assert positive.edges[kind].data["input_id"].tolist() == list(range(6))
    for name in positive.ntypes:  # nodes of the pair graphs are those that the last block ends in
        of_block = blocks[-1].dstnodes[name].data[dgl.NID]
        assert torch.equal(positive.nodes[name].data[dgl.NID], of_block)
    if mode is not None:
        edges = set(zip(*(typed_edges()[WRITES] if types else (SRC, DST)), strict=True))
        found = set(zip(*ends(batch[2]), strict=True))
        assert found
        assert not found & edges


@RunIf(extras="pyg")
@pytest.mark.parametrize("types", [False, True])
def test_a_split_of_pygs_own_leaves_nothing_of_its_links(types: bool) -> None:
    """Its labels are as many as edges, and would be taken for a column of these."""
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.transforms import RandomLinkSplit

    torch.manual_seed(0)
    edges = torch.randint(0, 20, (2, 60))
    if types:
        whole: Any = HeteroData()
        whole["author"].num_nodes = whole["paper"].num_nodes = 20
        whole[WRITES].edge_index = edges
    else:
        whole = Data(edge_index=torch.cat([edges, edges.flip(0)], 1), num_nodes=20)
    train, _, _ = RandomLinkSplit(is_undirected=not types, edge_types=[WRITES] if types else None)(whole)
    of_links = train[WRITES] if types else train
    if not types:
        assert len(of_links.edge_label) == train.num_edges
    src, dst = of_links.edge_label_index[:, of_links.edge_label == 1]
    table = SeedTable(src=src, dst=dst, edge_type=WRITES if types else None)
    sampler = NeighborSampler([2], expand="new")
    [batch] = GraphDataModule.from_pyg(train, sampler=sampler, batch_size=200, train=table).train_dataloader()
    store = batch[WRITES] if types else batch
    assert store.edge_label_index.shape == (2, len(table))
    assert "edge_label" not in store
