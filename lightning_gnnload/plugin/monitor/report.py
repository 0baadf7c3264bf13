"""TimeReport: where the time of a training went, as a table, a figure and a recommendation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from lightning_gnnload.pipeline.stats import LoaderStats
from lightning_gnnload.plugin.monitor.levers import Levers
from lightning_gnnload.plugin.monitor.tiers import faster_gathering
from lightning_gnnload.plugin.monitor.timeline import COLORS

LITTLE = 0.05
"""A share of waiting that is not worth a change."""
_BUSY = 0.8


@dataclass(frozen=True)
class TimeReport:
    """Where the time of the training epochs went, of trainer 0.

    Attributes:
        loader: sums over its mini-batches.
        train_ms: in training steps: forward, backward, optimizer.
        wall_ms: from the first training batch's request to the end, validation left out.
        levers: how the mini-batches were made.
        first_wait_ms: of the waiting, what the first mini-batch took, while samplers read the graph; no setting
            changes that.
    """

    loader: LoaderStats
    train_ms: float
    wall_ms: float
    levers: Levers = field(default_factory=Levers)
    first_wait_ms: float = 0.0

    @property
    def other_ms(self) -> float:
        """Neither waiting nor training: logging, checkpoints, progress bars, moving batches."""
        return max(self.wall_ms - self.loader.wait_ms - self.train_ms, 0.0)

    @property
    def wait_share(self) -> float:
        """Of the time since the first mini-batch came, what the trainer waited for others."""
        return (self.loader.wait_ms - self.first_wait_ms) / max(self.wall_ms - self.first_wait_ms, 1e-9)

    @property
    def busy_share(self) -> float:
        """Of that time, what the threads that make mini-batches were making some."""
        loader = self.loader
        made_ms = loader.sample_ms + loader.gather_ms + (0.0 if self.levers.samplers else loader.convert_ms)
        return made_ms * self.levers.trainers / max((self.wall_ms - self.first_wait_ms) * self.levers.workers, 1e-9)

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


def advice(report: TimeReport) -> str:
    """Who was the bottleneck, and what to change."""
    text = _bottleneck(report)
    if report.first_wait_ms > LITTLE * report.wall_ms:
        text += f" (The first mini-batch came after {report.first_wait_ms / 1e3:.1f} s, which is left out of this.)"
    return text


def _bottleneck(report: TimeReport) -> str:
    loader, levers = report.loader, report.levers
    waited, busy = f"{report.wait_share:.0%}", f"{min(report.busy_share, 1):.0%}"
    makers = "the samplers" if levers.samplers else "the sampling threads"
    if report.wait_share < LITTLE:
        text = (
            f"The trainer is the bottleneck: it waited for {waited} of the time, and faster loading would gain no more."
        )
        if levers.samplers > 1 and report.busy_share < (levers.samplers - 1) / levers.samplers * _BUSY:
            text += f" The samplers were busy for {busy} of it: fewer of them would do."
        return text
    if levers.alternates:
        return (
            f"Sampling had its turns for {waited} of the time. FactoredStrategy(switching=False) lets it run beside "
            f"training instead, which gains where cores are free."
        )
    if levers.threads == 0:
        return (
            f"The trainer samples itself, for {waited} of the time. "
            f"Give GraphDataModule(num_threads=1) or more, and sampling runs beside training."
        )
    if report.busy_share < _BUSY:
        return (
            f"The trainer waited for {waited} of the time, although {makers} were busy for {busy} of it: "
            f"mini-batches come unevenly, or too few are made ahead. Raise {levers.deeper_queue}."
        )
    stages = {"sampling": loader.sample_ms, "gathering": loader.gather_ms}
    if not levers.samplers:
        stages["conversion"] = loader.convert_ms
    slowest = max(stages, key=lambda stage: stages[stage])
    text = (
        f"Loading is the bottleneck, {slowest} most of all: the trainer waited for {waited} of the time, and {makers} "
        f"were busy for {busy} of it. Where cores are free, raise {levers.more_workers}"
    )
    less = {
        "sampling": "draw fewer neighbours",
        "gathering": faster_gathering(loader.reads),
        "conversion": 'take batch_format="blocks", which needs none',
    }
    return f"{text}; where none are, {less[slowest]}."


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

    figure = Figure(figsize=(9, 2.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    ends = {"loader": 0.0, "trainer": 0.0}
    for stage, who, milliseconds in report.rows:
        seconds = milliseconds / 1e3
        axes.barh(who, seconds, left=ends[who], color=COLORS[stage], label=f"{stage}  {seconds:.1f} s")
        ends[who] += seconds
    axes.invert_yaxis()
    axes.set_xlabel("seconds (the loader's threads or ranks, summed, work beside the trainer)")
    axes.set_title(
        f"Where the time went: {report.loader.num_batches} mini-batches in {report.wall_ms / 1e3:.1f} s of training"
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False)
    figure.savefig(file, dpi=130)
