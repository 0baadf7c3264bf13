"""Plain measures of ranked lists: one query at a time, as their formulas read."""

from __future__ import annotations

import math
from collections.abc import Sequence


def measures(is_right: Sequence[bool], k: int) -> dict[str, float]:
    """Of a list of answers, the best first, that contains all right ones."""
    ranks = [rank for rank, right in enumerate(is_right, start=1) if right]
    num_right, top = len(ranks), [rank for rank in ranks if rank <= k]
    best = sum(1 / math.log2(1 + rank) for rank in range(1, min(num_right, k) + 1))
    precision = [sum(is_right[:rank]) / rank for rank in top]
    return {
        "mrr": 1 / ranks[0],
        f"hits@{k}": float(bool(top)),
        f"recall@{k}": len(top) / num_right,
        f"ndcg@{k}": sum(1 / math.log2(1 + rank) for rank in top) / best,
        f"map@{k}": sum(precision) / min(num_right, k),
    }
