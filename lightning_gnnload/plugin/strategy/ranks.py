"""What each rank does with the function that Lightning launches: a trainer runs it, with a queue to the samplers; a
sampler serves instead."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lightning_gnnload.data.memfd import MemoryFile
from lightning_gnnload.errors import (
    CacheShareError,
    LoaderConfigError,
    OutcomeError,
    PeerError,
    TrainerDiedError,
    TrainerFailedError,
)
from lightning_gnnload.pipeline import flags
from lightning_gnnload.pipeline.device_slots import DeviceReader
from lightning_gnnload.pipeline.failure import Failure
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue import BatchQueue
from lightning_gnnload.pipeline.sealed import NotPlainError, seal, unseal
from lightning_gnnload.pipeline.service import SamplerService
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pipeline.streams import StreamSpec
from lightning_gnnload.plugin.compat import (
    TrainerFn,
    TrainerStatus,
    TunerExit,
    keep_collectives_out_of_sigterm,
    pl,
    requeue_signals,
)
from lightning_gnnload.plugin.gradients.standby import Standby
from lightning_gnnload.plugin.gradients.understudy import Understudy
from lightning_gnnload.plugin.module.caching import close_caches, open_on_sampler
from lightning_gnnload.plugin.module.datamodule import GraphDataModule
from lightning_gnnload.plugin.strategy import lives
from lightning_gnnload.plugin.strategy.adoption import adopt
from lightning_gnnload.plugin.strategy.agreement import agree
from lightning_gnnload.plugin.strategy.notices import NOTICE_S, Notices
from lightning_gnnload.plugin.strategy.outcome import Watch, metrics_together
from lightning_gnnload.plugin.strategy.rendezvous import leave_group
from lightning_gnnload.plugin.strategy.resources import own_cores
from lightning_gnnload.plugin.strategy.roles import Role
from lightning_gnnload.plugin.strategy.sampler_device import SamplerDevice, reader_of

if TYPE_CHECKING:
    from lightning_gnnload.plugin.strategy.factored import FactoredStrategy


_LOADERS = ("train_dataloaders", "val_dataloaders", "dataloaders")
_log = logging.getLogger(__name__)
_gone: set[int] = set()
"""Samplers' ranks that earlier launches lost for good, and have told of."""


