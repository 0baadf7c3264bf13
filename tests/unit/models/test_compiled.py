"""``torch.compile`` over mini-batches, each of other sizes: equal results, and no compilation for each mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_gnnload import SAGE, GraphDataModule, NeighborSampler, Synthetic
from lightning_gnnload.plugin.compat import pl

MOST = 2  # one for training, one for evaluation


class Compile(pl.Callback):
    """As docs/guides/step.md has it, with a compiler that only counts; keeps the losses."""

    def __init__(self, compiler: Callable[..., Any] | None) -> None:
        self.compiler = compiler
        self.losses: list[float] = []

    def on_fit_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.compiler is not None:
            module.layers.compile(dynamic=True, backend=self.compiler)

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.losses.append(outputs["loss"].item())


def losses(folder: Path, compiler: Callable[..., Any] | None) -> list[float]:
    dataset = Synthetic("citation", 2_000, 10_000, num_features=16, num_classes=4, train_fraction=0.5, root=folder)
    pl.seed_everything(0, verbose=False)
    callback = Compile(compiler)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        callbacks=[callback],
        **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
    )
    trainer.fit(SAGE(hidden=8), GraphDataModule(dataset, NeighborSampler([5, 3]), batch_size=150, num_threads=0))
    return callback.losses


@pytest.mark.filterwarnings("ignore")
def test_an_epoch_of_sage_compiles_once_and_gives_the_same_losses(tmp_path: Path) -> None:
    num_compiled = 0

    def count(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        nonlocal num_compiled
        num_compiled += 1
        return graph.forward

    eager = losses(tmp_path, None)
    torch._dynamo.reset()
    assert losses(tmp_path, count) == pytest.approx(eager, rel=1e-5)  # sums of neighbours are torch's there
    assert len(eager) > 10
    # A size that code depends on, or a number that is read from a tensor, compiles anew or cuts the code in two.
    assert 0 < num_compiled <= MOST
