"""Named tables, tables of node types and edge features in mini-batches: each row is that of its node or edge."""

import json

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    FeatureStore,
    Graph,
    GraphData,
    LaborSampler,
    LayerSampler,
    MiniBatch,
    NeighborSampler,
    NodeTable,
    RandomWalkSampler,
    ShadowSampler,
    WeightedNeighborSampler,
)
from lightning_gnnload.data.features import TierReads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from tests.unit.pipeline.job import job
from tests.unit.toy import content, toy_source, toy_workload

NUM_NODES, NUM_EDGES = 300, 2400
REQUEST = BatchRequest(0, 1, 0, 1)


def edges() -> np.ndarray:
    """``[2, E]``: sources above destinations; repeated edges, loops and nodes without neighbours among them."""
    return np.random.default_rng(0).integers(0, NUM_NODES, (2, NUM_EDGES))


def rich_data(graph: Graph | None = None, edge_x=None) -> GraphData:
    """Every table's rows tell whose they are; types of nodes: [0, 200) has five columns, [200, 300) two."""
    ids = torch.arange(NUM_NODES)
    src, dst = edges()
    ends = torch.as_tensor(np.stack([src, dst], 1) if edge_x is None else edge_x)
    return GraphData(
        graph or Graph.from_coo(src, dst, NUM_NODES, edge_weight=np.ones(NUM_EDGES, np.float32), keep_order=True),
        x=ids[:, None] + torch.arange(3) / 8,
        y=ids % 7,
        train=range(50, 250),
        tables={
            "twice": (2 * ids)[:, None].to(torch.int32),
            "column": ids % 2 == 0,
            "grid": ids[:, None, None].expand(NUM_NODES, 2, 3),
            "low": NodeTable(ids[:200, None].expand(200, 5).to(torch.float16), 0, 200),
            "high": NodeTable(ids[200:, None].expand(100, 2).double(), 200),
        },
        edge_x=ends,
        edge_tables={"twice": ends.sum(1), "ends": ends[:, None].short()},
    )


def assert_rows(batch: MiniBatch) -> None:
    nodes = batch.nodes
    assert torch.equal(batch.x[:, 0], nodes.float())
    assert torch.equal(batch.tables["twice"][:, 0], 2 * nodes.int())
    assert batch.tables.keys() == {"twice", "column", "grid", "low", "high"}
    assert torch.equal(batch.tables["column"], nodes % 2 == 0)
    assert torch.equal(batch.tables["grid"], nodes[:, None, None].expand(-1, 2, 3))
    assert batch.positions.keys() == {"low", "high"}
    for name, of_type, width, dtype in (
        ("low", nodes < 200, 5, torch.float16),
        ("high", nodes >= 200, 2, torch.float64),
    ):
        positions, rows = batch.positions[name], batch.tables[name]
        assert torch.equal(positions, of_type.nonzero().view(-1))
        assert (rows.shape, rows.dtype) == ((len(positions), width), dtype)
        assert torch.equal(rows, nodes[positions, None].expand(-1, width).to(dtype))
    for block in batch.blocks:
        assert block.x.shape == (block.num_edges, 2)
        assert torch.equal(block.x[:, 0], nodes[block.indices.long()])
        assert torch.equal(block.x[:, 1], nodes[block.edge_dst()])
        assert block.tables.keys() == {"twice", "ends"}
        assert torch.equal(block.tables["twice"], block.x.sum(1))
        assert torch.equal(block.tables["ends"], block.x[:, None].short())


def made(source: BatchSource, request: BatchRequest = REQUEST, num_bytes: int = 1 << 20) -> MiniBatch:
    slot = Slot(num_bytes)
    return source.make(request, slot).view(slot.buffer())


