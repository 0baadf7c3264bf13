import json
from datetime import datetime

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, SeedTable
from lightning_gnnload.data.orders.seeds import TimeOrder
from lightning_gnnload.errors import GraphDataError, LoaderConfigError, SamplerConfigError, SeedError, StoreFormatError
from lightning_gnnload.plugin.module.settings import seed_order
from lightning_gnnload.storage.graphs import load_graph_data, save_graph_data
from tests.unit.toy import toy_graph

TYPED = Graph.from_hetero({"user": 3, "item": 5}, {("user", "buys", "item"): ([0, 1, 2], [4, 0, 4])})


def test_a_row_keeps_what_it_was_given() -> None:
    dates = np.array(["2024-03-01", "2024-03-02", "2024-03-01"], "datetime64[D]")
    table = SeedTable([5, 5, 0], time=dates, weight=[1.0, 0.5, 0.0], y=[[1], [2], [3]], columns={"site": [7, 8, 9]})
    assert len(table) == 3
    assert table.time.dtype == np.int64
    assert table.time[1] - table.time[0] == 86_400 * 10**9  # nanoseconds
    assert sorted(table.columns) == ["site", "time", "weight"]
    assert table.columns["time"].tolist() == table.time.tolist()
    assert table.y.shape == (3, 1)


def test_dates_come_in_many_forms() -> None:
    pd = pytest.importorskip("pandas")
    as_text = ["2024-03-01", "2024-03-02"]
    wanted = np.array(as_text, "datetime64[ns]").astype(np.int64).tolist()
    for dates in (as_text, [datetime.fromisoformat(day) for day in as_text], pd.to_datetime(pd.Series(as_text))):
        assert SeedTable([0, 1], time=dates).time.tolist() == wanted


def test_ids_count_within_their_type() -> None:
    assert SeedTable([4, 0], node_type="item").nodes_in(TYPED).tolist() == [[7], [3]]
    assert SeedTable([4, 0]).nodes_in(TYPED).tolist() == [[4], [0]]
    links = SeedTable(src=[2, 0], dst=[4, 1], edge_type="buys")
    assert links.nodes_in(TYPED).tolist() == [[2, 7], [0, 4]]
    assert SeedTable(src=[2], dst=[4]).nodes_in(toy_graph()).tolist() == [[2, 4]]


def test_an_epoch_takes_one_of_a_rows_targets() -> None:
    count = np.random.default_rng(0).integers(1, 5, 4000)
    ptr = np.concatenate([[0], np.cumsum(count)])
    table = SeedTable(src=np.zeros(4000, int), dst=np.arange(ptr[-1]), dst_ptr=ptr)
    rows = np.random.default_rng(1).permutation(4000)
    taken = table.taken(rows, seed=2**63, epoch=3)
    assert (taken == table.taken(np.arange(4000), 2**63, 3)[rows]).all()  # whatever the other rows
    assert ((ptr[rows] <= taken) & (taken < ptr[rows + 1])).all()
    assert (taken != table.taken(rows, 2**63, 4)).any()
    assert (taken != table.taken(rows, 1, 3)).any()
    # Of four targets each with a quarter: within five standard deviations, so wrong by chance once in 400,000.
    of_four = np.bincount((taken - ptr[rows])[count[rows] == 4], minlength=4)
    assert np.abs(of_four - of_four.sum() / 4).max() < 5 * np.sqrt(of_four.sum() * 3 / 16)
    one_each = SeedTable(src=[0, 1], dst=[1, 0])
    assert one_each.taken(np.array([1, 0]), 0, 0).tolist() == [1, 0]


