"""Graphs as RelBench makes them, and its loaders, with the drop-in in place of PyG's sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from torch_frame import TensorFrame, stype
    from torch_geometric.data import HeteroData
    from torch_geometric.loader import NodeLoader
    from torch_geometric.sampler import NodeSamplerInput
    from torch_geometric.utils import sort_edge_index

    from lightning_gnnload.pyg import GnnloadSampler, NeighborLoader

CUSTOMERS, PRODUCTS, REVIEWS = 40, 12, 400


def relational() -> HeteroData:
    """What ``make_pkey_fkey_graph`` returns: a TensorFrame and times by table, foreign keys as edges both ways."""
    generator = torch.Generator().manual_seed(3)
    data = HeteroData()
    for name, rows in (("customer", CUSTOMERS), ("product", PRODUCTS), ("review", REVIEWS)):
        numbers = torch.stack([torch.arange(rows).float(), torch.rand(rows, generator=generator)], 1)
        data[name].tf = TensorFrame({stype.numerical: numbers}, {stype.numerical: ["row", "noise"]})
    data["review"].time = torch.arange(REVIEWS) * 10
    for key, to, count in (("customer_id", "customer", CUSTOMERS), ("product_id", "product", PRODUCTS)):
        rows = torch.arange(REVIEWS)[torch.rand(REVIEWS, generator=generator) < 0.9]  # the others' keys dangle
        edges = torch.stack([rows, torch.randint(count, rows.shape, generator=generator)])
        data["review", f"f2p_{key}", to].edge_index = sort_edge_index(edges)
        data[to, f"rev_f2p_{key}", "review"].edge_index = sort_edge_index(edges.flip(0))
    return data


def asked() -> tuple[torch.Tensor, torch.Tensor]:
    """Customers who are asked about several times, and when."""
    return torch.arange(90) % 30, (torch.arange(90) // 30 + 1) * 1000


def check_no_leak(batch: HeteroData, data: HeteroData, seed_type: str) -> int:
    """Nothing in a row's subgraph is later than the row, its edges are the graph's, and rows share nothing.

    Returns how many nodes with a time there are.
    """
    seed_time = batch[seed_type].seed_time
    assert bool((batch["review"].time <= seed_time[batch["review"].batch]).all())
    assert torch.equal(batch["review"].time, data["review"].time[batch["review"].n_id])
    for kind in data.edge_types:
        src, dst = batch[kind].edge_index
        assert torch.equal(batch[kind[0]].batch[src], batch[kind[2]].batch[dst])
        ends = torch.stack([batch[kind[0]].n_id[src], batch[kind[2]].n_id[dst]])
        assert torch.equal(ends, data[kind].edge_index[:, batch[kind].e_id])
    return len(batch["review"].n_id)


@pytest.mark.parametrize("temporal_strategy", ["uniform", "last"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_of_a_task_have_all_that_relbenchs_model_reads(temporal_strategy: str, num_workers: int) -> None:
    data, (nodes, times) = relational(), asked()
    target = torch.rand(len(nodes), generator=torch.Generator().manual_seed(0))

    def attach(batch: HeteroData) -> HeteroData:
        batch["customer"].y = target[batch["customer"].input_id]
        return batch

    loader = NeighborLoader(
        data,
        num_neighbors=[8, 4],
        time_attr="time",
        input_nodes=("customer", nodes),
        input_time=times,
        transform=attach,
        batch_size=32,
        temporal_strategy=temporal_strategy,
        shuffle=True,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
    )
    seen = []
    for batch in loader:
        assert check_no_leak(batch, data, "customer") > 0
        rows = batch["customer"].input_id
        seen += rows.tolist()
        assert torch.equal(batch["customer"].seed_time, times[rows])
        assert torch.equal(batch["customer"].y, target[rows])
        assert torch.equal(batch["customer"].n_id[: len(rows)], nodes[rows])
        assert batch.time_dict.keys() == {"review"}
        assert batch.batch_dict.keys() == batch.num_sampled_nodes_dict.keys() == set(data.node_types)
        assert batch.num_sampled_edges_dict.keys() == set(data.edge_types)
        for name, frame in batch.tf_dict.items():
            own = data[name].tf.feat_dict[stype.numerical]
            assert torch.equal(frame.feat_dict[stype.numerical], own[batch[name].n_id])
    assert sorted(seen) == list(range(90))


def test_a_sampler_for_relbenchs_link_loader_is_disjoint_and_sees_no_later_row() -> None:
    # RelBench asks for disjoint=False where there is no pyg-lib, and then names rows by their nodes.
    data, (nodes, times) = relational(), asked()
    sampler = GnnloadSampler(
        data,
        num_neighbors=[8, 4],
        subgraph_type="directional",
        disjoint=False,
        temporal_strategy="uniform",
        time_attr="time",
        share_memory=True,
    )
    loader = NodeLoader(data, sampler, "customer")
    inputs = NodeSamplerInput(input_id=nodes, node=nodes, time=times, input_type="customer")
    batch = loader.filter_fn(sampler.sample_from_nodes(inputs))
    assert check_no_leak(batch, data, "customer") > 0
    assert torch.equal(batch["customer"].n_id[:90], nodes)
    reviews = batch["review"].batch.bincount(minlength=90)
    assert int(reviews[60:].sum()) > int(reviews[:30].sum()) > 0  # a customer has more reviews by then


@pytest.fixture
def fake(tmp_path: Any) -> Any:
    pytest.importorskip("relbench", reason="relbench is not installed")
    import random

    import numpy as np
    from relbench.datasets.fake import FakeDataset

    random.seed(0)
    np.random.seed(0)
    dataset = FakeDataset()
    dataset.cache_dir = tmp_path  # else it makes another database for each question
    return dataset


@pytest.mark.parametrize("share_same_time", [True, False])
def test_relbenchs_link_loader_takes_our_sampler(fake: Any, tmp_path: Any, share_same_time: bool, monkeypatch) -> None:
    import relbench.modeling.loader as theirs
    from relbench.modeling.graph import get_link_train_table_input, make_pkey_fkey_graph
    from relbench.tasks.amazon import UserItemPurchaseTask

    task = UserItemPurchaseTask(fake, tmp_path / "tasks" / "purchase")
    kinds = {"product": {"price": stype.numerical}, "customer": {"age": stype.numerical}}
    kinds |= {"review": {"rating": stype.numerical}, "relations": {}}
    data, _ = make_pkey_fkey_graph(fake.get_db(), kinds)
    rows = get_link_train_table_input(task.get_table("train"), task)
    monkeypatch.setattr(theirs, "NeighborSampler", GnnloadSampler)
    loader = theirs.LinkNeighborLoader(
        data,
        num_neighbors=[8, 4],
        src_nodes=rows.src_nodes,
        dst_nodes=rows.dst_nodes,
        num_dst_nodes=rows.num_dst_nodes,
        src_time=rows.src_time,
        share_same_time=share_same_time,
        time_attr="time",
        batch_size=4,
    )
    count = num_reviews = 0
    for src, positive, negative in loader:
        num_reviews += check_no_leak(src, data, "customer")
        num_reviews += check_no_leak(positive, data, "product") + check_no_leak(negative, data, "product")
        assert torch.equal(src["customer"].seed_time, positive["product"].seed_time)
        count += 1
    assert count == len(loader)
    assert num_reviews > 0
