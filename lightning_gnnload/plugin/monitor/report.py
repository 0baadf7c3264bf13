"""TimeReport: where the time of a training went, as a table, a figure and a recommendation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table
from torch import nn

from lightning_gnnload.cache.metrics import has_cache, hit_rate, rows_read
from lightning_gnnload.data.features import Reads
from lightning_gnnload.drawing import SMALL, new_figure, save_figure, tidy
from lightning_gnnload.pipeline.alternate import AlternatingLoader
from lightning_gnnload.pipeline.loader import EpochLoader, SampledLoader
from lightning_gnnload.pipeline.stats import LoaderStats
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.monitor.trace import COLORS


@dataclass(frozen=True)
class PipelineSettings:
    """The settings by which a job's mini-batches are made, as the report recommends them; counts are of this
    machine."""

    samplers: int = 0  # 0: each trainer samples for itself
    threads: int = 1  # sampling threads, of each sampler or of this trainer
    trainers: int = 1  # that share the samplers
    queue_depth: int = 0
    staleness: int = 0
    alternates: bool = False  # sampling and training take turns, on a lone device
    torch_dropouts: int = 0  # layers of torch's dropout that a CPU trains
    switching: bool = False  # idle samplers train

    @classmethod
    def of(cls, trainer: pl.Trainer, loader: EpochLoader, makers: Collection[tuple[int, str]] = ()) -> PipelineSettings:
        """The settings of a Trainer that reads ``loader``; ``makers`` are rank and name of threads that have made
        mini-batches."""
        dropouts = _num_torch_dropouts(trainer)
        if isinstance(loader, SampledLoader):
            alternates = isinstance(loader, AlternatingLoader)
            return cls(threads=loader.num_threads, alternates=alternates, torch_dropouts=dropouts)
        # A FactoredStrategy, asked by name: it imports much that a callback does without.
        strategy: object = trainer.strategy
        roles = getattr(strategy, "roles", None)
        setting = getattr(strategy, "num_sampler_threads", None)
        observed = max(Counter(rank for rank, _ in makers).values(), default=1)
        return cls(
            samplers=getattr(roles, "num_samplers", 1),
            threads=getattr(strategy, "sampler_threads", None) or max(setting or 0, observed),
            trainers=getattr(roles, "num_trainers", 1),
            queue_depth=getattr(strategy, "queue_depth", 0),
            staleness=getattr(strategy, "staleness", 0),
            torch_dropouts=dropouts,
            switching=bool(getattr(strategy, "switching", False)),
        )

    @property
    def workers(self) -> int:
        """Threads that make the mini-batches of this machine's trainers."""
        return max(self.threads, 1) * max(self.samplers, 1)

    @property
    def more_workers(self) -> str:
        if self.samplers:
            return f"FactoredStrategy(samplers=..., now {self.samplers}, or sampler_threads=..., now {self.threads})"
        return f"GraphDataModule(num_threads=...), now {self.threads}"

    @property
    def deeper_queue(self) -> str:
        if self.samplers:
            return f"FactoredStrategy(queue_depth=...), now {self.queue_depth}"
        return f"GraphDataModule(num_threads=...), now {self.threads}: as many mini-batches and one more are made ahead"

    @property
    def later_gradients(self) -> str:
        if self.samplers:
            return f"FactoredStrategy(staleness=...), now {self.staleness}"
        return "FactoredStrategy(staleness=...), which plain DDP has not"


def _num_torch_dropouts(trainer: pl.Trainer) -> int:
    if trainer.lightning_module is None or trainer.strategy.root_device.type != "cpu":
        return 0
    return sum(type(module) is nn.Dropout and module.p > 0 for module in trainer.lightning_module.modules())


LITTLE = 0.05
"""A smaller share of waiting is not worth a change."""
_BUSY = 0.8  # from this share of the time on, threads count as busy throughout


