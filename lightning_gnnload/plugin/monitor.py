"""LoaderMonitor: where the time of a training went, as a table, a figure and a file."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lightning_gnnload.pipeline.loader import EpochLoader
from lightning_gnnload.pipeline.stats import LoaderStats
from lightning_gnnload.plugin.compat import pl

REPORT_NAME = "where_the_time_went"


@dataclass(frozen=True)
class TimeReport:
    """Where the time of the training epochs went, of trainer 0.

    Attributes:
        loader: sums over its mini-batches.
        train_ms: in training steps: forward, backward, optimizer.
        wall_ms: from the first training batch's request to the end, validation left out.
    """

    loader: LoaderStats
    train_ms: float
    wall_ms: float

    @property
    def other_ms(self) -> float:
        """Neither waiting nor training: logging, checkpoints, progress bars, moving batches."""
        return max(self.wall_ms - self.loader.wait_ms - self.train_ms, 0.0)

    @property
    def rows(self) -> list[tuple[str, str, float]]:
        """(stage, who spends it, milliseconds). The loader's stages run beside the trainer's."""
        return [
            ("sample", "loader", self.loader.sample_ms),
            ("gather", "loader", self.loader.gather_ms),
            ("convert", "loader", self.loader.convert_ms),
            ("wait", "trainer", self.loader.wait_ms),
            ("train", "trainer", self.train_ms),
            ("other", "trainer", self.other_ms),
        ]


class LoaderMonitor(pl.Callback):
    """Measures sampling, gathering, waiting and training; reports them when training ends.

    Logs ``loader/wait_share`` each epoch: the share of the time that the trainer waited. At the end it prints a
    table and writes ``where_the_time_went.json`` and ``.png`` next to the logger's files.

    Args:
        figure: whether to draw.
    """

    def __init__(self, figure: bool = True) -> None:
        self.figure = figure
        self.report: TimeReport | None = None
        self._folder = Path()
        self._train_ms = 0.0
        self._wall_ms = 0.0
        self._resumed_at = 0.0
        self._step_began = 0.0
        self._epoch_began = (0.0, 0.0)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._resumed_at = time.perf_counter()
        self._epoch_began = (self._loader_stats(trainer).wait_ms, self._wall_ms)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._step_began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._train_ms += (time.perf_counter() - self._step_began) * 1e3

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._pause(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._resumed_at = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._pause(trainer)
        self._resumed_at = time.perf_counter()
        wait_before, wall_before = self._epoch_began
        waited = self._loader_stats(trainer).wait_ms - wait_before
        share = waited / max(self._wall_ms - wall_before, 1e-9)
        for logger in trainer.loggers:
            logger.log_metrics({"loader/wait_share": share, "epoch": trainer.current_epoch}, step=trainer.global_step)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.report = TimeReport(self._loader_stats(trainer), self._train_ms, self._wall_ms)
        self._folder = Path(trainer.log_dir or trainer.default_root_dir)  # asked of every rank: it is a collective

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """The progress bar is gone by now, and cannot write over the table."""
        if stage == "fit" and self.report is not None and self.report.loader.num_batches:
            self._publish(self._folder)

    def _pause(self, trainer: pl.Trainer) -> None:
        """Counts the time since the last resumption; validation is not counted."""
        if not trainer.sanity_checking:
            self._wall_ms += (time.perf_counter() - self._resumed_at) * 1e3

    def _loader_stats(self, trainer: pl.Trainer) -> LoaderStats:
        loader = trainer.train_dataloader
        return replace(loader.stats) if isinstance(loader, EpochLoader) else LoaderStats()

    @pl.utilities.rank_zero.rank_zero_only
    def _publish(self, folder: Path) -> None:
        assert self.report is not None
        folder.mkdir(parents=True, exist_ok=True)
        Console().print(as_table(self.report))
        file = folder / f"{REPORT_NAME}.json"
        file.write_text(json.dumps(asdict(self.report), indent=1) + "\n")
        if self.figure:
            draw(self.report, file.with_suffix(".png"))
            print(f"figure: {file.with_suffix('.png')}")


def as_table(report: TimeReport) -> Table:
    """The report as a table for people."""
    batches = max(report.loader.num_batches, 1)
    table = Table(title=f"Where the time went: {batches} mini-batches in {report.wall_ms / 1e3:.1f} s of training")
    for heading, justify in (
        ("stage", "left"),
        ("by", "left"),
        ("total s", "right"),
        ("ms a batch", "right"),
        ("share of the time", "right"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for stage, who, milliseconds in report.rows:
        share = milliseconds / max(report.wall_ms, 1e-9)
        table.add_row(stage, who, f"{milliseconds / 1e3:.2f}", f"{milliseconds / batches:.2f}", f"{share:.0%}")
    return table


def draw(report: TimeReport, file: Path) -> None:
    """The report as two bars, one above the other: what loaded the data and what trained, on one time axis."""
    # Drawn on a canvas of its own, so that a user's pyplot state and backend stay as they are.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    colors = {
        "sample": "#4477aa",
        "gather": "#66ccee",
        "convert": "#228833",
        "wait": "#ee6677",
        "train": "#ccbb44",
        "other": "#bbbbbb",
    }
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    ends = {"loader": 0.0, "trainer": 0.0}
    for stage, who, milliseconds in report.rows:
        seconds = milliseconds / 1e3
        axes.barh(who, seconds, left=ends[who], color=colors[stage], label=f"{stage}  {seconds:.1f} s")
        ends[who] += seconds
    axes.invert_yaxis()
    axes.set_xlabel("seconds (the loader's threads or ranks, summed, work beside the trainer)")
    axes.set_title(
        f"Where the time went: {report.loader.num_batches} mini-batches in {report.wall_ms / 1e3:.1f} s of training"
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False)
    figure.savefig(file, dpi=130)
