"""to_pyg and GraphData.from_pyg with types: what PyG's own NeighborLoader would give for the same draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, MiniBatch, NeighborSampler
from lightning_gnnload.adapters.graphs import to_pyg_graph
from lightning_gnnload.adapters.pyg.write import to_pyg
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.errors import GraphDataError, SamplerConfigError
from tests.runif import RunIf
from tests.unit.typed import KINDS, NODES, typed_edges, typed_flat, typed_graph

pytestmark = RunIf(extras="pyg")

WIDTHS = {"paper": 5, "author": 3, "venue": 2}  # fields have no features


def whole() -> Any:
    """What users put into a HeteroData."""
    from torch_geometric.data import HeteroData

    data, random = HeteroData(), torch.Generator().manual_seed(3)
    for kind, count in NODES.items():
        if kind in WIDTHS:
            data[kind].x = torch.randn(count, WIDTHS[kind], generator=random)
        data[kind].num_nodes = count
    data["paper"].y = torch.arange(NODES["paper"]) % 4
    data["paper"].train_mask = torch.arange(NODES["paper"]) < 12
    data["paper"].time = torch.arange(NODES["paper"]) * 100
    data["author"].age = torch.arange(NODES["author"]).half()
    data["author"].label = "people"  # of the type as a whole
    for kind, ends in typed_edges().items():
        data[kind].edge_index = torch.from_numpy(ends)
    cites, knows = data[KINDS[1]], data[KINDS[5]]
    cites.edge_attr = torch.randn(cites.num_edges, 4, generator=random)
    cites.edge_weight = torch.rand(cites.num_edges, generator=random)
    knows.since = torch.arange(knows.num_edges)
    data.name = "toy"
    return data


def flat_of(data: Any, graph: Graph, **settings: Any) -> tuple[MiniBatch, dict[str, Any]]:
    """A mini-batch with the columns of ``data``, as slots hold them, and which type each is of."""
    flat, columns = typed_flat(graph, **settings), {}
    types, tables = graph.types, {}
    assert types is not None
    for kind in NODES:
        ids = torch.tensor([v - types.range_of(kind).start for v in flat.nodes.tolist() if v in types.range_of(kind)])
        for name, rows in data[kind].items():
            if name in ("x", "train_mask", "time", "age"):
                tables[f"{kind}_{name}"] = rows[ids.long()]
                columns[f"{kind}_{name}"] = kind, name
    blocks = []
    for block in flat.blocks:
        of_edges = {}
        for k, name in ((1, "edge_attr"), (1, "edge_weight"), (5, "since")):
            chosen = block.edge_ids[torch.from_numpy(edge_types(block, graph)) == k]
            of_edges[f"{k}_{name}"] = data[KINDS[k]][name][torch.from_numpy(graph.edge_order)[chosen].long()]
            columns[f"edge.{k}_{name}"] = KINDS[k], "x" if name == "edge_attr" else name
        blocks.append(replace(block, tables=of_edges))
    y = data["paper"].y[flat.seeds]
    return replace(flat, y=y, tables=tables, blocks=blocks), columns


def own_loader(data: Any, batch: Any) -> Any:
    """What PyG's NodeLoader makes of the same sample."""
    from torch_geometric.loader import NodeLoader
    from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput

    class Replayed(BaseSampler):
        edge_permutation = None

        def sample_from_nodes(self, index: Any, **_: Any) -> Any:
            return HeteroSamplerOutput(
                node={kind: batch[kind].n_id for kind in batch.node_types},
                row={kind: batch[kind].edge_index[0] for kind in batch.edge_types},
                col={kind: batch[kind].edge_index[1] for kind in batch.edge_types},
                edge={kind: batch[kind].e_id for kind in batch.edge_types},
                num_sampled_nodes=batch.num_sampled_nodes_dict,
                num_sampled_edges=batch.num_sampled_edges_dict,
                metadata=(index.input_id, index.time),
            )

        def sample_from_edges(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    seeds = batch["paper"].n_id[: batch["paper"].batch_size]
    return next(iter(NodeLoader(data, Replayed(), ("paper", seeds), batch_size=len(seeds))))


def test_a_batch_is_what_pygs_own_loader_makes_of_the_sample() -> None:
    from lightning_gnnload.adapters.pyg.read import part_whole

    data, graph = whole(), typed_graph()
    flat, columns = flat_of(data, graph)
    mine = to_pyg(flat, graph, columns, part_whole(data)[1])
    theirs = own_loader(data, mine)
    assert (mine.node_types, mine.edge_types) == (theirs.node_types, theirs.edge_types)
    assert mine.name == theirs.name
    for wanted, store in zip(theirs.node_stores + theirs.edge_stores, mine.node_stores + mine.edge_stores, strict=True):
        missing = {key for key, value in wanted.items() if value is not None} - set(store.keys())
        assert missing <= {"num_nodes"}, store._key  # x counts the nodes
        # PyG numbers seeds that are no mask by their places, ours are nodes.
        for key in set(wanted.keys()) - missing - {"input_id"}:
            if key == "y":
                assert torch.equal(store.y, wanted.y[:3])
            elif isinstance(wanted[key], torch.Tensor):
                assert store[key].dtype == wanted[key].dtype, (store._key, key)
                assert torch.equal(store[key], wanted[key]), (store._key, key)
            else:
                assert store[key] == wanted[key], (store._key, key)
    assert mine.validate(raise_on_error=True)
    assert mine["venue"].x.shape == (0, 2)
    assert mine[KINDS[4]].edge_index.shape == (2, 0)
    assert mine.num_edges > 20


def test_edges_are_those_of_the_users_lists() -> None:
    data, graph = whole(), typed_graph()
    mine = to_pyg(typed_flat(graph), graph)
    for kind in KINDS:
        src, dst = mine[kind].edge_index
        ends = torch.stack([mine[kind[0]].n_id[src], mine[kind[2]].n_id[dst]])
        assert torch.equal(ends, data[kind].edge_index[:, mine[kind].e_id])


def test_trimming_leaves_what_each_layer_needs() -> None:
    from torch_geometric.utils import trim_to_layer

    data, graph = whole(), typed_graph()
    flat, columns = flat_of(data, graph)
    mine, typed = to_pyg(flat, graph, columns), TypedMiniBatch.of(flat, graph, columns)
    x = {kind: mine[kind].n_id for kind in NODES}
    ends = mine.edge_index_dict
    for layer, blocks in enumerate(typed.blocks):
        x, ends, _ = trim_to_layer(layer, mine.num_sampled_nodes_dict, mine.num_sampled_edges_dict, x, ends)
        for kind, block in blocks.items():
            assert torch.equal(ends[kind], torch.stack([block.indices.long(), block.edge_dst()]))
            assert len(x[kind[0]]) == block.num_src


def test_hops_that_draw_a_node_twice_are_refused() -> None:
    graph = typed_graph()
    with pytest.raises(SamplerConfigError, match="expand='new'"):
        to_pyg(typed_flat(graph, expand="all"), graph)


def test_rows_of_disjoint_seeds_are_pygs_batch() -> None:
    graph = typed_graph()
    flat = typed_flat(graph)
    mine = to_pyg(replace(flat, rows=(flat.nodes % 3).int()), graph)
    types = graph.types
    assert types is not None
    for kind in NODES:
        assert mine[kind].batch.dtype == torch.int64
        assert torch.equal(mine[kind].batch, (mine[kind].n_id + types.range_of(kind).start) % 3)


def test_a_batch_without_hops_or_features() -> None:
    graph = typed_graph()
    mine = to_pyg(NeighborSampler([]).sample(graph, [3, 1]), graph)
    assert mine["paper"].n_id.tolist() == [3, 1]
    assert {kind: mine[kind].num_nodes for kind in NODES} == {"paper": 2, "author": 0, "venue": 0, "field": 0}
    assert all(mine[kind].edge_index.shape == (2, 0) for kind in KINDS)
    assert mine.num_sampled_nodes_dict["paper"] == [2]


@pytest.mark.parametrize("name", ["num_sampled_nodes", "batch_size", "y", "n_id"])
def test_a_table_hides_no_attribute(name: str) -> None:
    graph = typed_graph()
    flat = typed_flat(graph)
    with pytest.raises(GraphDataError, match=f"'{name}' (of the tables of paper|names two columns)"):
        to_pyg(replace(flat, tables={"t": flat.nodes[flat.nodes < 30]}), graph, {"t": ("paper", name)})


def batches(num: int = 8) -> list[Any]:
    data, graph = whole(), typed_graph()
    made = []
    for step in range(num):
        flat, columns = flat_of(data, graph, seeds=[step, 20 - step, 29], seed=step)
        made.append(to_pyg(flat, graph, columns))
    return made


def train(model: Any, forward: Any) -> None:
    """A few steps lower the loss, and every parameter that was reached has got a gradient."""
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.02), []
    for _ in range(5):
        for batch in batches():
            optimizer.zero_grad()
            out = forward(model, batch)[: batch["paper"].batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch["paper"].y)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])


