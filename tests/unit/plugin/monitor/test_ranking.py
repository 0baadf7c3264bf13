"""MRR, Hits@k, recall, NDCG and MAP of links."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_gnnload import LinkHits, LinkMRR
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.plugin.monitor.ranking import link_ranks, metric_of
from tests.oracle.ranking import measures
from tests.runif import RunIf

NAMES = ("mrr", "hits@5", "recall@5", "ndcg@5", "map@5")


def scores(seed: int, shared: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of few values, so that many are equal."""
    rng = torch.Generator().manual_seed(seed)
    shape = (20,) if shared else (50, 20)
    return torch.randint(0, 30, (50,), generator=rng).float(), torch.randint(0, 30, shape, generator=rng).float()


@pytest.mark.parametrize("ties", ["mean", "optimistic", "pessimistic"])
def test_ranks_equal_those_of_a_plain_sort(ties: str) -> None:
    positive, negative = scores(0)
    mask = torch.rand(50, 20, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[3] = False
    ranks = link_ranks(positive, negative, mask, ties)
    for i in range(50):
        others = sorted(negative[i][mask[i]].tolist(), reverse=True)
        if not others:
            assert ranks[i].isnan()
            continue
        everyone = sorted([*others, positive[i].item()], reverse=True)
        places = [place for place, score in enumerate(everyone, 1) if score == positive[i]]
        first, last = places[0], places[-1]
        assert ranks[i] == {"mean": (first + last) / 2, "optimistic": first, "pessimistic": last}[ties]


def test_metrics_count_mini_batches_of_any_size_and_masks() -> None:
    positive, negative = scores(2)
    mask = torch.rand(50, 20, generator=torch.Generator().manual_seed(3)) < 0.1  # some rows have none
    ranks = link_ranks(positive, negative, mask)
    ranks = ranks[~ranks.isnan()]
    assert 20 < len(ranks) < 50
    for metric, wanted in ((LinkMRR(), (1 / ranks).mean()), (LinkHits(k=2), (ranks <= 2).float().mean())):
        for part in (slice(0, 7), slice(7, 8), slice(8, 50)):
            metric.update(positive[part], negative[part], mask[part])
        torch.testing.assert_close(metric.compute(), wanted)


@RunIf(extras="ogb")
def test_metrics_equal_those_of_ogb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTDATED_IGNORE", "1")  # ogb sets it, and otherwise asks the network for a later version
    from ogb.linkproppred import Evaluator

    positive, negative = scores(4)
    theirs = Evaluator("ogbl-citation2").eval({"y_pred_pos": positive, "y_pred_neg": negative})
    mrr = LinkMRR()
    mrr.update(positive, negative)
    torch.testing.assert_close(mrr.compute(), theirs["mrr_list"].mean())
    for k in (1, 3, 10):
        hits = LinkHits(k=k)
        hits.update(positive, negative)
        torch.testing.assert_close(hits.compute(), theirs[f"hits@{k}_list"].mean())
    positive, negative = scores(5, shared=True)
    evaluator = Evaluator("ogbl-collab")
    for k in (1, 5, 20, 50):
        evaluator.K = k
        hits = LinkHits(k=k, ties="pessimistic")
        hits.update(positive, negative)
        wanted = evaluator._eval_hits(positive, negative, "torch")[f"hits@{k}"]
        assert hits.compute() == pytest.approx(wanted)


def test_scores_that_are_no_numbers_rank_last() -> None:
    positive, negative = torch.tensor([torch.nan, 1.0]), torch.tensor([[0.0, 1.0], [torch.nan, 0.0]])
    assert link_ranks(positive, negative).tolist() == [3, 2]


def test_no_scores_are_no_result() -> None:
    for metric in (LinkMRR(), LinkHits(k=1)):
        metric.update(torch.empty(0), torch.empty(0, 5))
        metric.update(torch.ones(2), torch.empty(2, 0))
        assert metric.compute().isnan()
        metric.update(torch.tensor([torch.nan, 1.0]), torch.tensor([[0.0], [torch.nan]]))
        assert metric.compute() == (0.5 if isinstance(metric, LinkMRR) else 0)


@pytest.mark.parametrize(
    ("negative", "mask"),
    [
        (torch.ones(3, 4), None),
        (torch.tensor(1.0), None),
        (torch.ones(2, 4), torch.ones(2, 3, dtype=torch.bool)),
        (torch.ones(2, 4), torch.ones(2, 4)),
    ],
)
def test_scores_that_do_not_fit_are_refused(negative: torch.Tensor, mask: torch.Tensor | None) -> None:
    with pytest.raises(LoaderConfigError, match="scores of 2 positive edges"):
        LinkMRR().update(torch.ones(2), negative, mask)


def queries(seed: int) -> tuple[list[int], list[float], list[list[float]], dict[str, float]]:
    """The query and score of each positive edge, its query's negatives, and the means of all queries' measures; no two
    scores are equal."""
    rng = np.random.default_rng(seed)
    query, positive, negative, results = [], [], [], {name: [] for name in NAMES}
    for number in range(40):
        num_right = int(rng.integers(1, 9))  # fewer than k, and more
        scores = rng.permutation(60).astype(float)
        for score in scores[:num_right]:
            query.append(1000 * number)
            positive.append(float(score))
            negative.append(scores[num_right:40].tolist() + [0.0] * num_right)
        order = np.argsort(-scores[:40])
        for name, value in measures((order < num_right).tolist(), 5).items():
            results[name].append(value)
    return query, positive, negative, {name: float(np.mean(values)) for name, values in results.items()}


@pytest.mark.parametrize("by_ranks", [False, True])
def test_edges_that_answer_one_query_equal_a_plain_list_of_answers(by_ranks: bool) -> None:
    query, positive, negative, wanted = queries(6)
    columns = torch.tensor(query), torch.tensor(positive)
    width = max(map(len, negative))
    scores = torch.tensor([row + [0.0] * (width - len(row)) for row in negative])
    mask = torch.tensor([[k < 40 - query.count(number) for k in range(width)] for number in query])
    metrics, other = {name: metric_of(name) for name in NAMES}, {name: metric_of(name) for name in NAMES}
    order = torch.randperm(len(query), generator=torch.Generator().manual_seed(7))
    for metric, rest in zip(metrics.values(), other.values(), strict=True):
        # A query's edges come in several mini-batches, and in two ranks.
        for number, part in enumerate(order.split(7)):
            asked, right = (column[part] for column in columns)
            if by_ranks:
                arguments = {"ranks": link_ranks(right, scores[part], mask[part])}
            else:
                arguments = {"negative": scores[part], "mask": mask[part]}
            (metric, rest)[number % 2].update(right, **arguments, query=asked)
        metric.total += rest.total
        metric.count += rest.count
        metric.queries = torch.cat([*metric.queries, *rest.queries])  # as torchmetrics joins those of ranks
    for name, metric in metrics.items():
        assert metric.compute() == pytest.approx(wanted[name]), name


def test_an_edge_without_a_query_is_one_of_its_own() -> None:
    positive, negative = scores(8)
    for name in NAMES:
        alone, numbered = metric_of(name), metric_of(name)
        alone.update(positive, negative)
        numbered.update(positive, negative, query=torch.arange(50))
        torch.testing.assert_close(alone.compute(), numbered.compute())
    recall, hits = metric_of("recall@3"), metric_of("hits@3")
    recall.update(positive, negative)
    hits.update(positive, negative)
    assert recall.compute() == hits.compute()


def test_right_answers_with_equal_scores_take_ranks_one_after_the_other() -> None:
    metric = metric_of("map@10")
    metric.update(torch.ones(3), torch.tensor([0.0]), query=torch.zeros(3))
    assert metric.compute() == 1


def test_wrong_settings() -> None:
    for name in ("auc", "mrr@10", "hits", "hits@", "ndcg@0", 3):
        with pytest.raises(LoaderConfigError, match=r"there is no metric|k is 0"):
            metric_of(name)
    with pytest.raises(LoaderConfigError, match="2 positive edges need as many"):
        LinkMRR().update(torch.ones(2), torch.ones(3), query=torch.ones(3))
    for k in (0, "10", 2.5, True):
        with pytest.raises(LoaderConfigError, match=f"k is {k!r}"):
            LinkHits(k=k)
    with pytest.raises(LoaderConfigError, match="ties is 'first'"):
        LinkMRR(ties="first")
