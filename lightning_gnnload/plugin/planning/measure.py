"""Measures, in about a minute, what a plan needs to know of a configuration: stages, sizes, hit rates and memory."""

from __future__ import annotations

import copy
import ctypes
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.formats import FORMATS
from lightning_gnnload.cache.advice import measure_speed
from lightning_gnnload.cache.budget import Table, budget
from lightning_gnnload.cache.shared import is_mapped_file
from lightning_gnnload.cache.simulate import AccessTrace, presampled_curve
from lightning_gnnload.data.features import MemoryFeatureStore
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.slab import Header
from lightning_gnnload.errors import CacheConfigError, GnnLoadError, PlanError, RoleConfigError
from lightning_gnnload.host.memory import ResidentMemory, forget_peak, resident_memory
from lightning_gnnload.host.pages import mapped_file
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.memory import BatchSize, DataSize
from lightning_gnnload.pipeline.forecast.search import CacheEffect, MeasuredRun
from lightning_gnnload.pipeline.forecast.stages import StageTimes
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module.caching import cache_levels
from lightning_gnnload.plugin.module.datamodule import GraphDataModule
from lightning_gnnload.plugin.module.settings import default_num_threads
from lightning_gnnload.plugin.strategy import profile
from lightning_gnnload.plugin.strategy.factored import FactoredStrategy
from lightning_gnnload.plugin.strategy.rehearsal import BatchTimer, RehearsalSetting

RATIOS = (0.02, 0.05, 0.1, 0.2, 0.5)
_TINY = 2  # seeds: what such a mini-batch takes is Python's part of any; one would be too few for batch norm
_BATCHES = 8  # that sizes are taken from
_LONGEST_S, _SHORTEST_S = 2.0, 0.3
_STAGES_SHARE = 0.4  # of the time, in rounds: a machine that others share too is faster in one second than in the next
_READY = 5  # mini-batches that a rehearsal has in memory
_COPIED_BYTES, _TRACE_BYTES = 64 << 20, 1 << 30


