"""Profile: how long a mini-batch takes to make and to train on, measured on real ones, leaving no trace.

The user's model is copied and trained for a few steps by a Trainer of its own. That Trainer's strategy stands where
Lightning hands over the train loader: it times the making of some mini-batches, and puts a loader in its place that
has them ready, so that only training is left to time. Everything else goes the ways of any ``fit``: the model may be
built in ``configure_model``, batches may be moved by hooks, optimization may be manual.
"""

from __future__ import annotations

import copy
import itertools
import logging
import os
import re
import statistics
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GnnLoadError, LoaderConfigError, RoleConfigError
from lightning_gnnload.pipeline.loader import Convert, SampledLoader
from lightning_gnnload.pipeline.slots import SlotPool
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import DummyLogger, environments, pl

_LIMIT_S = 2.0  # of making batches, and of training
_MAX_BATCHES = 48  # of either
_NUM_READY = 4  # batches to train on, in turn
_WARM_UP_STEPS = 3  # the first steps compile, allocate and choose algorithms
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


@dataclass(frozen=True)
class Profile:
    """The measured times of making a mini-batch and of training on it.

    Attributes:
        sample_ms: time a mini-batch of one sampler at its throughput, sampling and gathering (T_s).
        train_ms: time a training step, its mini-batch being ready: moving it, forward, backward, optimizer (T_t).
        batch_bytes: of the largest mini-batch seen.
    """

    sample_ms: float
    train_ms: float
    batch_bytes: int


@dataclass(frozen=True)
class ProfileSetting:
    """The device, cores and threads that a profile is measured on, and what else its times depend on.

    Attributes:
        device: a trainer's.
        num_threads: sampling threads of a sampler.
        sampler_cores: that these may use.
        facts: what else the times depend on, as JSON.
    """

    device: torch.device
    num_threads: int
    sampler_cores: Collection[int]
    facts: dict[str, Any]


def measure(
    trainer: pl.Trainer, arguments: dict[str, Any], setting: ProfileSetting, is_known: Callable[[dict[str, Any]], bool]
) -> tuple[dict[str, Any], Profile | None]:
    """Times the making of mini-batches and training steps of what ``trainer.fit`` was called with.

    The model, the data module, the random states and all that the user's Trainer holds are as before. Hooks of the
    copies run, ``prepare_data`` and ``setup`` among them.

    Args:
        trainer: the user's: precision and gradient clipping are taken from it.
        arguments: of its ``fit``.
        setting: what to measure on.
        is_known: told what the times would hold for, says that they are known, and need not be measured.

    Returns:
        What the times hold for, and the times unless they are known.

    Raises:
        RoleConfigError: the model cannot be copied, or its training step fails.
        LoaderConfigError: the training data are not sampled by this package.
    """
    model, datamodule, loaders = _copies(trainer, arguments)
    probe = _Probe(setting, is_known)
    options: dict[str, Any] = {name: getattr(trainer, name) for name in _KEPT_OPTIONS} | _BENCH_OPTIONS
    cuda = setting.device.type == "cuda"
    with _quietly(), pl.utilities.seed.isolate_rng(include_cuda=cuda):
        try:
            bench = pl.Trainer(
                accelerator=_ACCELERATORS.get(setting.device.type, setting.device.type),
                devices=[setting.device.index or 0] if cuda else 1,
                strategy=probe,
                plugins=[environments.LightningEnvironment(), copy.deepcopy(trainer.precision_plugin)],
                # Without one, self.logger is None, and a model that writes to it fails.
                logger=DummyLogger() if trainer.loggers else False,
                **options,
            )
            bench.fit(model, train_dataloaders=loaders, datamodule=datamodule)
        except GnnLoadError:
            raise
        except Exception as error:
            raise _unmeasurable(f"a training step on a copy of {type(model).__name__} failed", error) from error
    assert probe.measured_on is not None
    return probe.measured_on, probe.profile()


