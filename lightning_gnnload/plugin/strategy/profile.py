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

import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GnnLoadError, LoaderConfigError, RoleConfigError
from lightning_gnnload.pipeline.device_batches import DevicePrefetcher
from lightning_gnnload.pipeline.loader import Convert, SampledLoader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import SlotPool
from lightning_gnnload.pipeline.source import BatchSource, DeviceSource
from lightning_gnnload.plugin.compat import DummyLogger, environments, pl
from lightning_gnnload.plugin.job import StageTimes

_LIMIT_S = 2.0  # of making batches, and of training
_MAX_BATCHES = 48  # of either
_NUM_READY = 4  # batches to train on, in turn
_WARM_UP_STEPS = 3  # the first steps compile, allocate and choose algorithms
_TURN = 4  # steps that torch computes with as many threads
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
class ProfileSetting:
    """The device, cores and threads that stages are measured on, and what else their times depend on.

    Attributes:
        device: a trainer's.
        num_threads: sampling threads of a sampler.
        sampler_cores: that these may use.
        facts: what else the times depend on, as JSON.
        torch_threads: the most that torch may compute with.
        on_sampler: makes of a source, and the data module that it is of, what a sampler makes mini-batches from.
    """

    device: torch.device
    num_threads: int
    sampler_cores: Collection[int]
    facts: dict[str, Any]
    torch_threads: int = 1
    on_sampler: Callable[[Any, BatchSource], BatchSource] = lambda module, source: source


def measure(
    trainer: pl.Trainer, arguments: dict[str, Any], setting: ProfileSetting, is_known: Callable[[dict[str, Any]], bool]
) -> tuple[dict[str, Any], StageTimes | None]:
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
    probe = _Probe(setting, is_known, datamodule if datamodule is not None else loaders)
    options: dict[str, Any] = {name: getattr(trainer, name) for name in _KEPT_OPTIONS} | _BENCH_OPTIONS
    cuda = setting.device.type == "cuda"
    torch_threads = torch.get_num_threads()
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
        finally:
            torch.set_num_threads(torch_threads)
    assert probe.measured_on is not None
    return probe.measured_on, probe.times()


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

    def __init__(self, setting: ProfileSetting, is_known: Callable[[dict[str, Any]], bool], module: Any) -> None:
        super().__init__(device=setting.device)
        self.setting = setting
        self.is_known = is_known
        self.module = module
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
        module = {"sampling_device": getattr(self.module, "sampling_device", "cpu")}
        self.measured_on = self.setting.facts | module | describe(dataloader.source, self.lightning_module)
        if self.is_known(self.measured_on):
            return []  # nothing to train on
        # Who gathers is asked as trainers ask it. What they gather is no work of a sampler (GNNLab, 5.2).
        prefetcher = dataloader.prefetcher()
        source = dataloader.source if prefetcher is None else dataloader.source.without_features()
        self._making = _Making(self.setting.on_sampler(self.module, source), self.setting)
        self._ready = _ReadyBatches(self._making.ready, dataloader.convert, prefetcher, self.setting)
        return self._ready

    def times(self) -> StageTimes | None:
        if self._making is None or self._ready is None:
            return None
        made, trained = self._making, self._ready
        work_ms, torch_threads = trained.shared_by_cores()
        return StageTimes(
            sample_ms=made.median_ms("sample"),
            gather_ms=made.median_ms("gather"),
            making_core_ms=made.median_ms("core"),
            convert_ms=trained.convert_ms,
            train_work_ms=work_ms,
            train_fixed_ms=max(trained.step_ms(1) - work_ms - trained.convert_ms, 0.0),
            sampler_threads=self.setting.num_threads,
            torch_threads=torch_threads,
            draws_on_device=made.is_on_device,
        )


