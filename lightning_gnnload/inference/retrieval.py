"""Retrieval: of all items, those of the highest scores, and the ranks of some, in blocks; or by an index of faiss.

Shapes: S sources, I items, K of them a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from lightning_gnnload.errors import MissingExtraError

BLOCK_SCORES = 1 << 22
"""Scores that are in memory at once: 16 MiB, and some times as much for what is done with them."""
ScoreBlock = Callable[[int, int], torch.Tensor]
"""Gives the scores of items from one number to another, float32 ``[S, last - first]``."""
Pairs = tuple[np.ndarray, np.ndarray]
"""Which sources, and which items of them, int64 ``[E]`` each."""


class Ranking(NamedTuple):
    """The items of the highest scores of each source, the highest first; what ``predict_step`` may return.

    Attributes:
        items: int64 ``[S, K]``, ids in the graph; -1 where there are no more.
        scores: float32 ``[S, K]``; NaN where there is no item.
        bounds: the first of the ids in the graph among which they are, and the one behind the last.
    """

    items: torch.Tensor
    scores: torch.Tensor
    # Lightning moves predictions to the CPU part by part, which a range does not survive.
    bounds: tuple[int, int]

    @property
    def candidates(self) -> range:
        """The ids in the graph among which the items are."""
        return range(*self.bounds)

    def to(self, device: torch.device | str) -> Ranking:
        """Returns it with its tensors on a device, as Lightning asks of what ``predict_step`` returns."""
        return self._replace(items=self.items.to(device), scores=self.scores.to(device))


def top_items(
    score: ScoreBlock, num_sources: int, num_items: int, k: int, excluded: Pairs | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the numbers of the ``k`` items of the highest scores of each source, and these, ``[S, k]`` each: -1 and
    NaN where there are no more. Of equal scores the item of the lower number comes first, whatever the blocks.

    Items are scored block by block, so that memory takes :data:`BLOCK_SCORES` of them at once, and never all. A score
    of ``-inf`` or NaN is none. ``excluded`` pairs of sources and items count for nothing.

    Example:
        >>> scores = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
        >>> top_items(lambda first, last: scores[:, first:last], 1, 4, 2, (np.array([0]), np.array([1])))
        (tensor([[2, 3]]), tensor([[3., 2.]]))
    """
    best_items = torch.full((num_sources, 0), -1)
    best_scores = torch.empty(num_sources, 0)
    for first, scores in _blocks(score, num_sources, num_items, excluded):
        items = torch.arange(first, first + scores.shape[1], device=scores.device).expand_as(scores)
        candidates = torch.cat([best_scores.to(scores.device), scores], dim=1)
        numbers = torch.cat([best_items.to(scores.device), items], dim=1)
        best_items, best_scores = highest(candidates, numbers, k)
    if best_scores.shape[1] < k:
        more = k - best_scores.shape[1]
        best_items = torch.nn.functional.pad(best_items, (0, more), value=-1)
        best_scores = torch.nn.functional.pad(best_scores, (0, more), value=-torch.inf)
    return best_items, best_scores.where(best_items >= 0, torch.nan)


