"""The model on a sampler: its gradients are those of a plain backward pass, and leave no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from torch import Tensor, nn
from torchmetrics import SumMetric

from lightning_gnnload import Accelerate, Dropout, FactoredStrategy
from lightning_gnnload.errors import SwitchingError
from lightning_gnnload.plugin.gradients.standby import ModelReplica, seed_of


class Model(LightningModule):
    def __init__(self, dropout: float = 0.0, gives: str = "tensor") -> None:
        super().__init__()
        self.gives = gives
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(dropout))
        self.unused = nn.Linear(1, 1)
        self.seen = SumMetric()
        self.at: Any = None
        self.built: list[str] = []

    def setup(self, stage: str) -> None:
        self.built.append(stage)

    def configure_model(self) -> None:
        self.built.append("configure_model")

    def training_step(self, batch: Tensor, batch_idx: int) -> Any:
        loss = self.layers(batch).square().mean()
        self.seen(loss)
        self.log("loss", loss, sync_dist=True)
        self.at = (batch_idx, self.trainer.global_step, self.trainer.training, self.training)
        return {"tensor": loss, "dict": {"loss": loss}, "nothing": None}[self.gives]


class TakesBatchOnly(Model):
    def training_step(self, batch: Tensor) -> Any:  # type: ignore[override]
        return super().training_step(batch, 3)


def replica(model: Model, **settings: Any) -> ModelReplica:
    strategy = FactoredStrategy(switching=True)
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy=strategy, logger=False, enable_checkpointing=False, **settings
    )
    strategy._lightning_module = model
    return ModelReplica(trainer, None)


BATCH = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))


def test_batches_come_in_the_precision_of_the_model() -> None:
    gradients = replica(Model(), precision="64-true").train(BATCH, 3, global_step=17, seed=1)
    assert gradients["layers.0.weight"].dtype == torch.float64


@pytest.mark.parametrize("model", [Model(), Model(gives="dict"), TakesBatchOnly()])
def test_gradients_are_those_of_a_plain_backward_pass(model: Model) -> None:
    studied = replica(model)
    found = studied.train(BATCH, 3, global_step=17, seed=1)
    wanted = torch.autograd.grad(model.layers(BATCH).square().mean(), list(model.layers.parameters()))
    assert [found[f"layers.{name}"].equal(g) for name, g in zip(("0.weight", "0.bias"), wanted, strict=True)] == [
        True
    ] * 2
    assert found["unused.weight"] is None
    assert model.at == (3, 17, True, True)
    assert model.built == ["fit", "configure_model"]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.seen.compute() == 0  # its metrics count what trainers train
    studied.restore()
    assert "log" not in vars(model)


def test_dropout_depends_on_the_mini_batch_and_on_nothing_else() -> None:
    model = Model(dropout=0.5)
    studied = replica(model)
    torch.manual_seed(4)
    before = torch.random.get_rng_state()
    first = studied.train(BATCH, 0, global_step=0, seed=seed_of(5, 0, 9))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    again = studied.train(BATCH, 0, global_step=0, seed=seed_of(5, 0, 9))
    other = studied.train(BATCH, 0, global_step=0, seed=seed_of(5, 1, 9))
    assert torch.equal(first["layers.0.weight"], again["layers.0.weight"])
    assert not torch.equal(first["layers.0.weight"], other["layers.0.weight"])


def test_the_callback_that_swaps_dropout_does_so_on_samplers() -> None:
    studied = replica(Model(dropout=0.5), callbacks=[Accelerate()])
    assert isinstance(studied.module.layers[1], Dropout)


def test_seeds_differ_by_run_epoch_and_slice() -> None:
    seeds = {seed_of(*numbers) for numbers in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (2**64 - 1, 0, 0)]}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_mini_batch_without_a_loss_cannot_be_contributed() -> None:
    with pytest.raises(SwitchingError, match=r"returned None.*a loss is needed"):
        replica(Model(gives="nothing")).train(BATCH, 0, global_step=0, seed=0)
