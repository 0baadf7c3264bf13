"""MRR and Hits@k of links."""

from __future__ import annotations

import pytest
import torch

from lightning_gnnload import LinkHits, LinkMRR
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.plugin.monitor.ranking import link_ranks
from tests.runif import RunIf


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


def test_wrong_settings() -> None:
    for k in (0, "10", 2.5, True):
        with pytest.raises(LoaderConfigError, match=f"k is {k!r}"):
            LinkHits(k=k)
    with pytest.raises(LoaderConfigError, match="ties is 'first'"):
        LinkMRR(ties="first")
