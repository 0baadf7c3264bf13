"""``gnnload fit`` under Ray Train: the command starts workers, each of which runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from lightning_gnnload.errors import LaunchError, RoleConfigError
from lightning_gnnload.ray.addresses import FactoredTorchConfig

_MOST_FAILURES = 3


def run_command(config: Mapping[str, Any]) -> None:
    """What Ray Train runs in each worker: ``gnnload``, with a strategy that the worker finds in its configuration.

    Where a checkpoint was reported (:class:`.RayReportCallback`) before a worker was lost, it goes on from there.

    Args:
        config: ``arguments``, those of ``gnnload``; ``folder``, which paths among them begin in.

    Raises:
        LaunchError: the command has failed; it has printed why.

    Example:
        >>> TorchTrainer(
        ...     run_command,
        ...     train_loop_config={"arguments": ["fit", "--config", "run.yaml"], "folder": "/data"},
        ...     torch_config=FactoredTorchConfig(),
        ...     scaling_config=ScalingConfig(num_workers=3),
        ... ).fit()  # doctest: +SKIP
    """
    from ray.train.lightning import RayTrainReportCallback  # first: gnnload follows the Lightning that is imported

    from lightning_gnnload.plugin.commands import cli

    os.chdir(config["folder"])
    sys.argv = ["gnnload", *config["arguments"]]
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        sys.argv += ["--ckpt_path", str(Path(checkpoint.path, RayTrainReportCallback.CHECKPOINT_NAME))]
    try:
        cli.main()
    except SystemExit as end:  # would end the worker's thread alone, for which Ray waits
        if end.code:
            raise LaunchError(f"gnnload {config['arguments'][0]} ended with {end.code}; see the output above.") from end


def start_command(arguments: Sequence[str], trainer: Mapping[str, Any]) -> None:
    """Runs ``gnnload`` with these arguments in Ray's workers, on the cluster of RAY_ADDRESS, or on this machine.

    Args:
        trainer: the Trainer's settings. ``devices`` is the number of workers of each machine, ``num_nodes`` that of
            machines; what is reported lies below ``default_root_dir``. With a RayReportCallback among ``callbacks``,
            Ray starts the workers again when one is lost, three times at most.

    Raises:
        RoleConfigError: ``devices`` is no number, or no machine has a core for each.
        ray.train.TrainingFailedError: the command has failed in a worker.
    """
    setting, num_nodes = str(trainer.get("devices")), trainer.get("num_nodes") or 1
    devices = int(setting) if setting.isdecimal() else 0
    if not devices:
        raise RoleConfigError(
            f"trainer.devices={setting}: Ray needs to know how many workers a machine shall have. Give trainer.devices "
            f"as a number, trainers and samplers together."
        )
    if not ray.is_initialized():
        ray.init()
    cores = sorted(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])[-num_nodes:]
    if len(cores) < num_nodes or cores[0] < devices:
        raise RoleConfigError(
            f"trainer.devices={devices}, num_nodes={num_nodes}: machines of this cluster have {cores} cores. Use fewer "
            f"devices, or add machines: ray start --address=..."
        )
    # So many that a machine has room for no further worker: the same number on each. Ray counts ten-thousandths.
    num_cpus = int(1000 * cores[0] / devices) / 1000
    reports = any("RayReportCallback" in str(callback) for callback in trainer.get("callbacks") or ())
    TorchTrainer(
        run_command,
        train_loop_config={"arguments": list(arguments), "folder": os.getcwd()},
        torch_config=FactoredTorchConfig(),
        scaling_config=ScalingConfig(
            num_workers=devices * num_nodes,
            use_gpu=trainer.get("accelerator") in ("gpu", "cuda"),
            resources_per_worker={"CPU": num_cpus},
            placement_strategy="PACK",
        ),
        run_config=RunConfig(
            storage_path=os.path.abspath(trainer.get("default_root_dir") or "."),
            failure_config=FailureConfig(max_failures=_MOST_FAILURES if reports else 0),
        ),
    ).fit()
