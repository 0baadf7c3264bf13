"""Delayed updates under a Trainer, with one trainer in this process; several are in tests/integration."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint, StochasticWeightAveraging
from pytorch_lightning.plugins.precision import MixedPrecision
from pytorch_lightning.tuner import Tuner
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_avg_fn
from torch.utils.data import DataLoader

from lightning_gnnload import FactoredStrategy
from lightning_gnnload.errors import RoleConfigError, StalenessError
from lightning_gnnload.plugin.gradients.lags import CHECKPOINT_KEY
from lightning_gnnload.plugin.job import RolePlan
from tests.runif import RunIf

QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)


class OneRole(RolePlan):
    """A trainer and no sampler, which no user gets."""

    def __post_init__(self) -> None:
        pass


class Alone(FactoredStrategy):
    """One trainer in this process."""

    @property
    def roles(self) -> RolePlan:
        return OneRole(num_devices=1, num_samplers=0)

    def _configure_launcher(self) -> None:
        self._launcher = None
        self.session = 1  # as if one had launched it


@pytest.fixture(autouse=True)
def world_of_one() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Module(LightningModule):
    def __init__(self, optimizer: Callable[..., Any] = torch.optim.Adam) -> None:
        super().__init__()
        self.net = nn.Linear(3, 1)
        self.optimizer = optimizer
        self.rates: list[float] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.net(torch.full((2, 3), float(batch_idx))).square().mean()

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        pass

    def configure_optimizers(self) -> Any:
        return self.optimizer(self.parameters(), lr=0.01)


def fit(
    module: LightningModule,
    *callbacks: Callback,
    lags: str | None = None,
    trainer: Trainer | None = None,
    ckpt_path: str | None = None,
    **options: Any,
) -> FactoredStrategy:
    """Fits six steps an epoch at a staleness of 2."""
    loader: Any = DataLoader(range(6))  # type: ignore[arg-type]
    if trainer is None:
        options = QUIET | {"max_epochs": 2, "limit_val_batches": 1} | options
        strategy = Alone(staleness=2, lags=lags, accelerator=None)
        trainer = Trainer(accelerator="cpu", devices=1, strategy=strategy, callbacks=[*callbacks], **options)
    trainer.fit(module, loader, loader, ckpt_path=ckpt_path)
    assert isinstance(trainer.strategy, FactoredStrategy)
    return trainer.strategy


class Manual(Module):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Two(Module):
    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)], []


class Twice(torch.optim.SGD):
    """Evaluates its closure twice, as sharpness-aware optimizers do."""

    def step(self, closure: Any = None) -> Any:
        closure()
        return super().step(closure)


@pytest.mark.parametrize(
    ("module", "options", "says"),
    [
        (Manual, {}, "staleness=2 with Manual.automatic_optimization=False.*staleness=0"),
        (lambda: Module(torch.optim.LBFGS), {}, "staleness=2 with LBFGS, which evaluates the loss several times"),
        (lambda: Module(Twice), {}, "staleness=2 with Twice, which evaluates the loss several times"),
        (
            Module,
            {"plugins": [MixedPrecision("16-mixed", "cpu")]},
            "staleness=2.*'16-mixed'.*Use precision='bf16-mixed'",
        ),
    ],
)
def test_what_excludes_delayed_gradients_is_refused(
    module: Callable[[], LightningModule], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(RoleConfigError, match=says):
        fit(module(), **options)


def test_several_optimizers_are_refused_by_lightning() -> None:
    """Flushes take the only one."""
    with pytest.raises(RuntimeError, match="multiple optimizers is only supported with manual"):
        fit(Two())


class SavesAt(Callback):
    def __init__(self, hook: str) -> None:
        setattr(self, hook, self.save)

    def save(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == 3:
            trainer.strategy.lightning_module_state_dict()


@pytest.mark.parametrize("hook", ["on_before_zero_grad", "on_after_backward", "on_before_optimizer_step"])
def test_state_cannot_be_had_in_the_middle_of_a_step(hook: str) -> None:
    """There, a newer gradient would be applied before the one that is due."""
    with pytest.raises(StalenessError, match="on_train_batch_end or later"):
        fit(Module(), SavesAt(hook))


class Counts(Callback):
    """(optimizer steps, global steps), as Adam counts them, when ``hook`` is called."""

    def __init__(self, hook: str, then: Callable[[Trainer], Any] = lambda trainer: None) -> None:
        self.counts: list[tuple[int, int]] = []
        self.then = then
        setattr(self, hook, self.look)

    def look(self, trainer: Trainer, *_: Any) -> None:
        self.then(trainer)
        states = trainer.optimizers[0].state.values()
        self.counts.append((max((int(state["step"]) for state in states), default=0), trainer.global_step))


@pytest.fixture
def lags(tmp_path: Path) -> Callable[[list[int]], str]:
    """Writes a checkpoint of one trainer that recorded these lags."""

    def save(its: list[int]) -> str:
        torch.save({CHECKPOINT_KEY: torch.tensor([its], dtype=torch.uint8)}, tmp_path / "lags.ckpt")
        return str(tmp_path / "lags.ckpt")

    return save


LATEST = [0, 1, 2, 2, 2, 2]
"""The lags of an epoch of six steps in which nothing comes before the bound of two."""


def test_updates_come_at_the_bound_at_the_latest_and_as_soon_as_they_can(lags: Callable[[list[int]], str]) -> None:
    late, prompt, asked = (Counts("on_train_batch_end") for _ in range(3))
    asked.then = lambda trainer: trainer.strategy.flush()
    fit(Module(), late, max_epochs=1, lags=lags(LATEST))
    assert late.counts == [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (6, 6)]
    fit(Module(), prompt, max_epochs=1, lags=lags([0] * 6))
    assert prompt.counts == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (6, 6)]
    fit(Module(), asked, max_epochs=1)
    assert asked.counts == [(step, step) for step in range(1, 7)]


class Scheduled(Module):
    """A learning rate for each step, and an optimizer that counts in its groups, as some do."""

    def __init__(self, rate_is_tensor: bool = False) -> None:
        super().__init__(Counting)
        self.rate_is_tensor = rate_is_tensor
        self.present: list[float] = []
        self.steps: list[int] = []

    def on_train_batch_end(self, *_: Any) -> None:
        self.present.append(float(self.trainer.optimizers[0].param_groups[0]["lr"]))

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.rates.append(float(optimizer.param_groups[0]["lr"]))
        self.steps.append(self.trainer.global_step)

    def configure_optimizers(self) -> Any:
        rate: Any = torch.tensor(1.0) if self.rate_is_tensor else 1.0
        optimizer = self.optimizer(self.parameters(), lr=rate)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Counting(torch.optim.SGD):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.param_groups[0]["count"] = 0

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["count"] += 1
        return super().step(closure)


@pytest.mark.parametrize("rate_is_tensor", [False, True], ids=["float", "tensor"])
@pytest.mark.parametrize("its", [LATEST, [0] * 6, [0, 1, 2, 0, 1, 1]], ids=str)
def test_an_update_has_the_learning_rate_of_its_gradients_step(
    lags: Callable[[list[int]], str], its: list[int], rate_is_tensor: bool
) -> None:
    """Whenever it is applied, which differs between trainers; what is scheduled for now is there again afterwards."""
    module = Scheduled(rate_is_tensor)
    strategy = fit(module, max_epochs=1, lags=lags(its))
    assert module.rates == [0.5**step for step in range(6)]
    assert module.steps == list(range(6)), "a hook that asks for the step gets the same answer in all trainers"
    assert module.present == [0.5**step for step in range(1, 7)]
    assert strategy.optimizers[0].param_groups[0]["count"] == 6, "the optimizer's own is no setting of a step"


@pytest.mark.parametrize(
    ("its", "error", "says"),
    [
        ([0, 1, 2, 2], StalenessError, "step 3 cannot be repeated: .* 2 updates behind, but all but 0"),
        ([0, 255], StalenessError, "step 1 cannot be repeated: its lags were not recorded"),
        ([0, 3], RoleConfigError, "with lags of up to 3, but this run has 1 trainers and staleness=2"),
    ],
)
def test_lags_that_cannot_be_repeated_are_told(
    lags: Callable[[list[int]], str], its: list[int], error: type[Exception], says: str
) -> None:
    def flush(trainer: Trainer) -> None:
        if trainer.global_step == 3:
            trainer.strategy.flush()  # type: ignore[attr-defined]

    with pytest.raises(error, match=says):
        fit(Module(), Counts("on_train_batch_end", flush), lags=lags(its))


def test_a_checkpoint_without_lags_is_told(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "none.ckpt")
    with pytest.raises(RoleConfigError, match=r"has no lags.*lags='record'"):
        fit(Module(), lags=str(tmp_path / "none.ckpt"))


def test_a_resumed_run_goes_on_recording(tmp_path: Path) -> None:
    saves: Any = {"enable_checkpointing": True, "default_root_dir": tmp_path}
    callbacks = [ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=3, save_top_k=-1)]
    fit(Module(), *callbacks, lags="record", max_epochs=1, **saves)
    fit(Module(), lags="record", ckpt_path=str(tmp_path / "step=3.ckpt"), **saves)
    (last,) = (tmp_path / "checkpoints").glob("*.ckpt")
    (found,) = torch.load(last, weights_only=False)[CHECKPOINT_KEY].tolist()
    assert len(found) == 12
    assert all(lag <= 2 for lag in found), "a step that was not recorded has another number"


def test_a_hook_that_sees_no_averages_any_more_is_named() -> None:
    class Changes(Module):
        def on_after_backward(self) -> None:
            pass

    with pytest.warns(UserWarning, match="Changes.on_after_backward.*on_before_optimizer_step"):
        fit(Changes())


@pytest.mark.parametrize("state", ["lightning_module_state_dict", "optimizer_state"])
def test_state_is_complete_whichever_is_asked_for_first(state: str) -> None:
    def ask(trainer: Trainer) -> None:
        arguments = [trainer.optimizers[0]] if state == "optimizer_state" else []
        getattr(trainer.strategy, state)(*arguments)

    asked = Counts("on_train_batch_end", ask)
    fit(Module(), asked)
    assert all(updates == steps for updates, steps in asked.counts)


def test_a_flush_under_inference_mode_leaves_tensors_that_train() -> None:
    """Lightning validates under it where the backend allows; Adam's averages would be of no use afterwards."""

    def flush(trainer: Trainer) -> None:
        with torch.inference_mode():
            trainer.strategy.flush()  # type: ignore[attr-defined]

    module = Module()
    fit(module, Counts("on_train_batch_end", flush))
    assert not any(parameter.is_inference() for parameter in module.parameters())


