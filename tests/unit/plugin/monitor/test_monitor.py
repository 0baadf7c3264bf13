"""PipelineMonitor in one process: what it logs, writes, prints and warns of, and that it changes nothing."""

from __future__ import annotations

import csv
import json
import re
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger

from lightning_gnnload import FactoredStrategy, GraphDataModule, LoaderMonitor, NeighborSampler, PipelineMonitor
from lightning_gnnload.data.features import TierReads
from lightning_gnnload.errors import LoaderConfigError, PlanError
from lightning_gnnload.pipeline.forecast.recorded import read_trace
from lightning_gnnload.pipeline.stats import LoaderStats
from lightning_gnnload.plugin.monitor.monitor import REPORT_NAME, FitTotals
from tests.integration.learnable import NUM_CLASSES, NUM_FEATURES, learnable_graph, quiet_trainer
from tests.unit.plugin.monitor.test_trace import check_chrome


def test_names_are_what_every_logger_takes() -> None:
    # MLflow ends a run for a name with other characters; TensorBoard and W&B group by what stands before the slash.
    reads = tuple(TierReads(tier, 1, 4) for tier in ("cache", "other device", "memory", "disk"))
    names = [f"loader/{name}" for name in FitTotals(LoaderStats(num_batches=1, reads=reads)).means()]
    assert len(names) > 12
    assert [name for name in names if not re.fullmatch(r"loader/[\w.-]+", name)] == []


class SeedClassifier(pl.LightningModule):
    """Sees the seeds' own features; sleeps nowhere, logs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(NUM_FEATURES, NUM_CLASSES)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.layer(batch.x[: batch.num_seeds]), batch.y)

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data_module(batch_size: int = 32, **settings: Any) -> GraphDataModule:
    from lightning_gnnload import Graph, GraphData

    made = learnable_graph()
    ids = [mask.nonzero().view(-1) for mask in (made.train_mask, made.val_mask, made.test_mask)]
    data = GraphData(Graph.from_coo(made.src, made.dst, len(made.y)), made.x, made.y, *ids)
    return GraphDataModule(data, NeighborSampler([4, 4]), batch_size=batch_size, **settings)


def test_a_fit_leaves_a_table_a_figure_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor, module = PipelineMonitor(), data_module()
    quiet_trainer(max_epochs=3, callbacks=[monitor], default_root_dir=tmp_path).fit(SeedClassifier(), module)

    report = monitor.report
    assert report is not None
    module.trainer = None
    # Counted over all epochs: a report of the last one alone would say a third of it.
    assert report.loader.num_batches == 3 * len(module.train_dataloader())
    # The trainer's stages are parts of one wall clock: what is counted twice would exceed it.
    assert 0 < report.loader.wait_ms + report.train_ms <= report.wall_ms
    written = json.loads((tmp_path / f"{REPORT_NAME}.json").read_text())
    assert written["loader"]["num_batches"] == report.loader.num_batches
    assert (tmp_path / f"{REPORT_NAME}.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert all(stage in printed for stage in ("sample", "gather", "wait", "train"))
    assert written["advice"] in " ".join(printed.split())  # in lines of the terminal's width


def test_validation_is_not_counted(tmp_path: Path) -> None:
    class SlowValidation(SeedClassifier):
        def validation_step(self, batch, batch_idx):
            time.sleep(0.2)

    monitor = PipelineMonitor(figure=False)
    trainer = quiet_trainer(max_epochs=1, callbacks=[monitor], default_root_dir=tmp_path)
    began = time.perf_counter()
    trainer.fit(SlowValidation(), data_module())
    elapsed_ms = (time.perf_counter() - began) * 1e3
    slept_ms = 200 * (sum(trainer.num_val_batches) + sum(trainer.num_sanity_val_batches))
    assert monitor.report is not None
    assert monitor.report.wall_ms < elapsed_ms - slept_ms


def test_a_foreign_loader_makes_no_report(tmp_path: Path) -> None:
    made = learnable_graph()
    dataset = torch.utils.data.TensorDataset(made.x, made.y)

    class Rows(SeedClassifier):
        def training_step(self, batch, batch_idx):
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    monitor = PipelineMonitor()
    trainer = quiet_trainer(max_epochs=1, callbacks=[monitor], default_root_dir=tmp_path)
    trainer.fit(Rows(), torch.utils.data.DataLoader(dataset, batch_size=100))
    assert not list(tmp_path.iterdir())


def rows(folder: Path) -> list[dict[str, float]]:
    """What a CSVLogger wrote under loader/ for single steps, by name."""
    (file,) = folder.rglob("metrics.csv")
    found = []
    with file.open() as lines:
        for row in csv.DictReader(lines):
            if row["loader/wait_ms"]:
                found.append({name: float(value) for name, value in row.items() if value})
    return found


def logging_trainer(folder: Path, monitor: PipelineMonitor, **settings: Any) -> pl.Trainer:
    settings = {"max_epochs": 1, "log_every_n_steps": 2, **settings}
    return pl.Trainer(
        accelerator="cpu",
        logger=CSVLogger(folder),
        callbacks=[monitor],
        default_root_dir=folder,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )


class Logs(SeedClassifier):
    """Logs as users do, so that Lightning's own steps can be compared with ours."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, batch_size=batch.num_seeds)
        return loss


