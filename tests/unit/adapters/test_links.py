"""Links as PyG's and DGL's own loaders yield them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, Negatives, NeighborSampler, SeedTable
from lightning_gnnload.adapters.dgl.write import link_pairs, negative_pairs, pair_graph
from lightning_gnnload.adapters.pyg.write import pyg_link_fields, pyg_triplet_fields
from lightning_gnnload.data.seedform import LinkForm
from lightning_gnnload.sample.seeds.links import LinkSettings, seed_kind
from tests.runif import RunIf

_EDGE = ("_N", "_E", "_N")
SRC, DST = torch.tensor([0, 1, 0]), torch.tensor([2, 3, 4])
NEGATIVES = torch.tensor([[5, 6], [5, -1], [-1, 2]])


def form_of(table: SeedTable) -> LinkForm:
    [link] = seed_kind(Graph.from_coo([0], [7]), NeighborSampler([1]), table, LinkSettings(Negatives())).form.links
    return link


def test_pairs_have_one_end_of_the_edge_and_one_other() -> None:
    src, dst = negative_pairs(SRC, DST, NEGATIVES, num_dst=1)
    assert src.tolist() == [[0, 6], [1, -1], [0, 2]]
    assert dst.tolist() == [[5, 2], [5, 3], [-1, 4]]


def binary_columns(src: torch.Tensor, dst: torch.Tensor, row: torch.Tensor, **columns: torch.Tensor) -> dict[str, Any]:
    """The columns of binary links, of which the first are rows."""
    of_rows = {"input_id": torch.arange(int(row.max()) + 1)}
    label = (torch.arange(len(src)) < len(of_rows["input_id"])).float()
    return {"src": src, "dst": dst, "row": row, "label": label, **of_rows, **columns}


def test_binary_fields_by_hand() -> None:
    columns = binary_columns(torch.tensor([0, 1, 6]), torch.tensor([2, 3, 2]), torch.tensor([0, 1, 0]))
    fields = pyg_link_fields(
        {**columns, "time": torch.tensor([7, 8]), "region": torch.tensor([1, 2])}, None, LinkForm()
    )
    assert fields["edge_label_index"].tolist() == [[0, 1, 6], [2, 3, 2]]
    assert fields["edge_label"].tolist() == [1, 1, 0]
    assert fields["edge_label_time"].tolist() == [7, 8, 7]
    assert {*fields} == {"edge_label_index", "edge_label", "edge_label_time", "input_id", "region"}
    alone = pyg_link_fields({"src": SRC, "dst": DST, "input_id": SRC}, None, LinkForm())
    assert {*alone} == {"edge_label_index", "input_id"}


@pytest.mark.parametrize(
    ("y", "first"), [([0, 2], 1), ([1, 2], 0), ([0.0, 0.5], 1), ([-1, 0], 0), ([[0, 1], [2, 3]], 1), ([], 0), (None, 0)]
)
def test_labels_that_begin_at_0_are_one_more(y: Any, first: int) -> None:
    rows = np.zeros(len(y or []), np.int64)
    assert form_of(SeedTable(src=rows, dst=rows, y=y)).first_label == first


def test_triplet_fields_by_hand() -> None:
    fields = pyg_triplet_fields(SRC, DST, NEGATIVES)
    assert fields["dst_neg_index"].tolist() == [[5, 6], [5, 3], [4, 2]]  # the pair's own where there is none
    assert fields["dst_neg_mask"].tolist() == [[True, True], [True, False], [False, True]]
    both = pyg_triplet_fields(SRC, DST, NEGATIVES, num_dst=1)
    assert both["dst_neg_index"].tolist() == [5, 5, 4]
    assert both["src_neg_index"].tolist() == [6, 1, 2]
    assert "src_neg_index" not in fields


def pyg_loader(mode: str, amount: int, label: torch.Tensor | None, time: torch.Tensor | None) -> Any:
    """PyG's own loader over 8 pairs, whose sampler finds no neighbours, so that it needs no library."""
    from torch_geometric.data import Data
    from torch_geometric.loader.link_loader import LinkLoader
    from torch_geometric.sampler import BaseSampler, SamplerOutput
    from torch_geometric.sampler.neighbor_sampler import edge_sample

    class Alone(BaseSampler):
        edge_permutation = None

        def sample_from_nodes(self, index: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

        def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
            def nothing(seed: torch.Tensor, seed_time: torch.Tensor | None) -> Any:
                none = torch.empty(0, dtype=torch.int64)
                return SamplerOutput(node=seed, row=none, col=none, edge=none, batch=torch.arange(len(seed)))

            return edge_sample(index, nothing, 50, time is not None, None, neg_sampling)

    ends = torch.randint(0, 50, (2, 8))
    data = Data(edge_index=ends, num_nodes=50)
    kwargs = {"edge_label": label, "edge_label_time": time, "batch_size": 4}
    return LinkLoader(data, Alone(), ends, neg_sampling={"mode": mode, "amount": amount}, **kwargs)


@RunIf(extras="pyg")
@pytest.mark.parametrize("amount", [1, 3])
@pytest.mark.parametrize(
    "label",
    [None, torch.arange(8), torch.arange(8) + 1, torch.rand(8, 2) + 1],
    ids=["none", "from 0", "from 1", "columns"],
)
@pytest.mark.parametrize("time", [None, torch.arange(8) + 100], ids=["untimed", "timed"])
def test_binary_fields_are_those_of_pyg(amount: int, label: torch.Tensor | None, time: torch.Tensor | None) -> None:
    theirs = next(iter(pyg_loader("binary", amount, label, time)))
    # Binary negatives of PyG have other sources and destinations: names, shapes, dtypes and labels are compared.
    columns = binary_columns(*theirs.edge_label_index, torch.arange(4).repeat(1 + amount))
    table = SeedTable(src=torch.arange(8), dst=torch.arange(8), y=label)
    ours = pyg_link_fields(
        columns if time is None else {**columns, "time": time[:4]},
        None if label is None else label[:4],
        form_of(table),
    )
    for name in {*ours} | {key for key in theirs.keys() if key.startswith("edge_label")}:  # noqa: SIM118
        assert ours[name].dtype == theirs[name].dtype
        if name != "input_id":
            assert torch.equal(ours[name], theirs[name])


@RunIf(extras="pyg")
@pytest.mark.parametrize("amount", [1, 3])
@pytest.mark.parametrize("time", [None, torch.arange(8) + 100], ids=["untimed", "timed"])
def test_triplet_fields_are_those_of_pyg(amount: int, time: torch.Tensor | None) -> None:
    theirs = next(iter(pyg_loader("triplet", amount, None, time)))
    negatives = theirs.dst_neg_index.view(4, amount)
    times = None if time is None else time[:4]
    ours = pyg_triplet_fields(theirs.src_index, theirs.dst_pos_index, negatives, times=times)
    named = {key for key in theirs.keys() if key.endswith(("_index", "_time"))}  # noqa: SIM118
    assert {*ours} - {"dst_neg_mask"} == named - {"edge_index"}
    for name in {*ours} - {"dst_neg_mask"}:
        assert ours[name].dtype == theirs[name].dtype
        assert torch.equal(ours[name], theirs[name])


@RunIf(extras="dgl")
def test_pair_graphs_are_those_of_dgl() -> None:
    import dgl

    torch.manual_seed(0)
    graph = dgl.graph((torch.randint(0, 30, (80,)), torch.randint(0, 30, (80,))), num_nodes=30)

    class Drawn:
        """Remembers what DGL's own sampler of negatives drew."""

        def __call__(self, graph: Any, edges: torch.Tensor) -> Any:
            self.drawn = dgl.dataloading.negative_sampler.Uniform(3)(graph, edges)
            return self.drawn

    negative_sampler = Drawn()
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler([2]), negative_sampler=negative_sampler
    )
    edges = torch.tensor([7, 70, 33, 12])
    _, pos, neg, blocks = sampler.sample(graph, edges)
    nodes = pos.ndata[dgl.NID]
    place = torch.empty(30, dtype=torch.int64)
    place[nodes] = torch.arange(len(nodes))
    src, dst = (place[ends] for ends in graph.find_edges(edges))
    negatives = place[negative_sampler.drawn[1]].view(4, 3)
    columns = {"src": src, "dst": dst, "negatives": negatives, "negative_mask": negatives >= 0, "input_id": edges}
    ours = [pair_graph({_EDGE: pairs}, {"_N": nodes}, [_EDGE]) for pairs in link_pairs(columns, LinkForm(), "label")]
    for made, theirs in zip(ours, (pos, neg), strict=True):
        assert made.canonical_etypes == theirs.canonical_etypes
        assert made.num_nodes() == theirs.num_nodes()
        assert made.idtype == theirs.idtype
        assert torch.equal(made.ndata[dgl.NID], theirs.ndata[dgl.NID])
        assert all(torch.equal(a, b) for a, b in zip(made.edges(order="eid"), theirs.edges(order="eid"), strict=True))
    assert torch.equal(ours[0].edata["input_id"], pos.edata[dgl.EID])
    assert torch.equal(blocks[-1].dstdata[dgl.NID], nodes)  # whose order both follow


