"""PipelineMonitor: where the time of a training goes, while it goes and at the end."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from lightning_gnnload.cache.metrics import has_cache, hit_rate
from lightning_gnnload.errors import LoaderConfigError, warn
from lightning_gnnload.host.memory import resident_memory
from lightning_gnnload.pipeline.forecast.plan import Plan, read_plan
from lightning_gnnload.pipeline.loader import EpochLoader
from lightning_gnnload.pipeline.stats import Delivery, LoaderStats
from lightning_gnnload.plugin.compat import logging_step, pl
from lightning_gnnload.plugin.monitor.report import (
    PipelineSettings,
    TimeReport,
    advice,
    as_table,
    draw_report,
    share_of_waiting,
    tier_table,
)
from lightning_gnnload.plugin.monitor.stall import StallWatch, StepClock
from lightning_gnnload.plugin.monitor.trace import Span, TraceWindow, draw_timeline, join_parts, to_chrome, write_part


@dataclass
class FitTotals:
    """The totals of one trainer over a fit, or over a part of it, validation left out."""

    loader: LoaderStats
    train_ms: float = 0.0
    wall_ms: float = 0.0
    first_wait_ms: float = 0.0  # of this and of the waiting, for the fit's first mini-batch

    @classmethod
    def zero(cls) -> FitTotals:
        return cls(LoaderStats())

    def copy(self) -> FitTotals:
        return replace(self, loader=replace(self.loader))

    def __sub__(self, earlier: FitTotals) -> FitTotals:
        times = (getattr(self, name) - getattr(earlier, name) for name in ("train_ms", "wall_ms", "first_wait_ms"))
        return FitTotals(self.loader - earlier.loader, *times)

    @property
    def wait_share(self) -> float:
        return share_of_waiting(self.loader.wait_ms, self.wall_ms, self.first_wait_ms)

    def means(self) -> dict[str, float]:
        """Means over mini-batches, and rates, by name. Bytes by tier where the features' store counts them, and a hit
        rate where there is a cache."""
        loader, seconds = self.loader, max(self.wall_ms / 1e3, 1e-9)
        batches = max(loader.num_batches, 1)
        return {
            "queue_depth": loader.num_ready / batches,
            "wait_ms": loader.wait_ms / batches,
            "sample_ms": loader.sample_ms / batches,
            "gather_ms": loader.gather_ms / batches,
            "convert_ms": loader.convert_ms / batches,
            "train_ms": self.train_ms / batches,
            "input_nodes": loader.num_nodes / batches,
            "edges": loader.num_edges / batches,
            "seeds_per_s": loader.num_seeds / seconds,
            "batches_per_s": loader.num_batches / seconds,
            **{f"bytes_{read.tier.replace(' ', '_')}": read.num_bytes / batches for read in loader.reads},
            **({"hit_rate": hit_rate(loader.reads)} if has_cache(loader.reads) else {}),
        }


REPORT_NAME = "where_the_time_went"
_WARM_UP, _SHOWN = 8, 12
"""The timeline leaves so many mini-batches out, and shows so many, unless ``timeline`` names others."""
_EXTRAS = ("staleness", "switching")
"""FactoredStrategy's further figures: ``staleness_stats`` and ``switching_stats``, where it has them."""


