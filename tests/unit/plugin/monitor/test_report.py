"""The report of where the time went: its sums, its figure, its advice, and what that says may be changed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pytorch_lightning import LightningModule, Trainer
from torch import nn

from lightning_gnnload import Dropout
from lightning_gnnload.data.features import Reads, TierReads
from lightning_gnnload.pipeline.loader import EpochLoader
from lightning_gnnload.pipeline.stats import LoaderStats
from lightning_gnnload.plugin.job import RolePlan
from lightning_gnnload.plugin.monitor.monitor import FitTotals
from lightning_gnnload.plugin.monitor.report import (
    PipelineSettings,
    TimeReport,
    advice,
    as_table,
    draw_report,
    tier_table,
)

FACTORED = PipelineSettings(samplers=2, threads=2, trainers=2, queue_depth=4)


def test_the_shares_of_the_trainer_add_up() -> None:
    loader = LoaderStats(num_batches=2, sample_ms=5, gather_ms=7, wait_ms=20)
    report = TimeReport(loader, train_ms=70, wall_ms=100, first_wait_ms=15)
    trainer = {stage: milliseconds for stage, who, milliseconds in report.rows if who == "trainer"}
    assert trainer == {"start": 15, "wait": 5, "train": 70, "other": 10}


def test_the_table_the_advice_and_the_logger_give_one_share_of_waiting() -> None:
    loader = LoaderStats(num_batches=50, sample_ms=500, wait_ms=70)  # 7 % of all the time, 4 % after the start
    report = TimeReport(loader, train_ms=900, wall_ms=1000, settings=FACTORED, first_wait_ms=31)
    columns = {str(column.header): [*column.cells] for column in as_table(report).columns}
    shares = dict(zip(columns["stage"], columns["share of the time"], strict=True))
    assert (shares["start"], shares["wait"]) == ("", "4%")
    assert "it waited for 4% of the time" in advice(report)
    before = FitTotals(LoaderStats(), wall_ms=5)  # of a fit whose first epoch is asked about
    epoch = FitTotals(loader, train_ms=900, wall_ms=1005, first_wait_ms=31) - before
    assert epoch.wait_share == report.wait_share == pytest.approx(39 / 969)


def test_drawing_leaves_pyplot_alone(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    open_figures = plt.get_fignums()
    draw_report(TimeReport(LoaderStats(num_batches=1, sample_ms=5), train_ms=70, wall_ms=100), tmp_path / "figure.png")
    assert plt.get_fignums() == open_figures


@pytest.mark.parametrize(
    ("sample", "gather", "convert", "wait", "settings", "says"),
    [
        (100, 100, 0, 20, PipelineSettings(threads=2), "The trainer is the bottleneck: it waited for 2%"),
        (100, 100, 0, 20, FACTORED, "busy for 10% of it: fewer"),
        (100, 100, 0, 20, PipelineSettings(torch_dropouts=2), r"dropout, 2 here, takes.*callbacks=\[Accelerate\(\)\]"),
        (1500, 200, 0, 20, FACTORED, "faster loading would gain no more.$"),
        (
            1700,
            200,
            0,
            500,
            PipelineSettings(threads=2),
            "sampling most of all: .* 50% .* busy for 95%.*num_threads.*neighbours",
        ),
        (200, 1700, 0, 500, PipelineSettings(threads=2), "gathering most of all.*num_threads.*in memory"),
        (200, 200, 1500, 500, PipelineSettings(threads=2), "conversion most of all.*num_threads.*batch_format"),
        (1500, 300, 0, 500, FACTORED, "sampling most of all.*samplers=..., now 2, or sampler_threads=..., now 2"),
        (300, 200, 0, 500, PipelineSettings(threads=2), r"unevenly.*num_threads=\.\.\.\), now 2"),
        (300, 200, 0, 500, FACTORED, "busy for 25%.*unevenly.*queue_depth"),
        (300, 200, 0, 500, PipelineSettings(alternates=True), "had its turns for 50%.*switching=False"),
        (300, 200, 0, 500, PipelineSettings(threads=0), "samples itself, for 50%.*num_threads=1"),
    ],
)
def test_the_advice_follows_from_the_figures(
    sample: float, gather: float, convert: float, wait: float, settings: PipelineSettings, says: str
) -> None:
    loader = LoaderStats(num_batches=10, sample_ms=sample, gather_ms=gather, convert_ms=convert, wait_ms=wait)
    assert re.search(says, advice(TimeReport(loader, train_ms=400, wall_ms=1000, settings=settings)))


@pytest.mark.parametrize(
    ("reads", "says"),
    [
        ((TierReads("disk", 10, 5120),), r'in memory.*cache="auto"'),
        ((TierReads("cache", 3, 12), TierReads("disk", 7, 3584)), r"which has 30% of the rows.*ratio=.*policy"),
        ((TierReads("cache", 0, 0), TierReads("disk", 7, 3584)), r"which has 0% of the rows"),
        ((TierReads("cache", 6, 24), TierReads("cache 2", 3, 12), TierReads("disk", 1, 512)), "dtype.*has 90%"),
    ],
)
def test_where_gathering_is_slow_the_advice_is_about_the_cache(reads: Reads, says: str) -> None:
    loader = LoaderStats(num_batches=10, sample_ms=200, gather_ms=1700, wait_ms=500, reads=reads)
    report = TimeReport(loader, train_ms=400, wall_ms=1000, settings=PipelineSettings(threads=2))
    assert re.search(f"gathering most of all.*{says}", advice(report))


def test_the_table_of_tiers_says_shares_and_rates() -> None:
    assert tier_table((), 0) is None
    table = tier_table((TierReads("cache", 30, 3_000_000), TierReads("disk", 10, 9_000_000)), 10)
    assert table is not None
    assert [list(column.cells) for column in table.columns] == [
        ["cache", "disk"],
        ["3", "1"],
        ["75.0%", "25.0%"],
        ["0.30", "0.90"],
    ]


def test_reads_are_summed_by_tier_and_differ_by_it() -> None:
    sums = LoaderStats(reads=(TierReads("cache", 3, 30), TierReads("disk", 1, 512)))
    more = LoaderStats(reads=(TierReads("cache", 5, 50), TierReads("disk", 1, 512)))
    assert (more - sums).reads == (TierReads("cache", 2, 20), TierReads("disk", 0, 0))
    means = FitTotals(
        LoaderStats(num_batches=2, reads=(TierReads("cache 2", 3, 30), TierReads("disk", 1, 512)))
    ).means()
    assert (means["hit_rate"], means["bytes_cache_2"], means["bytes_disk"]) == (0.75, 15, 256)
    loader = LoaderStats(
        4, num_nodes=80, num_edges=400, num_seeds=40, sample_ms=20, gather_ms=12, convert_ms=8, wait_ms=6
    )
    assert FitTotals(replace(loader, num_ready=10, wait_ms=6), train_ms=100, wall_ms=200).means() == {
        "queue_depth": 2.5,
        "wait_ms": 1.5,
        "sample_ms": 5,
        "gather_ms": 3,
        "convert_ms": 2,
        "train_ms": 25,
        "input_nodes": 20,
        "edges": 100,
        "seeds_per_s": 200,
        "batches_per_s": 20,
    }
    assert "hit_rate" not in FitTotals(LoaderStats(reads=(TierReads("disk", 1, 512),))).means()


def test_the_first_mini_batch_is_not_held_against_the_loader() -> None:
    loader = LoaderStats(num_batches=10, sample_ms=100, wait_ms=2010)
    slow_start = TimeReport(loader, train_ms=900, wall_ms=3000, settings=FACTORED, first_wait_ms=2000)
    assert advice(slow_start).startswith("The trainer is the bottleneck: it waited for 1% of the time")
    assert "first mini-batch came after 2.0 s" in advice(slow_start)


def test_threads_that_have_made_mini_batches_count() -> None:
    class Strategy:
        roles = RolePlan(num_devices=3, num_samplers=2)
        num_sampler_threads = 1
        sampler_threads: int | None = None
        queue_depth, staleness = 4, 0

    trainer = type("Trainer", (), {"strategy": Strategy(), "lightning_module": None})()
    makers = {(1, "a"), (1, "b"), (1, "c"), (2, "a")}
    assert PipelineSettings.of(trainer, EpochLoader(None, 1, 0), makers).threads == 3
    Strategy.sampler_threads = 4
    settings = PipelineSettings.of(trainer, EpochLoader(None, 1, 0), makers)
    assert (settings.samplers, settings.threads, settings.trainers, settings.workers) == (2, 4, 1, 8)


@pytest.mark.parametrize(("layers", "count"), [([nn.Dropout(), nn.Dropout(), nn.Dropout(0)], 2), ([Dropout()], 0)])
def test_torchs_dropout_is_counted_in_the_model(layers: list[nn.Module], count: int) -> None:
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy._lightning_module = model = LightningModule()
    model.layers = nn.Sequential(*layers)
    assert PipelineSettings.of(trainer, EpochLoader(None, 1, 0)).torch_dropouts == count
