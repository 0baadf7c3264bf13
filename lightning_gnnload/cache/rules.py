"""The policies of ``FeatureCache(policy=...)`` by name, a row each in :data:`RULES`, and the classes of those that
rank.

To add a policy, add a row, and a class here if it ranks, or a rule in ``kernels/dynamic_cache`` if it evicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.cache.belady import BeladyCache
from lightning_gnnload.cache.dynamic import DynamicCache, SharedSlots
from lightning_gnnload.cache.expected import Expected
from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.cache.trace import smoothed, visit_counts
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.drawing import BLUE, GREEN, GREY, INK, ORANGE, PINK, YELLOW
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.workload import FIXED_DRAWS_EPOCH, PRESAMPLED_EPOCHS, Workload

# Visits to a node on average, with which caches of a tenth of the rows came within 5 % of the optimum in 27 workloads.
_ENOUGH_VISITS = 6
_MOST_EPOCHS = 8


@dataclass(frozen=True)
class PreSample(CachePolicy):
    """Ranks nodes by their visits in the run's first epochs, which are sampled before training (GNNLab's PreSC#K).

    Args:
        num_epochs: K. None: as many as visit a node six times on average, so that small epochs are sampled more often
            than large ones; at most eight, and no more than the run has.
        smooth: tell counts of the same size apart, and lucky ones from others, by out-degree: see :func:`.smoothed`.
            False is the paper's policy: bare counts of epochs that training never uses, of one if K is not given.
        num_threads: that sample; None for one a core.
        progress: show a bar on stderr.

    Raises:
        CacheConfigError: fewer than one epoch, or more than there are to spare.

    Source: GNNLab (EuroSys'22), section 6.3.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> from lightning_gnnload.data.orders.seeds import Sequential
        >>> star = Graph.from_coo(src=[3, 3, 3], dst=[0, 1, 2])
        >>> workload = Workload(star, NeighborSampler([1]), np.arange(3), batch_size=1, order=Sequential())
        >>> PreSample(smooth=False, progress=False).hotness(workload, epoch=0).tolist()
        [1, 1, 1, 3]
    """

    counts_visits = True
    num_epochs: int | None = None
    smooth: bool = True
    num_threads: int | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        if self.num_epochs is not None:
            _check_whole("num_epochs", self.num_epochs, most=len(PRESAMPLED_EPOCHS))

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        if not self.smooth:
            return self._counts(workload, PRESAMPLED_EPOCHS[: self.num_epochs or 1])
        # The first epoch alone at first, since its visits tell how many more are worth sampling.
        counts = self._counts(workload, range(epoch, epoch + 1))
        num_epochs = self.num_epochs or self._enough(counts, workload, epoch)
        if num_epochs > 1:
            counts += self._counts(workload, range(epoch + 1, epoch + num_epochs))
        num_batches = num_epochs * workload.num_ranks * workload.plan(workload.num_ranks).num_steps
        return smoothed(counts, workload.graph.out_degrees(), num_batches)

    def _enough(self, counts: np.ndarray, workload: Workload, epoch: int) -> int:
        """Computes from the first epoch's visits how many epochs to sample: by counts, never by time, so that all ranks
        agree."""
        if workload.fixed_draws:
            return 1  # every epoch has the same draws
        missing = math.ceil(_ENOUGH_VISITS * len(counts) / max(int(counts.sum()), 1))
        ahead = _MOST_EPOCHS if workload.end_epoch is None else workload.end_epoch - epoch
        return max(min(missing, ahead, _MOST_EPOCHS), 1)

    def _counts(self, workload: Workload, epochs: range) -> np.ndarray:
        return visit_counts(workload, epochs, num_threads=self.num_threads, progress=self.progress)


@dataclass(frozen=True)
class Clairvoyant(CachePolicy):
    """Ranks nodes by their visits in the coming epochs, which no cache that is filled once a window can beat.

    Mini-batches are pure functions of (seed, epoch, step, seeds), so they can be sampled before they are needed. It
    costs what sampling the window costs, without features or a model.

    Args:
        window: epochs that a cache is filled for.
        num_threads: that sample; None for one a core.
        progress: show a bar on stderr.

    Raises:
        CacheConfigError: a window below one epoch.

    Example:
        >>> from lightning_gnnload import FeatureCache
        >>> FeatureCache(Clairvoyant(window=2), ratio=0.1).policy
        Clairvoyant(window=2, num_threads=None, progress=True)
    """

    counts_visits = True
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
    """Ranks nodes by visits that were counted elsewhere, one number a node; optimal where they are the run's own.

    Example:
        >>> Recorded([3, 0, 7]).hotness(None, 0).tolist()
        [3, 0, 7]
    """

    counts_visits = True

    def __init__(self, counts: Any) -> None:
        self.counts = np.asarray(counts)

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        return self.counts


def _check_whole(name: str, value: Any, most: int = 2**31) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise CacheConfigError(f"{name}={value!r}: a whole number from 1 to {most} is needed.")


@dataclass(frozen=True)
class Degree(CachePolicy):
    """Ranks nodes by out-degree, since a node is gathered through its edges to nodes drawn before it; it knows neither
    the seeds nor how the sampler draws.

    Source: PaGraph (SoCC'20), section 3.1.
    """

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        return workload.graph.out_degrees()


@dataclass(frozen=True)
class DegreeRatio(CachePolicy):
    """Ranks nodes by in-degree over out-degree, 0 without out-edges: AliGraph's policy as PaGraph describes it. In an
    undirected graph all nodes are equal, and the lowest ids win.

    Source: PaGraph (SoCC'20), section 5.3; AliGraph (VLDB'19).
    """

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        out = workload.graph.out_degrees()
        return np.divide(workload.graph.in_degrees, out, out=np.zeros(len(out)), where=out > 0)


@dataclass(frozen=True)
class Random(CachePolicy):
    """Ranks nodes at random, alike for the same seed: the baseline that a policy must beat."""

    def hotness(self, workload: Workload, epoch: int) -> np.ndarray:
        return ops.random_keys(workload.seed, FIXED_DRAWS_EPOCH, np.arange(workload.graph.num_nodes))


@dataclass(frozen=True)
class Rule:
    """One policy: how it decides which rows a cache holds, by ``rank`` or by ``admit``."""

    name: str  # in ``FeatureCache(policy=...)``
    color: str  # of its curve in the figure of ``gnnload cache``
    # (window, progress) -> the policy that ranks rows before each window of epochs
    rank: Callable[[int, bool], CachePolicy] | None = None
    # (store behind, slots, workload, tier, slots that ranks share or None) -> an empty cache that admits and evicts
    admit: Callable[[FeatureStore, int, Workload, str, SharedSlots | None], FeatureStore] | None = None
    is_shareable: bool = False  # ``admit`` takes slots that ranks share
    looks_ahead: bool = False  # it samples every mini-batch once more, before it is made
    is_advised: bool = True  # ``gnnload cache`` may recommend it
    slot_bytes: int = 0  # at most, of an admitted row beside itself
    device_slot_bytes: int | None = None  # likewise on a device; None: ``admit`` is the CPU's alone

    @property
    def judges_nodes(self) -> bool:
        """Whether it needs one row for each node of the graph, as rules do that rank or look ahead."""
        return self.rank is not None or self.looks_ahead


def _native(name: str, color: str, device_slot_bytes: int | None = None) -> Rule:
    """Makes the row of an eviction rule in ``kernels/dynamic_cache``."""
    return Rule(
        name,
        color,
        admit=lambda store, num_slots, workload, tier, slots: DynamicCache(store, num_slots, name, tier, slots),
        is_shareable=True,
        slot_bytes=ops.SLOT_BYTES[name],
        device_slot_bytes=device_slot_bytes,
    )


def _belady(
    store: FeatureStore, num_slots: int, workload: Workload, tier: str, slots: SharedSlots | None
) -> FeatureStore:
    assert slots is None, "each rank looks ahead for itself"
    return BeladyCache(store, num_slots, workload, tier=tier)


RULES = {
    rule.name: rule
    for rule in (
        Rule("presample", BLUE, rank=lambda window, progress: PreSample(progress=progress)),
        Rule("expected", GREEN, rank=lambda window, progress: Expected()),
        Rule(
            "clairvoyant",
            PINK,
            rank=lambda window, progress: Clairvoyant(window, progress=progress),
            looks_ahead=True,
        ),
        Rule("degree", YELLOW, rank=lambda window, progress: Degree()),
        Rule("degree-ratio", ORANGE, rank=lambda window, progress: DegreeRatio()),
        Rule("random", GREY, rank=lambda window, progress: Random(), is_advised=False),
        _native("fifo", ORANGE, device_slot_bytes=8),
        _native("clock", BLUE),
        _native("s3fifo", GREEN),
        # A slot's node and its next time, int64 each. The node ids of the steps ahead come on top.
        Rule("belady", INK, admit=_belady, looks_ahead=True, slot_bytes=16),
    )
}
"""By name. Of equals, ``gnnload cache`` recommends the first that does not look ahead."""
POLICIES = tuple(name for name, rule in RULES.items() if rule.rank is not None)
EVICTION_RULES = tuple(name for name, rule in RULES.items() if rule.admit is not None)


def rule_of(policy: object) -> Rule | None:
    """Returns the row of this name; None for a user's policy, or whatever else is no name."""
    return RULES.get(policy) if isinstance(policy, str) else None


def policy_named(policy: str | CachePolicy, *, window: int = 1, progress: bool = True) -> CachePolicy:
    """Makes one of :data:`POLICIES`, or returns a user's policy as it is; ``window`` is for ``"clairvoyant"``. Raises
    CacheConfigError for an unknown name, or a window below one epoch.

    Example:
        >>> policy_named("clairvoyant", window=2, progress=False)
        Clairvoyant(window=2, num_threads=None, progress=False)
    """
    if isinstance(policy, CachePolicy):
        epochs = policy.window
        if epochs is not None and not (isinstance(epochs, int) and epochs >= 1):
            raise CacheConfigError(
                f"{type(policy).__name__}.window is {epochs!r}: epochs are needed, 1 or more, or None for the whole "
                f"run."
            )
        return policy
    rule = rule_of(policy)
    if rule is not None and rule.rank is not None:
        return rule.rank(window, progress)
    raise CacheConfigError(
        f"policy={policy!r} is not known; give one of {', '.join(map(repr, POLICIES))}, a CachePolicy of your own, or "
        f"for a cache that evicts while it serves one of {', '.join(map(repr, EVICTION_RULES))}."
    )