@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([3, 2], edge_ids=True),
        NeighborSampler([3, 2, 2], edge_ids=True, expand="new"),  # its hops share one array of edges
        NeighborSampler([-1, -1], edge_ids=True),
        NeighborSampler([], edge_ids=True),
        WeightedNeighborSampler([3, 2], edge_ids=True),
        LaborSampler([3, 2], edge_ids=True),
        LayerSampler([40, 30], edge_ids=True),
        ShadowSampler([3, 2], num_layers=3, edge_ids=True),  # all of its blocks are one
    ],
    ids=repr,
)
def test_every_row_is_that_of_its_node_or_edge(sampler) -> None:
    source = toy_source(rich_data(), sampler=sampler)
    for step in range(3):
        batch = made(source, BatchRequest(0, step, 0, 1))
        assert len(batch.blocks) == sampler.num_layers
        assert_rows(batch)


def test_rows_lie_in_the_order_in_which_the_edges_were_given() -> None:
    src, dst = edges()
    order = np.argsort(dst, kind="stable")
    indptr = np.concatenate([[0], np.bincount(dst, minlength=NUM_NODES).cumsum()])
    graph = Graph.from_csc(indptr, src[order])
    rows = np.stack([src[order], dst[order]], 1)
    assert_rows(made(toy_source(rich_data(graph, rows), sampler=NeighborSampler([3, 2], edge_ids=True))))


@pytest.mark.parametrize("num_bytes", [1, 1 << 12, 3 << 12, 1 << 14, 1 << 20])
def test_the_first_size_of_a_slot_changes_nothing(num_bytes: int) -> None:
    # The wrong code keeps positions from before the growth, or lets tables run into the hops.
    assert_rows(made(toy_source(rich_data(), sampler=NeighborSampler([5, 5], edge_ids=True)), num_bytes=num_bytes))


def test_a_node_type_without_a_node_in_the_batch() -> None:
    data = rich_data()
    data.tables["nobody"] = NodeTable(np.empty((0, 4), np.float32), 300)
    batch = made(toy_source(data, sampler=NeighborSampler([2], edge_ids=True)))
    assert batch.tables["nobody"].shape == (0, 4)
    assert batch.positions["nobody"].shape == (0,)


def test_a_heterogeneous_model_needs_three_lines() -> None:
    batch = made(toy_source(rich_data(), sampler=NeighborSampler([3, 2], edge_ids=True)))
    project = {"low": torch.nn.Linear(5, 8), "high": torch.nn.Linear(2, 8)}
    h = torch.zeros(batch.num_nodes, 8)
    for name, layer in project.items():
        h[batch.positions[name]] = layer(batch.tables[name].float())
    row = int(batch.positions["high"][0])
    assert torch.equal(h[row], project["high"](batch.nodes[row].float().expand(2)))
    assert (h != 0).any(1).all()


def test_copies_keep_everything() -> None:
    batch = made(toy_source(rich_data(), sampler=NeighborSampler([3, 2], edge_ids=True)))
    copy = batch.clone()
    assert_rows(copy)
    pairs = [(copy.tables[name], rows) for name, rows in batch.tables.items()]
    pairs += [(copy.positions[name], positions) for name, positions in batch.positions.items()]
    pairs += [(ours.x, theirs.x) for ours, theirs in zip(copy.blocks, batch.blocks, strict=True)]
    assert all(ours.data_ptr() != theirs.data_ptr() for ours, theirs in pairs)
    moved = batch.to("meta")
    assert {t.device.type for t in (*moved.tables.values(), *moved.positions.values(), moved.blocks[0].x)} == {"meta"}
    assert "low=" in repr(batch)


def test_through_the_queue() -> None:
    source = toy_source(rich_data(), sampler=NeighborSampler([3, 2], edge_ids=True))
    with job(source) as running:
        num_batches = 0
        for batch in running.loader(running.queue()):
            assert_rows(batch)
            num_batches += 1
        assert num_batches == 13


