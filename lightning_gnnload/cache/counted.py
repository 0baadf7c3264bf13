"""Policies that count visits: of epochs sampled beforehand, of the very epochs to come, or of a record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.cache.smooth import smoothed
from lightning_gnnload.cache.structure import out_degrees
from lightning_gnnload.cache.trace import visit_counts
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.workload import PRESAMPLED_EPOCHS, Workload


@dataclass(frozen=True)
class PreSample(CachePolicy):
    """By visits in a few epochs that are sampled before training: GNNLab's PreSC#K.

    They are epochs that training never uses, so that the hit rates seen in training say how well past visits foretell
    others, as they would with samplers whose draws nobody can know.

    Args:
        num_epochs: K. One is enough where an epoch visits the hot nodes many times.
        smooth: tell counts of the same size apart, and lucky ones from others, by out-degree: see :mod:`.smooth`.
            False is the paper's policy.
        num_threads: that sample; None for one a core.
        progress: show a bar on stderr.

    Raises:
        CacheConfigError: fewer than one epoch, or more than there are to spare.

    Source: GNNLab (EuroSys'22), section 6.3.
    """

    num_epochs: int = 1
    smooth: bool = True
    num_threads: int | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        _check_whole("num_epochs", self.num_epochs, most=len(PRESAMPLED_EPOCHS))

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        epochs = PRESAMPLED_EPOCHS[: self.num_epochs]
        counts = visit_counts(workload, epochs, num_threads=self.num_threads, progress=self.progress)
        if not self.smooth:
            return counts
        num_batches = self.num_epochs * workload.num_ranks * workload.plan(workload.num_ranks).num_steps
        return smoothed(counts, out_degrees(workload.graph), num_batches)


@dataclass(frozen=True)
class Clairvoyant(CachePolicy):
    """By visits in the very epochs to come: no cache that is filled once a window can hit more often.

    Mini-batches are pure functions of (seed, epoch, step, seeds), so they can be sampled before they are needed. It
    costs what sampling the window costs, without features or a model.

    Args:
        window: epochs that a cache is filled for.
        num_threads: that sample; None for one a core.
        progress: show a bar on stderr.

    Raises:
        CacheConfigError: a window below one epoch.
    """

    window: int = 1
    num_threads: int | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        _check_whole("window", self.window)

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        epochs = range(epoch, epoch + self.window)
        return visit_counts(workload, epochs, num_threads=self.num_threads, progress=self.progress)

    def quietly(self) -> Clairvoyant:
        return replace(self, num_threads=1, progress=False)


class Recorded(CachePolicy):
    """By visits that were counted elsewhere: the optimum, where they are those of the run itself.

    Args:
        counts: one number a node, ``[N]``, not negative.

    Example:
        >>> Recorded([3, 0, 7]).hotness(None, 0).tolist()
        [3, 0, 7]
    """

    def __init__(self, counts: Any) -> None:
        self.counts = np.asarray(counts)

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        return self.counts


def _check_whole(name: str, value: Any, most: int = 2**31) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise CacheConfigError(f"{name}={value!r}: a whole number from 1 to {most} is needed.")
