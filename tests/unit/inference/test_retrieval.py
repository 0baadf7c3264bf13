"""The best items of each source, and ranks among all, in blocks, beside a plain sort of all scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lightning_fabric.utilities.apply_func import move_data_to_device

from lightning_gnnload import Graph, SeedTable
from lightning_gnnload.inference import retrieval
from lightning_gnnload.inference.known_links import KnownLinks
from lightning_gnnload.inference.retrieval import FaissIndex, Ranking, ranks_among, top_items
from lightning_gnnload.plugin.monitor.ranking import link_ranks
from tests.runif import RunIf

S, N = 13, 90


@pytest.fixture(params=[1 << 20, S * 7, 1], ids=["one block", "blocks of 7", "blocks of 1"])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "BLOCK_SCORES", request.param)


def scores_and_excluded() -> tuple[torch.Tensor, tuple[np.ndarray, np.ndarray]]:
    """Scores of few values, so that many are equal; some are no numbers. One source has three items left."""
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.integers(0, 12, (S, N)).astype(np.float32))
    scores[2, 5], scores[3, :4] = torch.nan, -torch.inf
    row, item = np.nonzero(rng.random((S, N)) < 0.2)
    more = np.setdiff1d(np.arange(N), [3, 50, 51])
    return scores, (np.concatenate([row, np.full(len(more), 7)]), np.concatenate([item, more]))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("k", [1, 10, 200])
def test_the_best_items_are_those_of_a_plain_sort(k: int) -> None:
    scores, excluded = scores_and_excluded()
    items, values = top_items(lambda first, last: scores[:, first:last], S, N, k, excluded)
    assert items.shape == values.shape == (S, k)
    out = set(zip(*(ids.tolist() for ids in excluded), strict=True))
    for row in range(S):
        usable = [item for item in range(N) if (row, item) not in out and scores[row, item] > -torch.inf]
        wanted = sorted(usable, key=lambda item: (-scores[row, item].item(), item))[:k]  # ties: the lower number
        assert items[row].tolist() == wanted + [-1] * (k - len(wanted))
        torch.testing.assert_close(values[row, : len(wanted)], scores[row, wanted])
        assert values[row, len(wanted) :].isnan().all()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("ties", ["mean", "optimistic", "pessimistic"])
def test_ranks_among_all_items_are_those_among_the_others(ties: str) -> None:
    scores, excluded = scores_and_excluded()
    scores = scores.nan_to_num(neginf=5.0)
    targets = torch.arange(S) * 6  # some of them excluded: a target always counts
    ranks, positive = ranks_among(lambda first, last: scores[:, first:last], targets, N, excluded, ties)
    mask = torch.ones(S, N, dtype=torch.bool)
    mask[excluded] = False
    mask[torch.arange(S), targets] = False
    torch.testing.assert_close(positive, scores[torch.arange(S), targets])
    torch.testing.assert_close(ranks, link_ranks(positive, scores, mask, ties))


def test_no_source_and_no_other_item() -> None:
    items, values = top_items(lambda first, last: torch.empty(0, last - first), 0, 5, 3)
    assert items.shape == values.shape == (0, 3)
    ranks, _ = ranks_among(lambda first, last: torch.ones(1, 1), torch.tensor([0]), 1)
    assert ranks.isnan().all()


def test_known_links_are_those_of_a_plain_search() -> None:
    rng = np.random.default_rng(1)
    src, dst, time = rng.integers(0, 20, 300), rng.integers(0, 30, 300), rng.integers(0, 50, 300)
    other = rng.integers(0, 30, 40), rng.integers(0, 20, 40)
    buys, back = ("user", "buys", "item"), ("item", "rates", "user")
    graph = Graph.from_hetero(
        {"user": 20, "item": 30},
        {back: other, buys: (src, dst)},
        edge_time={buys: time, back: np.zeros(40, np.int64)},
    )
    later = SeedTable(src=[4, 4], dst=[29, 28], edge_type=buys)
    known = KnownLinks(graph, "buys", [later])
    sources, times = np.array([4, 0, 4]), np.array([25, 50, 0])
    row, items = known.of(sources, graph.clock.until(times, "<="))
    for number, (source, moment) in enumerate(zip(sources, times, strict=True)):
        wanted = sorted(dst[(src == source) & (time <= moment)].tolist() + [28, 29] * int(source == 4))
        assert sorted(items[row == number].tolist()) == wanted
    assert len(known.of(np.arange(20))[1]) == 302


@RunIf(extras="faiss")
def test_an_index_of_few_items_gives_the_best_and_of_many_most_of_them() -> None:
    generator = torch.Generator().manual_seed(2)
    for num_items, share in ((60, 1.0), (3000, 0.8)):
        items, queries = torch.randn(num_items, 16, generator=generator), torch.randn(40, 16, generator=generator)
        wanted = (queries @ items.t()).topk(10).indices
        numbers = FaissIndex(items).candidates(queries, 10)
        again = FaissIndex(items).candidates(queries, 10)
        assert numbers.equal(again)
        hits = (numbers[:, :, None] == wanted[:, None]).any(1).float().mean()
        assert hits >= share


def test_lightning_can_move_a_ranking_that_it_keeps() -> None:
    ranking = Ranking(torch.tensor([[3]]), torch.tensor([[0.5]]), range(2, 4))
    assert move_data_to_device({"ranked": ranking}, torch.device("cpu"))["ranked"] == ranking