class Counted(FeatureStore):
    """The same rows from two tiers, turn about; notes what it was asked."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store
        self.asked: list = []

    @property
    def shape(self):
        return self.store.shape

    @property
    def dtype(self):
        return self.store.dtype

    def announce(self, request) -> None:
        self.asked.append(request)

    def gather(self, ids, out):
        self.asked.append(len(ids))
        self.store.gather(ids, out)
        half = len(ids) // 2
        return TierReads("cache", half, half * 4), TierReads("memory", len(ids) - half, (len(ids) - half) * 4)


def test_a_store_may_stand_in_front_of_every_table_and_reads_are_summed() -> None:
    data, sampler = rich_data(), NeighborSampler([3, 2], edge_ids=True)
    front = {name: Counted(store) for name, store in data.stores.items() if name != "twice"}
    source = BatchSource(data, toy_workload(data, sampler=sampler), front)
    slot = Slot()
    payload = source.make(REQUEST, slot)
    batch = payload.view(slot.buffer())
    assert_rows(batch)
    num_edges = sum(block.num_edges for block in batch.blocks)
    rows = {name: len(at) for name, at in batch.positions.items()}
    rows |= dict.fromkeys(("x", "column", "grid"), batch.num_nodes) | dict.fromkeys(
        ("edge_x", "edge.twice", "edge.ends"), num_edges
    )
    assert {name: store.asked for name, store in front.items()} == {name: [REQUEST, rows[name]] for name in rows}
    cache, memory = payload.reads
    assert (cache.tier, memory.tier) == ("cache", "memory")
    assert cache.rows == sum(count // 2 for count in rows.values())
    assert cache.rows + memory.rows == sum(rows.values()) + batch.num_nodes  # and those of the table without
    assert cache.num_bytes == 4 * cache.rows


def test_edge_features_need_edge_ids() -> None:
    with pytest.raises(SamplerConfigError, match=r"NeighborSampler\(\[3, 2\].*\) gives none.*edge_ids=True"):
        toy_source(rich_data())
    # A walk's edges are none of the graph's: only its batches tell.
    with pytest.raises(SamplerConfigError, match=r"edge_x, edge.twice, edge.ends.*blocks have none.*edge_ids=True"):
        made(toy_source(rich_data(), sampler=RandomWalkSampler(num_layers=1)))


def test_a_row_beyond_the_table_is_not_read() -> None:
    data = rich_data()
    data.tables["low"] = NodeTable(np.zeros((199, 5), np.float32), 0)
    data.tables["low"].count = 200
    with pytest.raises(SeedError, match="199"):
        made(
            toy_source(data, sampler=NeighborSampler([-1, -1], edge_ids=True), batch_size=200), BatchRequest(0, 0, 0, 1)
        )


def test_a_payload_survives_its_message() -> None:
    source = toy_source(rich_data(), sampler=NeighborSampler([3, 2], edge_ids=True))
    slot = Slot()
    payload = source.make(REQUEST, slot)
    received = Payload.from_json(payload.to_json())
    assert received == payload
    assert content(received.view(slot.buffer())) == content(payload.view(slot.buffer()))


BUYS, LIKES = ("user", "buys", "item"), ("user", "likes", "user")
NUM_USERS, NUM_ITEMS = 200, 100


def typed_data(**settings) -> GraphData:
    """Every table's rows tell whose they are: of edges, by the ids of their ends within their types."""
    rng = np.random.default_rng(1)
    ends = {BUYS: rng.integers(0, [[NUM_USERS], [NUM_ITEMS]], (2, 1500)), LIKES: rng.integers(0, NUM_USERS, (2, 900))}
    num_nodes = {"user": NUM_USERS, "item": NUM_ITEMS, "nobody": 0}
    graph = Graph.from_hetero(num_nodes, ends, keep_order=True, **settings)
    rows = {kind: torch.from_numpy(pair.T.copy()) for kind, pair in ends.items()}
    return GraphData(
        graph,
        {
            "user": torch.arange(NUM_USERS)[:, None].float(),
            "item": torch.arange(NUM_ITEMS)[:, None].expand(-1, 3).half(),
        },
        {"item": torch.arange(NUM_ITEMS)},
        {"item": range(NUM_ITEMS)},
        edge_x={kind: pair.float() for kind, pair in rows.items()},
        edge_tables={BUYS: {"ends": rows[BUYS]}},
    )


