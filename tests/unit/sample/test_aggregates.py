"""Tables that count edges which seeds must not see are refused, whoever reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    GraphDataModule,
    NeighborSampler,
    SeedTable,
    WeightedNeighborSampler,
    infer,
    preaggregate,
)
from lightning_gnnload.errors import GraphDataError, StaleTableError
from lightning_gnnload.sample import aggregates as checks

NEIGHBORS = NeighborSampler([2])


def timed(as_of: Any, times: Any = (1, 2, 3, 7), rows: Any = (5, 6), **settings: Any) -> GraphData:
    graph = Graph.from_coo([0, 1, 2, 3], [1, 2, 3, 4], num_nodes=5, edge_time=np.array(times), **settings)
    seeds = None if rows is None else SeedTable([1, 2], time=np.array(rows))
    data = GraphData(graph, x=torch.ones(5, 2), y=[0, 1, 0, 1, 0], train=[2, 3] if seeds is None else seeds, test=seeds)
    return preaggregate(data, as_of=as_of, progress=False)


def load(data: GraphData, sampler: Any = NEIGHBORS, batch_format: Any = "blocks", **settings: Any) -> Any:
    return next(
        iter(GraphDataModule(data, sampler, num_threads=0, batch_format=batch_format, **settings).train_dataloader())
    )


@pytest.mark.parametrize("batch_format", ["blocks", "pyg"])
def test_no_table_tells_of_what_comes_after_a_seed(batch_format: Any) -> None:
    load(timed(5), batch_format=batch_format)
    with pytest.raises(
        GraphDataError, match=r"train: table 'x_mean_1' counts edges up to 7, but the seeds to train on are of 5"
    ):
        load(timed(7), batch_format=batch_format)
    # Strictly before 5 is an edge of 4, not one of 5.
    before = NeighborSampler([2], before="<")
    load(timed(4), before, batch_format)
    load(timed(4, times=(1, 2, 3, 5)), before, batch_format)
    load(timed(5, times=(1, 2, 3, 5)), batch_format=batch_format)
    with pytest.raises(GraphDataError, match=r"of 5 and later and take edges before their time alone.*before='<' says"):
        load(timed(5, times=(1, 2, 3, 5)), before, batch_format)
    # Times of nodes are those of seeds without their own.
    nodes = {"node_time": [0, 1, 5, 9, 9], "rows": None}
    load(timed(5, **nodes), batch_format=batch_format)
    with pytest.raises(GraphDataError, match="up to 7, but the seeds to train on are of 5"):
        load(timed(7, **nodes), batch_format=batch_format)


def test_windows_paths_and_samplers_without_times_count_other_edges() -> None:
    load(timed(5), NeighborSampler([2], window=5))  # at 6, the oldest edge is 5 old
    with pytest.raises(GraphDataError, match=r"up to 5 of any age, but with window=4 .* up to 6\. Give no window="):
        load(timed(5), NeighborSampler([2], window=4))
    path = NeighborSampler([2], order="path")
    with pytest.raises(GraphDataError, match=r"up to 5 for every node, but with order='path'"):
        load(timed(5), path)
    load(timed(5), NeighborSampler([], order="path"))  # a seed's own bounds are its time's
    twice = preaggregate(timed(5), hops=2, as_of=5, progress=False)
    with pytest.raises(GraphDataError, match=r"'x_mean_2' counts edges up to 5 for every node, but with order='path'"):
        load(twice, NeighborSampler([], order="path"))
    ignored = NeighborSampler([2], before=None)
    load(timed(7), ignored)
    with pytest.raises(GraphDataError, match=r"up to 5, but with before=None .* up to 7 are drawn.*as_of=7"):
        load(timed(5), ignored)
    # The sampler of a phase counts.
    module = GraphDataModule(timed(5), path, eval_sampler=NEIGHBORS, num_threads=0)
    module.test_dataloader()
    with pytest.raises(GraphDataError, match="order='path'"):
        module.train_dataloader()
    # Without the table, all is well.
    load(timed(7).only_tables([]))
    dropped = timed(7)
    del dropped.tables["x_mean_1"]
    load(dropped)


def test_dates_are_shown_as_dates_and_types_without_times_are_not_looked_at() -> None:
    days = np.array(["2024-01-01", "2024-02-01", "2024-03-01", "2024-06-01"], "datetime64[D]")
    rows = np.array(["2024-04-01", "2024-05-01"], "datetime64[D]")
    with pytest.raises(
        GraphDataError, match="counts edges up to 2024-06-01, but the seeds to train on are of 2024-04-01 "
    ):
        load(timed("2024-06-01", days, rows))
    assert checks.shown(timed("2024-06-01", days, rows).graph.clock, 1_700_000_000_123_456_789) == (
        "2023-11-14T22:13:20.123456789"
    )
    edges = {("a", "r", "a"): ([0, 1], [1, 0]), ("b", "s", "a"): ([0, 1], [1, 0])}
    graph = Graph.from_hetero({"a": 2, "b": 2}, edges, edge_time={("a", "r", "a"): [1, 9]})
    seeds = SeedTable([0, 1], node_type="a", time=[5, 6])
    data = GraphData(graph, x={"b": torch.ones(2, 1)}, y={"a": [0, 1]}, train=seeds)
    load(preaggregate(data, as_of=9, progress=False))  # along edges without times
    data = GraphData(graph, x={"a": torch.ones(2, 1)}, y={"a": [0, 1]}, train=seeds)
    with pytest.raises(GraphDataError, match="up to 9"):
        load(preaggregate(data, as_of=9, progress=False))


def test_links_that_are_left_out_of_sampling_are_not_in_a_table() -> None:
    graph = Graph.from_coo([0, 1, 2], [1, 2, 0])
    links = GraphData(graph, x=torch.ones(3, 2), train=SeedTable(src=[0, 1], dst=[1, 2]))
    data = preaggregate(links, progress=False)
    with pytest.raises(
        GraphDataError, match=r"mean of x, over all edges: also over those that the seeds to train on ask"
    ):
        load(data)
    load(data, exclude=None)


def test_stale_tables_are_found_for_any_model_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_coo([0, 1, 2], [1, 2, 0])
    data = preaggregate(GraphData(graph, x=torch.ones(3, 2), train=[0, 1]), progress=False)
    load(data)
    data.x.rows.mul_(1)  # which torch counts, though nothing has changed
    from lightning_gnnload.storage import aggregates as stored

    calls, real = [], stored.checksums
    monkeypatch.setattr(stored, "checksums", lambda *arguments: calls.append(1) or real(*arguments))
    load(data)
    load(data)
    assert len(calls) == 1
    data.x.rows.mul_(2)
    with pytest.raises(StaleTableError, match="'x', which it was made of, has changed"):
        load(data)


class OneLayer(torch.nn.Module):
    """A first layer of PyG's, whose mean comes from the table."""

    def forward(self, batch: Any) -> torch.Tensor:
        return batch.x_mean_1[: batch.batch_size]


def test_inference_at_a_time_reads_no_later_table() -> None:
    for as_of, time, is_early in ((5, 5, True), (5, 6, True), (7, 6, False), (7, 7, True)):
        module = GraphDataModule(timed(as_of), NeighborSampler([]), batch_format="pyg", num_threads=0)
        if is_early:
            assert infer(OneLayer(), module, time=time, progress=False).shape == (5, 2)
        else:
            with pytest.raises(GraphDataError, match="counts edges up to 7, but the nodes are of 6"):
                infer(OneLayer(), module, time=time, progress=False)
    module = GraphDataModule(timed(5), NeighborSampler([], window=1), batch_format="pyg", num_threads=0)
    with pytest.raises(GraphDataError, match="with window=1"):
        infer(OneLayer(), module, time=6, progress=False)


def test_samplers_of_weighted_graphs_are_none_of_this_ones_business() -> None:
    graph = Graph.from_coo([0, 1, 2], [1, 2, 0], edge_weight=[1.0, 2.0, 3.0])
    data = preaggregate(GraphData(graph, x=torch.ones(3, 2), train=[0, 1]), progress=False)
    load(data)  # which of both a model of one's own wants, nobody knows
    load(data, WeightedNeighborSampler([2]))