class RunMeasurement:
    """The measurement of one configuration: its Trainer, model and data module, which stay as they were.

    Args:
        machine: this one.
        seconds: about how long it may take; data that must be loaded first come on top.
        imported: the memory of this process when it had imported all, and loaded nothing.
        advance: called with the name of each part before it is measured.

    Raises:
        PlanError: the model cannot be measured, or is fed by other loaders.
    """

    def __init__(
        self,
        trainer: pl.Trainer,
        model: pl.LightningModule,
        module: GraphDataModule,
        machine: Machine,
        seconds: float,
        imported: ResidentMemory,
        advance: Callable[[str], object] = lambda part: None,
    ) -> None:
        self.trainer, self.model, self.module, self.machine = trainer, model, module, machine
        self.seconds = seconds
        self.imported = imported
        self.advance = advance
        self._slowdown: dict[int, float] = {}
        self._size: BatchSize | None = None
        self._before = 0
        self._hops: tuple[tuple[float, float], ...] = ()
        self._batch_sizes: tuple[float, ...] = ()

    def run(self) -> MeasuredRun:
        """Measures, and returns all that was."""
        self.advance("data")
        self.module.prepare_data()
        self.module.setup("fit")
        mine, data = self._layout(), self.module.graph_data
        num_seeds = len(self.module.workload("train").seeds)
        whole = min(mine.batch_size * mine.trainers, num_seeds)
        most = len(self.machine.gpus) or min(self.machine.cores, 8)
        seeds = sorted({whole, max(whole // 2, _TINY), max(whole // max(most, 1), _TINY)}, reverse=True)
        limit_s = min(max(self.seconds / (4 * (len(seeds) + 1)), _SHORTEST_S), _LONGEST_S)
        rounds: dict[int, list[BatchWork]] = {count: [] for count in seeds}
        sizes = dict[int, BatchSize]()
        python = self._python(limit_s)
        ends_s = time.monotonic() + self.seconds * _STAGES_SHARE
        with _load_of_others() as foreign_load:
            while not sizes or time.monotonic() < ends_s:
                for count in seeds:
                    self.advance(f"mini-batches of {count} seeds")
                    times, size = self._rehearse(count, limit_s, with_threads=not sizes)
                    sizes.setdefault(count, size)
                    rounds[count].append(self._work(times, python))
        works = {count: BatchWork.mean(measured) for count, measured in rounds.items()}
        self.advance("cache")
        cache = self._cache()
        self.advance("formats")
        return MeasuredRun(
            works=works,
            sizes=sizes,
            data=self._data_size(data),
            num_seeds=num_seeds,
            mine=mine,
            limit=self.trainer.limit_train_batches,
            gradient_bytes=_gradient_bytes(self.model),
            slowdown=self._slowdown,
            drop_last=self.module.drop_last,
            draws_on_device=self.module.sampling_device != "cpu",
            copy_gb_s=_copy_gb_s(),
            cache=cache,
            formats=self._formats(),
            foreign_load=foreign_load[0],
            hops=self._hops,
            batch_sizes=self._batch_sizes,
        )

    # The stages of a mini-batch.

    def _python(self, limit_s: float) -> StageTimes | None:
        """What a mini-batch of a seed or two takes: hardly more than Python's part of any."""
        self.advance("Python's part")
        try:
            return self._rehearse(_TINY, limit_s / 2)[0]
        except PlanError:  # of a model that does not learn from so few
            return None

    def _rehearse(self, seeds: int, limit_s: float, *, with_threads: bool = False) -> tuple[StageTimes, BatchSize]:
        """Times mini-batches of so many seeds, and steps on them, with one thread; and what they take of memory."""
        module = copy.copy(self.module)
        module.batch_size = seeds
        strategy: Any = self.trainer.strategy
        device = strategy.root_device

        def on_sampler(_: Any, source: BatchSource) -> BatchSource:
            self._size = self._batch_size(source)
            if with_threads:
                self._slowdown = self._measure_threads(source, setting)
            self._before = _begin_training(device)
            return source

        setting = RehearsalSetting(
            device,
            1,
            (),
            {},
            torch_threads=_torch_threads(self.machine.cores, 1),
            on_sampler=on_sampler,
            limit_s=limit_s,
        )
        try:
            times = profile.measure(
                self.trainer, {"model": self.model, "datamodule": module}, setting, lambda facts: False
            ).times
        except RoleConfigError as error:
            text = str(error).replace("roles cannot be measured", "the run cannot be planned for")
            raise PlanError(text.partition(" If training works")[0]) from error
        assert times is not None
        assert self._size is not None
        # The rehearsal has ready mini-batches and a table of nodes beside what a step takes.
        stamps = 0 if device.type == "cuda" else self.module.graph_data.num_nodes * 4
        beside = 0 if device.type == "cuda" else int(_READY * self._size.num_bytes) + stamps
        train_bytes = max(_peak_of_training(device) - self._before - beside, 0)
        return times, replace(self._size, train_bytes=float(train_bytes))

    def _batch_size(self, source: BatchSource) -> BatchSize:
        slot, num_steps = Slot(), source.plan(1).num_steps
        headers = [
            source.make(BatchRequest(0, step, 0, 1), slot).header
            for step in range(0, num_steps, max(num_steps // _BATCHES, 1))
        ][:_BATCHES]
        hops = _hops_of(headers)
        if hops[0][0] > (self._hops[0][0] if self._hops else 0):  # of the most seeds
            self._hops, self._batch_sizes = hops, _shares_of(headers)
        return BatchSize(
            num_nodes=float(np.mean([header.num_nodes for header in headers])),
            num_edges=float(np.mean([header.num_edges for header in headers])),
            num_bytes=float(max(header.num_bytes for header in headers)),
            train_bytes=0.0,
        )

    def _measure_threads(self, source: BatchSource, setting: RehearsalSetting) -> dict[int, float]:
        """By threads side by side, how many times longer a mini-batch takes of its core than alone."""
        core_ms = {}
        counts = [2**power for power in range(6) if 2**power <= self.machine.cores]
        for count in counts:
            self.advance(f"{count} sampling thread{'s' * (count > 1)}")
            timer = BatchTimer(source, replace(setting, num_threads=count, limit_s=_SHORTEST_S))
            core_ms[count] = timer.median_ms("core")
        return {count: max(ms / max(core_ms[1], 1e-9), 1.0) for count, ms in core_ms.items()}

    def _work(self, times: StageTimes, python: StageTimes | None) -> BatchWork:
        work = BatchWork.measured(times)
        if python is None:
            return work
        step_ms = python.train_fixed_ms + python.train_work_ms
        return replace(
            work,
            making_python_ms=min(python.making_core_ms, times.making_core_ms),
            train_python_ms=min(step_ms, times.train_fixed_ms + times.train_work_ms),
        )

    # What the configuration asks for, and what does not depend on the layout.

    def _layout(self) -> RunLayout:
        """The ranks and threads of the configuration."""
        module, strategy, cores = self.module, self.trainer.strategy, self.machine.cores
        devices = max(self.trainer.num_devices, 1)
        usual = RunLayout(batch_size=module.batch_size, cache=self._cache_ratio(), batch_format=module.batch_format)
        if isinstance(strategy, FactoredStrategy):
            roles = strategy.roles
            switching = bool(strategy.switching)
            if roles.sampler_nodes:
                raise PlanError(
                    f"sampler_nodes={roles.sampler_nodes}: one machine is measured. Plan without sampler_nodes=, and "
                    "give gnnload plan --machines N --sampler-nodes N."
                )
            if roles.is_lone:
                usual = replace(usual, way="factored" if switching else "auto", torch_threads=torch.get_num_threads())
                return replace(usual, threads=strategy.num_sampler_threads, switching=switching)
            return replace(
                usual,
                way="factored",
                trainers=roles.num_trainers,
                samplers=roles.num_samplers,
                threads=strategy.num_sampler_threads,
                torch_threads=_torch_threads(cores, roles.num_devices),
                slots=strategy.queue_depth,
                switching=switching,
                staleness=strategy.staleness,
            )
        threads = default_num_threads(devices) if module.num_threads is None else max(module.num_threads, 1)
        if devices == 1:
            return replace(usual, threads=threads, torch_threads=torch.get_num_threads())
        return replace(
            usual, way="ddp", trainers=devices, threads=threads, torch_threads=_torch_threads(cores, devices)
        )

    def _cache_ratio(self) -> float:
        """The share of the rows that the nearest cache of ``x`` has."""
        levels, x = cache_levels(self.module.cache).get("x", ()), self.module.graph_data.x
        if not levels or x is None:
            return 0.0
        table = Table(x.shape[0], x.row_bytes)
        with suppress(GnnLoadError):
            return budget(table, levels[0].ratio, levels[0].capacity_bytes).num_rows / max(x.shape[0], 1)
        return 0.0

    def _data_size(self, data: GraphData) -> DataSize:
        graph, x = data.graph, data.x
        arrays = [array for name in graph.ARRAYS if (array := getattr(graph, name)) is not None]
        mapped = mapped_file(graph.indices.ctypes.data) is not None and (
            not isinstance(x, MemoryFeatureStore) or is_mapped_file(x.rows)
        )
        return DataSize(
            num_nodes=graph.num_nodes,
            process_bytes=self.imported.private,
            library_bytes=self.imported.file,
            graph_bytes=sum(int(array.nbytes) for array in arrays) + (0 if data.y is None else int(data.y.nbytes)),
            feature_bytes=sum(store.shape[0] * store.row_bytes for store in data.stores.values()),
            row_bytes=0 if x is None else x.row_bytes,
            mapped=mapped,
        )

    def _cache(self) -> CacheEffect:
        """Hit rates by size, of the rows that one epoch visits most in the next one, and what rows cost."""
        x = self.module.graph_data.x
        workload = self.module.workload("train")
        if x is None or x.shape[0] != workload.graph.num_nodes:
            return CacheEffect()
        # As many mini-batches of two epochs as an eighth of the time allows, by what it takes to draw one.
        began = time.perf_counter()
        num_bytes = max(workload.nodes_of(BatchRequest(0, 0, 0, 1)).nbytes, 1)
        num_batches = self.seconds / 8 / max(time.perf_counter() - began, 1e-6)
        try:
            trace = AccessTrace(workload, 2, max_bytes=min(int(max(num_batches, 4) * num_bytes), _TRACE_BYTES))
        except CacheConfigError:  # not even a step of each
            return CacheEffect()
        curve = presampled_curve(trace, RATIOS, "")
        speed = measure_speed(x, trace)
        return CacheEffect("presample", RATIOS, tuple(curve.hit_rates), speed.store_ns, speed.memory_ns)

    def _formats(self) -> dict[str, float]:
        """Milliseconds to convert a mini-batch to each format whose library is there."""
        source = self.module.source("train")
        slot = Slot()
        batch = source.make(BatchRequest(0, 0, 0, 1), slot).view(slot.buffer())
        took_ms = {}
        for name, batch_format in FORMATS.items():
            if batch_format.library is not None and find_spec(batch_format.library) is None:
                continue
            with suppress(GnnLoadError, ImportError, OSError):
                batch_format.check_sampler(self.module.sampler)
                convert = batch_format.adapter(
                    self.module.graph_data,
                    None,
                    feature_name=self.module.feature_name,
                    label_name=self.module.label_name,
                    edge_feature_name=self.module.edge_feature_name,
                )
                took_ms[name] = _fastest_ms(convert, batch) if convert is not None else 0.0
        return took_ms


def _hops_of(headers: Sequence[Header]) -> tuple[tuple[float, float], ...]:
    """Nodes that are asked for their lists, and edges drawn, by hop: the means."""
    counts = []
    for header in headers:
        before, nodes_before, hops = slice(0, 0), 0, []
        for (pointers, _), span in zip(header.schema.hops, header.spans(), strict=True):
            nodes = header.lengths[pointers] - 1
            nested = before.stop > before.start == span.start  # it has the nearer hop's rows, too
            hops.append((nodes - nested * nodes_before, span.stop - (before.stop if nested else span.start)))
            before, nodes_before = span, nodes
        counts.append(hops)
    return tuple((float(nodes), float(edges)) for nodes, edges in np.mean(counts, axis=0))


def _shares_of(headers: Sequence[Header]) -> tuple[float, ...]:
    """How many input nodes mini-batches have, as shares of the mean."""
    counts = np.array([header.num_nodes for header in headers], np.float64)
    return tuple(map(float, counts / max(counts.mean(), 1.0)))


def _fastest_ms(convert: Callable[[Any], Any], batch: Any) -> float:
    times = []
    for _ in range(6):
        began = time.thread_time()
        convert(batch)
        times.append(time.thread_time() - began)
    return min(times) * 1e3


def _begin_training(device: torch.device) -> int:
    """Lets the peak of memory begin anew; returns what is taken now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return int(torch.cuda.memory_allocated(device))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what an earlier rehearsal left would hide what this one takes
    forget_peak()
    return resident_memory().private


def _peak_of_training(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    return resident_memory().peak_private


def _gradient_bytes(model: pl.LightningModule) -> int:
    return sum(
        parameter.nbytes
        for parameter in model.parameters()
        if parameter.requires_grad and not torch.nn.parameter.is_lazy(parameter)
    )


def _torch_threads(cores: int, ranks: int) -> int:
    """Torch's threads in each of several ranks that Lightning starts."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdigit() and int(value) else max(cores // ranks, 1)


def _copy_gb_s() -> float:
    source, target = np.ones(_COPIED_BYTES, np.uint8), np.empty(_COPIED_BYTES, np.uint8)
    took_s = []
    for _ in range(4):
        began = time.thread_time()
        np.copyto(target, source)
        took_s.append(time.thread_time() - began)
    return _COPIED_BYTES / max(min(took_s), 1e-9) / 1e9


@contextmanager
def _load_of_others() -> Iterator[list[float]]:
    """Yields a list, which at the end has the share of the cores that other processes used in the block."""
    share = [0.0]
    began, before = time.monotonic(), _busy_s()
    yield share
    passed_s = (time.monotonic() - began) * (os.cpu_count() or 1)
    share[0] = min(max((_busy_s() - before) / max(passed_s, 1e-9), 0.0), 1.0)


def _busy_s() -> float:
    """The seconds that the machine's cores were busy with other processes than this one."""
    with suppress(OSError, ValueError, IndexError):
        user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:9])
        return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])
    return 0.0