def play_role(
    strategy: FactoredStrategy,
    trainer: pl.Trainer,
    session: int,
    function: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Runs in every rank: trains or samples.

    Args:
        strategy: knows this rank's role.
        trainer: Lightning's.
        session: counts launches, alike in every rank.
        function: what Lightning launches (fit, validate, test, predict), with ``args`` and ``kwargs``.
    """
    strategy.session = session
    if strategy.start_method == "fork":
        # OpenMP's threads do not outlive a fork: with more than one, a rank hangs if its parent has computed before.
        torch.set_num_threads(1)
    arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    if strategy.is_undecided:
        strategy.decide(agree(strategy, trainer, arguments))
    strategy.set_world_ranks()  # under spawn, the strategy was made in the parent
    job = f"{strategy.run_name}-{session}"
    with own_cores(strategy):
        if strategy.roles.is_lone:
            return function(*args, **kwargs)
        if strategy.role is Role.TRAINER:
            reader = reader_of(_datamodule_in(arguments), strategy)
            return _train(
                strategy, trainer, _model_in(arguments, strategy), job, reader, partial(function, *args, **kwargs)
            )
        return _sample(strategy, trainer, job, arguments)


def _train(
    strategy: FactoredStrategy,
    trainer: pl.Trainer,
    model: pl.LightningModule,
    job: str,
    reader: DeviceReader | None,
    function: Callable[[], Any],
) -> Any:
    roles = strategy.roles
    strategy.queue = queue = BatchQueue(
        job,
        trainer=strategy.local_rank,
        rank=strategy.global_rank,
        num_samplers=roles.num_samplers,
        queue_depth=strategy.queue_depth,
        connect_timeout_s=strategy.connect_timeout_s,
        stall_timeout_s=strategy.stall_timeout_s,
        first_sampler_rank=roles.global_rank(strategy.node_rank, roles.num_trainers),
        num_trainers=roles.num_trainers,
        takeover=strategy.takeover,
        known_gone=_gone,
        has_ended=lambda sampler: flags.is_up(flags.rank_ended(strategy.run_name, roles.num_trainers + sampler)),
        pinned=strategy.root_device.type == "cuda",
        reader=reader,
    )
    keep_collectives_out_of_sigterm(trainer, strategy.defer_sigterm)
    # Spawned and forked ranks run no more of the script than this.
    watch = Watch(trainer, model) if strategy.local_rank == 0 and strategy.start_method == "popen" else None
    try:
        result = function()
        with metrics_together(model):
            outcome = _sealed(watch, result)
    except TunerExit:  # Lightning's way to leave a search for a learning rate: no failure
        queue.goodbye(outcome=_sealed(watch, None))
        raise
    except BaseException as error:
        notices = Notices(strategy)
        cause: PeerError | None = None
        if isinstance(error, RuntimeError) and not isinstance(error, PeerError):
            # When a rank ends, gloo and NCCL fail in the others with some RuntimeError. A sampler knows the reason, or
            # another machine does.
            cause = notices.find() or queue.failure_behind() or notices.find(NOTICE_S)
        stage = trainer.state.stage.value if trainer.state.stage is not None else str(trainer.state.fn)
        failure = Failure.of(cause or error, role="trainer", rank=strategy.global_rank, stage=stage)
        queue.goodbye(failure=failure)
        notices.leave(failure)
        if cause is not None:
            raise cause from error
        raise
    _gone.update(queue.gone)
    queue.goodbye(outcome=outcome)
    return result


def _model_in(arguments: dict[str, Any], strategy: FactoredStrategy) -> pl.LightningModule:
    """The one that the Trainer was called with, or has from before."""
    model = arguments.get("model") or strategy.lightning_module
    assert model is not None
    return model


def _sealed(watch: Watch | None, result: Any) -> MemoryFile | None:
    """What this trainer tells the samplers."""
    if watch is None:
        return None
    try:
        return seal(watch.outcome(result))
    except (CacheShareError, NotPlainError) as error:
        _log.warning("The samplers cannot be told what training came to, and leave the job: %s", error)
        return None


def _sample(strategy: FactoredStrategy, trainer: pl.Trainer, job: str, arguments: dict[str, Any]) -> Any:
    sources = _Sources(strategy, trainer, arguments)
    # Lightning collects its state from every rank under spawn, and users call save_checkpoint on every rank.
    strategy._lightning_module = strategy.model = sources.model
    leave_group()  # this rank may have trained in an earlier launch
    # Sampling threads are ours; torch's would take the trainers' cores (BGL, 3.4), and do not survive a fork.
    torch.set_num_threads(1)
    sources.service = service = SamplerService(
        job,
        sampler=strategy.roles.index(strategy.local_rank),
        rank=strategy.global_rank,
        num_trainers=strategy.roles.num_trainers,
        world_size=strategy.world_size,
        queue_depth=strategy.queue_depth,
        num_threads=strategy.num_sampler_threads,
        open_source=sources.open,
        connect_timeout_s=strategy.connect_timeout_s,
        first_trainer_rank=strategy.roles.global_rank(strategy.node_rank, 0),
        takeover=strategy.takeover,
    )
    if strategy.switching and trainer.state.fn == TrainerFn.FITTING:
        Standby(service, partial(Understudy, strategy, trainer, sources.datamodule), sources.loader)
    try:
        twice = strategy.takeover and strategy.ends_with_any_rank
        outcome = lives.serve(service, twice=twice, ignore=requeue_signals(trainer))
    except (TrainerFailedError, TrainerDiedError) as error:
        Notices(strategy).leave(error.failure)
        if error.failure.interrupted:
            raise KeyboardInterrupt from error  # ends this rank as it ended the trainer: without a traceback
        raise
    finally:
        sources.close(sys.exc_info()[1])
    if strategy.start_method != "popen":
        trainer.state.status, trainer.state.stage = TrainerStatus.FINISHED, None
        return None
    try:
        if outcome is None:
            raise OutcomeError("it was gone when trainer 0 told what training came to, and has come back too late.")
        return adopt(trainer, sources.model, sources.datamodule, unseal(outcome), sources.set_up)
    except OutcomeError as error:
        # Whatever its script did next, it would do it with other weights than the trainers', and save these, maybe.
        text = f"Sampler rank {strategy.global_rank} cannot go on as the trainers do: {error}"
        if not strategy.takeover:
            raise OutcomeError(text) from error
        _log.warning("%s It leaves the job; the trainers go on, and sample themselves where no sampler is left.", text)
        sys.exit(0)
    finally:
        if outcome is not None:
            outcome.close()


class _Sources:
    """Finds the mini-batches of a stream, in the data module or loaders that the Trainer was called with."""

    def __init__(self, strategy: FactoredStrategy, trainer: pl.Trainer, arguments: dict[str, Any]) -> None:
        self.strategy = strategy
        self.trainer = trainer
        self.model = _model_in(arguments, strategy)
        self.datamodule = _datamodule_in(arguments)
        self._given = {
            name: arguments[name]
            for name in _LOADERS
            if arguments.get(name) is not None and arguments[name] is not self.datamodule
        }
        self._device = SamplerDevice(strategy)
        self._loaders: dict[tuple[str, int], list[Any]] = {}
        self.service: SamplerService | None = None
        self._is_set_up = False
        self._lock = threading.Lock()

    def open(self, spec: StreamSpec) -> BatchSource:
        """Called when a trainer opens a stream, hence after ``prepare_data``, which runs on trainers."""
        is_successor = self.service is not None and self.service.is_successor
        source = self.loader(spec).source
        if spec.gathers:
            source = source.without_features()
        source = open_on_sampler(source, is_successor=is_successor, takeover=self.strategy.takeover)
        return self._device.source(self.datamodule, source)

    def close(self, error: BaseException | None) -> None:
        """When nothing is sampled any more, or because of ``error``."""
        if isinstance(self.datamodule, GraphDataModule):
            self.datamodule.parting.leave(error)
        for loader in (each for loaders in self._loaders.values() for each in loaders):
            if isinstance(loader, SampledLoader):
                close_caches(loader.source)

    def loader(self, spec: StreamSpec) -> SampledLoader:
        """The stream's. Thread-safe."""
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
        """The data module, once."""
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


def _datamodule_in(arguments: dict[str, Any]) -> Any:
    """The one that the Trainer was called with, by either name."""
    given = (arguments.get(name) for name in _LOADERS)
    return next((each for each in given if isinstance(each, pl.LightningDataModule)), arguments.get("datamodule"))