def assert_typed_rows(batch: MiniBatch, graph: Graph) -> None:
    assert batch.tables.keys() == batch.positions.keys() == {"x.user", "x.item"}
    for name, first in (("x.user", 0), ("x.item", NUM_USERS)):
        assert torch.equal(batch.tables[name][:, 0].long(), batch.nodes[batch.positions[name]] - first)
    assert torch.equal(batch.y, batch.seeds - NUM_USERS)
    names = {"x.user__buys__item": BUYS, "x.user__likes__user": LIKES, "ends.user__buys__item": BUYS}
    for block in batch.blocks:
        assert block.tables.keys() == block.positions.keys() == names.keys()
        kinds = graph.edge_types_of(block.edge_ids.numpy())
        for name, kind in names.items():
            places, rows = block.positions[name], block.tables[name]
            assert places.tolist() == np.flatnonzero(kinds == graph.types.edge_type_number(kind)).tolist()
            assert torch.equal(rows[:, 0].long(), batch.nodes[block.indices[places].long()])
            first = graph.types.range_of(kind[2]).start
            assert torch.equal(rows[:, 1].long(), batch.nodes[block.edge_dst()[places]] - first)


@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([3, 2], edge_ids=True),
        NeighborSampler([3, 2, 2], edge_ids=True, expand="new"),  # its hops share one array of edges
        NeighborSampler([{LIKES: 3}, {BUYS: 2}], edge_ids=True),
        NeighborSampler([], edge_ids=True),
        LaborSampler([3, 2], edge_ids=True),
        ShadowSampler([3, 2], num_layers=3, edge_ids=True),  # all of its blocks are one
    ],
    ids=repr,
)
def test_rows_of_an_edge_type_come_with_their_places(sampler) -> None:
    data = typed_data()
    source = toy_source(data, sampler=sampler)
    for step in range(3):
        assert_typed_rows(made(source, BatchRequest(0, step, 0, 1), num_bytes=1 + 4096 * step), data.graph)


def test_rows_of_an_edge_type_survive_copies_messages_and_queues() -> None:
    data = typed_data()
    source, slot = toy_source(data, sampler=NeighborSampler([3, 2], edge_ids=True)), Slot()
    payload = source.make(REQUEST, slot)
    received = Payload.from_json(json.loads(json.dumps(payload.to_json())))
    assert received == payload
    batch = received.view(slot.buffer())
    assert_typed_rows(batch, data.graph)
    copy = batch.clone()
    assert_typed_rows(copy, data.graph)
    assert copy.blocks[0].positions["ends.user__buys__item"].data_ptr() != (
        batch.blocks[0].positions["ends.user__buys__item"].data_ptr()
    )
    with job(source) as running:
        for each in running.loader(running.queue()):
            assert_typed_rows(each, data.graph)


def test_a_graphs_weights_come_with_every_edge_of_a_graph_with_types() -> None:
    graph = typed_data(edge_weight={BUYS: np.arange(1500.0)}).graph
    data = GraphData(graph, train={"item": range(50)}, edge_x={LIKES: torch.ones(900, 1)}).with_graph_columns()
    batch = made(toy_source(data, sampler=NeighborSampler([3, 2], edge_ids=True)))
    for block in batch.blocks:
        assert block.tables.keys() == {"edge_weight", "x.user__likes__user"}
        assert torch.equal(block.tables["edge_weight"], torch.from_numpy(graph.edge_weight)[block.edge_ids])
