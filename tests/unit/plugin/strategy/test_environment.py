"""Ranks that were started otherwise than the Trainer believes would wait for each other: they are refused."""

from __future__ import annotations

import os

import pytest
from pytorch_lightning import Trainer
from pytorch_lightning.plugins import environments

from lightning_gnnload import FactoredStrategy
from lightning_gnnload.errors import LaunchError
from lightning_gnnload.plugin.job import RolePlan
from lightning_gnnload.plugin.strategy.rendezvous import check_environment

PLAN = RolePlan(num_devices=3, num_samplers=1, num_nodes=2)
MEETING = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234", "NODE_RANK": "1"}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("SLURM_", "MASTER_")) or name.endswith(("RANK", "WORLD_SIZE")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environment", "variables", "says"),
    [
        (environments.LightningEnvironment, {}, "MASTER_ADDR, MASTER_PORT, NODE_RANK are not set"),
        (environments.LightningEnvironment, {**MEETING, "NODE_RANK": "2"}, "NODE_RANK=2.*from 0 to 1"),
        (environments.TorchElasticEnvironment, {"LOCAL_WORLD_SIZE": "2"}, "--nproc-per-node=2.*devices=3"),
        (environments.TorchElasticEnvironment, {"GROUP_WORLD_SIZE": "1"}, "--nnodes=1.*num_nodes=2"),
        (environments.SLURMEnvironment, {"SLURM_TASKS_PER_NODE": "3,2"}, "3,2 tasks.*--ntasks-per-node=3"),
        (
            environments.SLURMEnvironment,
            {"SLURM_TASKS_PER_NODE": "3(x2)", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"},
            r"2\(x2\) tasks",
        ),
    ],
)
def test_what_cannot_work_is_refused(
    environment: type, variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match=says):
        check_environment(environment(), PLAN)


@pytest.mark.parametrize(
    ("environment", "variables"),
    [
        (environments.LightningEnvironment, MEETING),
        (environments.LightningEnvironment, {"GROUP_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}),
        (environments.TorchElasticEnvironment, {"LOCAL_WORLD_SIZE": "3", "GROUP_WORLD_SIZE": "2"}),
        (environments.SLURMEnvironment, {"SLURM_TASKS_PER_NODE": "3(x2)"}),
        (environments.SLURMEnvironment, {"SLURM_TASKS_PER_NODE": "8(x2)", "SLURM_STEP_TASKS_PER_NODE": "3,3"}),
    ],
)
def test_what_works_passes(environment: type, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    check_environment(environment(), PLAN)


def test_it_is_refused_before_any_process_starts() -> None:
    with pytest.raises(LaunchError, match=r"num_nodes=2, but MASTER_ADDR, MASTER_PORT, NODE_RANK are not set"):
        Trainer(accelerator="cpu", devices=2, num_nodes=2, strategy=FactoredStrategy(), logger=False)