def test_figures_of_the_steps_are_logged_when_lightning_logs(tmp_path: Path) -> None:
    module = data_module()
    logging_trainer(tmp_path, PipelineMonitor(figure=False)).fit(Logs(), module)
    module.trainer = None
    loader = module.train_dataloader()
    loader.set_epoch(0)  # that of the fit
    logged, batches = rows(tmp_path), list(loader)
    (file,) = tmp_path.rglob("metrics.csv")
    with file.open() as lines:
        lightnings = [int(row["step"]) for row in csv.DictReader(lines) if row["loss"]]
    assert [row["step"] for row in logged] == lightnings
    for number, row in enumerate(logged):
        pair = batches[2 * number : 2 * number + 2]
        assert row["loader/input_nodes"] == sum(batch.num_nodes for batch in pair) / 2
        assert row["loader/edges"] == sum(block.num_edges for batch in pair for block in batch.blocks) / 2
        assert 0 <= row["loader/queue_depth"] <= module.train_dataloader().num_threads + 1
        assert all(row[f"loader/{stage}_ms"] > 0 for stage in ("sample", "gather", "train"))
        assert row["loader/wait_ms"] >= 0 <= row["loader/convert_ms"]
        ratio = row["loader/seeds_per_s"] / row["loader/batches_per_s"]
        assert ratio == pytest.approx(sum(batch.num_seeds for batch in pair) / 2)
        # A batch waits and trains within its share of the time.
        busy_s = (row["loader/wait_ms"] + row["loader/train_ms"]) / 1e3
        assert row["loader/batches_per_s"] * busy_s <= 1.001


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"accumulate_grad_batches": 3, "limit_train_batches": 9, "log_every_n_steps": 1}, [0, 1, 2]),
        ({"max_epochs": 2, "limit_train_batches": 4, "val_check_interval": 2}, [1, 3, 5, 7]),
        ({"max_steps": 3, "max_epochs": -1}, [1]),
        ({"limit_train_batches": 0}, []),
        ({"log_every_n_steps": 0}, []),
    ],
    ids=lambda value: "" if isinstance(value, list) else "-".join(value),
)
def test_loops_are_logged_by_their_steps(tmp_path: Path, settings: dict[str, Any], steps: list[int]) -> None:
    logging_trainer(tmp_path, PipelineMonitor(figure=False), **settings).fit(SeedClassifier(), data_module())
    assert [row["step"] for row in (rows(tmp_path) if steps else [])] == steps


def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"log_every_n_steps": 1, "max_epochs": 2, "limit_train_batches": 6}
    saves = pl.callbacks.ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=4, save_top_k=-1)
    trainer = logging_trainer(tmp_path / "a", PipelineMonitor(figure=False), max_steps=8, **settings)
    trainer.callbacks.append(saves)
    trainer.fit(SeedClassifier(), data_module())
    monitor = PipelineMonitor(figure=False, timeline=(0, 2))
    trainer = logging_trainer(tmp_path / "b", monitor, **settings)
    trainer.fit(SeedClassifier(), data_module(), ckpt_path=tmp_path / "step=4.ckpt")
    assert [row["step"] for row in rows(tmp_path / "b")] == list(range(4, 12))
    whole = {row["step"]: row["loader/input_nodes"] for row in rows(tmp_path / "a")}
    assert all(
        whole.get(row["step"], row["loader/input_nodes"]) == row["loader/input_nodes"] for row in rows(tmp_path / "b")
    )
    assert monitor.report is not None
    assert monitor.report.loader.num_batches == 8  # of this fit


