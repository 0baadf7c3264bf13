"""One script run twice in this process: where it trained, and where it takes over what that came to."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics
from torch.utils.data import DataLoader

from lightning_gnnload.errors import OutcomeError
from lightning_gnnload.pipeline.queue.sealed import seal, unseal
from lightning_gnnload.plugin.compat import TrainerFn, pl
from lightning_gnnload.plugin.strategy.apply_outcome import apply_outcome
from lightning_gnnload.plugin.strategy.outcome import Snapshot

LARGE = 300_000  # numbers: above what is compared by bytes


class Meter:
    def __init__(self) -> None:
        self.total = 0


class Net(pl.LightningModule):
    """Keeps all that training code keeps in a module."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters({"lr": 0.1})
        self.layer = torch.nn.Linear(4, 2)
        self.tied = torch.nn.Linear(4, 2)
        self.tied.weight = self.layer.weight
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("hidden", torch.zeros(3, dtype=torch.bfloat16), persistent=False)
        self.total = torchmetrics.SumMetric()
        self.seen = torchmetrics.CatMetric()
        self.losses: list[float] = []
        self.history: Any = defaultdict(list)
        self.window: Any = deque(maxlen=2)
        self.features = torch.ones(LARGE)
        self.memory = torch.zeros(LARGE)
        self.table = np.zeros(LARGE)
        self.place = "this rank's own"
        self.meter = Meter()
        self.idle = Meter()

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self.tied(self.norm(batch)).square().mean() + self.layer(batch).mean()
        self.log("loss", loss)
        self.total.update(loss.detach())
        self.seen.update(loss.detach())
        self.losses.append(loss.item())
        self.history["loss"].append((batch_idx, loss.detach()))
        self.window.append(batch_idx)
        self.hparams["lr"] = 0.05
        self.memory[batch_idx] += 1
        self.table = self.table + 1
        self.meter.total += 1
        self.hidden += 1
        self.layer.bias.requires_grad = False
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val", self.layer(batch).square().mean(), prog_bar=True)

    def predict_step(self, batch: torch.Tensor, batch_idx: int) -> dict[str, Any]:
        return {"out": self.layer(batch), "loader": torch.tensor(0)} if batch_idx > 9 else {"out": self.layer(batch)}

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam([each for each in self.parameters() if each.requires_grad], lr=self.hparams["lr"])
        steps = int(self.trainer.estimated_stepping_batches)
        return [optimizer], [torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)]


class Late(Net):
    """Gets parts in hooks, and has hyperparameters that nobody saved."""

    def __init__(self) -> None:
        super().__init__()
        del self._hparams, self._hparams_initial

    def on_fit_start(self) -> None:
        self.began_in = self.trainer.state.fn  # a str of a kind

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def setup(self, stage: str) -> None:
        self.stage = stage
        self.added = torch.nn.Linear(2, 2)

    def configure_model(self) -> None:
        self.later = torch.nn.LazyLinear(3)
        self.later(torch.ones(1, 5))


class Counting(pl.Callback):
    """Its own state is no plain value, its ``state_dict`` is."""

    def __init__(self) -> None:
        self.meter = Meter()

    def on_train_batch_end(self, *_: Any) -> None:
        self.meter.total += 1

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.meter.total}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.meter.total = state_dict["total"]


def script(folder: Path, model: pl.LightningModule) -> tuple[pl.Trainer, list[Any]]:
    """What every rank does before it fits."""
    torch.manual_seed(0)
    callbacks = [
        pl.callbacks.ModelCheckpoint(folder, monitor="val", save_top_k=2, save_last=True),
        pl.callbacks.EarlyStopping("val", patience=1, min_delta=9.0),
        Counting(),
    ]
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=4,
        callbacks=callbacks,
        logger=pl.loggers.CSVLogger(folder),
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.state.fn = TrainerFn.FITTING
    trainer.strategy._lightning_module = model
    return trainer, callbacks


def loader() -> DataLoader:
    return DataLoader(torch.arange(24.0).view(6, 4), batch_size=2)


class Ranks:
    """Both ends of one fit."""

    def __init__(self, folder: Path, kind: type[pl.LightningModule], taker: pl.LightningModule | None = None) -> None:
        torch.manual_seed(0)
        self.model, self.taker = kind(), taker or kind()
        self.taker.place = "the other rank's own"
        self.trainer, self.callbacks = script(folder, self.model)
        self.sampler, self.taken = script(folder, self.taker)
        watch = Snapshot(self.trainer, self.model)
        self.trainer.fit(self.model, loader(), loader())
        self.outcome = watch.outcome(None)

    def apply_outcome(self) -> Any:
        return apply_outcome(self.sampler, self.taker, None, unseal(seal(self.outcome)), lambda: None)


