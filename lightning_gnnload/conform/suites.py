"""Suites: the checks that a law of drawing calls for, and running them.

A suite fails a correct sampler with a probability of at most :data:`FAMILY_ERROR`: each of its n checks fails where
a proven bound of the probability of what it saw, times the number of its settings, is below ``FAMILY_ERROR / n``.
Seeds are fixed, so that a sampler whose batches are pure functions passes always or never.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from lightning_gnnload.conform import checks
from lightning_gnnload.conform.checks import Evidence
from lightning_gnnload.conform.draw import Draw, sampler_draw
from lightning_gnnload.conform.significance import Significance
from lightning_gnnload.errors import ConformanceError
from lightning_gnnload.sample.base import Sampler

FAMILY_ERROR = 1e-6  # a correct sampler fails a suite with at most this probability

# How neighbours are drawn: all alike or by Graph.edge_weight, each once at most or with replacement.
Law = Literal["uniform", "uniform, replaced", "weighted", "weighted, replaced"]
LAWS: tuple[Law, ...] = ("uniform", "uniform, replaced", "weighted", "weighted, replaced")

# At and around the widths of vectors and small tables.
_FANOUTS = [1, 2, 5, 15, 16, 17, 33, 64, 65, 100]
_WEIGHTS: list[tuple[list[float], int]] = [
    ([1, 2, 3, 4], 2),
    ([1, 1, 10], 2),
    ([5, 0, 1, 0, 2, 4], 3),
    ([0.1, 0.2, 0.3, 40], 1),
    ([3, 3, 1, 1, 7], 4),
]


Runs = dict[str, Callable[[Draw], Iterator[Evidence]]]


@dataclass(frozen=True)
class Check:
    """A check tests a null hypothesis about a sampler's draws."""

    name: str
    run: Callable[[Draw], Iterator[Evidence]]

    @property
    def hypothesis(self) -> str:
        run = self.run.func if isinstance(self.run, partial) else self.run
        return (run.__doc__ or "").partition("\n")[0]


@dataclass(frozen=True)
class CheckResult:
    """The results of one check in all its settings."""

    name: str
    hypothesis: str
    evidence: list[Evidence]
    threshold: float
    seconds: float

    @property
    def num_trials(self) -> int:
        return sum(evidence.num_trials for evidence in self.evidence)

    @property
    def worst(self) -> Evidence:
        return min(self.evidence, key=lambda evidence: (evidence.chance.bound, evidence.chance.p))

    @property
    def chance(self) -> Significance:
        """Returns the significance of the worst setting, corrected for the number of settings."""
        p, bound = (min(1.0, len(self.evidence) * value) for value in self.worst.chance)
        return Significance(p, bound)

    @property
    def exact(self) -> bool:
        return all(evidence.exact for evidence in self.evidence)

    @property
    def passed(self) -> bool:
        return self.chance.bound >= self.threshold