def test_further_figures_of_the_strategy_are_logged_where_it_has_them(tmp_path: Path) -> None:
    from dataclasses import dataclass

    @dataclass
    class Stats:
        max_lag: int = 2
        wait_ms: float = 1.5
        grad: torch.Tensor | None = None  # on a GPU, and not to be waited for

    class Strategy(pl.strategies.SingleDeviceStrategy):
        staleness_stats = Stats(grad=torch.ones(1))
        queue = type("Queue", (), {"alive": [0, 2]})()

    logging_trainer(tmp_path, PipelineMonitor(figure=False), strategy=Strategy("cpu")).fit(
        SeedClassifier(), data_module()
    )
    row = rows(tmp_path)[0]
    assert (row["loader/staleness_max_lag"], row["loader/staleness_wait_ms"]) == (2, 1.5)
    assert row["loader/samplers_alive"] == 2
    assert "loader/staleness_grad" not in row


def test_each_fit_has_a_report_of_its_own(tmp_path: Path) -> None:
    monitor = PipelineMonitor(figure=False, trace=False)
    for limit in (6, 2):
        trainer = logging_trainer(tmp_path, monitor, limit_train_batches=limit)
        trainer.fit(SeedClassifier(), data_module())
        assert monitor.report is not None
        assert monitor.report.loader.num_batches == limit
    assert [row["step"] for row in rows(tmp_path / "lightning_logs" / "version_1")] == [1]


def test_a_failed_fit_has_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = PipelineMonitor(figure=False, trace=False)
    quiet_trainer(max_steps=1, callbacks=[monitor], default_root_dir=tmp_path).fit(SeedClassifier(), data_module())
    capsys.readouterr()

    class Fails(SeedClassifier):
        def training_step(self, batch, batch_idx):
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        quiet_trainer(max_steps=1, callbacks=[monitor], default_root_dir=tmp_path).fit(Fails(), data_module())
    assert monitor.report is None
    assert "Where the time went" not in capsys.readouterr().out


@pytest.mark.parametrize("settings", [{}, {"num_threads": 0}, {"reload": 1}, {"barebones": True}])
def test_it_changes_nothing(tmp_path: Path, settings: dict[str, Any]) -> None:
    def weights(callbacks: list[pl.Callback]) -> torch.Tensor:
        torch.manual_seed(0)
        given = dict(settings)
        module = data_module(num_threads=given.pop("num_threads", 2))
        options: dict[str, Any] = {"reload_dataloaders_every_n_epochs": given.pop("reload", 0), **given}
        if not given.get("barebones"):
            options |= dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
        model = SeedClassifier()
        trainer = pl.Trainer(accelerator="cpu", max_epochs=2, callbacks=callbacks, default_root_dir=tmp_path, **options)
        trainer.fit(model, module)
        return model.layer.weight.detach()

    monitor = PipelineMonitor()
    assert torch.equal(weights([monitor]), weights([]))
    assert monitor.report is not None
    assert monitor.report.loader.num_batches > 10
    assert (tmp_path / "timeline.png").exists()


def trained(folder: Path) -> list[int]:
    """The mini-batches that a trace shows the training on."""
    events = check_chrome(json.loads((folder / "trace.json").read_text()))
    return [event["args"]["mini_batch"] for event in events if event["name"] == "train"]


@pytest.mark.parametrize("num_threads", [0, 1, 3])
def test_the_trace_shows_all_threads(tmp_path: Path, num_threads: int) -> None:
    monitor = PipelineMonitor(timeline=(2, 6))
    trainer = quiet_trainer(max_epochs=1, callbacks=[monitor], default_root_dir=tmp_path, val_check_interval=4)
    trainer.fit(SeedClassifier(), data_module(num_threads=num_threads))
    assert trained(tmp_path) == [2, 3, 4, 5]
    events = check_chrome(json.loads((tmp_path / "trace.json").read_text()))
    stages = ("sample", "gather", "wait", "train", "forward", "backward", "optimizer", "validate")
    assert {event["name"] for event in events} >= set(stages)
    rows = {event["tid"] for event in events}
    assert 1 + min(num_threads, 1) <= len(rows) <= 1 + num_threads
    # What gnnload plan makes of it.
    recorded = read_trace(tmp_path / "trace.json")
    assert (len(recorded.shares), recorded.num_seeds) == (4, 32)
    assert recorded.work.making_core_ms > 0
    (validation,) = [event for event in events if event["name"] == "validate"]
    assert validation["tid"] == 0
    # Each mini-batch of the window is asked for before it is trained on, and was sampled before that.
    for number in range(4, 6):
        of_batch = {event["name"]: event for event in events if event["args"]["mini_batch"] == number}
        ends = [of_batch[stage]["ts"] + of_batch[stage]["dur"] for stage in ("sample", "gather", "wait", "train")]
        assert ends == sorted(ends)


