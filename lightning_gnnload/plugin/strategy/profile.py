"""Profile: times how long a mini-batch takes to make and to train on, without changing the user's objects.

A Trainer of its own fits a copy of the user's model for a few steps. Its strategy takes over where Lightning asks for
the train loader: it times the making of some mini-batches, then returns a loader that has them ready, so that the steps
show training alone. All else goes the usual way of ``fit``: hooks, ``configure_model``, manual optimization.
"""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import torch

from lightning_gnnload.errors import GnnLoadError, LoaderConfigError, RoleConfigError
from lightning_gnnload.pipeline.forecast.stages import StageTimes
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.accelerate import copied_from
from lightning_gnnload.plugin.compat import DummyLogger, environments, pl
from lightning_gnnload.plugin.job import RoleDecision
from lightning_gnnload.plugin.strategy.rehearsal import LIMIT_S, BatchTimer, ReadyBatches, RehearsalSetting
from lightning_gnnload.plugin.strategy.trial import ON_DEVICE, Trial

_ACCELERATORS = {"cuda": "gpu"}
_KEPT_OPTIONS = ("gradient_clip_val", "gradient_clip_algorithm", "default_root_dir")
_BENCH_OPTIONS = {
    "max_epochs": 1,
    "limit_val_batches": 0,
    "num_sanity_val_steps": 0,
    "use_distributed_sampler": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class Measured(NamedTuple):
    """What a rehearsal has measured, and the facts that it depends on."""

    facts: dict[str, Any]
    times: StageTimes | None = None  # of samplers as they are set; None where they are known, or steps were tried
    on_host: StageTimes | None = None  # where those samplers draw on a device, but need not: of the host instead
    steps_ms: Mapping[int, float] = MappingProxyType({})  # of a lone rank by each way of drawing (:class:`.Trial`)


def measure(
    trainer: pl.Trainer,
    arguments: dict[str, Any],
    setting: RehearsalSetting,
    is_known: Callable[[dict[str, Any]], bool],
) -> Measured:
    """Times the making of mini-batches and the training steps of a ``trainer.fit(**arguments)``; the model, the data
    module, the random states and the Trainer stay as before. Hooks of the copies run, ``prepare_data`` and ``setup``
    among them.

    Nothing is timed if ``is_known(facts)``. With ``setting.host_threads``, whole steps are. Raises RoleConfigError if
    the model cannot be copied, or its step fails or ends too soon; LoaderConfigError if another loader feeds it.
    """
    model, datamodule, loaders = _copies(trainer, arguments)
    if accelerates := copied_from(trainer):  # steps are as fast as theirs will be
        setting = replace(setting, facts=setting.facts | {"accelerate": [callback.bf16 for callback in accelerates]})
    probe = _Probe(setting, is_known, datamodule if datamodule is not None else loaders)
    options: dict[str, Any] = {name: getattr(trainer, name) for name in _KEPT_OPTIONS} | _BENCH_OPTIONS
    cuda = setting.device.type == "cuda"
    torch_threads = torch.get_num_threads()
    with quietly(), pl.utilities.seed.isolate_rng(include_cuda=cuda):
        try:
            bench = pl.Trainer(
                accelerator=_ACCELERATORS.get(setting.device.type, setting.device.type),
                devices=[setting.device.index or 0] if cuda else 1,
                strategy=probe,
                # One process, whatever torchrun or SLURM have set; and a copy, as a gradient scaler has a state.
                plugins=[environments.LightningEnvironment(), copy.deepcopy(trainer.precision_plugin)],
                # Without one, self.logger is None, and a model that writes to it fails.
                logger=DummyLogger() if trainer.loggers else False,
                callbacks=[*accelerates],
                **options,
            )
            bench.fit(model, train_dataloaders=loaders, datamodule=datamodule)
        except GnnLoadError:
            raise
        except Exception as error:
            raise _unmeasurable(f"a training step on a copy of {type(model).__name__} failed", error) from error
        finally:
            torch.set_num_threads(torch_threads)
    assert probe.measured_on is not None
    return probe.measured()


def model_facts(source: BatchSource, model: pl.LightningModule) -> dict[str, Any]:
    """What the measured times depend on in data and model; the machine's facts come from elsewhere."""
    shapes = [
        (name, "lazy" if torch.nn.parameter.is_lazy(parameter) else list(parameter.shape))
        for name, parameter in model.named_parameters()
    ]
    graph = source.data.graph
    return {
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": [f"{name} {shape}" for name, shape in shapes],
        "sampler": re.sub(r" at 0x[0-9a-f]+", "", repr(source.workload.sampler)),
        "batch_size": source.workload.batch_size,
        "features": re.sub(r" at 0x[0-9a-f]+", "", repr(source.features.get("x"))),
        "num_seeds": len(source.workload.seeds),
        "graph": [graph.num_nodes, graph.num_edges, 0 if source.data.x is None else source.data.num_features],
    }


class _Probe(pl.strategies.SingleDeviceStrategy):
    """A single-device strategy that measures where Lightning hands it the train loader."""

    is_rehearsal = True
    """Tells the data module that the ranks are not there yet, so that it leaves a partition out."""

    def __init__(self, setting: RehearsalSetting, is_known: Callable[[dict[str, Any]], bool], module: Any) -> None:
        super().__init__(device=setting.device)
        self.setting = setting
        self.is_known = is_known
        self.module = module
        self.measured_on: dict[str, Any] | None = None
        self.role_decision: RoleDecision | None = None  # which a trial changes, and the data module obeys
        self._making: list[BatchTimer] = []  # by samplers as they are set; and by the host, where that may be better
        self._ready: ReadyBatches | None = None
        self._trial: Trial | None = None

    def process_dataloader(self, dataloader: object) -> object:
        if not isinstance(dataloader, SampledLoader) or self.measured_on is not None:
            raise LoaderConfigError(
                f"only training on one loader of a GraphDataModule can be measured, but there is a "
                f"{type(dataloader).__name__}. Give the number of samplers: FactoredStrategy(samplers=1)."
            )
        assert self.lightning_module is not None
        module = {"sampling_device": getattr(self.module, "sampling_device", "cpu")}
        self.measured_on = self.setting.facts | module | model_facts(dataloader.source, self.lightning_module)
        if self.is_known(self.measured_on):
            return []  # nothing to train on
        if self.setting.host_threads:
            return self._tried(dataloader)
        # Who gathers is asked as trainers ask it. What they gather is no work of a sampler (GNNLab, 5.2).
        prefetcher = dataloader.prefetcher()
        source = dataloader.source if prefetcher is None else dataloader.source.without_features()
        self._making = [BatchTimer(self.setting.on_sampler(self.module, source), self.setting)]
        if self._making[0].is_on_device and self._is_free:
            self._making.append(BatchTimer(source, self.setting))
        self._ready = ReadyBatches(self._making[0].ready, dataloader.convert, prefetcher, self.setting)
        return self._ready

    @property
    def _is_free(self) -> bool:
        """Whether the settings leave open where mini-batches are drawn."""
        return getattr(self.module, "sampling_device", "cpu") == "auto"

    def _tried(self, dataloader: SampledLoader) -> object:
        """A loader that tries who draws for a lone rank; an empty one where only one can."""
        if not self._is_free or (on_device := dataloader.on_device()) is None or not on_device.draws_there:
            return []
        alone = RoleDecision(1, 1)

        def use(way: int) -> None:
            self.role_decision = replace(alone, host_threads=way)
            dataloader.num_threads = way or self.setting.num_threads

        ways = [ON_DEVICE, *self.setting.host_threads]
        self._trial = Trial(dataloader, ways, use, self.setting.device, self.setting.limit_s or LIMIT_S)
        return self._trial

    def measured(self) -> Measured:
        """What was measured. Raises RoleConfigError: training ended before."""
        assert self.measured_on is not None
        if self._trial is not None:
            return Measured(self.measured_on, steps_ms=self._trial.steps_ms or self._refuse_end())
        if self._ready is None:
            return Measured(self.measured_on)
        times, *on_host = map(self._times, self._making)
        return Measured(self.measured_on, times, on_host[0] if on_host else None)

    def _refuse_end(self) -> NoReturn:
        model = type(self.lightning_module).__name__
        raise _unmeasurable(f"training ended by itself on a copy of {model}, before steps were timed")

    def _times(self, making: BatchTimer) -> StageTimes:
        training = self._ready
        assert training is not None
        if not training.is_timed:
            self._refuse_end()
        work_ms, torch_threads = training.shared_by_cores()
        return StageTimes(
            sample_ms=making.median_ms("sample"),
            gather_ms=making.median_ms("gather"),
            making_core_ms=making.median_ms("core"),
            making_wait_ms=making.median_ms("wait"),
            convert_ms=training.convert_ms,
            train_work_ms=work_ms,
            train_fixed_ms=max(training.step_ms(1) - work_ms - training.convert_ms, 0.0),
            sampler_threads=self.setting.num_threads,
            torch_threads=torch_threads,
            draws_on_device=making.is_on_device,
            trains_on_device=self.setting.device.type != "cpu",
            trainer_gather_ms=training.gather_ms,
        )


def _copies(trainer: pl.Trainer, arguments: dict[str, Any]) -> tuple[pl.LightningModule, Any, Any]:
    """Copies of the model and the data module, and the loaders. The data module's copy is shallow: it shares the
    graph."""
    model, datamodule, loaders = (arguments.get(name) for name in ("model", "datamodule", "train_dataloaders"))
    # ``fit`` takes a data module by the loaders' place, too.
    if isinstance(loaders, pl.LightningDataModule):
        datamodule, loaders = loaders, None
    assert model is not None
    memo: dict[int, Any] = {id(trainer): trainer}  # it knows everything, and is not to be copied
    with suppress(RuntimeError):  # not attached to any
        memo[id(model.trainer)] = model.trainer
    try:
        copied = copy.deepcopy(model, memo)
        copied.trainer = None
    except Exception as error:
        raise _unmeasurable(f"{type(model).__name__} cannot be copied", error) from error
    copied.configure_callbacks = list  # they would write files, and stop early
    return copied, copy.copy(datamodule), loaders


def _unmeasurable(cause: str, error: Exception | None = None) -> RoleConfigError:
    reason = "" if error is None else f" with {type(error).__name__}: {error}"
    return RoleConfigError(
        f"roles cannot be measured: {cause}{reason}. If training works with other "
        f"strategies, give the number of samplers: FactoredStrategy(samplers=1)."
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Silences the Trainer that measures."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