def suite(law: Law, *, quick: bool = False, keyed: bool = True) -> list[Check]:
    """Returns the checks of one law; ``quick`` makes a tenth of the trials, which shows deviations some three times as
    large. Draws that are ``keyed`` follow their key, so that epochs and seeds can be told apart."""
    trials = 20_000 if quick else 200_000
    weighted, replace = law.startswith("weighted"), law.endswith("replaced")
    runs: Runs = {
        "edges exist": checks.existing_edges,
        "counts": partial(checks.counts, fanouts=_FANOUTS, replace=replace, zeros=weighted),
    }
    if weighted:
        runs |= _weighted_runs(trials, replace)
    else:
        runs |= _replaced_runs(trials) if replace else _uniform_runs(trials)
    # What ignores the key is at another step in each call, but has no epochs or seeds to compare.
    for apart in ("nodes", "hops", "steps", "epochs", "seeds")[: 5 if keyed else 3]:
        runs[f"between {apart}"] = partial(checks.between, apart=apart, num_trials=trials // 4)
    units = ("steps", "epochs")[: 2 if keyed else 1]
    # Fewer trials, since each is a batch of its own.
    runs["over time"] = partial(checks.over_time, units=units, num_trials=trials // 50)
    return [Check(name, run) for name, run in runs.items()]


def _weighted_runs(trials: int, replace: bool) -> Runs:
    graded, large = 1.0 + np.arange(50) % 7, 1.0 + np.arange(10**5) % 3
    return {
        "outcomes": partial(checks.outcomes, settings=_WEIGHTS, num_trials=trials, replace=replace),
        "proportions": partial(checks.proportions, settings=[(graded, 20 if replace else 1)], num_trials=trials // 2),
        "hub of 10^5": partial(checks.hubs, weights=large, fanout=1, num_trials=2000),
    }


def _replaced_runs(trials: int) -> Runs:
    small, wide = [(_alike(2), 2), (_alike(3), 4), (_alike(5), 3)], [(np.ones(7), 20), (np.ones(100), 3)]
    return {
        "outcomes": partial(checks.outcomes, settings=small, num_trials=trials, replace=True),
        "proportions": partial(checks.proportions, settings=wide, num_trials=trials // 2),
        "coincidences": partial(checks.coincidences, settings=[(7, 20), (100, 33)], num_trials=trials // 4),
        "hub of 10^6": partial(checks.hubs, weights=np.ones(10**6), fanout=64, num_trials=500),
    }


def _uniform_runs(trials: int) -> Runs:
    small = [(_alike(d), f) for d, f in ((2, 1), (3, 2), (5, 2), (6, 3), (8, 4), (9, 2), (12, 10))]
    around = [(degree, f) for f in _FANOUTS for degree in sorted({f + 1, 2 * f})]
    spread = [(10, 5), (20, 15), (40, 33), (65, 64), (80, 70), (150, 15), (1000, 10)]
    return {
        "inclusion": partial(checks.inclusion, settings=spread, num_trials=trials // 2),
        "first and last": partial(checks.ends, settings=around, num_trials=trials // 4),
        "pairs": partial(checks.pairs, settings=[(6, 3), (30, 15), (70, 66)], num_trials=trials // 4),
        "subsets": partial(checks.outcomes, settings=small, num_trials=trials),
        "hub of 10^6": partial(checks.hubs, weights=np.ones(10**6), fanout=64, num_trials=500),
    }


def run(draw: Draw, suite: Sequence[Check]) -> Iterator[CheckResult]:
    """Runs the checks, and yields the result of each."""
    for check in suite:
        began, evidence = time.perf_counter(), []
        try:
            for setting in check.run(draw):
                evidence.append(setting)  # one by one, so that those before an error stay
        except ConformanceError as error:
            evidence.append(Evidence.of_rule("drawing", 0, [str(error)]))
        yield CheckResult(
            check.name, check.hypothesis, evidence, FAMILY_ERROR / len(suite), time.perf_counter() - began
        )


def check_draws(sampler_of: Callable[[Sequence[int]], Sampler], law: Law = "uniform", *, quick: bool = True) -> None:
    """Checks a sampler's choices against a law, for use in a test.

    Args:
        sampler_of: the sampler for these fanouts, such as the class ``NeighborSampler`` itself.
        law: how it should draw.
        quick: a tenth of the trials.

    Raises:
        ConformanceError: names the first check that fails, its null hypothesis, and the count that deviates most.

    Example:
        >>> from lightning_gnnload import NeighborSampler
        >>> check_draws(NeighborSampler)
    """
    for result in run(sampler_draw(sampler_of), suite(law, quick=quick)):
        if not result.passed:
            raise ConformanceError(
                f"{sampler_of([1])!r} does not draw by the law {law!r}: {result.name!r} fails. "
                f"{result.hypothesis} But with {result.worst.setting}, {result.worst.worst}; the probability of this "
                f"or worse is at most {result.chance.bound:.1g}, below {result.threshold:.1g}. "
                f"See what the draw does with the first and the last neighbour, and with each part of its key."
            )


def _alike(degree: int) -> list[float]:
    return [1.0] * degree
