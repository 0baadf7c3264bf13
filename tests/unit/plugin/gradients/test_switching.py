"""What switching cannot do is refused before training, with the reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import GradientAccumulationScheduler
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.strategies import DDPStrategy
from torch import nn

from lightning_gnnload import FactoredStrategy
from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.pipeline.contributed import ContributedStep
from lightning_gnnload.plugin.gradients.switching import (
    Switching,
    check_optimizer_switches,
    check_switching,
    check_train_loader,
)


class Manual(BoringModel):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class ReadsItself(BoringModel):
    def training_step(self, dataloader_iter: Any) -> Any:
        return None


class Normalises(BoringModel):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.norm = layer


def check(module: LightningModule, num_nodes: int = 1, **options: Any) -> None:
    strategy = FactoredStrategy(switching=True)
    options |= {"logger": False, "enable_checkpointing": False}
    trainer = Trainer(accelerator="cpu", devices=2, strategy=strategy, **options)
    strategy.num_nodes = num_nodes  # several machines need an environment that tells them apart
    check_switching(strategy, trainer, module)


@pytest.mark.parametrize(
    ("module", "options", "says"),
    [
        (BoringModel(), {"num_nodes": 2}, "num_nodes=2: parameters reach samplers of one machine"),
        (BoringModel(), {"accumulate_grad_batches": 3}, "accumulate_grad_batches=3.*larger batch_size"),
        (BoringModel(), {"callbacks": [GradientAccumulationScheduler({0: 1, 4: 2})]}, "accumulate_grad_batches"),
        (Manual(), {}, "Manual.automatic_optimization=False"),
        (ReadsItself(), {}, r"ReadsItself.training_step\(dataloader_iter\)"),
        (BoringModel(), {"sync_batchnorm": True}, "synchronised BatchNorm.*plain BatchNorm works"),
        (Normalises(nn.SyncBatchNorm(3)), {}, "synchronised BatchNorm"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(
    module: LightningModule, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(RoleConfigError, match=rf"switching=True with {says}.*switching=False"):
        check(module, **options)


def test_a_gradient_scaler_is_refused() -> None:
    strategy = FactoredStrategy(switching=True)
    trainer = Trainer(accelerator="cpu", devices=2, strategy=strategy, logger=False, enable_checkpointing=False)
    strategy.precision_plugin.scaler = object()  # type: ignore[attr-defined]  # 16-mixed needs a GPU to be made
    with pytest.raises(RoleConfigError, match=r"16-mixed.*bf16-mixed"):
        check_switching(strategy, trainer, BoringModel())


def test_what_works_is_let_through() -> None:
    check(BoringModel())
    check(Normalises(nn.BatchNorm1d(3)))
    check(BoringModel(), precision="bf16-mixed")
    check_train_loader(object())


def test_an_optimizer_that_evaluates_the_loss_again_is_refused() -> None:
    with pytest.raises(RoleConfigError, match="LBFGS: it evaluates the loss several times"):
        check_optimizer_switches(torch.optim.LBFGS(nn.Linear(1, 1).parameters()))
    check_optimizer_switches(torch.optim.SGD(nn.Linear(1, 1).parameters()))


@pytest.mark.parametrize("loaders", [{"a": object()}, [object()]])
def test_one_loader_gives_the_steps(loaders: object) -> None:
    with pytest.raises(RoleConfigError, match=r"several train loaders.*Return one loader"):
        check_train_loader(loaders)


@pytest.mark.parametrize("name", ["find_unused_parameters", "ddp_comm_hook", "model_averaging_period"])
def test_arguments_of_ddp_that_exclude_contributions_are_refused(name: str) -> None:
    with pytest.raises(RoleConfigError, match=f"switching=True with {name}=True"):
        FactoredStrategy(switching=True, **{name: True})


@pytest.mark.parametrize("switching", [-1, 1.5, "yes", None])
def test_switching_is_on_or_off_or_a_bound(switching: Any) -> None:
    with pytest.raises(RoleConfigError, match=r"True or False is needed, or by how many updates"):
        FactoredStrategy(switching=switching)


STEP = ("batch_to_device", "training_step", "backward", "pre_backward")


def test_a_step_passes_through_switching_only_while_it_is_on() -> None:
    """Without it, each step runs Lightning's own methods."""
    assert all(getattr(FactoredStrategy, name) is getattr(DDPStrategy, name) for name in STEP)
    strategy = FactoredStrategy(switching=True)
    job: Any = SimpleNamespace(roles=SimpleNamespace(world_size=2), global_rank=1)
    switch = Switching(job, None, None, BoringModel(), lambda: 0)  # type: ignore[arg-type]  # trainer 0 has a queue
    switch.install(strategy)
    step, loss = ContributedStep(0, 5), torch.ones(())
    switch.begin_step(step)
    assert strategy.batch_to_device(step) is step
    assert strategy.training_step(step, 5).isnan()
    assert strategy.backward(loss, None) is loss
    switch.begin_step(torch.ones(2, 32))
    with pytest.raises(AssertionError):  # Lightning's own, without a model
        strategy.training_step(torch.ones(2, 32), 6)
    switch.close()
    assert not set(STEP) & vars(strategy).keys()
