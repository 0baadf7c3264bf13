"""What is predicted when nothing is said, and as of which time: rows of the task, or nodes of its seeds' type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, NeighborSampler, SeedTable
from lightning_gnnload.data.task import Task
from lightning_gnnload.errors import GnnLoadError, GraphDataError, LoaderConfigError, SeedError
from lightning_gnnload.plugin.module.predict_seeds import predict_seeds

DAYS = np.array(["2026-01-01", "2026-02-01", "2026-03-01"], "datetime64[ns]")
JULY = np.datetime64("2026-07-01", "ns")
BUYS = ("user", "buys", "item")


def graph(*, timed: bool = True) -> Graph:
    """Four users, the last of whom joins in March, and three items."""
    edges = {BUYS: ([0, 1, 2], [0, 1, 2]), ("item", "rev", "user"): ([0, 1, 2], [0, 1, 2])}
    joined = np.array(["2026-01-01", "2026-01-01", "2026-01-01", "2026-03-01"], "datetime64[ns]")
    times: dict[str, Any] = {"edge_time": dict.fromkeys(edges, DAYS), "node_time": {"user": joined}} if timed else {}
    return Graph.from_hetero({"item": 3, "user": 4}, edges, **times)


def data_of(splits: dict[str, SeedTable], *, timed: bool = True, as_of: Any = None) -> GraphData:
    return GraphData(graph(timed=timed), tasks={"t": Task(splits, as_of=as_of)}).with_task("t")


def users(*nodes: int, **columns: Any) -> SeedTable:
    return SeedTable(list(nodes), node_type="user", **columns)


def asked(data: GraphData, predict: Any = None, as_of: Any = None) -> Any:
    """The nodes that are predicted, within all, and their times."""
    seeds = predict_seeds(predict, as_of, data, heeds_times=data.graph.clock is not None)
    if isinstance(seeds, np.ndarray):
        return seeds.tolist(), None
    times = None if seeds.time is None else seeds.time.astype("datetime64[ns]").tolist()
    return seeds.nodes_in(data.graph)[:, 0].tolist(), times


TIMED = users(0, 1, time=DAYS[:2], y=[0, 1])


def test_the_rows_of_the_task_come_before_all_nodes_of_its_type() -> None:
    assert asked(data_of({"train": users(0, y=[1])}, timed=False)) == ([3, 4, 5, 6], None)
    assert asked(data_of({"train": users(0, y=[1]), "predict": users(2)}, timed=False)) == ([5], None)
    at = DAYS[2].astype("datetime64[ns]")
    assert asked(data_of({"train": TIMED, "predict": users(2, time=[at])})) == ([5], [at.astype(np.int64)])
    links = SeedTable(src=[0], dst=[1], edge_type=BUYS)
    assert asked(data_of({"train": links}, timed=False)) == ([3, 4, 5, 6], None)  # whom links start from
    assert asked(GraphData(Graph.from_coo([0], [1]))) == ([0, 1], None)
    assert asked(GraphData(Graph.from_coo([0], [1]), predict=[1])) == ([1], None)


def test_as_of_asks_about_all_nodes_that_are_there_by_then() -> None:
    july = JULY.astype(np.int64).item()
    for data in (data_of({"train": TIMED}), data_of({"train": TIMED, "predict": users(2, time=DAYS[:1])})):
        assert asked(data, as_of="2026-07-01") == ([3, 4, 5, 6], [july] * 4)
        assert asked(data, as_of="2026-02-15")[0] == [3, 4, 5]
        assert asked(data, predict=[6], as_of="2026-02-15")[0] == [6]  # who is named is meant
        assert asked(data, predict="train", as_of="2026-07-01") == ([3, 4], [july] * 2)
    # Rows without times of their own are those that are asked about.
    assert asked(data_of({"predict": users(2)}), as_of="2026-07-01") == ([5], [july])


def test_the_time_of_the_task_counts_where_rows_have_none() -> None:
    july = JULY.astype(np.int64).item()
    data = data_of({"train": TIMED, "predict": users(time=np.empty(0, "datetime64[ns]"))}, as_of=july)
    assert asked(data) == ([3, 4, 5, 6], [july] * 4)
    assert asked(data, as_of="2026-02-15")[0] == [3, 4, 5]
    assert asked(data, predict="train")[1] == TIMED.time.tolist()


@pytest.mark.parametrize(
    ("splits", "predict", "error", "told"),
    [
        ({"train": TIMED}, None, SeedError, r"up to 2026-02-01. Give as_of= \(--as-of DATE\), rows without a label"),
        ({}, None, LoaderConfigError, "what is to be predicted is not known.*of item, user, or 'all'"),
        ({"train": TIMED}, "usr", LoaderConfigError, "one of train, val, test, predict, item, user"),
        ({}, [2, 0, 2], GraphDataError, "predict ids: node 2 appears more than once"),
        ({}, {"user": [1, 1]}, GraphDataError, "predict ids: node . appears more than once"),
    ],
)
def test_what_is_not_known_is_asked_for(splits: Any, predict: Any, error: type[GnnLoadError], told: str) -> None:
    with pytest.raises(error, match=told):
        asked(data_of(splits), predict)


def test_a_sampler_that_ignores_times_is_told() -> None:
    module = GraphDataModule(data_of({"train": TIMED}), NeighborSampler([2], before=None), as_of="2026-07-01")
    with pytest.raises(LoaderConfigError, match=r"as_of='2026-07-01' says.*before=None.* heeds no times"):
        module.predict_dataloader()
    with pytest.raises(SeedError, match="as of '2026-07-01': the graph has no times"):
        GraphDataModule(data_of({}, timed=False), NeighborSampler([2]), as_of="2026-07-01").predict_dataloader()


def test_mini_batches_as_of_a_time_are_those_of_rows_with_that_time() -> None:
    """No edge later than it comes in, and whoever asks by rows of their own gets the same."""
    data, sampler = data_of({"train": TIMED}), NeighborSampler([2])

    def batches(**settings: Any) -> list[Any]:
        return [*GraphDataModule(data, sampler, batch_size=3, num_threads=1, **settings).predict_dataloader()]

    at = np.full(3, np.datetime64("2026-02-15", "ns"))
    by_rows, by_time = batches(predict=users(0, 1, 2, time=at)), batches(as_of="2026-02-15")
    assert len(by_rows) == len(by_time) == 1
    for one, other in zip(by_rows, by_time, strict=True):
        assert torch.equal(one.seeds["user"], other.seeds["user"])
        for kind in one.blocks[0]:
            assert torch.equal(one.blocks[0][kind].indices, other.blocks[0][kind].indices)
    [edges] = [block.num_edges for kind, block in by_time[0].blocks[0].items() if kind[2] == "user"]
    assert edges == 2  # of January and February, not of March
