"""Workload: describes the mini-batches of one phase as a pure function of the request: which seeds, which draws."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.seeds import SeedOrder, Sequential
from lightning_gnnload.data.plan import BatchRequest, StepPlan
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.visibility import VisibleEdges, spaced_rows
from lightning_gnnload.ops import DrawKey, SampleLayout
from lightning_gnnload.sample.base import Sampler, nodes_of
from lightning_gnnload.sample.seeds.links import seed_kind
from lightning_gnnload.sample.seeds.rows import SeedBatch, SeedKind

FIXED_DRAWS_EPOCH = 2**32 - 1
"""The epoch in the draw key of evaluation, which no training epoch reaches."""
PRESAMPLED_EPOCHS = range(2**32 - 2, 2**32 - 2**16, -1)
"""Epochs for samples that predict training without being part of it; no training epoch reaches them either."""


class Workload:
    """A workload is the mini-batches of a phase: graph, sampler, seeds, order and batch size. Thread-safe.

    Args:
        seeds: node ids of the phase, int64 ``[S]``, a table, or what makes the kind of seed of a graph and a sampler.
        batch_size: seeds per rank and step.
        seed: random seed of the run.
        fixed_draws: draw a node's neighbours alike in every epoch and step, so that metrics are comparable.
        num_ranks: trainers that share each step, where :meth:`requests` is asked for a whole epoch.
        labels: of the nodes, ``[N]`` or ``[N, C]``, for orders that look at them.
        drop_last, keep_rest: as :class:`.StepPlan` has it.
        end_epoch: the one before which the run ends; None if nobody knows. It changes no mini-batch.
        cycle: epochs after which these come again, draws and order alike; None: never.
        rounding: how rows are rounded on their way from owners; ``"exact"``: not.

    Attributes:
        kind: of the seeds.
        seeds: numbers of the phase's rows, int64 ``[S]``, which orders order: node ids, or rows of a table.
        shared_seed: the random seed of several trainers, where ``seed`` is of this process alone.

    Raises:
        LoaderConfigError: the order needs other labels, or times.
        SamplerConfigError, SeedError: as :func:`.seed_kind` has them.
    """

    def __init__(
        self,
        graph: Graph,
        sampler: Sampler,
        seeds: np.ndarray | SeedTable | Callable[[Graph, Sampler], SeedKind],
        *,
        batch_size: int = 1,
        order: SeedOrder = Sequential(),  # noqa: B008  it has no state
        seed: int = 0,
        fixed_draws: bool = False,
        drop_last: bool = False,
        num_ranks: int = 1,
        labels: torch.Tensor | None = None,
        keep_rest: bool = False,
        end_epoch: int | None = None,
        cycle: int | None = None,
        rounding: str = "exact",
    ) -> None:
        self.graph = graph
        self.sampler = sampler
        self.kind = seeds(graph, sampler) if callable(seeds) else seed_kind(graph, sampler, seeds)
        self.seeds = self.kind.rows
        self._settings_of_seeds = seeds
        self.batch_size = batch_size
        self.order = order
        self.seed = seed
        self.fixed_draws = fixed_draws
        self.drop_last = drop_last
        self.num_ranks = num_ranks
        self.shared_seed: int | None = None
        self.keep_rest = keep_rest
        self.end_epoch = end_epoch
        self.cycle = cycle
        self.rounding = rounding
        self.labels = labels
        self._ordered: dict[tuple[int, int], np.ndarray] = {}
        self._ordering = threading.Lock()
        self._bound_order(batch_size * num_ranks)  # an order that cannot be is refused here

    def settings(self) -> dict[str, Any]:
        """Returns the arguments that it was made with, by name, to make another one like it."""
        names = (
            *("graph", "sampler", "batch_size", "order", "seed", "fixed_draws", "drop_last", "num_ranks"),
            *("labels", "keep_rest", "end_epoch", "cycle", "rounding"),
        )
        return {name: getattr(self, name) for name in names} | {"seeds": self._settings_of_seeds}

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Checksums of the ``seeds``, with their times and targets, and of the ``columns`` of a table: what rows bring
        into mini-batches."""
        table = self.kind.table
        if table is None:
            return {"seeds": f"{checksum_of([self.seeds]):08x}"}
        return {
            "seeds": f"{checksum_of([self.seeds], table.checksum):08x}",
            "columns": f"{table.columns_checksum:08x}",
        }

    @cached_property
    def description(self) -> dict[str, str]:
        """What an epoch's mini-batches are made of besides the graph and numbers: the checksum of the ``seeds``, the
        name of their ``order``, the ``sampler``, with what is asked of links and how rows are rounded, and other
        ``settings``, as JSON."""
        settings: dict[str, Any] = {"drop_last": self.drop_last, "fixed_draws": self.fixed_draws, **self.checksums}
        seeds = settings.pop("seeds")
        if self.order.reads_labels:
            settings["labels"] = f"{checksum_of([self.labels]):08x}"
        rounding = "" if self.rounding == "exact" else f", rows rounded to {self.rounding}"
        return {
            "seeds": seeds,
            "order": self.order.name if self.cycle is None else f"{self.order.name}, {self.cycle} epochs in turn",
            "sampler": self.sampler.description + self.kind.description + rounding,
            "settings": json.dumps(settings | self.kind.settings_by_name),
        }

    def share(self, num_ranks: int) -> None:
        """Shares each step among this many trainers, whose number was not known before."""
        self.num_ranks = num_ranks
        if num_ranks > 1 and self.shared_seed is not None:
            self.seed = self.shared_seed

    def plan(self, num_ranks: int) -> StepPlan:
        """Raises SeedError: fewer seeds than ranks."""
        return _plan_of(len(self.seeds), self.batch_size, num_ranks, self.drop_last, self.keep_rest)

    def owners(self, num_ranks: int, num_owners: int) -> np.ndarray | None:
        """Returns which owner of the graph's parts has that of each slice, like :meth:`.SeedOrder.owners`."""
        return self.order.owners(self.plan(num_ranks), num_owners)

    def requests(self, epoch: int) -> Iterator[BatchRequest]:
        """Yields all mini-batches of an epoch: step by step, and in each step those of all ranks."""
        for step in range(self.plan(self.num_ranks).num_steps):
            for rank in range(self.num_ranks):
                yield BatchRequest(epoch, step, rank, self.num_ranks)

    def seeds_of(self, request: BatchRequest) -> np.ndarray:
        """Returns the rows of one mini-batch, int64: node ids, or numbers of rows."""
        if request.rows is not None:
            return request.rows
        plan = self.plan(request.num_ranks)
        begin, end = plan.slice(request.step, request.rank)
        return self._epoch_order(self._drawn(request.epoch), plan.global_batch_size)[begin:end]

    def key_of(self, request: BatchRequest) -> DrawKey:
        """Returns the key that its draws depend on, besides the nodes."""
        if self.fixed_draws:
            return DrawKey(self.seed, FIXED_DRAWS_EPOCH, 0)
        return DrawKey(self.seed, self._drawn(request.epoch), request.step)

    def seed_batch(self, request: BatchRequest) -> SeedBatch:
        """Returns the seeds of one mini-batch, as a sampler is asked for them, and what belongs to its rows.

        Raises:
            SeedError: a seed is not a node of the graph, or has no time.
        """
        return self.kind.ask(self.seeds_of(request), self.key_of(request))

    def draw_into(self, request: BatchRequest, arena: np.ndarray) -> SampleLayout:
        """Samples one mini-batch, as :meth:`.Sampler.draw` does."""
        return self.sampler.draw(self.graph, self.seed_batch(request).draw, arena)

    def seen(self) -> VisibleEdges | None:
        """Counts which in-edges of the seeds, or of a part of many, count at their times; None where times do not."""
        return self.kind.seen(spaced_rows(self.seeds))

    def nodes_of(self, request: BatchRequest) -> np.ndarray:
        """Samples the nodes of one mini-batch, int64, seeds first: those whose features it gathers."""
        return nodes_of(self.sampler, self.graph, self.seed_batch(request).draw)

    def _drawn(self, epoch: int) -> int:
        """Returns the epoch by which one is ordered and drawn."""
        # Those that only predict training are no part of the run, which none of them is to be mistaken for.
        return epoch if self.cycle is None or epoch in PRESAMPLED_EPOCHS else epoch % self.cycle

    def _epoch_order(self, epoch: int, global_batch_size: int) -> np.ndarray:
        # Held while an epoch is ordered: threads that need the same order wait for it rather than make it again.
        with self._ordering:
            key = (epoch, global_batch_size)
            if key not in self._ordered:
                # Two are kept: one trains while another is sampled ahead, and epochs meet where one ends.
                if len(self._ordered) == 2:
                    del self._ordered[next(iter(self._ordered))]
                order = self._bound_order(global_batch_size)
                self._ordered[key] = order.order(self.seeds, seed=self.seed, epoch=epoch)
            return self._ordered[key]

    def _bound_order(self, global_batch_size: int) -> SeedOrder:
        return self.kind.bound(self.order, self.labels, global_batch_size)


@lru_cache(maxsize=64)
def _plan_of(*settings: Any) -> StepPlan:
    """Returns a plan; each mini-batch asks for its phase's."""
    return StepPlan(*settings)
