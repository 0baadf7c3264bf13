"""Measures of link prediction: how high the score of a true edge ranks among those of false ones.

Shapes: P positive edges.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torchmetrics import Metric

from lightning_gnnload.errors import LoaderConfigError

Ties = Literal["mean", "optimistic", "pessimistic"]


def link_ranks(
    positive: torch.Tensor, negative: torch.Tensor, mask: torch.Tensor | None = None, ties: Ties = "mean"
) -> torch.Tensor:
    """Returns the rank of each positive edge's score among its negatives', float32 ``[P]``, 1 for the highest; NaN
    without negatives. A score that is not a number ranks as if all others were higher.

    ``positive`` are scores ``[P]``, ``negative`` ``[P, num]``, or ``[num]`` for the same to all, ``mask`` bool alike,
    False for entries that are none. Of equal ``ties``, the positive comes first (``"optimistic"``), last
    (``"pessimistic"``), or at the mean of both ranks, as in OGB's MRR. Raises LoaderConfigError: shapes that do not
    fit, or another mask.

    Example:
        >>> link_ranks(torch.tensor([2.0, 1.0]), torch.tensor([[3.0, 1.0], [1.0, 0.0]]))
        tensor([2.0000, 1.5000])
    """
    positive = positive.reshape(-1, 1)
    by_edge, shared = (len(positive), *negative.shape[-1:]), tuple(negative.shape[-1:])
    has_mask = mask is None or (tuple(mask.shape) in (by_edge, shared) and mask.dtype is torch.bool)
    if negative.ndim == 0 or tuple(negative.shape) not in (by_edge, shared) or not has_mask:
        mask_form = "" if mask is None else f" and mask {mask.dtype} {list(mask.shape)}"
        raise LoaderConfigError(
            f"scores of {len(positive)} positive edges need negatives [{len(positive)}, num], or [num] for the same to "
            f"all, and a mask of bool, but negative is {list(negative.shape)}{mask_form}."
        )
    # Negated, as comparisons with NaN are false: a score that is NaN ranks last.
    higher, as_high = ~(positive >= negative), ~(positive > negative)
    if mask is not None:
        higher, as_high = higher & mask, as_high & mask
    above = {"optimistic": (higher,), "pessimistic": (as_high,), "mean": (higher, as_high)}[ties]
    ranks = 1 + torch.stack([rows.sum(1) for rows in above]).float().mean(0)
    has_any = negative.new_full((len(positive),), bool(negative.shape[-1])) if mask is None else mask.any(-1)
    return ranks.where(has_any.bool().expand(len(positive)), torch.nan)


class _RankMetric(Metric):
    """A metric that is a mean over positive edges of their ranks' worth."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    total: torch.Tensor
    count: torch.Tensor

    def __init__(self, ties: Ties = "mean", **kwargs: Any) -> None:
        if ties not in get_args(Ties):
            raise LoaderConfigError(f"ties is {ties!r}, but must be one of {get_args(Ties)}.")
        super().__init__(**kwargs)
        self.ties: Ties = ties
        self.add_state("total", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, positive: torch.Tensor, negative: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Counts a mini-batch: see :func:`link_ranks`. Positive edges without a negative count for nothing."""
        ranks = link_ranks(positive, negative, mask, self.ties)
        has_rank = ~ranks.isnan()
        self.total += torch.where(has_rank, self.worth(ranks), 0).sum()
        self.count += has_rank.sum()

    def worth(self, ranks: torch.Tensor) -> torch.Tensor:
        """What each rank adds, ``[P]``."""
        raise NotImplementedError

    def compute(self) -> torch.Tensor:
        return (self.total / self.count).float()


class LinkMRR(_RankMetric):
    """A metric: the mean of ``1 / rank`` of positive edges, each among its own negatives; NaN before the first.

    Args:
        ties: of equal scores; as :func:`link_ranks`.

    Source: OGB's Evaluator, ``eval_metric="mrr"``, with the mean of both ranks where scores are equal.

    Example:
        >>> metric = LinkMRR()
        >>> positive, negative = torch.tensor([2.0, 1.0]), torch.tensor([[3.0, 1.0], [0.0, 9.0]])
        >>> metric.update(positive, negative, mask=torch.tensor([[True, True], [True, False]]))
        >>> metric.compute()
        tensor(0.7500)
    """

    def worth(self, ranks: torch.Tensor) -> torch.Tensor:
        return 1 / ranks


class LinkHits(_RankMetric):
    """A metric: the share of positive edges that rank among the first ``k``; NaN before the first.

    Args:
        k: a whole number of at least 1.
        ties: of equal scores; as :func:`link_ranks`. OGB's ``hits@K`` with the same negatives for all edges is
            ``"pessimistic"``.

    Raises:
        LoaderConfigError: k is no such number.

    Source: OGB's Evaluator, ``eval_metric="hits@K"``.

    Example:
        >>> metric = LinkHits(k=1)
        >>> metric.update(torch.tensor([2.0, 1.0]), torch.tensor([0.5, 1.5]))
        >>> metric.compute()
        tensor(0.5000)
    """

    def __init__(self, k: int = 10, ties: Ties = "mean", **kwargs: Any) -> None:
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise LoaderConfigError(f"LinkHits: k is {k!r}, but must be a whole number of at least 1.")
        super().__init__(ties, **kwargs)
        self.k = k

    def worth(self, ranks: torch.Tensor) -> torch.Tensor:
        return (ranks <= self.k).float()
