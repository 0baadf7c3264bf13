from __future__ import annotations

import torch

from lightning_gnnload.cache.device.features import LateFeatures
from lightning_gnnload.data.features import Reads, TierReads


class Table:
    """Rows ``v + bias``, counted by tier."""

    def __init__(self, *tiers: str, bias: int = 0) -> None:
        self.shape, self.dtype = (10, 1), torch.int64
        self.tiers, self.bias, self.num_rows, self.num_checks, self.is_open = tiers, bias, 0, 0, True

    def gather(self, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        assert self.is_open
        self.num_rows += len(ids)
        rows = ids.view(-1, 1) + self.bias
        return rows if out is None else out.copy_(rows)

    def reads(self) -> Reads:
        num_rows, self.num_rows = self.num_rows, 0
        return tuple(TierReads(tier, num_rows, 8 * num_rows) for tier in self.tiers)

    def check(self) -> None:
        self.num_checks += 1

    def close(self) -> None:
        self.is_open = False


def test_the_last_to_take_over_gathers_and_all_reads_are_told() -> None:
    first, cache = Table("memory"), Table("cache", "memory", bias=100)
    late, ids = LateFeatures(first), torch.tensor([3, 1])
    assert (late.shape, late.dtype) == ((10, 1), torch.int64)
    assert late.gather(ids).tolist() == [[3], [1]]
    late.take_over(cache)
    out = torch.empty(2, 1, dtype=torch.int64)
    assert late.gather(ids, out) is out
    assert out.tolist() == [[103], [101]]
    assert late.reads() == (TierReads("cache", 2, 16), TierReads("memory", 4, 32))
    assert late.reads() == (TierReads("cache", 0, 0), TierReads("memory", 0, 0))


def test_what_was_taken_over_stays_open_for_kernels_under_way() -> None:
    first, cache = Table("memory"), Table("cache")
    late = LateFeatures(first)
    late.take_over(cache)
    assert first.is_open
    late.check()  # what the first did wrong is told still
    assert (first.num_checks, cache.num_checks) == (1, 1)
    late.close()
    assert not first.is_open
    assert not cache.is_open
