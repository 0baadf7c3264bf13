"""The Trainer's steps decide on masks, with the callback and the data module; and bfloat16 where it is faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import LightningDataModule, LightningModule, Trainer
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from pytorch_lightning.plugins import MixedPrecision
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from lightning_gnnload import Accelerate, Dropout, GraphDataModule, NeighborSampler
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.plugin.accelerate import follow_trainer, reason_against_bf16
from tests.unit.toy import toy_data


class Model(LightningModule):
    """Two calls of a layer in a step. ``outputs``: what each call of a step gave, by (epoch, batch)."""

    def __init__(self, dropout: nn.Module) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(5, 7), dropout
        self.outputs: dict[tuple[int, int], list[Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.linear(x))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = (batch.x[: batch.num_seeds], batch.y) if hasattr(batch, "x") else batch
        first, second = self(x / 300), self(x / 300)
        self.outputs[self.current_epoch, batch_idx] = [first.detach() != 0, second.detach() != 0]
        return F.cross_entropy(first + second, y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self(batch.x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(
    model: LightningModule, data: Any, *callbacks: Callback, checkpoint: Path | None = None, **settings: Any
) -> Trainer:
    settings = {"max_epochs": 2, "accumulate_grad_batches": 2} | settings
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
        callbacks=list(callbacks),
        **settings,
    )
    trainer.fit(model, data, ckpt_path=checkpoint)
    return trainer


def module(seed: int = 0) -> GraphDataModule:
    return GraphDataModule(toy_data(val=[1, 2, 3]), NeighborSampler([2]), batch_size=16, seed=seed, num_threads=0)


def state(model: nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def new_model(dropout: nn.Module) -> Model:
    torch.manual_seed(0)
    model = Model(dropout)
    torch.manual_seed(torch.seed())  # masks must not follow torch's generator
    return model


def test_a_resumed_run_draws_the_same_masks(tmp_path: Path) -> None:
    """From the middle of the second epoch, in a model that has been used before, with validation in between."""
    save = ModelCheckpoint(tmp_path, "{epoch}-{step}", every_n_train_steps=1, save_top_k=-1)
    whole = new_model(Dropout(0.4, relu=True))
    fit(whole, module(), save)
    masks = [tuple(mask.flatten().tolist()) for calls in whole.outputs.values() for mask in calls]
    assert len(set(masks)) == len(masks)
    before = dict(whole.outputs)
    weights = state(whole)
    for resumed in (whole, new_model(Dropout(0.4, relu=True))):
        resumed.outputs.clear()
        (checkpoint,) = tmp_path.glob("epoch=1-step=5.ckpt")
        fit(resumed, module(), checkpoint=checkpoint)
        assert torch.equal(state(resumed), weights)
        assert 0 < len(resumed.outputs) < len(before)
        for at, calls in resumed.outputs.items():
            assert all(map(torch.equal, calls, before[at]))


def test_masks_follow_the_seed_of_the_data() -> None:
    first, other = new_model(Dropout()), new_model(Dropout())
    fit(first, module(), max_epochs=1)
    fit(other, module(seed=1), max_epochs=1)
    assert not torch.equal(first.outputs[0, 0][0], other.outputs[0, 0][0])
    follows_generator(first.dropout)


def follows_generator(dropout: Dropout) -> None:
    """As a fit that is over tells no step any more."""
    x = torch.ones(200)
    torch.manual_seed(1)
    once = dropout.train()(x)
    torch.manual_seed(1)
    assert torch.equal(Dropout(dropout.p)(x), once)


def test_ranks_have_masks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows are others, so equal masks would be correlated noise in a gradient's mean."""
    masks = []
    for rank in (0, 1):
        model = new_model(Dropout())
        with monkeypatch.context() as patched:
            patched.setattr(Trainer, "global_rank", rank)
            follow_trainer(trainer_of(model), seed=0)
        masks.append(model.dropout(torch.ones(256)))
    assert not torch.equal(*masks)


def trainer_of(model: LightningModule) -> Trainer:
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy._lightning_module = model
    model.trainer = trainer
    return trainer


