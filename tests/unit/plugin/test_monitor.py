from __future__ import annotations

import json
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch

from lightning_gnnload import GraphDataModule, LoaderMonitor, NeighborSampler
from lightning_gnnload.pipeline.stats import LoaderStats
from lightning_gnnload.plugin.monitor import REPORT_NAME
from lightning_gnnload.plugin.report import TimeReport, draw
from tests.integration.learnable import NUM_CLASSES, NUM_FEATURES, learnable_graph, quiet_trainer


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


def data_module() -> GraphDataModule:
    from lightning_gnnload import Graph, GraphData

    made = learnable_graph()
    ids = [mask.nonzero().view(-1) for mask in (made.train_mask, made.val_mask, made.test_mask)]
    data = GraphData(Graph.from_coo(made.src, made.dst, len(made.y)), made.x, made.y, *ids)
    return GraphDataModule(data, NeighborSampler([4, 4]), batch_size=32)


def test_a_fit_leaves_a_table_a_figure_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor, module = LoaderMonitor(), data_module()
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


def test_validation_is_not_counted(tmp_path: Path) -> None:
    class SlowValidation(SeedClassifier):
        def validation_step(self, batch, batch_idx):
            import time

            time.sleep(0.2)

    monitor = LoaderMonitor(figure=False)
    trainer = quiet_trainer(max_epochs=1, callbacks=[monitor], default_root_dir=tmp_path)
    trainer.fit(SlowValidation(), data_module())
    assert monitor.report is not None
    slept_ms = 200 * sum(trainer.num_val_batches)
    # Ten training batches of a linear layer take less than the validation's naps, sanity check included.
    assert monitor.report.wall_ms < slept_ms


def test_the_shares_of_the_trainer_add_up() -> None:
    report = TimeReport(LoaderStats(num_batches=2, sample_ms=5, gather_ms=7, wait_ms=20), train_ms=70, wall_ms=100)
    trainer = {stage: milliseconds for stage, who, milliseconds in report.rows if who == "trainer"}
    assert trainer == {"wait": 20, "train": 70, "other": 10}


def test_drawing_leaves_pyplot_alone(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    open_figures = plt.get_fignums()
    draw(TimeReport(LoaderStats(num_batches=1, sample_ms=5), train_ms=70, wall_ms=100), tmp_path / "figure.png")
    assert plt.get_fignums() == open_figures


def test_a_foreign_loader_makes_no_report(tmp_path: Path) -> None:
    made = learnable_graph()
    dataset = torch.utils.data.TensorDataset(made.x, made.y)

    class Rows(SeedClassifier):
        def training_step(self, batch, batch_idx):
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    monitor = LoaderMonitor()
    trainer = quiet_trainer(max_epochs=1, callbacks=[monitor], default_root_dir=tmp_path)
    trainer.fit(Rows(), torch.utils.data.DataLoader(dataset, batch_size=100))
    assert not list(tmp_path.iterdir())
