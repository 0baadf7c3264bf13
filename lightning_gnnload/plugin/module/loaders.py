"""The loaders of a GraphDataModule, by phase: who reads which mini-batches, and how they are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Literal

from torch import distributed

from lightning_gnnload.adapters.formats import FORMATS, FormatName
from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.sanity import check_training_labels
from lightning_gnnload.errors import naming
from lightning_gnnload.pipeline.loader import Progress, SampledLoader
from lightning_gnnload.pipeline.position import NextEpoch
from lightning_gnnload.pipeline.resume import OnResumeChange
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.accelerate import follow_trainer
from lightning_gnnload.plugin.compat import TrainerStatus, pl, restoring_loaders, training_progress
from lightning_gnnload.plugin.module.caching import ModuleCache
from lightning_gnnload.plugin.module.owners import ModuleOwners
from lightning_gnnload.plugin.module.partition import ModulePartition
from lightning_gnnload.plugin.module.phase_workload import phase_workload
from lightning_gnnload.plugin.module.sanity_log import SanityLog
from lightning_gnnload.plugin.module.settings import WAITING_THREADS, default_num_threads
from lightning_gnnload.plugin.module.sources import ModuleData
from lightning_gnnload.plugin.module.trainer_device import DeviceChoice, TrainerDevice
from lightning_gnnload.sample.aggregates import check_aggregates
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.seeds.links import LinkSettings
from lightning_gnnload.sample.workload import Workload


class ModuleLoaders(ModuleData, pl.LightningDataModule):
    """Makes the loaders of :class:`.GraphDataModule`, whose settings it reads: Lightning's hooks for each phase, and
    what they are made of."""

    as_of: Any
    batch_format: FormatName
    batch_size: int
    caching: ModuleCache
    drop_last: bool
    eval_batch_size: int
    eval_draws: Literal["fixed", "fresh"]
    eval_negatives: Any
    eval_sampler: Sampler
    links: LinkSettings
    module_partition: ModulePartition
    num_threads: int | None
    order: SeedOrder
    packing: Packing | None
    predict: Any
    sampler: Sampler
    sampling_device: DeviceChoice
    on_resume_change: OnResumeChange
    owners: ModuleOwners
    seed: int
    template: Any
    feature_name: str
    label_name: str
    edge_feature_name: str
    _next_epochs: defaultdict[str, NextEpoch]
    _part_by_hand: int | None
    _pins_memory: bool
    _sampling: TrainerDevice
    _sanity_log: SanityLog

    def has_seeds(self, phase: str) -> bool:
        """Whether ``"train"``, ``"val"``, ``"test"`` or ``"predict"`` has any."""
        return len(self.graph_data.split(phase)) > 0

    def train_dataloader(self, rank: int | None = None) -> SampledLoader:
        """Returns a loader of the training mini-batches. In a loop by hand each iteration is the next epoch, whichever
        of this module's loaders it is over.

        Args:
            rank: in a loop by hand over a partition of several parts, the part whose trainer's mini-batches these are.
                None: this rank of the process group, if there is one.

        Raises:
            SeedError: the train split is empty, or has fewer seeds than there are trainers.
            LoaderConfigError: ``rank`` is no part's number.
            PartitionError: several parts, but neither a trainer for each, nor ``rank``.
        """
        self._part_by_hand = rank
        return self._loader("train")

    def val_dataloader(self) -> SampledLoader | list[SampledLoader]:
        """Returns a loader of the validation mini-batches; an empty list where the data have no such split."""
        return self._loader("val") if self.has_seeds("val") else []

    def test_dataloader(self) -> SampledLoader:
        """Returns a loader of the test mini-batches. Raises SeedError: the data have no such split."""
        return self._loader("test")

    def predict_dataloader(self) -> SampledLoader:
        """Returns a loader of ``predict``'s seeds, in their order. Raises LoaderConfigError: it names no such seeds."""
        return self._loader("predict")

    def loader_of(self, seeds: Any, batch_size: int = 1024) -> SampledLoader:
        """Returns a loader of any seeds, as ``predict`` takes them, sampled as evaluation's: for a model that needs
        rows of further nodes, such as all items, while it runs. It is this process's alone, whatever the other ranks
        do, and gathers from the data's own stores.

        Raises:
            SeedError, LoaderConfigError, SamplerConfigError: as for ``predict``.
        """
        alone = copy(self)
        alone._data, alone.predict, alone.trainer, alone.eval_batch_size = self._data, seeds, None, batch_size
        workload = self.owners.workload(phase_workload(alone, "predict", 1))
        source = BatchSource(self.graph_data, workload, announces=False)
        convert = self._convert(source.workload)
        return SampledLoader(source, num_threads=self.threads_of_rank, convert=convert)

    def source(self, phase: str) -> BatchSource:
        """Makes the source of mini-batches of ``"train"``, ``"val"``, ``"test"`` or ``"predict"``, a pure function.

        Raises:
            SeedError: the phase has no seeds.
        """
        stores, announces = self.caching.stores(self, phase)
        return BatchSource(self.graph_data, self.workload(phase), stores, announces=announces)

    def workload(self, phase: str) -> Workload:
        """Describes what will be sampled in ``"train"``, ``"val"``, ``"test"`` or ``"predict"``.

        Raises:
            SeedError: the phase has no seeds.
            GraphDataError, StaleTableError: tables of :func:`.preaggregate` that the seeds must not see, or that are of
                other data.
            PartitionError: a partition that does not fit the graph, the sampler or the trainers.
        """
        with naming(phase):
            workload = phase_workload(self, phase, self._num_ranks(phase) or 1)
            check_aggregates(self.graph_data, workload.kind, workload.sampler, f"the seeds to {phase} on")
            workload = self.owners.workload(workload)
        if getattr(getattr(self.trainer, "strategy", None), "is_rehearsal", False):
            return workload
        return self.module_partition.workload(workload, phase)

    @property
    def threads_of_rank(self) -> int:
        """The number of sampling threads of this rank."""
        if self.num_threads is not None:
            return self.num_threads
        if self.owners.is_asked:
            return WAITING_THREADS
        return default_num_threads(1 if self.trainer is None else self.trainer.num_devices)

    def _num_ranks(self, phase: str) -> int | None:
        """Counts the trainers that share a phase's steps; None in a loop by hand whose process group comes later."""
        if phase == "train" and self._part_by_hand is not None:
            return self.module_partition.num_parts_for(self._part_by_hand, self.graph_data.graph)
        if self.trainer is not None:
            return self.trainer.world_size
        has_group = self.module_partition.setting is not None and distributed.is_initialized()
        return distributed.get_world_size() if has_group else None

    def _rank(self, phase: str, num_ranks: int | None) -> int:
        if phase == "train" and self._part_by_hand is not None:
            return self._part_by_hand
        if self.trainer is not None and num_ranks is not None:
            return self.trainer.global_rank % num_ranks  # a sampler's script reads a trainer's part
        return 0 if num_ranks is None else distributed.get_rank()

    @restoring_loaders()
    def _loader(self, phase: str) -> SampledLoader:
        num_ranks = self._num_ranks(phase)
        rank, pinned = self._rank(phase, num_ranks), False
        if self.trainer is not None:
            pinned = self._pins_memory and self.trainer.strategy.root_device.type == "cuda"
        if phase == "train":
            check_training_labels(self.graph_data)
        source = self.source(phase)
        convert = self._convert(source.workload) or _as_it_is
        loader = SampledLoader(
            source,
            num_ranks=num_ranks,
            rank=rank,
            num_threads=self.threads_of_rank,
            convert=convert,
            pinned=pinned,
            on_device=partial(self._sampling.batches, self, source, convert),
            prefetcher=partial(self._sampling.prefetcher, self, source),
            make_again=partial(self._loader_elsewhere, phase),
        )
        loader.position.follow(self._next_epochs[phase if self._part_by_hand is None else f"{phase} {rank}"])
        loader.on_resume_change = self.on_resume_change
        trainer = self.trainer
        if phase == "train" and trainer is not None and trainer.state.status == TrainerStatus.RUNNING:
            # Not for a loader that is read by hand before a fit, or after one.
            loader.progress = lambda: Progress(*training_progress(trainer))
            follow_trainer(trainer, self.seed)
        self._sanity_log.log(phase, self.graph_data, loader.source.workload, trainer)
        loader.source.plan(loader.num_ranks)  # too few seeds for the ranks: say so now, not in mid-epoch
        return loader

    def _loader_elsewhere(self, phase: str) -> SampledLoader:
        """Makes a loader in a process that has this module alone."""
        self.setup(None)  # type: ignore[arg-type]  # of no stage alone
        return self._loader(phase)

    def _convert(self, workload: Workload) -> Callable[[MiniBatch], Any] | None:
        if self.batch_format == "blocks" and getattr(workload.sampler, "metapath", None) is not None:
            return None  # all nodes are of one type, and no edge is one of the graph's
        return FORMATS[self.batch_format].adapter(
            self.graph_data,
            self.template,
            feature_name=self.feature_name,
            label_name=self.label_name,
            edge_feature_name=self.edge_feature_name,
        )


def _as_it_is(batch: MiniBatch) -> MiniBatch:
    return batch
