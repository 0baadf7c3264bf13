"""Measures of link prediction: how high the score of a true edge ranks among those of false ones.

Shapes: P positive edges, Q queries.
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
    """A metric that is a mean over queries of what the ranks of their positive edges are worth; an edge is a query of
    its own, unless ``update`` says otherwise."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    total: torch.Tensor
    count: torch.Tensor
    queries: list[torch.Tensor]

    def __init__(self, ties: Ties = "mean", **kwargs: Any) -> None:
        if ties not in get_args(Ties):
            raise LoaderConfigError(f"ties is {ties!r}, but must be one of {get_args(Ties)}.")
        super().__init__(**kwargs)
        self.ties: Ties = ties
        self.add_state("total", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")
        # Edges of a query may come in several mini-batches, and in several ranks: they meet in compute().
        self.add_state("queries", [], dist_reduce_fx="cat")

    def update(
        self,
        positive: torch.Tensor,
        negative: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        query: torch.Tensor | None = None,
        ranks: torch.Tensor | None = None,
    ) -> None:
        """Counts a mini-batch: see :func:`link_ranks`. Positive edges without a negative count for nothing.

        ``query``, integers ``[P]``, are numbers of what was asked, a user's for instance: positive edges of one query
        are right answers to it, in any mini-batch and any rank, and rank in one list with each other. ``ranks`` may
        stand for ``negative`` and ``mask``: those of each edge among negatives, as :func:`link_ranks` gives them.

        Raises:
            LoaderConfigError: shapes that do not fit.
        """
        positive = positive.reshape(-1)
        if ranks is None:
            ranks = link_ranks(positive, positive.new_empty(0) if negative is None else negative, mask, self.ties)
        if len(ranks) != len(positive) or (query is not None and len(query) != len(positive)):
            raise LoaderConfigError(
                f"{len(positive)} positive edges need as many ranks and queries, but there are {len(ranks)} ranks"
                f"{'' if query is None else f' and {len(query)} queries'}."
            )
        has_rank = ~ranks.isnan()
        if query is None:
            self._add(ranks[has_rank].double(), torch.arange(int(has_rank.sum()), device=ranks.device))
        else:
            rows = torch.stack([query.double(), ranks.double(), positive.detach().double()], dim=1)
            self.queries.append(rows[has_rank])

    def compute(self) -> torch.Tensor:
        total, count = self.total, self.count
        rows = (
            self.queries
            if isinstance(self.queries, torch.Tensor)
            else torch.cat([total.new_empty(0, 3), *self.queries])
        )
        if len(rows):
            query, number = rows[:, 0].unique(return_inverse=True)
            worth = self.worth(*_joint_ranks(number, rows[:, 1], rows[:, 2]), len(query))
            total, count = total + worth.sum(), count + len(query)
        return (total / count).float()

    def _add(self, ranks: torch.Tensor, query: torch.Tensor) -> None:
        self.total += self.worth(ranks, query, torch.ones_like(query), len(ranks)).sum()
        self.count += len(ranks)

    def worth(self, ranks: torch.Tensor, query: torch.Tensor, nth: torch.Tensor, num_queries: int) -> torch.Tensor:
        """What queries add, ``[Q]``, from the ranks of their positive edges, ``[P]``, the edges' queries, numbers below
        ``num_queries``, and which of the query's positive edges each is, 1 for the highest."""
        raise NotImplementedError


def _joint_ranks(
    query: torch.Tensor, ranks: torch.Tensor, score: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns ranks among negatives and other positive edges of a query, the query, and which of the latter each is.

    Of positive edges with equal scores either may come first: all are right answers, so that no metric can tell.
    """
    # NaN ranks last, as in link_ranks.
    order = torch.argsort(torch.nan_to_num(score, nan=-torch.inf), descending=True, stable=True)
    order = order[torch.argsort(query[order], stable=True)]
    query, ranks = query[order], ranks[order]
    first = torch.searchsorted(query, query)
    nth = torch.arange(1, len(query) + 1, device=query.device) - first
    return ranks + nth - 1, query, nth


def _sum_of(values: torch.Tensor, query: torch.Tensor, num_queries: int) -> torch.Tensor:
    return values.new_zeros(num_queries).index_add_(0, query, values)


class LinkMRR(_RankMetric):
    """A metric: the mean of ``1 / rank`` of positive edges, each among its own negatives; NaN before the first. Of a
    query with several positive edges, the highest counts.

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

    def worth(self, ranks: torch.Tensor, query: torch.Tensor, nth: torch.Tensor, num_queries: int) -> torch.Tensor:
        return _sum_of((nth == 1) / ranks, query, num_queries)


class _TopMetric(_RankMetric):
    """A metric of the first ``k`` ranks."""

    def __init__(self, k: int = 10, ties: Ties = "mean", **kwargs: Any) -> None:
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise LoaderConfigError(f"{type(self).__name__}: k is {k!r}, but must be a whole number of at least 1.")
        super().__init__(ties, **kwargs)
        self.k = k

    def _num_right(self, ranks: torch.Tensor, query: torch.Tensor, num_queries: int) -> torch.Tensor:
        """Counts the positive edges of each query, ``[Q]``."""
        return _sum_of(torch.ones_like(ranks), query, num_queries)


class LinkHits(_TopMetric):
    """A metric: the share of positive edges that rank among the first ``k``; NaN before the first. Of a query with
    several positive edges, whether any of them does: the hit rate.

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

    def worth(self, ranks: torch.Tensor, query: torch.Tensor, nth: torch.Tensor, num_queries: int) -> torch.Tensor:
        return _sum_of(((nth == 1) & (ranks <= self.k)).double(), query, num_queries)


class LinkRecall(_TopMetric):
    """A metric: the mean over queries of the share of their positive edges that rank among the first ``k``; NaN before
    the first. Of queries with one positive edge each, it is :class:`LinkHits`.

    Args:
        k: a whole number of at least 1.
        ties: of equal scores; as :func:`link_ranks`.

    Raises:
        LoaderConfigError: k is no such number.

    Source: He et al., LightGCN (SIGIR'20), section 4.1, recall@20.

    Example:
        >>> metric = LinkRecall(k=2)
        >>> metric.update(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]), query=torch.tensor([7, 7]))
        >>> metric.compute()
        tensor(0.5000)
    """

    def worth(self, ranks: torch.Tensor, query: torch.Tensor, nth: torch.Tensor, num_queries: int) -> torch.Tensor:
        right = _sum_of((ranks <= self.k).double(), query, num_queries)
        return right / self._num_right(ranks, query, num_queries)


class LinkNDCG(_TopMetric):
    """A metric: the mean over queries of their discounted cumulative gain at ``k``, as a share of the best possible;
    NaN before the first. A positive edge of rank r, at most k, gains ``1 / log2(1 + r)``.

    Args:
        k: a whole number of at least 1.
        ties: of equal scores; as :func:`link_ranks`.

    Raises:
        LoaderConfigError: k is no such number.

    Source: Jaervelin and Kekaelaeinen, Cumulated gain-based evaluation of IR techniques (TOIS'02), with a gain of 1.

    Example:
        >>> metric = LinkNDCG(k=10)
        >>> metric.update(torch.tensor([1.0]), torch.tensor([3.0, 2.0, 0.0]))
        >>> metric.compute()  # 1 / log2(4)
        tensor(0.5000)
    """

    def worth(self, ranks: torch.Tensor, query: torch.Tensor, nth: torch.Tensor, num_queries: int) -> torch.Tensor:
        gain = _sum_of((ranks <= self.k) / torch.log2(1 + ranks), query, num_queries)
        best = _sum_of((nth <= self.k) / torch.log2(1 + nth.double()), query, num_queries)
        return gain / best


class LinkMAP(_TopMetric):
    """A metric: the mean over queries of their average precision at ``k``; NaN before the first. The average is over
    the query's positive edges, at most k, of the share of positive edges up to each one's rank, 0 beyond k.

    Args:
        k: a whole number of at least 1.
        ties: of equal scores; as :func:`link_ranks`.

    Raises:
        LoaderConfigError: k is no such number.

    Source: RelBench's ``link_prediction_map``, which divides by the positive edges, or k where there are more.

    Example:
        >>> metric = LinkMAP(k=10)
        >>> metric.update(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]), query=torch.tensor([7, 7]))
        >>> metric.compute()  # (1 / 1 + 2 / 3) / 2
        tensor(0.8333)
    """

    def worth(self, ranks: torch.Tensor, query: torch.Tensor, nth: torch.Tensor, num_queries: int) -> torch.Tensor:
        precision = _sum_of((ranks <= self.k) * nth / ranks, query, num_queries)
        return precision / self._num_right(ranks, query, num_queries).clamp(max=self.k)


METRICS = {"hits": LinkHits, "ndcg": LinkNDCG, "recall": LinkRecall, "map": LinkMAP}


def metric_of(name: str, ties: Ties = "mean") -> _RankMetric:
    """Makes a metric by its usual name: ``"mrr"``, or ``"hits@10"``, ``"ndcg@10"``, ``"recall@10"``, ``"map@10"`` with
    any k. Raises LoaderConfigError: another name.

    Example:
        >>> metric_of("recall@20").k
        20
    """
    word, at, k = str(name).lower().partition("@")
    if word == "mrr" and not at:
        return LinkMRR(ties)
    if word not in METRICS or not k.isdecimal():
        names = ", ".join(["mrr", *(f"{word}@10" for word in METRICS)])
        raise LoaderConfigError(f"there is no metric {name!r} of links; give {names}, with any k in the place of 10.")
    return METRICS[word](int(k), ties)
