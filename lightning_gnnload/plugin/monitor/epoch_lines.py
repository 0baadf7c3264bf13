"""EpochLines: Lightning's progress where there is no terminal, a line a minute in place of a bar."""

from __future__ import annotations

import sys
from typing import Any

from lightning_gnnload.host.progress import ProgressLines
from lightning_gnnload.plugin.compat import pl


class EpochLines(pl.callbacks.ProgressBar):
    """Says in lines how far an epoch is: some seconds after its beginning, then once a minute, and at its end, with the
    metrics that a bar would show. ``gnnload`` takes it in the place of Lightning's bars where its output is no
    terminal; in scripts, ``Trainer(callbacks=[EpochLines()])``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[str, ProgressLines] = {}

    def disable(self) -> None:
        self._is_enabled = False

    def enable(self) -> None:
        self._is_enabled = True

    _is_enabled = True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epochs = f" of {trainer.max_epochs}" if (trainer.max_epochs or -1) > 0 else ""
        self._begin("train", f"Epoch {trainer.current_epoch + 1}{epochs}", trainer.num_training_batches)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *arguments: Any) -> None:
        self._count("train", arguments[2], trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._end("train", self._metrics(trainer, pl_module))

    def on_validation_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *arguments: Any) -> None:
        self._begin_at_first("Validation", arguments, trainer.num_val_batches)

    def on_validation_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *arguments: Any) -> None:
        self._count("Validation", arguments[2], trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._end("Validation")

    def on_test_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *arguments: Any) -> None:
        self._begin_at_first("Test", arguments, trainer.num_test_batches)

    def on_test_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *arguments: Any) -> None:
        self._count("Test", arguments[2], trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._end("Test")

    def on_predict_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *arguments: Any) -> None:
        self._begin_at_first("Prediction", arguments, trainer.num_predict_batches)

    def on_predict_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *arguments: Any) -> None:
        self._count("Prediction", arguments[2], trainer, pl_module)

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._end("Prediction")

    # Lines.

    def _begin_at_first(self, title: str, arguments: tuple[Any, ...], totals: Any) -> None:
        """Begins a loop at the first batch of each of its loaders."""
        if title not in self._lines or arguments[1] == 0:
            loader = arguments[2] if len(arguments) > 2 else 0
            self._begin(title, title, totals[loader] if isinstance(totals, list) else totals)

    def _begin(self, name: str, title: str, total: Any) -> None:
        if self._is_enabled and self.trainer.is_global_zero:
            self._lines[name] = ProgressLines(title, None if total == float("inf") else total)

    def _count(self, name: str, batch: int, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if (lines := self._lines.get(name)) is not None:
            lines.set(batch + 1, lambda: self._metrics(trainer, module))

    def _end(self, name: str, note: str = "") -> None:
        if (lines := self._lines.pop(name, None)) is not None:
            lines.end(note)

    def _metrics(self, trainer: pl.Trainer, module: pl.LightningModule) -> str:
        metrics = self.get_metrics(trainer, module)
        return ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in metrics.items()
        )


def without_bars(trainer: pl.Trainer) -> None:
    """Puts lines in the place of a trainer's bar, if stdout, where Lightning draws it, is no terminal."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    for index, callback in enumerate(callbacks):
        is_bar = isinstance(callback, (pl.callbacks.TQDMProgressBar, pl.callbacks.RichProgressBar))
        if is_bar and not sys.stdout.isatty():
            callbacks[index] = EpochLines()