def test_a_sanity_check_flushes_nothing() -> None:
    sanity = Counts("on_sanity_check_end")
    strategy = fit(Module(), sanity, num_sanity_val_steps=1)
    assert sanity.counts == [(0, 0)]
    assert strategy.staleness_stats is not None
    assert strategy.staleness_stats.applied == 12


def test_what_stops_in_mid_epoch_by_an_exception_is_not_waited_for(lags: Callable[[list[int]], str]) -> None:
    class Fails(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            if trainer.global_step == 4:
                raise ArithmeticError("no more")

    saved = Counts("on_exception", lambda trainer: trainer.strategy.lightning_module_state_dict())
    with pytest.raises(ArithmeticError):
        fit(Module(), Fails(), saved, lags=lags(LATEST))
    assert saved.counts == [(2, 4)]  # as far as it had come


def test_slurms_notice_in_mid_step_saves_a_complete_checkpoint_soon_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noticed(Callback):
        def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
            if trainer.global_step == 1:
                trainer._signal_connector._slurm_sigusr_handler_fn(signal.SIGUSR1, None)

    commands: list[Any] = []
    monkeypatch.setattr(f"{Trainer.__module__.split('.')[0]}.trainer.connectors.signal_connector.call", commands.append)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    fit(Module(), Noticed(), default_root_dir=tmp_path)
    (file,) = tmp_path.glob("hpc_ckpt_*.ckpt")
    saved = torch.load(file, weights_only=False)
    # The notice came with the second step; two steps later, all knew of it with the fifth's hand-out.
    assert saved["global_step"] == 5
    assert {int(state["step"]) for state in saved["optimizer_states"][0]["state"].values()} == {5}
    assert commands == [["scontrol", "requeue", "12"]]


def test_fits_leave_nothing_behind() -> None:
    trainer = Trainer(
        accelerator="cpu", devices=1, strategy=Alone(staleness=1), max_epochs=1, limit_val_batches=0, **QUIET
    )
    open_files = []
    for epochs in range(1, 6):
        trainer.fit_loop.max_epochs = epochs
        strategy = fit(Module(), trainer=trainer)
        open_files.append(psutil.Process(os.getpid()).num_fds())
        assert strategy.staleness_stats is not None
        assert strategy.staleness_stats.applied == 6
        assert strategy._updates is None
        assert "_broadcast_sigterm_tensor" not in vars(trainer.fit_loop.epoch_loop)
        assert trainer.callbacks == []  # type: ignore[attr-defined]
    assert open_files[-1] == open_files[1]


def test_a_search_for_a_learning_rate_leaves_nothing_in_flight() -> None:
    """It replaces the callbacks, and ends by an exception of Lightning's."""
    tried = []
    for staleness in (0, 2):
        module = Module(torch.optim.SGD)
        module.lr = 0.01  # type: ignore[assignment]
        start = module.net.weight.detach().clone()
        strategy = Alone(staleness=staleness)
        trainer = Trainer(accelerator="cpu", devices=1, strategy=strategy, max_epochs=1, limit_val_batches=0, **QUIET)
        loader: Any = DataLoader(range(6))  # type: ignore[arg-type]
        found = Tuner(trainer).lr_find(module, loader, num_training=5, early_stop_threshold=None)
        assert found is not None
        tried.append(found.results["lr"])
        torch.testing.assert_close(module.net.weight.detach(), start, rtol=0, atol=0)
        fit(module, trainer=trainer)
    assert tried[0] == tried[1]
    assert strategy.staleness_stats is not None
    assert strategy.staleness_stats.applied == 6


def test_swa_averages_complete_epochs() -> None:
    seen: list[Tensor] = []

    class Sees(Callback):
        def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
            seen.append(pl_module.net.weight.detach().clone())

    module = Module(torch.optim.SGD)
    fit(module, Sees(), StochasticWeightAveraging(0.01, swa_epoch_start=1), max_epochs=3)
    torch.testing.assert_close(module.net.weight.detach(), torch.stack(seen).mean(0))


@RunIf(min_lightning=(2, 6))
def test_averaged_weights_are_those_a_callback_saw() -> None:
    """Weight averaging averages what it finds after each step, up to k updates behind, and swaps it in to validate."""
    from pytorch_lightning.callbacks import WeightAveraging

    seen: list[Tensor] = []

    class Sees(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
            seen.append(pl_module.net.weight.detach().clone())

    module = Module()
    start = module.net.weight.detach().clone()
    fit(module, Sees(), WeightAveraging(avg_fn=get_ema_avg_fn(0.5)))
    average = start
    for number, weight in enumerate(seen):
        average = weight if number == 0 else average.lerp(weight, 0.5)
    torch.testing.assert_close(module.net.weight.detach(), average)