class PipelineMonitor(pl.Callback):
    """A callback that measures how each mini-batch is made and each step is trained; it logs, warns and reports.

    While training, it logs under ``loader/`` whenever Lightning logs: means over the mini-batches since the last
    time, of this trainer; with a feature cache also its hit rate, and the bytes read by tier. Where a step waits far
    longer than steps usually take, it warns, at most once a minute, and names the stage to blame and the setting to
    change. At the end it prints a table and a recommendation, and writes next to the logger's files:

    - ``where_the_time_went.json`` and ``.png``: the table;
    - ``timeline.png`` and ``trace.json``: who did what and when during a few steps, all trainers and samplers of a
      machine; the file is for Perfetto or chrome://tracing. Other machines than the first have files of their own,
      ``timeline-1.png`` and so on, as no two have the same clock.

    Works under any strategy, with :class:`GraphDataModule`. Nothing is synchronized for it: on a GPU, ``train_ms`` is
    the time that the trainer's thread took, which runs ahead of the device.

    Args:
        figure: whether to draw.
        trace: whether to write the trace.
        timeline: mini-batches ``[first, last)`` for timeline and trace, counted in the fit from 0; None takes twelve
            of the first epoch, after a warm-up.
        stall_s: a wait of so many seconds is a stall, and so is a shorter one of many steps; None never warns.
        plan: the file of ``gnnload plan``, whose predictions the report shows beside what came of them.

    Raises:
        LoaderConfigError: ``timeline`` is no range, or ``stall_s`` not positive.
        PlanError: when a fit begins, ``plan`` is no file of a plan.

    Attributes:
        report: of the last fit.

    Example:
        >>> import pytorch_lightning as pl
        >>> trainer = pl.Trainer(callbacks=[PipelineMonitor(timeline=(8, 20))], logger=False, accelerator="cpu")
    """

    def __init__(
        self,
        figure: bool = True,
        trace: bool = True,
        timeline: tuple[int, int] | None = None,
        stall_s: float | None = 5.0,
        plan: str | Path | None = None,
    ) -> None:
        if timeline is not None and not 0 <= timeline[0] < timeline[1]:
            raise LoaderConfigError(
                f"timeline={timeline!r}: two numbers of mini-batches are needed, first < last, for example (8, 20)."
            )
        if stall_s is not None and not stall_s > 0:
            raise LoaderConfigError(f"stall_s={stall_s!r}: a positive number of seconds is needed, or None.")
        self.figure = figure
        self.trace = trace
        self.timeline = timeline
        self.stall_s = stall_s
        self.plan = plan
        self._planned: Plan | None = None
        self._folder = Path()
        self._begin(None)

    # One fit.

    def _begin(self, trainer: pl.Trainer | None) -> None:
        self.report: TimeReport | None = None
        self._sums = FitTotals.zero()
        self._logged = self._epoch = self._sums.copy()
        self._logged_step = -1
        self._resumed_s = self._paused_s = time.monotonic()
        self._num_steps = 0
        self._step = StepClock()
        self._last: Delivery | None = None
        self._settings = PipelineSettings()
        self._makers: set[tuple[int, str]] = set()
        self._window: TraceWindow | None = None
        self._watch: StallWatch | None = None
        self._shown: list[Span] = []
        self._written: list[Path] = []
        if trainer is None:
            return
        if self.figure or self.trace:
            self._window = TraceWindow(*(self.timeline or _early_steps(trainer.num_training_batches)))
        if self.stall_s is not None:
            self._watch = StallWatch(trainer.global_rank, trainer.world_size, self.stall_s)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Reads the plan, if there is one. Raises PlanError: the file is none, which is said before the run."""
        self._planned = read_plan(Path(self.plan)) if self.plan is not None and stage == "fit" else None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._begin(trainer)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._resumed_s = time.monotonic()
        self._epoch = self._sums.copy()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._step = StepClock(self._delivered(trainer))

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Any) -> None:
        self._step.begin_backward()

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._step.end_backward()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step, number = self._step, self._num_steps
        step.end()
        self._num_steps += 1
        self._sums.train_ms += step.train_ms
        self._tick(step.ended_s)
        if self._window is not None and self._window.wants(number):
            self._window.add(number, step.spans(rank=trainer.global_rank, number=number))
        if step.delivery is not None:
            self._sums.loader.add(step.delivery)
        self._log(trainer)
        if self._watch is not None and (times := step.times(number)) is not None and not self._settings.alternates:
            warning = self._watch.look(times, self._settings)
            if warning is not None:
                warn(warning)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            self._paused_s = time.monotonic()
            self._tick(self._paused_s)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._resumed_s = time.monotonic()
        if self._window is not None and self._window.first < self._num_steps < self._window.last:
            row = trainer.global_rank, threading.current_thread().name
            number = self._num_steps - 1
            self._window.add(number, [Span("validate", *row, self._paused_s, self._resumed_s, number)])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._tick(time.monotonic())
        share = (self._sums - self._epoch).wait_share
        for logger in trainer.loggers:
            logger.log_metrics({"loader/wait_share": share, "epoch": trainer.current_epoch}, step=trainer.global_step)
        if self._window is not None and self._num_steps >= self._window.last:
            self._write_timeline(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._write_timeline(trainer)
        self._folder = _folder(trainer)
        sums = self._sums
        self.report = TimeReport(
            sums.loader,
            sums.train_ms,
            sums.wall_ms,
            self._settings,
            sums.first_wait_ms,
            ranks=trainer.world_size // trainer.num_nodes,
            peak_private_bytes=resident_memory().peak_private,
        )

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Prints the report now that the progress bar is gone, and cannot write over it."""
        if stage == "fit" and self.report is not None and self.report.loader.num_batches:
            self._draw_timeline(trainer)
            self._publish(self.report)

    # What comes of it.

    def _delivered(self, trainer: pl.Trainer) -> Delivery | None:
        """What brought this step's mini-batch; None where a loader of another kind did."""
        loader: object = trainer.train_dataloader
        # The same delivery as before: samplers have trained this step, and no mini-batch came.
        if not isinstance(loader, EpochLoader) or loader.last is None or loader.last is self._last:
            return None
        self._last = delivery = loader.last
        if (delivery.made_by, delivery.thread) not in self._makers:
            if not self._makers:
                self._sums.first_wait_ms = delivery.wait_ms
            self._makers.add((delivery.made_by, delivery.thread))
            self._settings = PipelineSettings.of(trainer, loader, self._makers)
        return delivery

    def _tick(self, now_s: float) -> None:
        """Counts the time since the last count or resumption; validation is not counted."""
        self._sums.wall_ms += (now_s - self._resumed_s) * 1e3
        self._resumed_s = now_s

    def _log(self, trainer: pl.Trainer) -> None:
        if not trainer.loggers or not trainer.is_global_zero or not self._sums.loader.num_batches:
            return
        step = logging_step(trainer)
        if step is None or step == self._logged_step:  # accumulation: several mini-batches a step
            return
        metrics = {f"loader/{name}": value for name, value in (self._sums - self._logged).means().items()}
        queue = getattr(trainer.strategy, "queue", None)
        if (alive := getattr(queue, "alive", None)) is not None:
            metrics["loader/samplers_alive"] = len(alive)
        for extra in _EXTRAS:
            for name, value in _numbers(getattr(trainer.strategy, f"{extra}_stats", None)):
                metrics[f"loader/{extra}_{name}"] = value
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=step)
        self._logged, self._logged_step = self._sums.copy(), step

    def _write_timeline(self, trainer: pl.Trainer) -> None:
        """Writes this trainer's part of the trace, which the machine's first trainer joins. A collective."""
        window, self._window = self._window, None
        if window is None or self._num_steps <= window.first or not self._sums.loader.num_batches:
            return
        folder, num_local = _folder(trainer), trainer.world_size // trainer.num_nodes
        first_rank = trainer.node_rank * num_local
        write_part(window.spans, folder, trainer.global_rank)
        # All parts must be on disk before the first trainer joins them.
        trainer.strategy.barrier("gnnload_trace")
        if trainer.global_rank != first_rank:
            return
        self._shown = join_parts(folder, range(first_rank, first_rank + num_local))
        if self.trace:
            self._written.append(folder / f"trace{_machine(trainer)}.json")
            self._written[-1].write_text(json.dumps(to_chrome(self._shown, trainer.world_size)))

    def _draw_timeline(self, trainer: pl.Trainer) -> None:
        """Draws the timeline after the fit; in the fit, the other trainers would wait."""
        if self.figure and self._shown:
            self._written.append(self._folder / f"timeline{_machine(trainer)}.png")
            draw_timeline(self._shown, trainer.world_size, self._written[-1])

    @pl.utilities.rank_zero.rank_zero_only
    def _publish(self, report: TimeReport) -> None:
        Console().print(as_table(report))
        if (tiers := tier_table(report.loader.reads, report.loader.num_batches)) is not None:
            Console().print(tiers)
        Console().print(recommended := advice(report), markup=False, highlight=False)
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{REPORT_NAME}.json"
        written = {**asdict(report), "wait_share": report.wait_share, "advice": recommended}
        if self._planned is not None:
            self._compare(self._planned, written)
        file.write_text(json.dumps(written, indent=1) + "\n")
        self._written.append(file)
        if self.figure:
            self._written.append(file.with_suffix(".png"))
            draw_report(report, self._written[-1])
        print("Written:", *self._written, sep="\n  ")

    def _compare(self, plan: Plan, written: dict[str, Any]) -> None:
        """Prints what was planned beside what came of it, and adds it to the report."""
        forecast, figures = plan.beside(written)
        Console().print(
            f"Planned for {forecast.layout}: {'; '.join(map(str, figures))}.", markup=False, highlight=False
        )
        written["planned"] = {figure.name: figure._asdict() for figure in figures}


