"""Negative samplers by DGL's names: their laws, and that a row draws alike whatever comes with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import DrawKey
from tests.runif import RunIf

pytestmark = RunIf(extras="dgl")

EDGE = ("_N", "_E", "_N")
ROWS = np.arange(20_000)


def ring() -> Any:
    import dgl

    return dgl.graph((torch.arange(5), (torch.arange(5) + 1) % 5))


def test_per_source_destinations_are_uniform_and_sources_the_edges_own() -> None:
    from lightning_gnnload.dgl.negative_sampler import PerSourceUniform, Uniform

    assert Uniform is PerSourceUniform
    src, dst = Uniform(3).pairs(ring(), ROWS % 5, ROWS, EDGE, DrawKey(1, 0, 0))
    assert src.tolist() == np.repeat(ROWS % 5, 3).tolist()
    counts = np.bincount(dst, minlength=5)
    # 5 sigma of five counts.
    assert np.abs(counts - len(dst) / 5).max() < 5 * np.sqrt(len(dst) * 0.2 * 0.8)
    # And the second of a row does not follow from the first.
    joint = np.bincount(dst[::3] * 5 + dst[1::3], minlength=25)
    assert np.abs(joint - len(ROWS) / 25).max() < 5 * np.sqrt(len(ROWS) * 0.04)


@pytest.mark.parametrize("exclude_self_loops", [True, False])
def test_global_pairs_are_uniform_over_those_that_no_edge_joins(exclude_self_loops: bool) -> None:
    from lightning_gnnload.dgl.negative_sampler import GlobalUniform

    g = ring()
    sampler = GlobalUniform(1, exclude_self_loops=exclude_self_loops, replace=True)
    src, dst = sampler.pairs(g, ROWS % 5, ROWS, EDGE, DrawKey(1, 0, 0))
    counts = np.bincount(src * 5 + dst, minlength=25).reshape(5, 5)
    allowed = np.ones((5, 5), bool)
    allowed[np.arange(5), (np.arange(5) + 1) % 5] = False
    if exclude_self_loops:
        np.fill_diagonal(allowed, False)
    assert counts[~allowed].sum() == 0
    share = 1 / allowed.sum()
    assert np.abs(counts[allowed] - len(ROWS) * share).max() < 5 * np.sqrt(len(ROWS) * share)


def test_without_replacement_no_pair_comes_twice_and_all_that_there_are_come() -> None:
    from lightning_gnnload.dgl.negative_sampler import GlobalUniform

    src, dst = GlobalUniform(4).pairs(ring(), np.arange(5), np.arange(5), EDGE, DrawKey(1, 0, 0))
    pairs = set(zip(src.tolist(), dst.tolist(), strict=True))
    assert len(pairs) == len(src) == 15  # 25 pairs, 5 of them edges, 5 loops; 20 were asked for


def test_a_row_draws_alike_whatever_comes_with_it_and_anew_in_another_epoch() -> None:
    from lightning_gnnload.dgl.negative_sampler import Uniform

    g, sampler = ring(), Uniform(2)
    _, together = sampler.pairs(g, ROWS % 5, ROWS, EDGE, DrawKey(1, 0, 7))
    _, alone = sampler.pairs(g, ROWS[50:60] % 5, ROWS[50:60], EDGE, DrawKey(1, 0, 8))
    assert alone.tolist() == together[100:120].tolist()
    _, later = sampler.pairs(g, ROWS % 5, ROWS, EDGE, DrawKey(1, 1, 7))
    assert (later != together).mean() > 0.7  # 4 in 5 of 40,000 draws
    with pytest.raises(SamplerConfigError, match="at least 1"):
        Uniform(0)
