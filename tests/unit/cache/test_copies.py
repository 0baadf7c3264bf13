"""The number of rows that each rank copies: the cheapest of all, and what decides it."""

from __future__ import annotations

import numpy as np

from lightning_gnnload.cache.copies import ReadCosts, rows_to_copy


def cost_of(visits: np.ndarray, num_ranks: int, costs: ReadCosts, copied: int) -> float:
    """What one rank's reads take, row by row."""
    cached = copied + (len(visits) // num_ranks - copied) * num_ranks
    once = (costs.local_s + (num_ranks - 1) * costs.peers_s) / num_ranks
    return (
        costs.local_s * visits[:copied].sum()
        + once * visits[copied:cached].sum()
        + costs.behind_s * visits[cached:].sum()
    )


def test_no_other_number_is_cheaper() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        num_ranks = int(rng.integers(2, 9))
        num_rows = num_ranks * int(rng.integers(1, 20)) + int(rng.integers(0, 2))
        visits = np.sort(rng.pareto(rng.uniform(0.5, 3), num_rows))[::-1]
        costs = ReadCosts(*np.sort(rng.random(3)))
        all_costs = [cost_of(visits, num_ranks, costs, copied) for copied in range(num_rows // num_ranks + 1)]
        assert all_costs[rows_to_copy(visits, num_ranks, costs)] <= min(all_costs) + 1e-9


def test_links_decide() -> None:
    visits = 1e6 / np.arange(1, 801)
    # Nanoseconds a row of 512 bytes: of an H200's memory, over NVLink, over PCIe.
    linked, on_bus, one_device = (ReadCosts(0.32, peers, 10.6) for peers in (1.35, 10.6, 0.32))
    assert rows_to_copy(visits, 4, on_bus) == 200
    assert rows_to_copy(visits, 4, one_device) == 0
    assert 0 < rows_to_copy(visits, 4, linked) < 100
    assert rows_to_copy(visits, 1, linked) == 0  # a rank alone has all in its own memory
    assert rows_to_copy(visits[:0], 4, linked) == 0
