"""What each rank runs: a trainer the function that Lightning launches, with a queue to the samplers; a sampler makes
mini-batches instead."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Any

import torch

from lightning_gnnload.errors import (
    CacheShareError,
    LoaderConfigError,
    OutcomeError,
    PeerError,
    TrainerDiedError,
    TrainerFailedError,
)
from lightning_gnnload.host import flags
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.pipeline.device_slots import DeviceReader
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.pipeline.queue.sealed import NotPlainError, seal, unseal
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.streams import StreamSpec
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import (
    TrainerFn,
    TrainerStatus,
    TunerExit,
    pl,
    requeue_signals,
)
from lightning_gnnload.plugin.gradients.standby import ModelReplica, Standby
from lightning_gnnload.plugin.job import Job
from lightning_gnnload.plugin.module.caching import close_caches, open_on_sampler
from lightning_gnnload.plugin.module.datamodule import GraphDataModule
from lightning_gnnload.plugin.module.integrity import check_alike
from lightning_gnnload.plugin.strategy import failover
from lightning_gnnload.plugin.strategy.apply_outcome import apply_outcome
from lightning_gnnload.plugin.strategy.launcher import Siblings
from lightning_gnnload.plugin.strategy.outcome import Snapshot, metrics_together
from lightning_gnnload.plugin.strategy.remote_samplers import listen_to_machines, remote_samplers
from lightning_gnnload.plugin.strategy.rendezvous import NOTICE_S, FailureStore, leave_group
from lightning_gnnload.plugin.strategy.sampler_device import SamplerDevice

_LOADERS = ("train_dataloaders", "val_dataloaders", "dataloaders")
_log = logging.getLogger(__name__)
_gone: set[int] = set()
"""Samplers' ranks that earlier launches lost for good, and have reported."""


def open_queue(job: Job, reader: DeviceReader | None, timeout: timedelta | None) -> BatchQueue:
    """Opens a trainer's queue to its samplers; ``reader`` reads the memory of the devices of those of its machine.
    ``timeout`` is that of the job's store, where those of other machines are found."""
    roles, siblings = job.roles, Siblings()
    return BatchQueue(
        job.name,
        trainer=job.local_rank,
        rank=job.global_rank,
        num_samplers=roles.num_samplers,
        queue_depth=job.queue_depth,
        connect_timeout_s=job.connect_timeout_s,
        stall_timeout_s=job.stall_timeout_s,
        first_sampler_rank=roles.global_rank(job.node_rank, roles.num_trainers),
        num_trainers=roles.num_trainers,
        takeover=job.takeover,
        known_gone=_gone,
        has_ended=lambda sampler: flags.is_up(flags.rank_ended(job.run_name, roles.num_trainers + sampler)),
        is_busy=lambda sampler: siblings.is_busy(roles.num_trainers + sampler),
        setup_timeout_s=job.setup_timeout_s,
        on_late=lambda sampler: siblings.wake(roles.num_trainers + sampler),
        pinned=job.device.type == "cuda",
        reader=reader,
        queue_memory_bytes=job.queue_memory_bytes,
        remote=remote_samplers(job, timeout),
    )


def train(
    job: Job, trainer: pl.Trainer, model: pl.LightningModule, queue: BatchQueue, function: Callable[[], Any]
) -> Any:
    """Runs what Lightning launches in a trainer, and sends the samplers its outcome or its failure."""
    # Spawned and forked ranks run no more of the script than this, so nothing is sent to them.
    snapshot = Snapshot(trainer, model) if job.local_rank == 0 and job.start_method == "popen" else None
    try:
        result = function()
        with metrics_together(model):
            outcome = _sealed(snapshot, result)
    except TunerExit:  # Lightning's way to leave a search for a learning rate: no failure
        queue.goodbye(outcome=_sealed(snapshot, None))
        raise
    except BaseException as error:
        cause = _report_failure(job, trainer, queue, error)
        if cause is not None:
            raise (KeyboardInterrupt() if _ends_an_interrupt(error) else cause) from error
        raise
    _gone.update(queue.gone)
    queue.goodbye(outcome=outcome)
    return result