def describe(source: BatchSource, model: pl.LightningModule) -> dict[str, Any]:
    """Collects what the measured times depend on in data and model; the machine's facts come from elsewhere."""
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

    def __init__(self, setting: ProfileSetting, is_known: Callable[[dict[str, Any]], bool]) -> None:
        super().__init__(device=setting.device)
        self.setting = setting
        self.is_known = is_known
        self.measured_on: dict[str, Any] | None = None
        self._making: _Making | None = None
        self._ready: _ReadyBatches | None = None

    def process_dataloader(self, dataloader: object) -> object:
        if not isinstance(dataloader, SampledLoader) or self.measured_on is not None:
            raise LoaderConfigError(
                f"only training on one loader of a GraphDataModule can be measured, but there is a "
                f"{type(dataloader).__name__}. Give the number of samplers: FactoredStrategy(samplers=1)."
            )
        assert self.lightning_module is not None
        self.measured_on = self.setting.facts | describe(dataloader.source, self.lightning_module)
        if self.is_known(self.measured_on):
            return []  # nothing to train on
        self._making = _Making(dataloader.source, self.setting)
        self._ready = _ReadyBatches(self._making.ready, dataloader.convert, self.setting.device)
        return self._ready

    def profile(self) -> Profile | None:
        if self._making is None or self._ready is None:
            return None
        return Profile(self._making.sample_ms, self._ready.train_ms, self._making.batch_bytes)


class _Making:
    """Makes mini-batches of one epoch, and times it, in as many threads as a sampler has, on its cores."""

    def __init__(self, source: BatchSource, setting: ProfileSetting) -> None:
        self._source = source
        self._slots = SlotPool(pinned=setting.device.type == "cuda")
        self._num_steps = source.plan(1).num_steps
        self.ready: list[MiniBatch] = []
        self.batch_bytes = 0
        num_threads = setting.num_threads

        def to_cores() -> None:
            if setting.sampler_cores:
                os.sched_setaffinity(0, setting.sampler_cores)  # of this thread alone

        with ThreadPoolExecutor(num_threads, "gnnload-measure", initializer=to_cores) as threads:
            # The first mini-batches pay for memory and caches: they only tell how many to time.
            warm = list(threads.map(self._make, range(num_threads + 1)))
            estimate_ms = max(statistics.median(warm), 1e-3) / num_threads
            count = min(max(int(_LIMIT_S * 1e3 / estimate_ms), 2 * num_threads), _MAX_BATCHES)
            times = list(threads.map(self._make, range(len(warm), len(warm) + count)))
        # One thread's batch takes so long while the other threads make as many; the median forgives a hiccup.
        self.sample_ms = statistics.median(times) / num_threads

    def _make(self, step: int) -> float:
        """Makes one mini-batch; returns the milliseconds that it took."""
        slot = self._slots.take()
        began = time.perf_counter()
        payload = self._source.make(BatchRequest(0, step % self._num_steps, 0, 1), slot)
        took_ms = (time.perf_counter() - began) * 1e3
        self.batch_bytes = max(self.batch_bytes, payload.num_bytes)
        if len(self.ready) < _NUM_READY:
            self.ready.append(payload.view(self._slots.lend(slot)))
        else:
            self._slots.give(slot)
        return took_ms


class _ReadyBatches:
    """A loader that yields the same few mini-batches in turn, and times steps by when each one is asked for."""

    def __init__(self, batches: list[MiniBatch], convert: Convert, device: torch.device) -> None:
        self._batches = batches
        self._convert = convert
        self._device = device
        self._asked_s: list[float] = []

    def __iter__(self) -> Iterator[Any]:
        for batch in itertools.cycle(self._batches):
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # else the time to launch a step is measured, not the step's
            self._asked_s.append(time.perf_counter())
            count, took_s = len(self._asked_s), self._asked_s[-1] - self._asked_s[0]
            if count > _MAX_BATCHES or (count > _WARM_UP_STEPS and took_s > _LIMIT_S):
                return
            yield self._convert(batch)

    @property
    def train_ms(self) -> float:
        # From request to request: with batches ready, a step is all that lies between.
        steps = np.diff(self._asked_s) * 1e3
        return float(np.median(steps[min(_WARM_UP_STEPS, len(steps) // 2) :]))


def _copies(trainer: pl.Trainer, arguments: dict[str, Any]) -> tuple[pl.LightningModule, Any, Any]:
    """Returns copies of the model and the data module, and the loaders, to measure with.

    The data module is copied one level deep: the graph is shared, and what ``setup`` sets stays with the copy.
    """
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


def _unmeasurable(what: str, error: Exception) -> RoleConfigError:
    return RoleConfigError(
        f"roles cannot be measured: {what} with {type(error).__name__}: {error}. If training works with other "
        f"strategies, give the number of samplers: FactoredStrategy(samplers=1)."
    )


@contextmanager
def _quietly() -> Iterator[None]:
    """Silences the Trainer that measures."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
