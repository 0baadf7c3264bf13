"""Off a terminal, Lightning's bars become lines."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from lightning_gnnload.host import progress
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.monitor.epoch_lines import EpochLines, without_bars


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        loss = self.layer(batch).mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: torch.Tensor) -> None:
        self.layer(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.filterwarnings("ignore")
def test_epochs_and_phases_are_told_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    monkeypatch.setattr(progress, "_FIRST_S", -1.0)  # as if the first batch took long
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False
    )
    without_bars(trainer)
    assert isinstance(trainer.progress_bar_callback, EpochLines)
    loader = DataLoader(torch.ones(4, 1))
    trainer.fit(Net(), loader, loader)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Epoch 1 of 2: 25% (1 of 4), 0 s, loss " in captured.err
    assert "Epoch 2 of 2: done, 0 s, loss " in captured.err
    assert "Validation: done" in captured.err
    assert "\r" not in captured.err
