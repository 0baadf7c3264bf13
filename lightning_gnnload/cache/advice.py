"""Recommends a cache, from simulated hit rates and from how fast this machine gathers rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from lightning_gnnload.cache.rules import RULES
from lightning_gnnload.cache.simulate import AccessTrace, HitRateCurve
from lightning_gnnload.data.features import FeatureStore, MemoryFeatureStore

# Enough batches to even out the noise; where a disk is so slow that they take long, the clock ends the measurement.
_MEASURED_BATCHES, _MEASURED_S = 24, 3.0
_LARGEST_SCRATCH_BYTES = 256 << 20
# So near to the best, policies are equals; so much of the best, a smaller cache is preferred to a larger.
_CLOSE, _ENOUGH = 0.01, 0.9
_WORTH_IT = 0.05  # a smaller gain would be lost in noise
_EASE = sorted((name for name, rule in RULES.items() if rule.is_advised), key=lambda name: RULES[name].looks_ahead)
"""Policies in the order in which they are preferred where they are equally good."""


@dataclass(frozen=True)
class Speed:
    """The cost of gathering a row on one thread, as measured, in nanoseconds."""

    store_ns: float  # from the table as it is, for the workload's mini-batches
    memory_ns: float  # from memory, which is what a hit costs
    sample_ns: float  # of sampling it, which policies that look ahead do twice

    def saved(self, policy: str, hit_rate: float) -> float:
        """Returns the share of the gathering time that a cache in memory saves; negative where it costs more."""
        again = self.sample_ns if RULES[policy].looks_ahead else 0.0
        return (hit_rate * (self.store_ns - self.memory_ns) - again) / self.store_ns


@dataclass(frozen=True)
class Advice:
    """A recommended cache and the reason for it; ``policy`` None recommends no cache."""

    policy: str | None
    order: str  # of the seeds, for which it holds
    ratio: float
    reason: str


def measure_speed(store: FeatureStore, trace: AccessTrace) -> Speed:
    """Times gathers from the store, spread over an epoch, for a few seconds; then gathers of as many rows from
    memory."""
    before, lists = (epoch[:: max(len(epoch) // _MEASURED_BATCHES, 1)] for epoch in (trace.epochs[0], trace.epochs[-1]))
    out = torch.empty(max(map(len, [*before, *lists])), store.shape[1], dtype=store.dtype)
    _gather_ns(store, before, out)  # as the epoch before would: pages of a file may be in memory already
    store_ns = _gather_ns(store, lists, out)
    began, num_sampled = time.perf_counter(), 0
    for request in islice(trace.workload.requests(len(trace.epochs)), _MEASURED_BATCHES):
        num_sampled += len(trace.workload.nodes_of(request))
    sample_ns = (time.perf_counter() - began) * 1e9 / num_sampled
    # As many rows as a hit may lie among, but no second table where the first fills the memory.
    num_rows = min(store.shape[0], max(_LARGEST_SCRATCH_BYTES // max(store.row_bytes, 1), 1))
    memory = MemoryFeatureStore(torch.zeros(num_rows, store.shape[1], dtype=store.dtype))
    return Speed(store_ns, _gather_ns(memory, [nodes % num_rows for nodes in lists], out), sample_ns)


def recommend(
    curves: Sequence[HitRateCurve], ratios: Sequence[float], most: float, speed: Speed, usual_order: str
) -> Advice:
    """Recommends the policy and the size that are worth their memory, or no cache.

    ``ratios`` are the sizes of all ``curves``, ascending; ``most`` is the largest share of rows that free memory
    allows. Only curves of ``usual_order`` count: another order of seeds would change what the model learns.
    """
    allowed = [number for number, ratio in enumerate(ratios) if ratio <= most]
    usable = {curve.name: curve for curve in curves if curve.name in _EASE and curve.order == usual_order}
    if not allowed or not usable:
        return Advice(None, usual_order, 0.0, "there is no memory for the smallest cache that was looked at.")

    speeds = f"a row takes {speed.store_ns:.0f} ns from the table and {speed.memory_ns:.0f} ns from memory"
    name, size, saved = _best(usable, allowed, speed.saved)
    if saved < _WORTH_IT:
        name, size, hit_rate = _best(usable, allowed, lambda name, rate: 0.0 if RULES[name].looks_ahead else rate)
        return Advice(
            None,
            usual_order,
            ratios[size],
            f"{speeds}, so that a cache in memory saves nothing here. Before a slower tier, {name} would hit "
            f"{hit_rate:.1%} with {ratios[size]:.3g} of the rows.",
        )
    largest = max(curve.hit_rates[allowed[-1]] for curve in usable.values())
    return Advice(
        name,
        usual_order,
        ratios[size],
        f"it hits {usable[name].hit_rates[size]:.1%} and saves {saved:.0%} of the time to gather; {speeds}. The "
        f"largest cache that memory allows, {ratios[allowed[-1]]:.3g} of the rows, would hit {largest:.1%} at best.",
    )


def _best(
    usable: Mapping[str, HitRateCurve], allowed: Sequence[int], worth: Callable[[str, float], float]
) -> tuple[str, int, float]:
    """Finds the smallest size that is worth nearly as much as the best one, and the easiest policy that reaches it."""
    values = {name: [worth(name, rate) for rate in curve.hit_rates] for name, curve in usable.items()}
    tops = {number: max(value[number] for value in values.values()) for number in allowed}
    # abs(): where every cache costs time, the best is negative, and enough is still below it.
    most_of_it = max(tops.values()) - (1 - _ENOUGH) * abs(max(tops.values()))
    enough = next(number for number in allowed if tops[number] >= most_of_it)
    close = [name for name in values if values[name][enough] >= tops[enough] - _CLOSE]
    name = min(close, key=_EASE.index)
    return name, enough, values[name][enough]


def _gather_ns(store: FeatureStore, lists: Sequence[np.ndarray], out: torch.Tensor) -> float:
    out.zero_()  # so that the first gather does not pay for the page faults of ``out``
    num_rows, taken_s = 0, 0.0
    for nodes in lists:
        began = time.perf_counter()
        store.gather(torch.from_numpy(nodes), out[: len(nodes)])
        taken_s += time.perf_counter() - began
        num_rows += len(nodes)
        if taken_s > _MEASURED_S:
            break
    return taken_s * 1e9 / num_rows if num_rows else math.nan
