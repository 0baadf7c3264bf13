"""What seeds see is counted as samplers count it, and said where it is little."""

from __future__ import annotations

import numpy as np
import pytest

from lightning_gnnload import Graph, NeighborSampler, SeedTable
from lightning_gnnload.data import visibility as module
from lightning_gnnload.data.sanity import visibility_issue
from lightning_gnnload.data.visibility import VisibleEdges, spaced_rows
from lightning_gnnload.sample.seeds.links import seed_kind

OPENS, HOLDS, KNOWS = ("bank", "opens", "box"), ("box", "of", "bank"), ("bank", "knows", "bank")


def banks(seed: int) -> Graph:
    """Edges of two types with times, one of them by their sources' alone, and of one without."""
    rng = np.random.default_rng(seed)
    ends = {kind: (rng.integers(0, 9, 40), rng.integers(0, 9, 40)) for kind in (OPENS, HOLDS, KNOWS)}
    return Graph.from_hetero(
        {"bank": 9, "box": 9},
        ends,
        edge_time={OPENS: rng.integers(0, 20, 40)},
        node_time={"box": rng.integers(0, 20, 9)},
    )


@pytest.mark.parametrize(("before", "window"), [("<=", None), ("<", None), ("<=", 6)])
def test_counts_equal_what_a_sampler_of_all_neighbours_finds(before, window) -> None:
    for seed in range(3):
        graph, rng = banks(seed), np.random.default_rng(seed)
        table = SeedTable(rng.integers(0, 18, 30), time=rng.integers(-2, 24, 30))
        sampler = NeighborSampler([-1], before=before, window=window, edge_ids=True)
        found = seed_kind(graph, sampler, table).seen(np.arange(30))
        edges = np.zeros((2, 30), np.int64)
        for row in range(30):
            for place, times in enumerate(([2**40], [int(table.time[row])])):
                draws = sampler if place else NeighborSampler([-1], edge_ids=True)
                block = draws.sample(graph, table.ends[[row], 0], times=times).blocks[0]
                edges[place, row] = np.isin(block.edge_type, [0, 1]).sum()  # KNOWS has no times
        assert (found.num_edges, found.num_visible) == tuple(edges.sum(1))
        assert found.num_dated == (edges[0] > 0).sum()
        assert found.num_blind == ((edges[0] > 0) & (edges[1] == 0)).sum()


def test_both_ends_of_a_link_are_looked_at() -> None:
    graph = Graph.from_coo([2, 2], [0, 1], edge_time=[5, 9])
    table = SeedTable(src=[0, 0], dst=[1, 1], time=[4, 6])
    found = seed_kind(graph, NeighborSampler([2]), table).seen(np.arange(2))
    assert (found.num_dated, found.num_blind, found.num_edges, found.num_visible) == (2, 1, 4, 1)


def test_of_many_seeds_a_part_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 4)
    assert spaced_rows(np.arange(4)).tolist() == [0, 1, 2, 3]
    assert spaced_rows(np.arange(9)).tolist() == [0, 3, 6]


def seen(num_blind: int, num_visible: int, times=(3, 8), *, are_own: bool = False) -> VisibleEdges:
    return VisibleEdges(10, 10, num_blind, 40, num_visible, are_own, times, (0, 9))


@pytest.mark.parametrize(
    ("found", "text", "is_suspicious"),
    [
        (seen(0, 40, are_own=True), None, None),
        (seen(2, 30, are_own=True), "as of its node's time, so that 2 of 10 see no edge that has a time", False),
        (seen(6, 30, are_own=True), "30 of 40 such edges of theirs count. If they ask about a later time, wait.", True),
        (seen(0, 9, are_own=True), "0 of 10 see no edge that has a time, and 9 of 40", True),
        (seen(0, 9), None, None),
        (seen(3, 9), "rows: at their times 3 of 10 see no edge that has a time.", False),
        (seen(6, 9), "rows: at their times 6 of 10", True),
        (seen(10, 0, (-7, -1)), "all come before 0, the graph's earliest, up to -1. Are both in the same unit", True),
        (seen(0, 40, (10**6, 10**7)), "far behind 9, the graph's latest, from 1000000 on", True),
    ],
)
def test_what_is_said(found, text, is_suspicious) -> None:
    issue = visibility_issue(found, "rows", "wait")
    assert (issue and issue.is_suspicious) == is_suspicious
    assert text is None or text in issue.text