def test_targets_beyond_the_first_are_checked() -> None:
    table = SeedTable(src=[0], dst=[1, 9], dst_ptr=[0, 2], edge_type="buys")
    with pytest.raises(GraphDataError, match=r"dst\[1\] is 9"):
        table.nodes_in(TYPED)
    assert SeedTable(src=[0], dst=[1, 4], dst_ptr=[0, 2], edge_type="buys").targets_in(TYPED).tolist() == [4, 7]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, GraphDataError, "nodes=ids, or both"),
        ({"nodes": [0], "src": [0]}, GraphDataError, "nodes=ids, or both"),
        ({"src": [0]}, GraphDataError, "nodes=ids, or both"),
        ({"dst": [0]}, GraphDataError, "nodes=ids, or both"),
        ({"nodes": [0], "edge_ids": [0]}, GraphDataError, "for links"),
        ({"src": [0], "dst": [0], "node_type": "user"}, GraphDataError, "for nodes"),
        ({"src": [0, 1], "dst": [0]}, GraphDataError, r"dst has the shape \[1\].*2 rows"),
        ({"nodes": [0, 1], "time": [3]}, GraphDataError, r"time has the shape \[1\]"),
        ({"nodes": [0, 1], "y": [3]}, GraphDataError, r"y has the shape \[1\]"),
        ({"nodes": [0, 1], "columns": {"a": [3]}}, GraphDataError, r"a has the shape \[1\]"),
        ({"nodes": [0, 1], "columns": {"y": [3, 4]}}, GraphDataError, "'y'"),
        ({"nodes": [0, 1], "columns": {"a b": [3, 4]}}, GraphDataError, "'a b'"),
        ({"nodes": [0, 1], "time": [3.0, np.nan]}, SeedError, r"time\[1\] is no time"),
        ({"nodes": [0, 1], "time": ["a", "b"]}, SeedError, "times are numbers or dates.*time"),
        ({"nodes": [0, 1], "time": [True, False]}, SeedError, "bool"),
        ({"nodes": [0, 1], "y": [3.0, np.nan]}, GraphDataError, r"y\[1\] is no label.* 1 of 2"),
        ({"nodes": [0, 1], "y": [[3.0, np.nan], [np.nan] * 2]}, GraphDataError, r"y\[1\] is no label"),
        ({"nodes": [0, 1], "weight": [1.0, -1.0]}, GraphDataError, r"weight\[1\]"),
        ({"nodes": [0, 1], "weight": [np.inf, 1.0]}, GraphDataError, r"weight\[0\]"),
        ({"nodes": [0], "weight": torch.tensor([1j])}, GraphDataError, "complex64"),
        ({"nodes": [0], "columns": [7]}, GraphDataError, "columns must be a dict by name, but it is a list"),
        ({"nodes": [0.5]}, GraphDataError, "integer"),
        ({"nodes": [0], "dst_ptr": [0, 1]}, GraphDataError, "for links"),
        ({"src": [0, 1], "dst": [3, 4], "dst_ptr": [0, 2]}, GraphDataError, "it has 2 entries"),
        ({"src": [0, 1], "dst": [3, 4], "dst_ptr": [0, 0, 2]}, GraphDataError, "row 0 has no target"),
        ({"src": [0, 1], "dst": [3, 4], "dst_ptr": [0, 1, 3]}, GraphDataError, "from 0 to 2"),
        ({"src": [0], "dst": [3, 4], "dst_ptr": [0, 2], "edge_ids": [5]}, GraphDataError, "1 entries for 2 targets"),
    ],
)
def test_tables_that_cannot_be(arguments, error, message: str) -> None:
    with pytest.raises(error, match=message):
        SeedTable(**arguments)


@pytest.mark.parametrize(
    ("table", "graph", "error", "message"),
    [
        (SeedTable([0, 300]), toy_graph(), GraphDataError, r"nodes\[1\] is 300.*\[0, 300\)"),
        (SeedTable([-1]), toy_graph(), GraphDataError, r"nodes\[0\] is -1"),
        (SeedTable([0], node_type="user"), toy_graph(), GraphDataError, "no types"),
        (SeedTable([3], node_type="user"), TYPED, GraphDataError, r"\[0, 3\)"),
        (SeedTable([0], node_type="shop"), TYPED, SamplerConfigError, "shop"),
        (SeedTable(src=[0], dst=[0]), TYPED, GraphDataError, "edge_type is needed"),
        (SeedTable(src=[0], dst=[5], edge_type="buys"), TYPED, GraphDataError, r"dst\[0\] is 5"),
        (SeedTable(src=[0], dst=[4], edge_type="buys", edge_ids=[3]), TYPED, GraphDataError, r"edge_ids\[0\] is 3"),
        (SeedTable(src=[0], dst=[4], edge_type="buys", edge_ids=[-1]), TYPED, GraphDataError, r"edge_ids\[0\] is -1"),
    ],
)
def test_rows_that_do_not_fit_the_graph(table, graph, error, message: str) -> None:
    with pytest.raises(error, match=message):
        GraphData(graph, train=table)