class Seen(Callback):
    """What the model was when training began."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.dropout = pl_module.dropout


def test_the_callback_swaps_and_tells_the_step_with_any_loader(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(torch.randn(5), torch.tensor(i % 7)) for i in range(32)]
    runs = []
    for seed in (0, 0, 1):
        model, callback = new_model(nn.Dropout(0.4)), Accelerate(seed=seed)
        fit(model, DataLoader(rows, batch_size=8), callback, max_epochs=1)
        assert list(callback.report.swapped) == ["dropout"]
        runs.append([mask for calls in model.outputs.values() for mask in calls])
    assert all(map(torch.equal, runs[0], runs[1]))
    assert not torch.equal(runs[0][0], runs[2][0])
    follows_generator(model.dropout)

    class Other(LightningDataModule):
        seed = None  # whatever another library means by it

        def train_dataloader(self) -> Any:
            return DataLoader(rows, batch_size=8)

    fit(Model(nn.Dropout(0.4)), Other(), Accelerate(), max_epochs=1)


def test_a_validation_in_training_mode_changes_no_training_mask() -> None:
    class InTraining(Model):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.dropout.train()
            assert self.dropout.training
            self.seen.append(self(batch.x) != 0)

    validated, alone = InTraining(Dropout(0.4)), Model(Dropout(0.4))
    alone.load_state_dict(validated.state_dict())
    validated.seen = []
    fit(validated, module(), val_check_interval=2)
    fit(alone, module(), limit_val_batches=0)
    assert len(validated.seen) > 1
    assert validated.outputs.keys() == alone.outputs.keys()
    for step, masks in validated.outputs.items():
        assert all(map(torch.equal, masks, alone.outputs[step]))


def test_another_trainer_amid_a_fit_leaves_the_steps_to_the_first() -> None:
    class Amid(Callback):
        def on_train_batch_end(self, trainer: Trainer, model: LightningModule, *_: Any) -> None:
            settings = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
            Trainer(accelerator="cpu", **settings).validate(model, module(), verbose=False)
            model.trainer = trainer
            model.train()

    validated, alone = new_model(Dropout(0.4)), new_model(Dropout(0.4))
    fit(validated, module(), Amid(), max_epochs=1)
    fit(alone, module(), max_epochs=1)
    for step, masks in validated.outputs.items():
        assert all(map(torch.equal, masks, alone.outputs[step]))
    follows_generator(validated.dropout)


@pytest.mark.parametrize("with_data", [True, False])
def test_a_fit_that_fails_is_followed_no_longer(with_data: bool) -> None:
    class Failing(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            super().training_step(batch, batch_idx)
            raise ValueError("in the step")

    model, rows = Failing(Dropout(0.4)), [(torch.randn(5), torch.tensor(i % 7)) for i in range(32)]
    callbacks = [] if with_data else [Accelerate()]
    with pytest.raises(ValueError, match="in the step"):
        fit(model, module() if with_data else DataLoader(rows, batch_size=8), *callbacks)
    follows_generator(model.train().dropout)


def test_models_that_are_built_late_are_swapped() -> None:
    class Late(Model):
        def configure_model(self) -> None:
            self.dropout = nn.Dropout(0.4)

    seen = Seen()
    fit(Late(nn.Identity()), module(), seen, Accelerate(), max_epochs=1, limit_train_batches=1)
    assert isinstance(seen.dropout, Dropout)


CPU_INFO = "processor\t: 0\nmodel name\t: Some Processor\nflags\t\t: fpu sse {}\n"


@pytest.mark.parametrize("flag", ["avx512_bf16", "amx_bf16"])
def test_bfloat16_where_the_processor_has_it(tmp_path: Path, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(CPU_INFO.format(flag))
    assert reason_against_bf16("cpu", str(tmp_path / "cpuinfo")) is None
    monkeypatch.setattr("lightning_gnnload.plugin.accelerate.reason_against_bf16", lambda device: None)
    model = new_model(nn.Dropout(0.4))
    trainer = fit(model, module(), Accelerate(bf16=True), max_epochs=1)
    assert isinstance(trainer.strategy.precision_plugin, MixedPrecision)
    assert trainer.precision == "bf16-mixed"
    with trainer.strategy.precision_plugin.forward_context():
        assert model.linear(torch.randn(1, 5)).dtype == torch.bfloat16
    assert state(model).dtype == torch.float32


def test_processors_without_bfloat16_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(CPU_INFO.format("avx2"))
    reason = reason_against_bf16("cpu", str(tmp_path / "cpuinfo"))
    assert reason.startswith("this processor (Some Processor) has none of avx512_bf16, amx_bf16")
    assert "unknown" in reason_against_bf16("cpu", str(tmp_path / "none"))
    assert "mps" in reason_against_bf16("mps")
    monkeypatch.setattr("lightning_gnnload.plugin.accelerate.reason_against_bf16", lambda device: reason)
    with pytest.warns(UserWarning, match="stays with float32: this processor"):
        trainer = fit(new_model(nn.Dropout()), module(), Accelerate(bf16=True), max_epochs=1)
    assert trainer.precision == "32-true"


def test_a_precision_that_was_chosen_stays() -> None:
    trainer = fit(new_model(nn.Dropout()), module(), Accelerate(bf16=True), max_epochs=1, precision="64-true")
    assert trainer.precision == "64-true"


@pytest.mark.parametrize(("wrong", "message"), [({"bf16": "yes"}, "bf16 is 'yes'"), ({"seed": -1}, "seed is -1")])
def test_settings_that_are_none(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(LoaderConfigError, match=message):
        Accelerate(**wrong)
