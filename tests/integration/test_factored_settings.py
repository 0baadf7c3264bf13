"""Settings that cannot work are refused where they are given, before any process starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer

from lightning_gnnload import FactoredStrategy
from lightning_gnnload.errors import RoleConfigError


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"samplers": 0}, "samplers=0.*at least 1.*strategy='auto'"),
        ({"samplers": "many"}, "samplers='many'.*or 'auto'"),
        ({"samplers": "auto", "trainers": 2}, "samplers='auto', trainers=2.*number of both"),
        ({"trainers": 0}, "trainers=0.*at least 1"),
        ({"samplers": True}, "samplers=True"),
        ({"staleness": -1}, "staleness=-1.*whole number.*0 for plain DDP"),
        ({"staleness": 0.5}, "staleness=0.5.*whole number"),
        ({"staleness": True}, "staleness=True"),
        ({"lags": "record"}, "lags='record' with staleness=0.*1 to 254 is needed"),
        ({"staleness": 1, "lags": "record", "switching": True}, "lags='record' with switching=True.*switching=False"),
        ({"staleness": 1, "lags": True}, "lags=True: 'record', or the path of a checkpoint"),
        ({"staleness": 1, "find_unused_parameters": True}, "staleness=1 with find_unused_parameters=True.*Leave"),
        ({"staleness": 2, "ddp_comm_hook": print}, "staleness=2 with ddp_comm_hook=.*DDP takes one"),
        ({"staleness": 1, "ddp_comm_wrapper": print}, "staleness=1 with ddp_comm_wrapper=.*DDP takes one"),
        ({"staleness": 1, "model_averaging_period": 4}, "staleness=1 with model_averaging_period=4"),
        ({"queue_depth": "deep"}, "queue_depth='deep'.*whole number"),
        ({"queue_memory_bytes": 1 << 30}, "queue_memory_bytes=1073741824.*queue_depth='auto'"),
        ({"queue_depth": "auto", "queue_memory_bytes": 0}, "queue_memory_bytes=0.*at least 1"),
        ({"queue_depth": 0}, "queue_depth=0.*at least 1"),
        ({"sampler_threads": 0}, "sampler_threads=0.*at least 1"),
        ({"stall_timeout_s": 0}, "stall_timeout_s=0.*positive"),
        ({"connect_timeout_s": -1}, "connect_timeout_s=-1.*positive"),
    ],
)
def test_bad_options_name_themselves_and_what_is_needed(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(RoleConfigError, match=says):
        FactoredStrategy(**settings)


def test_arguments_of_ddp_that_have_their_defaults_exclude_nothing() -> None:
    """A configuration file names them all."""
    FactoredStrategy(staleness=2, find_unused_parameters=False, ddp_comm_hook=None, broadcast_buffers=True)
    FactoredStrategy(find_unused_parameters=True, broadcast_buffers=True, model_averaging_period=4)


def trainer(devices: int, **settings: Any) -> Trainer:
    return Trainer(accelerator="cpu", devices=devices, strategy=FactoredStrategy(**settings), logger=False)


@pytest.mark.parametrize(("devices", "samplers"), [(1, 2), (2, 2), (2, 3)])
def test_somebody_must_train(devices: int, samplers: int) -> None:
    with pytest.raises(RoleConfigError, match=rf"samplers={samplers} of devices={devices}.*devices={samplers + 1}\)"):
        trainer(devices, samplers=samplers)


@pytest.mark.parametrize(("devices", "trainers", "samplers"), [(1, 1, 1), (1, 2, 3), (2, 1, 1), (2, 3, 2)])
def test_ranks_go_round_the_devices(devices: int, trainers: int, samplers: int) -> None:
    strategy = trainer(devices, trainers=trainers, samplers=samplers).strategy
    plan = strategy.roles
    assert (plan.num_devices, plan.num_trainers, plan.num_samplers) == (trainers + samplers, trainers, samplers)
    assert strategy.launcher.num_processes == trainers + samplers
    # On GPUs: ranks of one device share it, and no device idles while another has two ranks more.
    strategy._parallel_devices = None
    strategy.parallel_devices = [torch.device("cuda", index) for index in range(devices)]
    assert [device.index for device in strategy._parallel_devices] == [
        rank % devices for rank in range(trainers + samplers)
    ]
    # NCCL refuses two ranks of one GPU.
    assert strategy._get_process_group_backend() == ("gloo" if trainers > devices else "nccl")
