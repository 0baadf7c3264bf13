"""DataLoader by DGL's name: DGL's mini-batches over the user's columns, the same for any number of workers."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import (
    CheckpointError,
    CudaUnavailableError,
    LoaderConfigError,
    MissingExtraError,
    SamplerConfigError,
    SeedError,
    UnknownSettingError,
)
from tests.runif import RunIf

pytestmark = RunIf(extras="dgl")


def graph() -> Any:
    import dgl

    draw = np.random.default_rng(0)
    g = dgl.graph((torch.from_numpy(draw.integers(0, 200, 2000)), torch.from_numpy(draw.integers(0, 200, 2000))))
    g.ndata["feat"], g.ndata["label"] = torch.from_numpy(draw.normal(size=(200, 4))).float(), torch.arange(200) % 3
    g.edata["w"] = torch.arange(2000.0)
    return g


def hetero() -> Any:
    import dgl

    draw = np.random.default_rng(0)
    users, items = (torch.from_numpy(draw.integers(0, count, 400)) for count in (50, 30))
    h = dgl.heterograph(
        {
            ("user", "buys", "item"): (users, items),
            ("item", "bought-by", "user"): (items, users),
            ("user", "knows", "user"): (users, users.flip(0)),
        },
        {"user": 50, "item": 30},
    )
    h.nodes["user"].data["x"], h.nodes["item"].data["y"] = torch.arange(50.0), torch.arange(30)
    h.edges["buys"].data["stars"] = torch.arange(400)
    return h


def as_lists(part: Any) -> Any:
    """A mini-batch as numbers: nodes, and of each graph its edges and their ids by type."""
    import dgl

    if isinstance(part, torch.Tensor):
        return part.tolist()
    if isinstance(part, dict):
        return {name: as_lists(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [as_lists(value) for value in part]
    edges = {name: part.edges(etype=name, order="eid") for name in part.canonical_etypes}
    ids = {name: part.edges[name].data.get(dgl.EID, torch.empty(0)) for name in part.canonical_etypes}
    return as_lists([edges, ids])


def check_block(block: Any, g: Any) -> None:
    """Each edge is the user's of its id, and each column the user's of the ids of its rows."""
    import dgl

    for name in block.canonical_etypes:
        src, dst = block.edges(etype=name, order="eid")
        ids = block.edges[name].data[dgl.EID]
        ends = g.find_edges(ids, etype=name)
        assert torch.equal(block.srcnodes[name[0]].data[dgl.NID][src], ends[0])
        assert torch.equal(block.dstnodes[name[2]].data[dgl.NID][dst], ends[1])
        for column, rows in g.edges[name].data.items():
            assert torch.equal(block.edges[name].data[column], rows[ids])
    for names, frames in ((block.srctypes, block.srcnodes), (block.dsttypes, block.dstnodes)):
        for name in names:
            for column, rows in g.nodes[name].data.items():
                assert torch.equal(frames[name].data[column], rows[frames[name].data[dgl.NID]])


def test_mini_batches_are_the_same_for_any_number_of_workers_and_differ_by_epoch() -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    g, sampler = graph(), NeighborSampler([3, 4], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    runs = []
    for num_workers in (0, 1, 3):
        settings: Any = {"shuffle": True, "num_workers": num_workers, "seed": 5}
        loader = DataLoader(g, torch.arange(100), sampler, batch_size=30, **settings)
        runs.append([[as_lists(batch) for batch in loader] for _ in range(2)])
    assert runs[0] == runs[1] == runs[2]
    first, second = runs[0]
    assert len(first) == len(loader) == 4
    for epoch in (first, second):
        assert sorted(node for _, seeds, _ in epoch for node in seeds) == list(range(100))
    assert first != second
    loader.set_epoch(0)
    assert [as_lists(batch) for batch in loader] == first


def test_blocks_are_of_the_users_edges_and_have_the_users_columns() -> None:
    from lightning_gnnload.dgl import DataLoader, LaborSampler, NeighborSampler

    g = graph()
    for sampler in (NeighborSampler([3, 4], prefetch_edge_feats=["w"]), LaborSampler([3, 4])):
        for input_nodes, output_nodes, blocks in DataLoader(g, torch.arange(90), sampler, batch_size=40, num_workers=2):
            assert torch.equal(blocks[0].srcdata["_ID"], input_nodes)
            assert torch.equal(blocks[-1].dstdata["_ID"], output_nodes)
            assert torch.equal(blocks[0].dstdata["_ID"], blocks[1].srcdata["_ID"])
            for block in blocks:
                check_block(block, g)
    h = hetero()
    node_feats = {"user": ["x"], "item": ["y"]}
    sampler = NeighborSampler([{"buys": 2, "bought-by": 3, "knows": -1}, 4], prefetch_node_feats=node_feats)
    loader = DataLoader(h, {"item": torch.arange(30), "user": [3, 5]}, sampler, batch_size=16, shuffle=True, seed=1)
    seen: dict[str, list[int]] = {"item": [], "user": []}
    for input_nodes, output_nodes, blocks in loader:
        for name, ids in output_nodes.items():
            seen[name] += ids.tolist()
            assert torch.equal(blocks[-1].dstnodes[name].data["_ID"], ids)
        for name, ids in input_nodes.items():
            assert torch.equal(blocks[0].srcnodes[name].data["_ID"], ids)
        for block in blocks:
            check_block(block, h)
    assert {name: sorted(ids) for name, ids in seen.items()} == {"item": list(range(30)), "user": [3, 5]}


def test_what_is_asked_for_ahead_is_gathered_and_the_rest_when_it_is_looked_at() -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    g = graph()
    [(_, _, [block])] = DataLoader(g, [1, 2], NeighborSampler([2], prefetch_node_feats=["feat"]), batch_size=2)
    at = block._node_frames[0]._columns
    assert at["feat"].index is None  # DGL's own word for a column that has been gathered
    assert at["label"].index is not None
    g.ndata["feat"] = torch.zeros(200, 1)  # between epochs, as DGL's examples do in inference
    [(_, _, [block])] = DataLoader(g, [1, 2], NeighborSampler([2], prefetch_node_feats=["feat"]), batch_size=2)
    assert block.srcdata["feat"].shape[1] == 1


@pytest.mark.parametrize("exclude", [None, "self", "reverse_types", "function"])
def test_edges_come_with_pairs_negatives_and_blocks_without_what_is_excluded(exclude: Any) -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler, as_edge_prediction_sampler, negative_sampler

    h = hetero()
    last = {("item", "bought-by", "user"): torch.arange(200, 400)}
    sampler = as_edge_prediction_sampler(
        NeighborSampler([-1, -1], prefetch_node_feats={"user": ["x"]}),
        exclude=(lambda eids: last) if exclude == "function" else exclude,
        reverse_etypes={"buys": "bought-by", "bought-by": "buys"},
        negative_sampler=negative_sampler.Uniform(2),
        prefetch_labels={"buys": ["stars"]},
    )
    loaders = [
        DataLoader(h, {"buys": torch.arange(60)}, sampler, batch_size=25, shuffle=True, seed=2, num_workers=workers)
        for workers in (0, 2)
    ]
    first, second = ([as_lists(batch) for batch in loader] for loader in loaders)
    assert first == second
    seen = []
    for input_nodes, pairs, negatives, blocks in loaders[0]:
        ids = pairs.edges["buys"].data["_ID"]
        seen += ids.tolist()
        assert torch.equal(pairs.edges["buys"].data["stars"], ids)
        check_block(pairs, h)
        src, dst = negatives.edges(etype="buys", order="eid")
        assert len(src) == 2 * len(ids)
        users, items = (negatives.nodes[name].data["_ID"] for name in ("user", "item"))
        assert torch.equal(users[src], h.find_edges(ids, etype="buys")[0].repeat_interleave(2))
        assert len(items) == 0 or int(items[dst].max()) < 30
        for name in ("user", "item"):
            assert torch.equal(blocks[-1].dstnodes[name].data["_ID"], pairs.nodes[name].data["_ID"])
            assert torch.equal(blocks[0].srcnodes[name].data["_ID"], input_nodes[name])
        for block in blocks:
            check_block(block, h)
        drawn = {name: set(blocks[-1].edges[name].data["_ID"].tolist()) for name in ("buys", "bought-by")}
        everything = {
            "buys": set(h.in_edges(items, etype="buys", form="eid").tolist()),
            "bought-by": set(h.in_edges(users, etype="bought-by", form="eid").tolist()),
        }
        gone = set(ids.tolist())
        left_out = {
            None: {},
            "self": {"buys": gone},
            "reverse_types": {"buys": gone, "bought-by": gone},
            "function": {"bought-by": set(range(200, 400))},
        }[exclude]
        assert drawn == {name: edges - left_out.get(name, set()) for name, edges in everything.items()}
    assert sorted(seen) == list(range(60))


def test_reverse_ids_are_excluded_of_a_graph_of_one_type_and_labels_of_weights_and_labor_as_well() -> None:
    import dgl

    from lightning_gnnload.dgl import DataLoader, LaborSampler, NeighborSampler, as_edge_prediction_sampler

    src, dst = torch.arange(50), (torch.arange(50) + 1) % 50
    g = dgl.graph((torch.cat([src, dst]), torch.cat([dst, src])))
    g.edata["w"] = torch.ones(100)
    back = torch.cat([torch.arange(50, 100), torch.arange(50)])
    for inner in (NeighborSampler([-1]), NeighborSampler([-1], prob="w"), LaborSampler([-1])):
        sampler = as_edge_prediction_sampler(inner, exclude="reverse_id", reverse_eids=back)
        [(_, pairs, [block])] = DataLoader(g, torch.tensor([3, 60]), sampler, batch_size=2)
        assert pairs.edata["_ID"].tolist() == [3, 60]
        # Four nodes with two in-edges each, of which one in each is a pair or goes back.
        assert sorted(block.edata["_ID"].tolist()) == [2, 9, 54, 61]


def test_shadow_gives_the_subgraph_of_all_edges_between_what_was_drawn() -> None:
    import dgl

    from lightning_gnnload.dgl import DataLoader, ShaDowKHopSampler, as_edge_prediction_sampler

    g = graph()
    sampler = ShaDowKHopSampler([3, 3], prefetch_node_feats=["feat"], prefetch_edge_feats=["w"])
    for input_nodes, output_nodes, subgraph in DataLoader(g, torch.arange(60), sampler, batch_size=20, num_workers=2):
        assert torch.equal(subgraph.ndata[dgl.NID], input_nodes)
        assert torch.equal(input_nodes[: len(output_nodes)], output_nodes)
        assert len(input_nodes) > len(output_nodes)
        inside = torch.isin(g.edges()[0], input_nodes) & torch.isin(g.edges()[1], input_nodes)
        assert sorted(subgraph.edata[dgl.EID].tolist()) == inside.nonzero().view(-1).tolist()
        check_block(subgraph, g)
    edges = as_edge_prediction_sampler(ShaDowKHopSampler([3]), exclude="self")
    [(_, _, subgraph)] = DataLoader(g, torch.arange(5), edges, batch_size=5)
    assert not set(subgraph.edata[dgl.EID].tolist()) & set(range(5))


def test_ids_have_the_graphs_integer_type() -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler, as_edge_prediction_sampler, negative_sampler

    g = graph().int()
    [(input_nodes, output_nodes, [block])] = DataLoader(g, [1, 2], NeighborSampler([2]), batch_size=2)
    assert {input_nodes.dtype, output_nodes.dtype, block.idtype, block.edata["_ID"].dtype} == {torch.int32}
    for negatives in (negative_sampler.Uniform(1), negative_sampler.GlobalUniform(1)):
        sampler = as_edge_prediction_sampler(NeighborSampler([2]), exclude="self", negative_sampler=negatives)
        [(_, pairs, false_pairs, _)] = DataLoader(g, [1, 2], sampler, batch_size=2)
        assert {pairs.idtype, false_pairs.idtype, pairs.ndata["_ID"].dtype} == {torch.int32}
        assert false_pairs.num_edges() == 2


def test_ranks_share_all_rows_in_parts_of_equal_length(monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    seeds = []
    for rank in range(3):
        monkeypatch.setattr("torch.distributed.get_rank", lambda rank=rank: rank)
        monkeypatch.setattr("torch.distributed.get_world_size", lambda: 3)
        settings: Any = {"use_ddp": True, "ddp_seed": 4, "shuffle": True}
        loader = DataLoader(graph(), torch.arange(100), NeighborSampler([2]), batch_size=10, **settings)
        assert len(loader) == 4
        seeds.append([[ids for _, nodes, _ in loader for ids in nodes.tolist()] for _ in range(2)])
    for epoch in range(2):
        parts = [of_rank[epoch] for of_rank in seeds]
        assert [len(part) for part in parts] == [34, 34, 34]
        assert set().union(*parts) == set(range(100))  # 102 of 100: two come again
    assert set(seeds[0][0]) != set(seeds[0][1])  # parts are shared out anew


def test_an_epoch_goes_on_where_its_state_was_and_only_with_the_same_settings() -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    def loader(fanout: int = 3, **settings: Any) -> Any:
        return DataLoader(
            graph(), torch.arange(100), NeighborSampler([fanout]), batch_size=30, shuffle=True, **settings
        )

    first = loader(num_workers=2)  # with a seed of its own
    list(first)
    batches = iter(first)
    expected = [as_lists(next(batches)), as_lists(next(batches))]
    state = first.state_dict()
    expected = [as_lists(batch) for batch in batches]
    second = loader()
    second.load_state_dict(state)
    assert [as_lists(batch) for batch in second] == expected
    assert len(expected) == 2
    other = loader(fanout=2)
    other.load_state_dict(state)
    with pytest.raises(CheckpointError):
        next(iter(other))


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_last_mini_batch_with_fewer_rows_is_left_out_if_asked(drop_last: bool) -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    settings: Any = {"batch_size": 4, "drop_last": drop_last}
    loader = DataLoader(graph(), torch.arange(10), NeighborSampler([2]), **settings)
    sizes = [len(nodes) for _, nodes, _ in loader]
    assert sizes == [4, 4, 2][: 2 if drop_last else 3]
    assert len(loader) == len(sizes)


def test_an_epoch_goes_on_only_where_the_same_edges_are_left_out() -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler, ShaDowKHopSampler, as_edge_prediction_sampler

    def loader(sampler: Any = None, **settings: Any) -> Any:
        sampler = sampler or NeighborSampler([2])
        return DataLoader(
            graph(), torch.arange(30), as_edge_prediction_sampler(sampler, **settings), batch_size=10, seed=1
        )

    ids = torch.arange(graph().num_edges())
    one_way, other_way = ({"exclude": "reverse_id", "reverse_eids": back} for back in (ids, ids.flip(0)))
    for before, after in (
        (one_way, other_way),
        ({"exclude": ids[:9]}, {"exclude": ids[:50]}),
        ({}, {"exclude": ids[:50]}),
        ({}, {"sampler": ShaDowKHopSampler([2])}),
    ):
        first = loader(**before)
        next(iter(first))
        same, other = loader(**before), loader(**after)
        for resumed in (same, other):
            resumed.load_state_dict(first.state_dict())
        assert len(list(same)) == 2
        with pytest.raises(CheckpointError, match="then and"):
            next(iter(other))


def test_a_column_that_is_not_there_is_named() -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    loader = DataLoader(graph(), [1], NeighborSampler([2], prefetch_node_feats=["feats"]))
    with pytest.raises(SamplerConfigError, match=r"'feats'.*Those are 'feat'"):
        next(iter(loader))


def test_samplers_and_negatives_of_the_users_leave_the_loader_to_dgl() -> None:
    import dgl

    from lightning_gnnload.dgl import DataLoader, NeighborSampler, as_edge_prediction_sampler

    g = graph()
    own = dgl.dataloading.NeighborSampler([2], prefetch_node_feats=["feat"])

    class Twice(NeighborSampler):
        """Draws two more hops of each."""

        def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> Any:
            input_nodes, _, blocks = super().sample_blocks(g, seed_nodes, exclude_eids)
            return input_nodes, seed_nodes, [*blocks, *blocks]

    negatives = as_edge_prediction_sampler(NeighborSampler([2]), negative_sampler=lambda g, ids: (ids, ids))
    for sampler, num_blocks in ((own, 1), (negatives, 1), (Twice([2]), 2)):
        loader = DataLoader(g, torch.arange(20), sampler, batch_size=10)
        batches = list(loader)
        assert len(batches) == len(loader) == 2
        assert len(batches[0][-1]) == num_blocks
        for block in batches[0][-1]:
            check_block(block, g)
        with pytest.raises(LoaderConfigError, match="DGL's own"):
            loader.load_state_dict({})


def test_attributes_are_dgls() -> None:
    import dgl

    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    g, sampler = graph(), NeighborSampler([2])
    settings: Any = {"batch_size": 3, "drop_last": True, "shuffle": True}
    own, ours = dgl.dataloading.DataLoader(g, [1, 2], sampler, **settings), DataLoader(g, [1, 2], sampler, **settings)
    assert isinstance(ours, dgl.dataloading.DataLoader)
    assert isinstance(sampler, dgl.dataloading.NeighborSampler)
    assert set(vars(own)) <= set(vars(ours)) | {"_DataLoader__multiprocessing_context"}
    names = ("indices", "drop_last", "shuffle", "use_ddp", "ddp_seed", "use_uva", "device", "num_workers", "batch_size")
    for name in (*names, "use_prefetch_thread", "pin_prefetcher", "cpu_affinity_enabled"):
        assert getattr(own, name) == getattr(ours, name)
    assert ours.graph is g
    assert ours.graph_sampler is sampler


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_affinity_binds_each_worker_and_the_caller_and_is_given_back() -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    cores, seen = os.sched_getaffinity(0), []
    note = lambda number: seen.append((number, os.sched_getaffinity(0), threading.current_thread().name))  # noqa: E731
    settings: Any = {"batch_size": 10, "num_workers": 1, "worker_init_fn": note}
    loader = DataLoader(graph(), torch.arange(20), NeighborSampler([2]), **settings)
    first, *rest = sorted(cores)
    with loader.enable_cpu_affinity(verbose=False):
        assert os.sched_getaffinity(0) == {*rest}
        list(loader)
    assert os.sched_getaffinity(0) == cores
    [(number, core, name)] = seen
    assert (number, core) == (0, {first})
    assert name != threading.current_thread().name
    settings["num_workers"] = len(cores)
    crowded = DataLoader(graph(), torch.arange(20), NeighborSampler([2]), **settings)
    with pytest.raises(LoaderConfigError, match="fewer num_workers"), crowded.enable_cpu_affinity():
        pass


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"num_worker": 2}, UnknownSettingError, "num_workers"),
        ({"timeout": 5}, LoaderConfigError, "timeout"),
        ({"collate_fn": len}, LoaderConfigError, "sampler of yours"),
        ({"gpu_cache": {"node": {"feat": 5}}}, LoaderConfigError, "cache="),
        ({"batch_size": 0}, LoaderConfigError, "batch_size"),
        ({"seed": -1}, LoaderConfigError, "2\\*\\*64"),
        ({"indices": torch.tensor([200])}, SeedError, "200"),
        ({"indices": torch.zeros(200, dtype=torch.bool)}, SeedError, "nonzero"),
        ({"indices": {"paper": [1]}}, SamplerConfigError, "node type"),
        ({"indices": [0.5]}, SeedError, "ids"),
        ({"indices": None}, SeedError, "not None"),
        ({"indices": {}}, SeedError, "no type"),
        ({"device": "meta"}, CudaUnavailableError, "meta"),
        ({"device": "hal"}, LoaderConfigError, "'hal' is none"),
    ],
)
def test_mistakes_are_refused_before_the_first_mini_batch(settings: Any, error: Any, words: str) -> None:
    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    with pytest.raises(error, match=words):
        DataLoader(graph(), graph_sampler=NeighborSampler([2]), **{"indices": [1], **settings})


def test_a_trainer_reads_it_and_announces_epochs() -> None:
    from dgl.nn import SAGEConv
    from pytorch_lightning import LightningModule, Trainer

    from lightning_gnnload.dgl import DataLoader, NeighborSampler

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = SAGEConv(4, 3, "mean"), []

        def training_step(self, batch: Any) -> Any:
            _, output_nodes, [block] = batch
            self.seen.append(output_nodes.tolist())
            h = self.layer(block, block.srcdata["feat"])
            return torch.nn.functional.cross_entropy(h, block.dstdata["label"])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    model, sampler = Model(), NeighborSampler([2], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = DataLoader(graph(), torch.arange(60), sampler, batch_size=30, shuffle=True, seed=3, num_workers=1)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    by_hand = DataLoader(graph(), torch.arange(60), sampler, batch_size=30, shuffle=True, seed=3)
    assert model.seen == [nodes.tolist() for _ in range(2) for _, nodes, _ in by_hand]


def test_without_dgl_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import lightning_gnnload.dgl as ours

    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[dgl\]"):
        _ = ours.AnotherName