def test_splits_of_tables() -> None:
    table = SeedTable([4, 0, 4], node_type="item", y=[2, 0, 5])
    data = GraphData(TYPED, train=table, val=[1])
    assert data.train.tolist() == [3, 7]
    assert data.table("train") is table
    assert data.table("val") is None
    assert data.num_classes == 6
    with pytest.raises(GraphDataError, match="no split"):
        data.table("all")


def test_a_folder_holds_tables(tmp_path) -> None:
    nodes = SeedTable([4, 0, 4], node_type="item", y=[2, 0, 5], time=[3, 4, 5], columns={"site": [[1.5], [2], [3]]})
    links = SeedTable(src=[2, 0], dst=[4, 1], edge_type=("user", "buys", "item"), edge_ids=[2, 0], weight=[0.5, 1])
    save_graph_data(GraphData(TYPED, train=nodes, val=links, test=[1]), tmp_path / "graph")
    read = load_graph_data(tmp_path / "graph", verify=True)
    assert read.test.tolist() == [1]
    for name, given in (("train", nodes), ("val", links)):
        table = read.table(name)
        assert repr(table) == repr(given)
        assert table.nodes_in(TYPED).tolist() == given.nodes_in(TYPED).tolist()
        for field in ("y", "time", "edge_ids"):
            values, wanted = getattr(table, field), getattr(given, field)
            assert (values is None) == (wanted is None)
            assert wanted is None or (values.dtype, values.tolist()) == (wanted.dtype, wanted.tolist())
        for column in given.columns:
            assert table.columns[column].tolist() == given.columns[column].tolist()
    manifest = tmp_path / "graph" / "manifest.json"
    sound = json.dumps({key: each for key, each in json.loads(manifest.read_text()).items() if key != "checksum"})
    for name, other, message in (
        ('"site"', '"cite"', "seeds.train is no seed table: there is no 'seeds.train.column.cite'"),
        ('"node_type": "item"', '"node_type": "shop"', "'shop' is no node type"),
        ('"node_type": "item"', '"node_type": [3]', "is no node type"),
    ):
        assert name in sound
        manifest.write_text(sound.replace(name, other))
        with pytest.raises(StoreFormatError, match=message):
            load_graph_data(tmp_path / "graph")


def time_order(times: list[int], size: int, epoch: int = 0, seed: int = 3) -> np.ndarray:
    table = SeedTable(np.zeros(len(times), int), time=times)
    order = TimeOrder().bind_rows(table, table.ends, toy_graph(), size)
    return order.order(np.arange(len(times)), seed=seed, epoch=epoch)


def test_steps_are_of_one_time_but_for_what_is_left() -> None:
    times = np.random.default_rng(0).integers(0, 5, 203)
    counts = np.bincount(times)
    size = 8
    for epoch in range(3):
        rows = time_order(times.tolist(), size, epoch)
        assert sorted(rows) == list(range(203))
        steps = [times[rows[begin : begin + size]] for begin in range(0, 203, size)]
        alone = [step for step in steps if len(set(step)) == 1 and len(step) == size]
        # Each time fills as many steps as it can; the leftovers, fewer than 5 * 8 rows, come in the order of times.
        assert len(alone) >= (counts // size).sum()
        for step in steps:
            assert len(set(step)) == 1 or np.all(np.diff(step) >= 0)
    assert time_order(times.tolist(), size, 0).tolist() != time_order(times.tolist(), size, 1).tolist()
    assert time_order(times.tolist(), size, 0).tolist() == time_order(times.tolist(), size, 0).tolist()


def test_a_step_of_any_time_may_come_first() -> None:
    # 64 epochs of four times with two steps each: that a time is never first has a chance of 4 * 0.75**64 < 5e-8.
    times = np.repeat(np.arange(4), 8)
    assert {int(times[time_order(times.tolist(), 4, epoch)[0]]) for epoch in range(64)} == {0, 1, 2, 3}


def test_order_by_time_needs_times() -> None:
    assert isinstance(seed_order("time"), TimeOrder)
    with pytest.raises(LoaderConfigError, match="SeedTable"):
        TimeOrder().bind(toy_graph(), None, 4)
    with pytest.raises(LoaderConfigError, match="SeedTable"):
        TimeOrder().bind_rows(SeedTable([0]), np.zeros((1, 1), np.int64), toy_graph(), 4)
