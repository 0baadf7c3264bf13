"""HitRate, BytesRead and AccessSimilarity against plain sums, over ranks and over checkpoints."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torchmetrics import Metric

from lightning_gnnload.cache.metrics import AccessSimilarity, BytesRead, HitRate, hit_rate
from lightning_gnnload.cache.trace import similarity
from lightning_gnnload.data.features import Reads, TierReads
from lightning_gnnload.errors import CacheConfigError

BATCHES: list[Reads] = [
    (TierReads("cache", 6, 60), TierReads("cache 2", 3, 30), TierReads("disk", 1, 512)),
    (TierReads("cache", 2, 20),),
    (TierReads("cache 2", 1, 10), TierReads("disk", 3, 1024)),
    (),
]


@pytest.mark.parametrize(("tier", "hits"), [(None, 12), ("cache", 8), ("cache 2", 4), ("disk", 0)])
def test_hit_rate_counts_caches_and_no_store(tier: str | None, hits: int) -> None:
    metric = HitRate(tier)
    for reads in BATCHES:
        metric.update(reads)
    assert metric.compute() == hits / 16
    assert math.isnan(hit_rate(()))
    assert hit_rate(BATCHES[0]) == 0.9


@pytest.mark.parametrize(("tier", "num_bytes"), [(None, 1656), ("cache", 80), ("cache 2", 40), ("disk", 1536)])
def test_bytes_read(tier: str | None, num_bytes: int) -> None:
    metric = BytesRead(tier)
    for reads in BATCHES:
        metric.update(reads)
    assert metric.compute() == num_bytes


def of_two_ranks(metric: Metric, other: Metric) -> Any:
    """What ``metric`` computes where another rank holds ``other``."""
    others = iter(getattr(other, name) for name in metric._reductions)
    metric.dist_sync_fn = lambda mine, group: [mine, next(others)]
    metric.distributed_available_fn = lambda: True
    return metric.compute()


def test_ranks_are_summed_and_not_averaged() -> None:
    # The mean of the ranks' rates would be (0.9 + 0.25) / 2.
    mine, other = HitRate(), HitRate()
    mine.update(BATCHES[0])
    other.update(BATCHES[2])
    assert of_two_ranks(mine, other) == 10 / 14


def test_similarity_of_ranks_is_that_of_all_their_visits() -> None:
    rng = np.random.default_rng(0)
    metrics = [AccessSimilarity(50, top=0.2) for _ in range(2)]
    visits = np.zeros((2, 50), np.int32)  # by epoch
    for epoch in range(2):
        for metric in metrics:
            for _ in range(20):
                nodes = rng.permutation(50)[: rng.integers(1, 20)]
                visits[epoch, nodes] += 1
                metric.update(torch.from_numpy(nodes))
            if epoch == 0:
                metric.next_epoch()
    wanted = similarity(visits[0], visits[1], 0.2)
    assert 0 < wanted < 1
    assert of_two_ranks(*metrics) == pytest.approx(wanted, rel=1e-6)
    assert wanted != similarity(visits[1], visits[0], 0.2), "else it could be asked the wrong way round"


def test_a_node_that_is_given_twice_counts_twice() -> None:
    metric = AccessSimilarity(3)
    metric.update(torch.tensor([1, 1, 2]))
    assert metric.visits.tolist() == [0, 2, 1]


def test_the_first_epoch_is_like_none() -> None:
    metric = AccessSimilarity(4, top=1.0)
    metric.update(torch.tensor([0]))
    assert metric.compute().isnan()


def test_checkpoints_hold_what_was_counted() -> None:
    for metric, fresh in ((HitRate(), HitRate()), (BytesRead(), BytesRead())):
        metric.update(BATCHES[0])
        fresh.load_state_dict(metric.state_dict())
        fresh.update(BATCHES[2])
        metric.update(BATCHES[2])
        assert fresh.compute() == metric.compute()


@pytest.mark.parametrize("top", [0, -0.5, 1.01, math.nan])
def test_a_share_that_is_none(top: float) -> None:
    with pytest.raises(CacheConfigError, match=f"top={top}"):
        AccessSimilarity(4, top)