@pytest.mark.parametrize(("limit", "shown"), [(1, [0]), (3, [1, 2]), (9, list(range(3, 9)))])
def test_a_short_epoch_is_shown_in_its_later_part(tmp_path: Path, limit: int, shown: list[int]) -> None:
    trainer = quiet_trainer(
        max_epochs=1, limit_train_batches=limit, callbacks=[PipelineMonitor()], default_root_dir=tmp_path
    )
    trainer.fit(SeedClassifier(), data_module())
    assert trained(tmp_path) == shown


def test_a_window_may_lie_in_a_later_epoch_or_beyond_the_end(tmp_path: Path) -> None:
    for timeline, shown in (((7, 10), [7, 8, 9]), ((10, 99), [10, 11]), ((50, 60), None)):
        folder = tmp_path / str(timeline[0])
        folder.mkdir()
        monitor = PipelineMonitor(timeline=timeline)
        trainer = quiet_trainer(max_epochs=3, limit_train_batches=4, callbacks=[monitor], default_root_dir=folder)
        trainer.fit(SeedClassifier(), data_module())
        assert (folder / "timeline.png").exists() == (folder / "trace.json").exists() == (shown is not None)
        if shown is not None:
            assert trained(folder) == shown


def test_nothing_is_drawn_or_traced_unasked(tmp_path: Path) -> None:
    monitor = PipelineMonitor(figure=False, trace=False)
    quiet_trainer(max_epochs=1, callbacks=[monitor], default_root_dir=tmp_path).fit(SeedClassifier(), data_module())
    assert [file.name for file in tmp_path.iterdir()] == [f"{REPORT_NAME}.json"]


class SlowOnce(NeighborSampler):
    """Sleeps before it samples one step: as a sampler does that is stopped."""

    def draw(self, graph, draw, memory):
        if draw.key.step == 14:
            time.sleep(1.2)
        return super().draw(graph, draw, memory)


def test_a_stall_is_warned_of_while_training(tmp_path: Path) -> None:
    module = data_module(batch_size=16, num_threads=1)
    module.sampler = SlowOnce([4, 4])
    trainer = quiet_trainer(max_epochs=1, callbacks=[PipelineMonitor(stall_s=1.0)], default_root_dir=tmp_path)
    with pytest.warns(UserWarning, match=r"rank 0 lost 1\.\d s at mini-batch 14.*sampling thread, which was stopped"):
        trainer.fit(SeedClassifier(), module)


def test_stalls_are_not_warned_of_where_nobody_wants_to_know(tmp_path: Path) -> None:
    module = data_module(batch_size=16, num_threads=1)
    module.sampler = SlowOnce([4, 4])
    monitor = PipelineMonitor(figure=False, trace=False, stall_s=None)
    with warnings.catch_warnings(record=True) as caught:
        quiet_trainer(max_epochs=1, callbacks=[monitor], default_root_dir=tmp_path).fit(SeedClassifier(), module)
    assert not [warning for warning in caught if "lost" in str(warning.message)]


@pytest.mark.parametrize("settings", [{"timeline": (5, 5)}, {"timeline": (-1, 5)}, {"stall_s": 0.0}])
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(LoaderConfigError, match="needed"):
        PipelineMonitor(**settings)


def test_the_former_name_still_works() -> None:
    assert isinstance(LoaderMonitor(figure=False), PipelineMonitor)


def test_a_lone_device_that_alternates_does_not_stall(tmp_path: Path) -> None:
    module = data_module(batch_size=16, num_threads=1)
    module.sampler = SlowOnce([4, 4])
    monitor = PipelineMonitor(figure=False, trace=False, stall_s=1.0)
    strategy = FactoredStrategy(switching=True, queue_depth=8)
    with warnings.catch_warnings(record=True) as caught:
        quiet_trainer(max_epochs=1, callbacks=[monitor], default_root_dir=tmp_path, devices=1, strategy=strategy).fit(
            SeedClassifier(), module
        )
    assert not [warning for warning in caught if "lost" in str(warning.message)]
    assert monitor.report is not None
    assert monitor.report.settings.alternates


def test_a_plan_that_is_none_is_refused_before_the_run(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("{}")
    monitor = PipelineMonitor(plan=file)
    with pytest.raises(PlanError, match=r"plan\.json: it is no plan of format"):
        monitor.setup(None, None, "fit")  # type: ignore[arg-type]
    monitor.setup(None, None, "test")  # type: ignore[arg-type]