@dataclass(frozen=True)
class TimeReport:
    """A report of where trainer 0 spent the time of the training epochs."""

    loader: LoaderStats  # sums over its mini-batches
    train_ms: float  # in training steps: forward, backward, optimizer
    wall_ms: float  # from the first training batch's request to the end, validation left out
    settings: PipelineSettings = field(default_factory=PipelineSettings)
    # The wait for the first mini-batch, while samplers read the graph. No setting changes it: shares are of the time
    # that remains.
    first_wait_ms: float = 0.0
    ranks: int = 1  # of this machine, that train
    peak_private_bytes: int = 0  # the most memory that this trainer's process had for itself

    @property
    def other_ms(self) -> float:
        """The time of neither waiting nor training: logging, checkpoints, progress bars, moving batches."""
        return max(self.wall_ms - self.loader.wait_ms - self.train_ms, 0.0)

    @property
    def wait_share(self) -> float:
        """The share of the time since the first mini-batch came that the trainer waited for others."""
        return share_of_waiting(self.loader.wait_ms, self.wall_ms, self.first_wait_ms)

    @property
    def busy_share(self) -> float:
        """The share of that time in which the threads that make mini-batches were busy."""
        loader = self.loader
        # Of sampler ranks, no conversion: it runs in the trainers.
        made_ms = loader.sample_ms + loader.gather_ms + (0.0 if self.settings.samplers else loader.convert_ms)
        return made_ms * self.settings.trainers / max((self.wall_ms - self.first_wait_ms) * self.settings.workers, 1e-9)

    @property
    def rows(self) -> list[tuple[str, str, float]]:
        """(stage, who spends it, milliseconds). The loader's stages run beside the trainer's."""
        return [
            ("sample", "loader", self.loader.sample_ms),
            ("gather", "loader", self.loader.gather_ms),
            ("convert", "loader", self.loader.convert_ms),
            ("start", "trainer", self.first_wait_ms),
            ("wait", "trainer", self.loader.wait_ms - self.first_wait_ms),
            ("train", "trainer", self.train_ms),
            ("other", "trainer", self.other_ms),
        ]


def share_of_waiting(wait_ms: float, wall_ms: float, first_wait_ms: float) -> float:
    """The share of waiting in a time of training, both without the wait for the fit's first mini-batch."""
    return (wait_ms - first_wait_ms) / max(wall_ms - first_wait_ms, 1e-9)


def advice(report: TimeReport) -> str:
    """Says what the bottleneck was, and what to change."""
    text = _bottleneck(report)
    if report.first_wait_ms > LITTLE * report.wall_ms:
        text += f" (The first mini-batch came after {report.first_wait_ms / 1e3:.1f} s, which is left out of this.)"
    return text


def _bottleneck(report: TimeReport) -> str:
    loader, settings = report.loader, report.settings
    waited, busy = f"{report.wait_share:.0%}", f"{min(report.busy_share, 1):.0%}"
    makers = "the samplers" if settings.samplers else "the sampling threads"
    if report.wait_share < LITTLE:
        text = (
            f"The trainer is the bottleneck: it waited for {waited} of the time, and faster loading would gain no more."
        )
        # With one fewer, the others would still be busy for less than ``_BUSY`` of the time.
        if settings.samplers > 1 and report.busy_share < (settings.samplers - 1) / settings.samplers * _BUSY:
            text += f" The samplers were busy for {busy} of it: fewer of them would do."
        if settings.torch_dropouts:
            text += (
                f" Torch's dropout, {settings.torch_dropouts} here, takes a third of many a step on a CPU: "
                f"Trainer(callbacks=[Accelerate()]), or gnnload fit --accelerate true, swaps it for a faster one."
            )
        return text
    if settings.alternates:
        return (
            f"Sampling had its turns for {waited} of the time. FactoredStrategy(switching=False) lets it run beside "
            f"training instead, which gains where cores are free."
        )
    if settings.threads == 0:
        return (
            f"The trainer samples itself, for {waited} of the time. "
            f"Give GraphDataModule(num_threads=1) or more, and sampling runs beside training."
        )
    if report.busy_share < _BUSY:
        return (
            f"The trainer waited for {waited} of the time, although {makers} were busy for {busy} of it: "
            f"mini-batches come unevenly, or too few are made ahead. Raise {settings.deeper_queue}."
        )
    stages = {"sampling": loader.sample_ms, "gathering": loader.gather_ms}
    if not settings.samplers:
        stages["conversion"] = loader.convert_ms
    slowest = max(stages, key=lambda stage: stages[stage])
    text = (
        f"Loading is the bottleneck, {slowest} most of all: the trainer waited for {waited} of the time, and {makers} "
        f"were busy for {busy} of it. Where cores are free, raise {settings.more_workers}"
    )
    less = {
        "sampling": "draw fewer neighbours",
        "gathering": faster_gathering(loader.reads),
        "conversion": 'take batch_format="blocks", which needs none',
    }
    return f"{text}; where none are, {less[slowest]}."


