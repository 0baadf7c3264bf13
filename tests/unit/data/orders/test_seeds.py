import itertools

import numpy as np
import pytest

from lightning_gnnload.data.orders.seeds import Sequential, Shuffled
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.plugin.module.settings import seed_order

SEEDS = np.array([30, 4, 17, 99, 2, 51])


def test_a_shuffle_is_a_permutation_of_seed_and_epoch() -> None:
    orders = {
        key: Shuffled().order(SEEDS, seed=key[0], epoch=key[1]).tolist()
        for key in itertools.product(range(5), range(5))
    }
    assert all(sorted(order) == sorted(SEEDS) for order in orders.values())
    # 25 of 720 permutations: that fewer than 15 differ has a probability below 1e-15. Ignoring either argument gives 5.
    assert len({tuple(order) for order in orders.values()}) >= 15
    assert Shuffled().order(SEEDS, seed=1, epoch=2).tolist() == orders[1, 2]


def test_a_shuffle_does_not_depend_on_how_the_seeds_came() -> None:
    order = Shuffled().order(SEEDS, seed=1, epoch=2)
    assert Shuffled().order(np.sort(SEEDS), seed=1, epoch=2).tolist() == order.tolist()
    # Without one node, the others keep their order: their keys are their own.
    rest = Shuffled().order(SEEDS[1:], seed=1, epoch=2)
    assert rest.tolist() == [v for v in order if v != SEEDS[0]]


def test_every_permutation_is_equally_likely() -> None:
    trials = 24 * 500
    seeds = np.array([5, 1000, 7, 123456])
    counts: dict[tuple[int, ...], int] = {}
    for epoch in range(trials):
        order = tuple(Shuffled().order(seeds, seed=11, epoch=epoch))
        counts[order] = counts.get(order, 0) + 1
    chi_square = sum((n - 500) ** 2 / 500 for n in counts.values()) + 500 * (24 - len(counts))
    # 23 degrees of freedom: a fair shuffle exceeds 65 with probability below 1e-5; the seed is fixed.
    assert chi_square < 65


def test_sequential_is_as_given() -> None:
    assert Sequential().order(SEEDS, seed=1, epoch=2).tolist() == SEEDS.tolist()


def test_orders_by_name() -> None:
    assert isinstance(seed_order("shuffle"), Shuffled)
    assert isinstance(seed_order("sequential"), Sequential)
    assert seed_order(own := Shuffled()) is own
    with pytest.raises(LoaderConfigError, match=r"order='random'.*'shuffle', 'sequential'"):
        seed_order("random")
