"""A data module's packed mini-batches: opened by the ranks that gather, when the first mini-batch is made."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

from lightning_gnnload.cache.packed.open import Run, open_packed, unpacked
from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.cache.store import DeferredStore
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.errors import PackingConfigError
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import batch_limits, training_progress
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.sample.workload import Workload


def check_packing(packing: Any, *, cache: Any, partition: Any, sampling_device: str) -> None:
    """Raises PackingConfigError: it is no Packing, or another setting excludes it."""
    if packing is None:
        return
    if not isinstance(packing, Packing):
        raise PackingConfigError(f"packing={packing!r}: give Packing(folder), or None.")
    if cache is not None:
        raise PackingConfigError(
            "cache= and packing= were given, but packing keeps hot rows in memory itself. Leave cache out, and give "
            "its memory to Packing(memory=...)."
        )
    if partition is not None:
        raise PackingConfigError(
            "partition= and packing= were given, but ranks that sample parts cannot sample ahead for others. Leave one "
            "of them out."
        )
    if sampling_device == "cuda":
        raise PackingConfigError(
            "sampling_device='cuda' and packing= were given, but packed rows are gathered on the host. Give 'auto' or "
            "'cpu', or leave packing out."
        )


class ModulePacking:
    """The packed mini-batches of a data module, from one ``setup`` to its ``teardown``. Thread-safe."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self._opening = threading.Lock()
        self._opened: dict[str, FeatureStore] = {}

    def stores(self, data: GraphData, workload: Workload, trainer: Any, num_threads: int) -> dict[str, DeferredStore]:
        """Returns what the training's mini-batches are gathered from, by the names of the data's stores."""
        return {
            name: DeferredStore(
                store,
                partial(self._open, name, data, workload, trainer, num_threads),
                f"mini-batches packed in {self.packing.folder!r}",
            )
            for name, store in data.stores.items()
        }

    def close(self) -> None:
        """Forgets what was opened, which its stores close."""
        self._opened = {}

    def _open(self, name: str, data: GraphData, workload: Workload, trainer: Any, num_threads: int) -> FeatureStore:
        with self._opening:
            if not self._opened:
                self._opened = self._open_all(data, workload, trainer, num_threads)
            return self._opened[name]

    def _open_all(self, data: GraphData, workload: Workload, trainer: Any, num_threads: int) -> dict[str, FeatureStore]:
        gather_group = GatherGroup.of(trainer)
        run = run_of(data, workload, trainer, num_threads, gather_group)
        if not gather_group.is_here or getattr(getattr(trainer, "strategy", None), "is_rehearsal", False):
            return unpacked(self.packing, run)  # a trainer that samples in the place of lost samplers, or a trial
        run = replace(run, lasting_epochs=self.packing.cycle)
        return open_packed(self.packing, run, gather_group.membership("packing"))


def run_of(
    data: GraphData, workload: Workload, trainer: Any, num_threads: int, gather_group: GatherGroup | None = None
) -> Run:
    """Describes the training's mini-batches, and who gathers them, to what packs them."""
    group = gather_group or GatherGroup()
    source = BatchSource(data, workload)
    ranks: tuple[int, ...] = (0,)
    own_ranks, progress, begin = ranks, True, (0, 0)
    limit: tuple[int | None, int | None] = (None, None)
    if trainer is not None:
        num_local = max(trainer.world_size // trainer.num_nodes, 1)
        ranks = tuple(range(trainer.node_rank * num_local, (trainer.node_rank + 1) * num_local))
        # A sampler makes mini-batches for all trainers of its machine, any other rank its own.
        own_ranks = ranks if group.trainer is None else (group.trainer,)
        progress = group.index == 0 and trainer.node_rank == 0 and trainer.progress_bar_callback is not None
        begin, limit = training_progress(trainer), batch_limits(trainer)
    job = getattr(getattr(trainer, "strategy", None), "job", None)
    threads = num_threads if job is None else job.num_sampler_threads
    return Run(
        workload,
        source.rows_of,
        {name: data.stores[name] for name in source.columns},
        source.columns,
        {name: _nodes_of(data, name) for name in source.columns},
        ranks=ranks,
        own_ranks=own_ranks,
        num_threads=max(threads, 1),
        num_processes=group.count,
        epoch=begin[0],
        step=begin[1],
        limit=limit,
        progress=progress,
    )


def _nodes_of(data: GraphData, name: str) -> range | None:
    if name in data.edge_stores:
        return None
    table = data.tables.get(name)
    return table.nodes if isinstance(table, NodeTable) else range(data.num_nodes)