@pytest.mark.filterwarnings("ignore")
def test_everything_a_script_could_ask_for_is_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ranks = Ranks(tmp_path, Net)
    weight, losses = ranks.taker.layer.weight, ranks.taker.losses
    assert ranks.apply_outcome() is None
    theirs, ours = ranks.model, ranks.taker
    for (name, wanted), found in zip(theirs.state_dict().items(), ours.state_dict().values(), strict=True):
        assert torch.equal(wanted, found), name
    assert torch.equal(ours.hidden, theirs.hidden)
    assert ours.layer.weight is ours.tied.weight is weight
    assert not ours.layer.bias.requires_grad
    assert ours.losses is losses, "others may hold the list too"
    assert (ours.losses, ours.history, ours.window) == (theirs.losses, theirs.history, theirs.window)
    assert isinstance(ours.history, defaultdict)
    assert ours.window.maxlen == 2
    assert ours.hparams == {"lr": 0.05}
    assert torch.equal(ours.memory, theirs.memory)
    assert np.array_equal(ours.table, theirs.table)
    assert ours.place == "the other rank's own"
    assert "features" not in ranks.outcome["attributes"]["model"], "a graph's features must not go from rank to rank"
    assert ours.total.compute() == theirs.total.compute() == sum(torch.tensor(theirs.losses))
    assert torch.equal(ours.seen.compute(), theirs.seen.compute())
    assert [each.training for each in ours.modules()] == [each.training for each in theirs.modules()]
    for wanted, found in zip(ranks.callbacks, ranks.taken, strict=True):
        assert wanted.state_dict() == found.state_dict()
    checkpoint, stopping, _ = ranks.taken
    assert checkpoint.kth_value == ranks.callbacks[0].kth_value
    assert checkpoint.current_score == ranks.callbacks[0].current_score
    assert stopping.stopped_epoch == ranks.callbacks[1].stopped_epoch == 1
    for name in ("callback_metrics", "logged_metrics", "progress_bar_metrics", "current_epoch", "global_step"):
        assert getattr(ranks.sampler, name) == getattr(ranks.trainer, name), name
    for name in ("should_stop", "log_dir", "num_training_batches", "num_val_batches", "estimated_stepping_batches"):
        assert getattr(ranks.sampler, name) == getattr(ranks.trainer, name), name
    assert vars(ranks.sampler.state) == vars(ranks.trainer.state)
    (wanted_optimizer,), (optimizer,) = ranks.trainer.optimizers, ranks.sampler.optimizers
    assert repr(optimizer.state_dict()) == repr(wanted_optimizer.state_dict())
    (scheduler,) = ranks.sampler.lr_scheduler_configs
    assert scheduler.scheduler.last_epoch == 2
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert "lacks model.meter (Meter)" in warning
    assert "idle" not in warning
    assert "Counting" not in warning


@pytest.mark.filterwarnings("ignore")
def test_parts_that_come_in_hooks_come_in_the_same_hooks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ranks = Ranks(tmp_path, Late)
    ranks.apply_outcome()
    assert "hparams" not in caplog.text
    assert ranks.taker.stage == ranks.taker.began_in == TrainerFn.FITTING
    assert torch.equal(ranks.taker.later.weight, ranks.model.later.weight)
    assert torch.equal(ranks.taker.added.weight, ranks.model.added.weight)


@pytest.mark.filterwarnings("ignore")
def test_lazy_parameters_are_made(tmp_path: Path) -> None:
    """Where the trainers' own forward has made them, and no hook does."""
    ranks = Ranks(tmp_path, Late)
    ranks.taker.setup("fit")
    ranks.taker.later = torch.nn.LazyLinear(3)
    ranks.apply_outcome()
    assert torch.equal(ranks.taker.later(torch.ones(1, 5)), ranks.model.later(torch.ones(1, 5)))


class Other(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(5)


class More(Net):
    def __init__(self) -> None:
        super().__init__()
        self.extra = torch.nn.Parameter(torch.ones(1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "taker", "match"),
    [(Net, Other, r"of shape \(4,\) on trainers, and \(5,\)"), (Net, More, "other parameters.*: extra")],
)
def test_a_module_that_is_built_otherwise_is_an_error(tmp_path: Path, kind: Any, taker: Any, match: str) -> None:
    ranks = Ranks(tmp_path, kind, taker())
    with pytest.raises(OutcomeError, match=match):
        ranks.apply_outcome()


class Failing(Late):
    def configure_model(self) -> None:
        if hasattr(self, "place"):
            raise ArithmeticError("no luck here")
        super().configure_model()


@pytest.mark.filterwarnings("ignore")
def test_hooks_that_fail_here_are_an_error(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, Late, Failing())
    with pytest.raises(OutcomeError, match=r"has added, later, .*no luck here"):
        ranks.apply_outcome()


ROW = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("predictions", "wanted"),
    [
        (None, None),
        ([], []),
        ([ROW, ROW], [ROW[:0]]),
        ([(ROW, ROW[:, 0])], [(ROW[:0], ROW[:0, 0])]),
        ([{"a": ROW, "b": ["x", "y"]}], [{"a": ROW[:0], "b": []}]),
        ([np.ones((2, 2))], [np.ones((0, 2))]),
        ([[ROW], [ROW.long()]], [[ROW[:0]], [ROW[:0].long()]]),  # two loaders
        ([torch.tensor(1.0)], []),
        ([1.5, 2.5], []),
        ([Meter()], []),
    ],
)
def test_a_sampler_has_no_rows_of_predictions_in_the_form_of_the_trainers(
    tmp_path: Path, predictions: Any, wanted: Any
) -> None:
    model = Net()
    trainer, _ = script(tmp_path, model)
    watch = Snapshot(trainer, model)
    trainer.state.fn = TrainerFn.PREDICTING
    found = unseal(seal(watch.outcome(predictions)))["result"]
    assert repr(found) == repr(wanted)
