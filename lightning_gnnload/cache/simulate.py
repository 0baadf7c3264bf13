"""How caches would do on a workload: every policy at several sizes, over recorded mini-batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.cache.lookahead import next_lists
from lightning_gnnload.cache.policy import hottest
from lightning_gnnload.cache.rules import RULES
from lightning_gnnload.cache.trace import node_lists
from lightning_gnnload.errors import CacheConfigError
from lightning_gnnload.sample.workload import Workload

Advance = Callable[[int], object]


@dataclass(frozen=True)
class HitRateCurve:
    """The hit rates of one policy in one order of seeds, by size of the cache."""

    name: str  # of the policy; "optimum": the best that rows chosen once can do
    order: str
    hit_rates: list[float]
    missed_rows: list[float]  # of a measured epoch on average, as another order gathers another number of rows
    prepare_s: float = 0.0  # that ranking the rows took


class AccessTrace:
    """The input nodes of some epochs' mini-batches; the first epoch warms the caches, the others are measured.

    Where ``max_bytes`` are too few, every epoch is recorded up to the same step. ``advance`` is called with 1 for each
    mini-batch. Raises CacheConfigError below two epochs, or without room for a single step.
    """

    def __init__(
        self, workload: Workload, num_epochs: int, *, max_bytes: int = 2 << 30, advance: Advance = lambda _: None
    ) -> None:
        if num_epochs < 2:
            raise CacheConfigError(f"{num_epochs} epochs: one to warm up and one to measure are needed at least.")
        self.workload = workload
        self.num_nodes = workload.graph.num_nodes
        self.num_steps = workload.plan(workload.num_ranks).num_steps
        self.epochs = [self._record(0, max_bytes // num_epochs, advance)]
        for epoch in range(1, num_epochs):
            self.epochs.append(self._record(epoch, None, advance))

    @property
    def is_cut(self) -> bool:
        """Whether epochs are recorded in part."""
        return self.num_steps < self.workload.plan(self.workload.num_ranks).num_steps

    @property
    def num_visits(self) -> int:
        """Rows gathered in the measured epochs."""
        return sum(len(nodes) for epoch in self.epochs[1:] for nodes in epoch)

    def counts(self) -> list[np.ndarray]:
        """Counts the visits to each node in each measured epoch, int64 ``[N]``."""
        return [np.bincount(np.concatenate(epoch), minlength=self.num_nodes) for epoch in self.epochs[1:]]

    def _record(self, epoch: int, max_bytes: int | None, advance: Advance) -> list[np.ndarray]:
        """Records one epoch; if ``max_bytes`` cut it, later epochs record as many steps."""
        recorded: list[np.ndarray] = []
        num_bytes, num_ranks = 0, self.workload.num_ranks
        requests = (request for request in self.workload.requests(epoch) if request.step < self.num_steps)
        lists = node_lists(self.workload, requests)
        for request, nodes in lists:
            num_bytes += nodes.nbytes
            if max_bytes is not None and num_bytes > max_bytes:
                self.num_steps = request.step
                lists.close()  # type: ignore[attr-defined]  # ends its threads now
                break
            recorded.append(nodes)
            advance(1)
        if self.num_steps == 0:
            raise CacheConfigError(f"{max_bytes} bytes an epoch are too few to record one step; lower batch_size.")
        return recorded[: self.num_steps * num_ranks]  # without the ranks of a step that was cut


def static_curves(
    trace: AccessTrace, ratios: Sequence[float], order: str, skipped: Callable[[str], object]
) -> Iterator[HitRateCurve]:
    """Yields the curves of the optimum and of all :data:`.RULES` that rank; ``skipped`` gets a line on each that
    cannot.

    The optimum has the rows visited most in all measured epochs together; ``"clairvoyant"`` chooses anew for each
    epoch, and so may exceed it.

    Source: GNNLab (EuroSys'22), section 6.2, figures 10 and 11.
    """
    counts = trace.counts()
    run = np.sum(counts, axis=0)
    slots = [slots_of(ratio, trace.num_nodes) for ratio in ratios]
    yield _static(trace, "optimum", order, slots, [(run, run)], 0.0)
    for name, rule in RULES.items():
        if rule.rank is None:
            continue
        if rule.looks_ahead:  # the visits that it would count are recorded already
            yield _static(trace, name, order, slots, [(epoch, epoch) for epoch in counts], 0.0)
            continue
        began = time.perf_counter()
        try:
            # By an epoch that is not measured: in a real run, too, later epochs are not the ones that were ranked.
            hotness = rule.rank(1, False).hotness(trace.workload, len(trace.epochs))
        except CacheConfigError as error:
            skipped(f"{name}: {error}")
            continue
        yield _static(trace, name, order, slots, [(hotness, run)], time.perf_counter() - began)


def presampled_curve(trace: AccessTrace, ratios: Sequence[float], order: str) -> HitRateCurve:
    """Makes the curve of the rows that the trace's first epoch visits most, judged by the others: what
    ``"presample"`` would do at least, without sampling anything more.

    Source: GNNLab (EuroSys'22), section 6.3, PreSC#1.
    """
    warm = np.bincount(np.concatenate(trace.epochs[0]), minlength=trace.num_nodes)
    slots = [slots_of(ratio, trace.num_nodes) for ratio in ratios]
    return _static(trace, "presample", order, slots, [(warm, np.sum(trace.counts(), axis=0))], 0.0)


def evicting_curves(trace: AccessTrace, ratios: Sequence[float], order: str) -> Iterator[HitRateCurve]:
    """Yields the curves of all rules that admit and evict; ``"belady"`` knows the whole trace.

    Source: BGL (NSDI'23), section 3.2.1, figure 5.
    """
    slots = [slots_of(ratio, trace.num_nodes) for ratio in ratios]
    lists = list(chain(*trace.epochs))
    num_warm = len(trace.epochs[0])
    for name, rule in RULES.items():
        if rule.admit is None:
            continue
        if rule.looks_ahead:
            following = next_lists(lists, np.empty(trace.num_nodes, np.int32))
            hits = [_belady_hits(trace.num_nodes, num_slots, lists, following, num_warm) for num_slots in slots]
        else:
            hits = [evicting_hits(trace.num_nodes, num_slots, name, lists, num_warm) for num_slots in slots]
        yield _curve(trace, name, order, hits)


def _static(
    trace: AccessTrace,
    name: str,
    order: str,
    slots: Sequence[int],
    judged: Sequence[tuple[np.ndarray, np.ndarray]],
    prepare_s: float,
) -> HitRateCurve:
    """Makes the curve of the hottest rows; ``judged`` pairs each hotness with the visits that it is judged by."""
    hits = np.zeros(len(slots), np.int64)
    for hotness, visits in judged:
        # One ranking serves all sizes: a smaller cache holds the beginning of a larger one.
        ranked = visits[hottest(hotness, trace.num_nodes, max(slots))].cumsum()
        hits += [ranked[count - 1] if count else 0 for count in slots]
    return _curve(trace, name, order, hits.tolist(), prepare_s)


def _curve(trace: AccessTrace, name: str, order: str, hits: Sequence[int], prepare_s: float = 0.0) -> HitRateCurve:
    visits, num_epochs = trace.num_visits, len(trace.epochs) - 1
    rates = [count / max(visits, 1) for count in hits]
    return HitRateCurve(name, order, rates, [(visits - count) / num_epochs for count in hits], prepare_s)


def evicting_hits(num_nodes: int, num_slots: int, rule: str, lists: Iterable[np.ndarray], num_warm: int) -> int:
    """Counts the hits of a cache that admits and evicts, in all lists but the first ``num_warm``."""
    # The native cache needs a slot.
    if num_slots == 0:
        return 0
    # Rows of no bytes: which of them stay does not depend on their values.
    cache = ops.EvictingSlots(num_nodes, num_slots, row_bytes=0, eviction=rule)
    hits = [cache.visit(nodes) for nodes in lists]
    return sum(hits[num_warm:])


def _belady_hits(
    num_nodes: int, num_slots: int, lists: Sequence[np.ndarray], following: Sequence[np.ndarray], num_warm: int
) -> int:
    """Counts the hits of a cache that keeps the rows whose next use comes soonest."""
    never, hits = len(lists), 0
    next_of = np.full(num_nodes, never, np.int32)  # of cached nodes, the next list that they are in
    cached = np.empty(0, np.int64)
    for number, (nodes, after) in enumerate(zip(lists, following, strict=True)):
        # Cached nodes alone have a time, that of the next list they are in: for those of this list, this one.
        is_hit = next_of[nodes] == number
        if number >= num_warm:
            hits += int(np.count_nonzero(is_hit))
        next_of[nodes] = after
        cached = np.concatenate([cached[next_of[cached] != never], nodes[~is_hit & (after != never)]])
        if len(cached) > num_slots:
            soonest = np.argpartition(next_of[cached], num_slots)
            next_of[cached[soonest[num_slots:]]] = never
            cached = cached[soonest[:num_slots]]
    return hits


def slots_of(ratio: float, num_nodes: int) -> int:
    """Returns how many rows a share of all rows is."""
    return int(ratio * num_nodes + 1e-9)  # 0.29 * 100 is 28.999... in binary