def _report_failure(job: Job, trainer: pl.Trainer, queue: BatchQueue, error: BaseException) -> PeerError | None:
    """Tells samplers and other machines why this trainer ends; returns another rank's failure, if that is the cause."""
    notices = FailureStore(job)
    cause: PeerError | None = None
    if isinstance(error, RuntimeError) and not isinstance(error, PeerError):
        # When a rank ends, gloo and NCCL fail in the others with some RuntimeError. A sampler knows the reason, or
        # another machine does, which may post it a moment later.
        cause = notices.find() or queue.failure_behind() or notices.find(NOTICE_S)
    stage = trainer.state.stage.value if trainer.state.stage is not None else str(trainer.state.fn)
    failure = Failure.of(cause or error, role="trainer", rank=job.global_rank, stage=stage)
    queue.goodbye(failure=failure)
    notices.post(failure)
    return cause


def _ends_an_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C came first: a barrier on its way out fails if the other ranks have ended by it."""
    context = error.__context__
    return context is not None and (isinstance(context, KeyboardInterrupt) or _ends_an_interrupt(context))


def model_in(arguments: dict[str, Any], trainer: pl.Trainer) -> pl.LightningModule:
    """The model that the Trainer was called with, or has from before."""
    model = arguments.get("model") or trainer.strategy.lightning_module
    assert model is not None
    return model


def _sealed(snapshot: Snapshot | None, result: Any) -> MemoryFile | None:
    """Seals what this trainer sends the samplers; None where there is nothing, or nothing that can be sent."""
    if snapshot is None:
        return None
    try:
        return seal(snapshot.outcome(result))
    except (CacheShareError, NotPlainError) as error:
        _log.warning("The samplers cannot be told what training came to, and leave the job: %s", error)
        return None


def sample(
    job: Job,
    trainer: pl.Trainer,
    arguments: dict[str, Any],
    *,
    ends_with_any_rank: bool,
    beside: Callable[[SamplerService], AbstractContextManager[None]],
) -> Any:
    """Makes mini-batches until the trainers are done, then returns what the call returns on trainer 0.

    ``ends_with_any_rank``: whoever started the ranks ends the job when a process ends badly, be it a sampler's.
    ``beside`` is entered while the service runs.
    """
    sources = _Sources(job, trainer, arguments)
    # Lightning collects its state from every rank under spawn, and users call save_checkpoint on every rank.
    trainer.strategy._lightning_module = trainer.strategy.model = sources.model
    leave_group()  # this rank may have trained in an earlier launch
    # Sampling threads are ours; torch's would take the trainers' cores (BGL, 3.4), and do not survive a fork.
    torch.set_num_threads(1)
    is_apart = job.roles.only_samples
    sources.service = service = SamplerService(
        job.name,
        sampler=job.roles.index(job.local_rank),
        rank=job.global_rank,
        num_trainers=job.roles.world_size if is_apart else job.roles.num_trainers,
        world_size=job.roles.world_size,
        num_threads=job.num_sampler_threads,
        open_source=sources.open,
        connect_timeout_s=job.connect_timeout_s,
        setup_timeout_s=job.setup_timeout_s,
        first_trainer_rank=0 if is_apart else job.roles.global_rank(job.node_rank, 0),
        takeover=job.takeover,
        # Trainers are the first local ranks. What a process of another machine does cannot be seen.
        is_busy=(lambda trainer: False) if is_apart else Siblings().is_busy,
        listener=listen_to_machines(job) if is_apart else None,
    )
    if job.switching and trainer.state.fn == TrainerFn.FITTING:
        # It registers handlers and a thread with the service, and must do so before the service starts.
        Standby(service, partial(ModelReplica, trainer, sources.datamodule), sources.loader)
    try:
        with_failover = job.takeover and ends_with_any_rank
        with beside(service):
            outcome = failover.serve(service, with_failover=with_failover, ignore=requeue_signals(trainer))
    except (TrainerFailedError, TrainerDiedError) as error:
        FailureStore(job).post(error.failure)
        if error.failure.interrupted:
            raise KeyboardInterrupt from error  # ends this rank as it ended the trainer: without a traceback
        raise
    finally:
        sources.close(sys.exc_info()[1])
    if job.start_method != "popen":  # the script goes on in the process that spawned the ranks
        trainer.state.status, trainer.state.stage = TrainerStatus.FINISHED, None
        return None
    return _go_on(job, trainer, sources, outcome)


def _go_on(job: Job, trainer: pl.Trainer, sources: _Sources, outcome: MemoryFile | None) -> Any:
    """Applies the outcome, so that this sampler's script goes on as the trainers' do; else leaves the job."""
    try:
        if outcome is None:
            raise OutcomeError("it was gone when trainer 0 told what training came to, and has come back too late.")
        return apply_outcome(trainer, sources.model, sources.datamodule, unseal(outcome), sources.set_up)
    except OutcomeError as error:
        # Whatever its script did next, it would do it with other weights than the trainers', and save these, maybe.
        text = f"Sampler rank {job.global_rank} cannot go on as the trainers do: {error}"
        if not job.takeover:
            raise OutcomeError(text) from error
        _log.warning("%s It leaves the job; the trainers go on, and sample themselves where no sampler is left.", text)
        # A status of 0, as others would end the whole job with a rank that fails.
        sys.exit(0)
    finally:
        if outcome is not None:
            outcome.close()


class _Sources:
    """Finds the loader of a stream in the data module or loaders that the Trainer was called with."""

    def __init__(self, job: Job, trainer: pl.Trainer, arguments: dict[str, Any]) -> None:
        self.job = job
        self.trainer = trainer
        self.model = model_in(arguments, trainer)
        self.datamodule = datamodule_in(arguments)
        self._given = {
            name: arguments[name]
            for name in _LOADERS
            if arguments.get(name) is not None and arguments[name] is not self.datamodule
        }
        self._device = SamplerDevice(job)
        self._loaders: dict[tuple[str, int], list[Any]] = {}
        self.service: SamplerService | None = None
        self._is_set_up = False
        self._lock = threading.Lock()

    def open(self, spec: StreamSpec) -> BatchSource:
        """Opens a stream's source when a trainer requests it, hence after ``prepare_data``, which runs on trainers."""
        is_successor = self.service is not None and self.service.is_successor
        source = self.loader(spec).source
        if spec.data:
            check_alike({"a trainer": spec.data, f"sampler rank {self.job.global_rank}": source.fingerprint})
        if spec.gathers:
            source = source.without_features()
        source = open_on_sampler(source, is_successor=is_successor, takeover=self.job.takeover)
        return self._device.source(self.datamodule, source, meets=not is_successor)

    def close(self, error: BaseException | None) -> None:
        """Closes all loaders, when nothing is sampled any more, or because of ``error``."""
        if isinstance(self.datamodule, GraphDataModule):
            self.datamodule.module_partition.disconnect(error)
        for loader in itertools.chain(*self._loaders.values()):
            if isinstance(loader, SampledLoader):
                close_caches(loader.source)
        if error is None:  # else the end of this process tells those who read its part of the graph
            self._device.close()

    def loader(self, spec: StreamSpec) -> SampledLoader:
        """The stream's loader. Thread-safe."""
        with self._lock:
            return self._loader(spec)

    def _loader(self, spec: StreamSpec) -> SampledLoader:
        self.set_up()
        progress: Any = self.trainer.fit_loop.epoch_progress.current
        progress.processed = progress.completed = spec.epoch  # for data modules that look at trainer.current_epoch
        key = (spec.phase, spec.reload)
        if key not in self._loaders:
            requested = self._request(spec.phase)
            self._loaders[key] = pl.utilities.combined_loader.CombinedLoader(requested, "sequential").flattened
        loader = self._loaders[key][spec.loader]
        if not isinstance(loader, SampledLoader):
            raise LoaderConfigError(
                f"{spec.phase} loader {spec.loader} is a {type(loader).__name__} on the sampler "
                f"but was sampled on the trainer; every rank must make the same loaders."
            )
        return loader

    def set_up(self) -> None:
        if not self._is_set_up and self.datamodule is not None:
            self.datamodule.trainer = self.trainer
            self.trainer.datamodule = self.datamodule  # type: ignore[attr-defined]
            assert self.trainer.state.fn is not None
            self.datamodule.setup(self.trainer.state.fn.value)
        self._is_set_up = True

    def _request(self, phase: str) -> Any:
        fitting = self.trainer.state.fn == TrainerFn.FITTING
        argument = f"{phase}_dataloaders" if fitting else "dataloaders"
        if argument in self._given:
            return self._given[argument]
        owner = self.datamodule if self.datamodule is not None else self.model
        return getattr(owner, f"{phase}_dataloader")()


def datamodule_in(arguments: dict[str, Any]) -> Any:
    """The data module that the Trainer was called with, by its own argument or in the loaders' place."""
    for name in _LOADERS:
        if isinstance(arguments.get(name), pl.LightningDataModule):
            return arguments[name]
    return arguments.get("datamodule")