def highest(scores: torch.Tensor, items: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the items of the ``k`` highest scores of each row, and these, ``[S, k]``; of equal scores those that
    stand first; -1 and ``-inf`` where there are no more."""
    scores = torch.nan_to_num(scores, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    k = min(k, scores.shape[1])
    # topk says nothing of equal scores: it only gives the bound, and which of those at it count is decided below.
    lowest = scores.topk(k, dim=1).values[:, -1:]
    row, column = ((scores >= lowest) & (scores > -torch.inf)).nonzero(as_tuple=True)
    value = scores[row, column]
    order = torch.argsort(value, descending=True, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    row, column, value = row[order], column[order], value[order]
    nth = torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)
    counts = nth < k
    row, column, value, nth = row[counts], column[counts], value[counts], nth[counts]
    best_items, best_scores = items.new_full((len(scores), k), -1), scores.new_full((len(scores), k), -torch.inf)
    best_items[row, nth] = items[row, column]
    best_scores[row, nth] = value
    return best_items, best_scores


def ranks_among(
    score: ScoreBlock,
    targets: torch.Tensor,
    num_items: int,
    excluded: Pairs | None = None,
    ties: Literal["mean", "optimistic", "pessimistic"] = "mean",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the ranks of targets, the number of an item for each source, int64 ``[S]``, among all items, and their
    scores, float32 ``[S]`` each. ``excluded`` pairs do not count, but for the targets, which always do. A rank is NaN
    where there is no other item.

    Ties are as of :func:`.link_ranks`. In memory are :data:`BLOCK_SCORES` at once, and every block is scored twice:
    a target's score is to be the very number that others are compared with.

    Example:
        >>> scores = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
        >>> ranks_among(lambda first, last: scores[:, first:last], torch.tensor([2]), 4)
        (tensor([1.5000]), tensor([3.]))
    """
    num_sources = len(targets)
    rows = torch.arange(num_sources, device=targets.device)
    target_scores = torch.full((num_sources,), torch.nan, device=targets.device)
    for first, scores in _blocks(score, num_sources, num_items, None):
        is_here = (targets >= first) & (targets < first + scores.shape[1])
        target_scores[is_here] = scores[rows[is_here], targets[is_here] - first]
    higher, as_high, num_others = (torch.zeros(num_sources, device=targets.device) for _ in range(3))
    if excluded is not None:
        counts = excluded[1] != targets.cpu().numpy()[excluded[0]]
        excluded = excluded[0][counts], excluded[1][counts]
    both = (np.arange(num_sources), targets.cpu().numpy())
    left_out = (
        both if excluded is None else (np.concatenate([both[0], excluded[0]]), np.concatenate([both[1], excluded[1]]))
    )
    for _, scores in _blocks(score, num_sources, num_items, left_out):
        is_item = scores > -torch.inf
        # Negated, as comparisons with NaN are false: a score that is NaN ranks last, as in link_ranks.
        higher += (~(target_scores[:, None] >= scores) & is_item).sum(1)
        as_high += (~(target_scores[:, None] > scores) & is_item).sum(1)
        num_others += is_item.sum(1)
    above = {"optimistic": higher, "pessimistic": as_high, "mean": (higher + as_high) / 2}[ties]
    return (1 + above).where(num_others > 0, torch.nan), target_scores


def _blocks(
    score: ScoreBlock, num_sources: int, num_items: int, excluded: Pairs | None
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yields the scores of blocks of items, with the first one's number; ``-inf`` for pairs that are excluded."""
    width = max(BLOCK_SCORES // max(num_sources, 1), 1)
    if excluded is not None:
        order = np.argsort(excluded[1], kind="stable")
        excluded = excluded[0][order], excluded[1][order]
    for first in range(0, num_items if num_sources else 0, width):
        last = min(first + width, num_items)
        scores = score(first, last)
        if excluded is not None:
            part = slice(*np.searchsorted(excluded[1], [first, last]).tolist())
            scores = scores.clone()
            rows, items = (torch.from_numpy(ids[part]).to(scores.device) for ids in excluded)
            scores[rows, items - first] = -torch.inf
        yield first, scores


class FaissIndex:
    """An index of items by inner product, which looks at some of them: faiss's inverted lists, in which items lie by
    the nearest of ``sqrt(I)`` centres. A search looks into a quarter of the lists, at least 8; of 80 items or fewer, at
    all.

    Args:
        items: float32 ``[I, D]``.

    Raises:
        MissingExtraError: faiss is not installed.

    Source: Johnson, Douze and Jegou, Billion-scale similarity search with GPUs (2017), section 2.
    """

    def __init__(self, items: torch.Tensor) -> None:
        try:
            import faiss
        except ImportError as error:
            raise MissingExtraError("faiss", "faiss", "index='faiss', unlike index='exact',", error) from error
        rows = np.ascontiguousarray(items.cpu().numpy(), np.float32)
        num_lists = int(np.sqrt(len(rows)))
        quantizer = faiss.IndexFlatIP(rows.shape[1])
        if num_lists <= 8:
            self._index: Any = quantizer
        else:
            self._index = faiss.IndexIVFFlat(quantizer, rows.shape[1], num_lists, faiss.METRIC_INNER_PRODUCT)
            self._index.cp.seed = 1234
            # sqrt(I) centres have sqrt(I) items each to learn from; faiss warns below 39.
            self._index.cp.min_points_per_centroid = 1
            self._index.train(rows)
            self._index.nprobe = max(num_lists // 4, 8)
        self._index.add(rows)

    def candidates(self, queries: torch.Tensor, count: int) -> torch.Tensor:
        """Returns the numbers of ``count`` items of high inner products with each query, ``[S, D]``: int64
        ``[S, count]``, -1 for none."""
        rows = np.ascontiguousarray(queries.detach().cpu().numpy(), np.float32)
        _, numbers = self._index.search(rows, min(count, self._index.ntotal))
        return torch.from_numpy(numbers).to(queries.device)