class LoaderMonitor(PipelineMonitor):
    """The former name of :class:`PipelineMonitor`.

    Example:
        >>> isinstance(LoaderMonitor(), PipelineMonitor)
        True
    """


def _early_steps(steps_an_epoch: float) -> tuple[int, int]:
    """Chooses steps of the first epoch: after the warm-up, or in a short one's later part."""
    steps = int(min(steps_an_epoch, 3 * _WARM_UP))  # which may be infinity
    first = min(_WARM_UP, steps // 3)
    return first, max(min(first + _SHOWN, steps), first + 1)


def _numbers(stats: Any) -> list[tuple[str, float]]:
    """The numbers of a dataclass, without tensors: reading one may wait for a device."""
    if not is_dataclass(stats):
        return []
    values = [(field.name, getattr(stats, field.name)) for field in fields(stats)]
    return [(name, value) for name, value in values if isinstance(value, int | float)]


def _folder(trainer: pl.Trainer) -> Path:
    """The folder that the logger writes to; a collective of all ranks."""
    return Path(trainer.log_dir or trainer.default_root_dir)


def _machine(trainer: pl.Trainer) -> str:
    """A machine's suffix in file names: machines may share a folder, but no two have the same clock."""
    return f"-{trainer.node_rank}" if trainer.node_rank else ""
