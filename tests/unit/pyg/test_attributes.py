"""Which attributes mini-batches carry: none that numbers the nodes of the whole graph."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphData

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.transforms import RandomLinkSplit

    from lightning_gnnload.pyg import (
        HGTLoader,
        LightningNodeData,
        LinkNeighborLoader,
        NeighborLoader,
        ShaDowKHopSampler,
    )

N, E = 30, 120
TO, BACK = ("a", "to", "b"), ("b", "rev_to", "a")


def ends(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(N, (2, count), generator=torch.Generator().manual_seed(seed))


def graph(**more: Any) -> Data:
    return Data(x=torch.arange(N)[:, None], edge_index=ends(E), kind=torch.arange(E), mean=torch.zeros(3), **more)


def typed() -> HeteroData:
    data = HeteroData()
    data["a"].x = data["b"].x = torch.arange(N)
    data[TO].edge_index, data[BACK].edge_index = ends(E), ends(E).flip(0)
    return data


WHOLE: dict[str, Any] = {
    "edge_label_index": ends(E, 2),  # as many as there are edges, which PyG takes for columns of edges
    "edge_label": torch.ones(E),
    "edge_label_time": torch.arange(E),
    "train_pos_edge_index": ends(N, 3),  # as many as there are nodes
    "neg_edge_index": ends(7),
    "train_neg_adj_mask": torch.ones(N, N, dtype=torch.bool),
    "adj": torch.eye(N).to_sparse(),
    "face": torch.zeros(3, 4, dtype=torch.long),
    "ptr": torch.tensor([0, N]),
    "root_idx": np.arange(4),
    "links_index": torch.zeros(2, 5, dtype=torch.int32),
    "links": torch.zeros(5),
}
SEEDS: dict[str, Any] = {"train_idx": torch.arange(9), "valid_index": torch.arange(4), "pred_idx": torch.arange(2)}
KEPT: dict[str, Any] = {
    "parent_index": torch.arange(N),  # a row for each node
    "neighbor_index": torch.zeros(3, N, dtype=torch.long),
    "train_mask": torch.ones(N, dtype=torch.bool),
    "index_of_quality": torch.rand(3),  # no numbers of nodes
    "level_index": 3,
    "edge_label_attr": torch.zeros(E + 1),  # as many as there are links to be asked about, and one more
}


@pytest.mark.parametrize("transformed", [False, True])
def test_what_numbers_the_whole_graphs_nodes_is_left_out_and_told(transformed: bool) -> None:
    data = graph(**WHOLE, **KEPT)
    settings: dict[str, Any] = {"batch_size": 4, "seed": 1}
    if transformed:
        settings["transform_sampler_output"] = lambda output: output
    with pytest.warns(UserWarning, match="leave out") as told:
        batch = next(iter(NeighborLoader(data, [2], **settings)))
    [text] = [str(each.message) for each in told if "leave out" in str(each.message)]
    assert {name for name in (*WHOLE, *KEPT) if repr(name) in text} == {*WHOLE}
    assert not {*WHOLE} & {*batch.keys()}
    assert {*KEPT, "mean", "kind"} <= {*batch.keys()}
    assert torch.equal(batch.parent_index, batch.n_id)
    assert {*WHOLE} <= {*data.keys()}  # the user's own keeps them
    with pytest.warns(UserWarning, match="leave out"):
        batch = next(iter(ShaDowKHopSampler(data, 1, 2, batch_size=4)))
    assert {*batch.keys()} & {*WHOLE} == {"ptr"}  # its own
    with pytest.warns(UserWarning, match="leave out"):
        batch = next(iter(LightningNodeData(data, num_neighbors=[2], **settings).train_dataloader()))
    assert not {*WHOLE} & {*batch.keys()}


def test_lists_of_seeds_are_left_out_without_a_word() -> None:
    data = graph(**SEEDS)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*leave out")
        module = LightningNodeData(data, num_neighbors=[2], batch_size=9)
        [batch] = module.train_dataloader()
        [other] = NeighborLoader(data, [2], data.train_idx, batch_size=9)
    assert batch.n_id[:9].sort().values.tolist() == other.n_id[:9].tolist() == data.train_idx.tolist()
    assert not {*SEEDS} & {*batch.keys(), *other.keys()}


def test_links_of_a_split_come_in_each_mini_batch_anew() -> None:
    data = RandomLinkSplit(add_negative_train_samples=False)(graph())[0]
    links: dict[str, Any] = {"edge_label_index": data.edge_label_index, "batch_size": 8}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*leave out")
        [batch, *_] = LinkNeighborLoader(data, [2], edge_label=data.edge_label, **links)
        [triplets, *_] = LinkNeighborLoader(data, [2], neg_sampling="triplet", **links)
    assert torch.equal(batch.n_id[batch.edge_label_index], data.edge_label_index[:, :8])
    assert len(batch.edge_label) == 8
    assert not {"edge_label", "edge_label_index", "edge_label_time"} & {*triplets.keys()}


def test_links_of_other_types_are_left_out() -> None:
    data = RandomLinkSplit(edge_types=[TO, BACK], add_negative_train_samples=False)(typed())[0]
    with pytest.warns(UserWarning, match=r"leave out 'edge_label_index' of \('b', 'rev_to', 'a'\), 'edge_label' of"):
        loader = LinkNeighborLoader(data, [2], (TO, data[TO].edge_label_index), data[TO].edge_label, batch_size=8)
    batch = next(iter(loader))
    assert batch[TO].edge_label_index.shape == (2, 8)
    assert not {"edge_label", "edge_label_index"} & {*batch[BACK].keys()}
    for loader in (NeighborLoader, HGTLoader):
        with pytest.warns(UserWarning, match="leave out"):
            batch = next(iter(loader(data, [2], "a", batch_size=8)))
        assert not any("edge_label_index" in batch[kind] or "edge_label" in batch[kind] for kind in (TO, BACK))


def test_graph_data_leaves_it_out_too() -> None:
    with pytest.warns(UserWarning, match="'adj', 'face', .*'root_idx'.*: by their names, these number the nodes of"):
        data = GraphData.from_pyg(graph(**WHOLE))
    assert {*data.edge_tables, *data.tables} == {"kind"}


def test_numbers_that_no_node_has_are_carried() -> None:
    data = graph(year_index=torch.tensor([2001, 2002]))
    batch = next(iter(NeighborLoader(data, [2], batch_size=4)))
    assert batch.year_index.tolist() == [2001, 2002]


def test_graph_data_says_nothing_of_lists_of_seeds_that_it_was_given() -> None:
    data = graph(**SEEDS)
    del data.mean, data.pred_idx
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        GraphData.from_pyg(data, train=data.train_idx, val=data.valid_index)
    with pytest.warns(UserWarning, match="^'valid_index' of the PyG graph: .*Give lists of seeds"):
        GraphData.from_pyg(data, train=data.train_idx)


def test_a_users_own_output_may_leave_types_out() -> None:
    def without_edges(output: Any) -> Any:
        del output.row[TO], output.col[TO], output.edge[TO], output.node["a"]
        return output

    batch = next(iter(NeighborLoader(typed(), [2], "b", batch_size=8, transform_sampler_output=without_edges)))
    assert batch[TO].edge_index.shape == (2, 0)
    assert batch["a"].x.tolist() == batch["a"].n_id.tolist() == []