def as_table(report: TimeReport) -> Table:
    """Returns the report as a table for a terminal."""
    batches = max(report.loader.num_batches, 1)
    since_ms = report.wall_ms - report.first_wait_ms
    table = Table(
        title=f"Where the time went: {batches} mini-batches in {since_ms / 1e3:.1f} s of training, "
        f"after {report.first_wait_ms / 1e3:.1f} s until the first one came (start)"
    )
    for heading, justify in (
        ("stage", "left"),
        ("by", "left"),
        ("total s", "right"),
        ("ms a batch", "right"),
        ("share of the time", "right"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for stage, who, milliseconds in report.rows:
        share = f"{milliseconds / max(since_ms, 1e-9):.0%}" if stage != "start" else ""
        table.add_row(stage, who, f"{milliseconds / 1e3:.2f}", f"{milliseconds / batches:.2f}", share)
    return table


def draw_report(report: TimeReport, file: Path) -> None:
    """Draws the report as two bars on one time axis: what loaded the data and what trained."""
    seconds = (report.wall_ms - report.first_wait_ms) / 1e3
    waited = (report.loader.wait_ms - report.first_wait_ms) / 1e3
    title = f"Of {seconds:.1f} s after the first mini-batch came, the trainer waited {waited:.1f} s for others"
    note = (
        f"{report.loader.num_batches:,} mini-batches. The loader's bar is the work of its threads or ranks, summed: "
        "they work beside the trainer, and each other."
    )
    figure = new_figure(title, 3.2, note)
    axes = figure.subplots()
    bar_end = {"loader": 0.0, "trainer": 0.0}
    for stage, who, milliseconds in report.rows:
        if stage == "start":  # before the time that is drawn
            continue
        seconds = milliseconds / 1e3
        axes.barh(who, seconds, 0.6, left=bar_end[who], color=COLORS[stage], label=f"{stage} {seconds:.1f} s")
        bar_end[who] += seconds
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    tidy(axes, grid="x")
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=6, fontsize=SMALL, columnspacing=1, handlelength=1, frameon=False
    )
    save_figure(figure, file)


_LOW = 0.5
"""A hit rate under which a cache leaves most of the reading to what lies behind it."""


def tier_table(reads: Reads, num_batches: int) -> Table | None:
    """A table of rows and bytes by tier, nearest first, of all tables that are read; None where nothing was counted."""
    rows = rows_read(reads)
    if not rows:
        return None
    table = Table(title="Where the rows came from, of features and all other tables")
    table.add_column("tier")
    for heading in ("rows a batch", "share of the rows", "MB a batch"):
        table.add_column(heading, justify="right")
    for read in reads:
        megabytes = read.num_bytes / num_batches / 1e6
        table.add_row(read.tier, f"{read.rows / num_batches:,.0f}", f"{read.rows / rows:.1%}", f"{megabytes:.2f}")
    return table


def faster_gathering(reads: Reads) -> str:
    """Says what to change where gathering features takes the time."""
    if not has_cache(reads):
        return 'keep the features in memory, or in a smaller dtype, or give GraphDataModule(cache="auto")'
    rate = hit_rate(reads)
    if rate < _LOW:
        return (
            f"give the cache, which has {rate:.0%} of the rows that are read, more memory "
            f"(FeatureCache(ratio=...) or capacity_bytes=...), or another policy"
        )
    return f"keep the features in a smaller dtype, as the cache has {rate:.0%} of the rows that are read already"