def featured(batch: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """Features and edges; fields have no features of their own, and get ones."""
    x = {kind: batch[kind].x if kind in WIDTHS else torch.ones(batch[kind].num_nodes, 1) for kind in NODES}
    return x, batch.edge_index_dict


@pytest.mark.filterwarnings("ignore")
def test_models_of_pyg_run_and_train() -> None:
    from torch_geometric.nn import HeteroConv, HGTConv, Linear, SAGEConv, to_hetero

    torch.manual_seed(0)
    metadata = (list(NODES), KINDS)

    class Sage(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = SAGEConv((-1, -1), 16), SAGEConv((-1, -1), 4)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.second(self.first(x, edge_index).relu(), edge_index)

    class Hetero(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = HeteroConv({kind: SAGEConv((-1, -1), 4) for kind in KINDS})

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index)

    class HGT(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.ModuleDict({kind: Linear(-1, 16) for kind in NODES})
            self.conv, self.out = HGTConv(16, 16, metadata, heads=2), Linear(16, 4)

        def forward(self, x: Any, edge_index: Any) -> Any:
            h = self.conv({kind: self.embed[kind](rows).relu() for kind, rows in x.items()}, edge_index)
            return {"paper": self.out(h["paper"])}

    for model in (to_hetero(Sage(), metadata), Hetero(), HGT()):
        train(model, lambda model, batch: model(*featured(batch))["paper"])


def test_a_hetero_data_keeps_its_types_columns_and_splits() -> None:
    data = whole()
    mine = GraphData.from_pyg(data)
    types = mine.graph.types
    assert types is not None
    assert (types.node_types, types.num_nodes) == (tuple(NODES), tuple(NODES.values()))
    assert types.edge_types == tuple(KINDS)
    assert set(mine.tables) == {
        "x.paper", "x.author", "x.venue", "train_mask.paper", "time.paper", "age.author",
    }  # fmt: skip
    assert set(mine.edge_tables) == {f"{name}.{'__'.join(KINDS[k])}" for name, k in
                                     (("x", 1), ("edge_weight", 1), ("since", 5))}  # fmt: skip
    assert mine.train.tolist() == list(range(12))
    assert mine.y[:30].tolist() == data["paper"].y.tolist()
    assert mine.graph.clock is None
    # Weights lie by run: in the order of each type's list they are the user's; other types count 1.
    types_of_edges = mine.graph.edge_types_of(np.arange(mine.graph.num_edges))
    for k in range(len(KINDS)):
        own = types_of_edges == k
        given = data[KINDS[k]].edge_weight.numpy()[mine.graph.edge_order[own]] if k == 1 else np.ones(own.sum())
        assert np.array_equal(mine.graph.edge_weight[own], given)


def test_times_become_those_of_the_graph() -> None:
    data = whole()
    data[KINDS[5]].time = torch.arange(40).flip(0) * 7
    mine = GraphData.from_pyg(data, time_attr="time")
    graph = mine.graph
    assert graph.clock is not None
    assert graph.clock.timed.tolist() == [False, True, True, True, False, True, True]  # from papers, or of their own
    assert graph.node_time[:30].tolist() == data["paper"].time.tolist()
    assert {"time.paper", f"time.{'__'.join(KINDS[5])}"} <= {*mine.tables, *mine.edge_tables}
    own = np.flatnonzero(graph.edge_types_of(np.arange(graph.num_edges)) == 5)
    assert graph.edge_time[own].tolist() == [(39 - row) * 7 for row in graph.edge_order[own]]
    with pytest.raises(GraphDataError, match="time_attr='when'"):
        GraphData.from_pyg(data, time_attr="when")


def test_times_of_a_data_become_those_of_the_graph() -> None:
    from torch_geometric.data import Data

    edge_index, time = torch.tensor([[1, 2, 3], [0, 0, 0]]), torch.tensor([30, 10, 20])
    mine = GraphData.from_pyg(Data(edge_index=edge_index, time=time, num_nodes=4, edge_type=time), time_attr="time")
    assert mine.graph.in_neighbors(0).tolist() == [2, 3, 1]
    assert mine.graph.types is None
    assert set(mine.edge_tables) == {"time", "edge_type"}
    assert GraphData.from_pyg(Data(edge_index=edge_index, time=time, num_nodes=4)).graph.clock is None


def test_columns_that_were_asked_for_and_splits_that_were_given() -> None:
    mine = GraphData.from_pyg(
        whole(), tables=["age"], edge_tables="since", train={"paper": [3]}, val={"paper": torch.arange(30) > 27}
    )
    assert set(mine.tables) == {"x.paper", "x.author", "x.venue", "age.author"}
    assert set(mine.edge_tables) == {"since.author__knows__author"}
    assert (mine.train.tolist(), mine.val.tolist()) == ([3], [28, 29])


def test_splits_may_be_tables_beside_masks() -> None:
    papers = SeedTable([3, 3], node_type="paper", y=[1, 0])
    links = SeedTable(src=[0], dst=[1], edge_type=KINDS[0])
    mine = GraphData.from_pyg(whole(), val=papers, test=links)
    assert (mine.table("train"), mine.table("val"), mine.table("test")) == (None, papers, links)
    assert mine.split("train", "paper").tolist() == list(range(12))
    assert mine.labels_of("paper") is not None  # which the mask's seeds have
    both = {kind: SeedTable(src=[0], dst=[1]) for kind in KINDS[:2]}
    several = GraphData.from_pyg(whole(), train=both, val=papers).table("train")
    assert several is not None
    assert list(several.rows_by_type) == list(KINDS[:2])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tables": ["nothing"]}, "tables='nothing'"),
        ({"edge_tables": ["age"]}, "edge_tables='age'"),
        ({"edge_feature_name": "age"}, "edge_feature_name='age'"),
        ({"train": [1, 2]}, "train must be ids or masks by node type, or a SeedTable, but is a list"),
        ({"train": {"papers": [1]}}, r"\['papers'\]; the types are paper, author"),
        ({"train": {"paper": torch.ones(3, dtype=torch.bool)}}, r"\[30\]"),
    ],
)
def test_what_is_not_there_is_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(GraphDataError, match=says):
        GraphData.from_pyg(whole(), **settings)


def test_attributes_that_no_mini_batch_can_carry_are_named() -> None:
    data = whole()
    data["author"].words = ["a"] * NODES["author"]
    with pytest.raises(GraphDataError, match=r"'words'.*a list"):
        GraphData.from_pyg(data)
    assert "age.author" in GraphData.from_pyg(data, tables=["age"]).tables
    data = whole()
    data[KINDS[5]].other_edge_index = torch.zeros(2, 40)
    with pytest.raises(GraphDataError, match="other_edge_index"):
        GraphData.from_pyg(data)
    data = whole()
    data["author"].y = torch.zeros(20)
    with pytest.warns(UserWarning, match="'y' of author"):
        mine = GraphData.from_pyg(data)
    assert mine.y[:30].tolist() == data["paper"].y.tolist()


def test_the_way_back_gives_the_same_graph() -> None:
    data = whole()
    again = to_pyg_graph(GraphData.from_pyg(data))
    assert (again.node_types, again.edge_types) == (data.node_types, data.edge_types)
    for mine, wanted in zip(again.node_stores + again.edge_stores, data.node_stores + data.edge_stores, strict=True):
        keys = {key for key, value in wanted.items() if isinstance(value, torch.Tensor)}
        assert keys == set(mine.keys()) - {"num_nodes"}
        for key in keys:
            assert mine[key].dtype == wanted[key].dtype
            assert torch.equal(mine[key], wanted[key]), key
        assert mine.get("num_nodes") == wanted.get("num_nodes")


def test_the_way_back_without_types() -> None:
    from torch_geometric.data import Data

    data = Data(
        x=torch.randn(4, 2, 3),
        y=torch.tensor([1, 0, 0, 2]),
        edge_index=torch.tensor([[3, 0, 2], [1, 1, 0]]),
        edge_attr=torch.randn(3, 2),
        edge_weight=torch.rand(3),
        at=torch.arange(4),
        val_mask=torch.arange(4) > 1,
        num_nodes=4,
    )
    again = to_pyg_graph(GraphData.from_pyg(data))
    assert set(again.keys()) == set(data.keys())
    for key, rows in data.to_dict().items():
        assert torch.equal(again[key], rows) if isinstance(rows, torch.Tensor) else again[key] == rows, key
    # A graph of one's own, whose edge tables were not named: weights and types travel, in the order of the list.
    graph = Graph.from_coo([3, 0, 2], [1, 1, 0], 4, [0.5, 1.0, 2.0], [7, 8, 9], keep_order=True)
    again = to_pyg_graph(GraphData(graph, train=[2, 0]))
    assert again.edge_index.tolist() == [[3, 0, 2], [1, 1, 0]]
    assert (again.edge_weight.tolist(), again.edge_type.tolist()) == ([0.5, 1.0, 2.0], [7, 8, 9])
    assert again.train_mask.tolist() == [True, False, True, False]


@pytest.mark.parametrize("fanouts", [[4, 3], [{KINDS[0]: 3, KINDS[1]: -1}, 2]])
def test_a_data_module_gives_what_pygs_own_loader_makes_of_the_sample(fanouts: Any) -> None:
    data = whole()
    module = GraphDataModule.from_pyg(data, sampler=NeighborSampler(fanouts, expand="new"), batch_size=5)
    seen = 0
    for mine in module.train_dataloader():
        theirs = own_loader(data, mine)
        stores = zip(theirs.node_stores + theirs.edge_stores, mine.node_stores + mine.edge_stores, strict=True)
        for wanted, store in stores:
            for key, value in wanted.items():
                if key in ("input_id", "num_nodes"):  # by places among the seeds; x counts the nodes
                    continue
                given = store.get(key, None)
                if key == "y":
                    assert torch.equal(given, value[: mine["paper"].batch_size])
                elif isinstance(value, torch.Tensor):
                    assert given.dtype == value.dtype, (store._key, key)
                    assert torch.equal(given, value), (store._key, key)
                else:
                    assert given == value, (store._key, key)
        seen += mine["paper"].batch_size
        assert (mine.name, mine["author"].label) == ("toy", "people")
    assert seen == 12


def test_rows_of_a_table_give_pygs_input_id_and_seed_time() -> None:
    data = whole()
    table = SeedTable([3, 3, 7], node_type="paper", time=[500, 2500, 2500], y=[0, 1, 0], columns={"kind": [7, 8, 9]})
    graph_data = GraphData.from_pyg(data, time_attr="time")
    graph_data = GraphData(graph_data.graph, x={"paper": data["paper"].x}, train=table)
    module = GraphDataModule(
        graph_data, NeighborSampler([4, 3], expand="new"), batch_size=3, batch_format="pyg", order="sequential"
    )
    [batch] = module.train_dataloader()
    papers = batch["paper"]
    assert papers.input_id.tolist() == [0, 1, 2]
    assert papers.seed_time.tolist() == [500, 2500, 2500]
    assert (papers.y.tolist(), papers.kind.tolist(), papers.batch_size) == ([0, 1, 0], [7, 8, 9], 3)
    assert papers.n_id[:3].tolist() == [3, 3, 7]
    assert papers.batch[:3].tolist() == [0, 1, 2]
    # No paper is later than the row that it was drawn for; and some are, of those of all times.
    assert bool((papers.n_id * 100 <= papers.seed_time[papers.batch]).all())
    assert papers.n_id.max() * 100 > 500
    # Nodes of one row alone have edges between them.
    for kind in KINDS:
        src, dst = batch[kind].edge_index
        assert torch.equal(batch[kind[0]].batch[src], batch[kind[2]].batch[dst])


def test_blocks_of_a_typed_graph_are_cut_by_type_and_the_same_each_time() -> None:
    data = GraphData.from_pyg(whole())

    def batches() -> list[TypedMiniBatch]:
        return list(GraphDataModule(data, NeighborSampler([4, 3]), batch_size=5, num_threads=2).train_dataloader())

    first, again = batches(), batches()
    assert len(first) == 3
    for mine, other in zip(first, again, strict=True):
        assert isinstance(mine, TypedMiniBatch)
        assert all(torch.equal(mine.nodes[kind], other.nodes[kind]) for kind in NODES)
        assert torch.equal(mine.x["author"], whole()["author"].x[mine.nodes["author"]])
        cites = mine.blocks[0][KINDS[1]]
        rows = torch.from_numpy(data.graph.edge_order)[cites.edge_ids]
        assert torch.equal(cites.x, whole()[KINDS[1]].edge_attr[rows.long()])
        assert torch.equal(cites.tables["edge_weight"], whole()[KINDS[1]].edge_weight[rows.long()])
        assert torch.equal(mine.y["paper"], whole()["paper"].y[mine.seeds["paper"]])