class _Making:
    """Makes mini-batches of one epoch, and times it, in as many threads as a sampler has, on its cores."""

    def __init__(self, source: BatchSource, setting: ProfileSetting) -> None:
        self._source = source
        self._slots = SlotPool(pinned=setting.device.type == "cuda")
        self._num_steps = source.plan(1).num_steps
        self._times: list[dict[str, float]] = []
        self.ready: list[tuple[MiniBatch, Payload]] = []
        self.is_on_device = isinstance(source, DeviceSource)
        num_threads = setting.num_threads

        def to_cores() -> None:
            if setting.sampler_cores:
                os.sched_setaffinity(0, setting.sampler_cores)  # of this thread alone

        with ThreadPoolExecutor(num_threads, "gnnload-measure", initializer=to_cores) as threads:
            # The first mini-batches pay for memory and caches: they only tell how many to time.
            warm = list(threads.map(self._make, range(num_threads + 1)))
            estimate_ms = max(statistics.median(each["sample"] + each["gather"] for each in warm), 1e-3) / num_threads
            count = min(max(int(_LIMIT_S * 1e3 / estimate_ms), 2 * num_threads), _MAX_BATCHES)
            self._times = list(threads.map(self._make, range(len(warm), len(warm) + count)))
        del self._source  # with what it has on a device, which training is to have

    def median_ms(self, what: str) -> float:
        """One thread's time for ``"sample"`` or ``"gather"``, while the other threads do as much; or ``"core"``, its
        time on a core for both. The median forgives a hiccup."""
        return statistics.median(each[what] for each in self._times)

    def _make(self, step: int) -> dict[str, float]:
        """Makes one mini-batch; returns the milliseconds that it took."""
        slot = self._slots.take()
        began, core_began = time.perf_counter(), time.thread_time()
        payload = self._source.make(BatchRequest(0, step % self._num_steps, 0, 1), slot)
        took_ms, core_ms = (time.perf_counter() - began) * 1e3, (time.thread_time() - core_began) * 1e3
        if len(self.ready) < _NUM_READY:
            self.ready.append((payload.view(self._slots.lend(slot)), payload))
        else:
            self._slots.give(slot)
        gather_ms = payload.timing.gather_ms
        return {"sample": max(took_ms - gather_ms, 0.0), "gather": gather_ms, "core": core_ms}


class _ReadyQueue:
    """Stands in for a trainer's queue: the same few mini-batches come in turn, and have always come."""

    def __init__(self, ready: list[tuple[MiniBatch, Payload]]) -> None:
        self._ready = ready

    def take(self, stream: int, step: int) -> tuple[MiniBatch, Payload]:
        return self._ready[step % len(self._ready)]

    def has_come(self, stream: int, step: int) -> bool:
        return True


class _ReadyBatches:
    """A loader that has its mini-batches ready, and times steps by when each one is asked for: with all that a trainer
    does for one, from completing and converting the mini-batch to the optimizer's step.

    Torch computes with one thread and with all in turn, a few steps each, so that what else the machine does meets both
    alike.
    """

    def __init__(
        self,
        ready: list[tuple[MiniBatch, Payload]],
        convert: Convert,
        prefetcher: DevicePrefetcher | None,
        setting: ProfileSetting,
    ) -> None:
        self._queue: Any = _ReadyQueue(ready)
        self._convert = convert
        self._prefetcher = prefetcher
        self._device = setting.device
        self._threads = sorted({1, setting.torch_threads}, reverse=True) if setting.device.type == "cpu" else [1]
        self._steps_ms: dict[int, list[float]] = {threads: [] for threads in self._threads}
        self._converts_ms: list[float] = []

    def __iter__(self) -> Iterator[Any]:
        threads, asked_s, began_s = self._threads[0], 0.0, 0.0
        for step in itertools.count():
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # else the time to launch a step is measured, not the step's
            now_s = time.perf_counter()
            # From request to request: with batches ready, a step is all that lies between. The first with other
            # threads starts these.
            place = step - 1 - _WARM_UP_STEPS
            if place >= 0 and (place % _TURN or len(self._threads) == 1):
                self._steps_ms[threads].append((now_s - asked_s) * 1e3)
            began_s = began_s or now_s
            if step > _MAX_BATCHES or (all(self._steps_ms.values()) and now_s - began_s > _LIMIT_S):
                return
            place += 1
            if place >= 0 and place % _TURN == 0 and self._device.type == "cpu":
                threads = self._threads[place // _TURN % len(self._threads)]
                torch.set_num_threads(threads)
            asked_s = time.perf_counter()
            batch = self._queue.take(0, step)[0]
            if self._prefetcher is not None:
                batch, _ = self._prefetcher.take(self._queue, 0, step, step + 2)  # type: ignore[misc]
            converting_s = time.perf_counter()
            converted = [self._convert(batch)]
            self._converts_ms.append((time.perf_counter() - converting_s) * 1e3)
            yield converted.pop()

    def step_ms(self, threads: int) -> float:
        return statistics.median(self._steps_ms[threads])

    @property
    def convert_ms(self) -> float:
        return statistics.median(self._converts_ms)

    def shared_by_cores(self) -> tuple[float, int]:
        """Returns the part ``a`` of a step that cores share, as it takes ``a / cores + d``; and how many threads
        torch should have at most.

        Source: BGL (NSDI'23), section 3.4: a and d are approximated by pre-running.
        """
        most = self._threads[0]
        if most == 1:
            return 0.0, 1
        one_ms = self.step_ms(1)
        saved_ms = one_ms - self.step_ms(most)
        if saved_ms <= 0:
            return 0.0, 1
        return min(saved_ms * most / (most - 1), one_ms - self.convert_ms), most


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