@RunIf(extras="dgl")
def test_pair_graphs_of_several_types_have_all_types() -> None:
    import dgl

    kinds = [("user", "buys", "item"), ("item", "in", "shop"), ("user", "knows", "user")]
    nodes = {"user": torch.tensor([9, 8]), "item": torch.tensor([3, 4, 5]), "shop": torch.empty(0, dtype=torch.int64)}
    src, dst, negatives = torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([[2, 1], [-1, -1]])
    columns = {"input_id": torch.tensor([70, 71]), "y": torch.tensor([4.0, 5.0]), "src": src, "dst": dst}
    columns |= {"negatives": negatives, "negative_mask": negatives >= 0}
    pairs = link_pairs(columns, LinkForm(kinds[0]), "label")
    pos, neg = (pair_graph({kinds[0]: of_type}, nodes, kinds) for of_type in pairs)
    for graph in (pos, neg):
        assert sorted(graph.canonical_etypes) == sorted(kinds)
        assert {kind: graph.num_nodes(kind) for kind in graph.ntypes} == {"user": 2, "item": 3, "shop": 0}
        assert graph.nodes["item"].data[dgl.NID].tolist() == [3, 4, 5]
        assert graph.num_edges("knows") == graph.num_edges("in") == 0
    assert [ends.tolist() for ends in neg.edges(etype="buys")] == [[0, 0], [2, 1]]
    assert pos.edges["buys"].data["input_id"].tolist() == [70, 71]
    assert pos.edges["buys"].data["label"].tolist() == [4, 5]
    del columns["negatives"]
    assert link_pairs(columns, LinkForm(), "label")[1] is None
