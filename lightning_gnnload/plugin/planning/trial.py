"""Trains two ranks for some steps, in processes of their own: what they take to meet shows in nothing less."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.search import MeasuredRun, meeting_ms
from lightning_gnnload.pipeline.forecast.work import RunLayout
from lightning_gnnload.plugin.planning.configuration import planned_configuration

_WARM_UP, _FEWEST, _MOST = 12, 20, 200  # steps
_STARTING_S = 300.0  # in which two ranks must have imported all, and have their data
_SECONDS = 4.0  # of training
_STEPS = "steps_ms.json"
_ALONE = {
    "max_epochs": -1,
    "limit_val_batches": 0,
    "num_sanity_val_steps": 0,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
_LEFT_OUT = ("fast_dev_run", "limit_train_batches", "max_time", "min_epochs", "min_steps", "num_nodes", "profiler")
_OF_A_WHOLE_FIT = ("ckpt_path", "out", "test_after_fit")
_STARTERS = ("WORLD_SIZE", "SLURM_NTASKS")  # of launchers that start ranks: here, none are to be


class TrialClock(pl.Callback):
    """A callback that writes how long each step took, from its predecessor's end, to the Trainer's root folder."""

    def __init__(self) -> None:
        self._ended_s: float | None = None
        self._steps_ms: list[float] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._ended_s = None  # the first step of an epoch waits for its mini-batch

    def on_train_batch_end(self, *_: Any) -> None:
        now_s = time.perf_counter()
        if self._ended_s is not None:
            self._steps_ms.append((now_s - self._ended_s) * 1e3)
        self._ended_s = now_s

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            Path(trainer.default_root_dir, _STEPS).write_text(json.dumps(self._steps_ms[_WARM_UP:]))


def with_meeting(measured: MeasuredRun, configuration: Mapping[str, Any], machine: Machine) -> MeasuredRun:
    """Adds ``meeting_ms`` to what was measured of a configuration on this machine, where two of its ranks can train
    without devices: else it stays as it is.

    Raises PlanError: the ranks failed, or took too long.
    """
    layout = trial_layout(measured, machine)
    if layout is None or any(os.environ.get(name, "1") not in ("", "1") for name in _STARTERS):
        return measured
    expected_ms = measured.works[max(measured.works)].train_ms(layout.torch_threads) + 1e-3
    num_steps = _WARM_UP + int(min(max(_SECONDS * 1e3 / expected_ms, _FEWEST), _MOST))
    step_ms = trained_step_ms(configuration, measured.mine, layout, num_steps)
    return replace(measured, meeting_ms=meeting_ms(measured, layout, machine, step_ms))


def trial_layout(measured: MeasuredRun, machine: Machine) -> RunLayout | None:
    """Two trainers that share the machine's cores; None where it has devices or one core, or
    seeds that two cannot share."""
    whole, cores = measured.global_batch, machine.cores
    if machine.gpus or cores < 2 or whole % 2:
        return None
    mine = replace(measured.mine, samplers=0, switching=False, trainers=2, batch_size=whole // 2)
    layout = replace(mine, way="ddp", threads=1, torch_threads=max(cores // 2, 1))
    return layout if measured.fits_seeds(layout, machine) else None


def trained_step_ms(configuration: Mapping[str, Any], mine: RunLayout, layout: RunLayout, num_steps: int) -> float:
    """Trains ``num_steps`` steps of ``layout`` by ``gnnload fit``, and returns how long one took. Nothing is written
    but to a temporary folder. Raises PlanError: the ranks failed, or took too long."""
    import yaml

    with tempfile.TemporaryDirectory(prefix="gnnload-plan-") as folder:
        written, _ = planned_configuration(configuration, mine, layout, plan_file=Path(folder, "none.json"))
        trainer = {key: value for key, value in written["trainer"].items() if key not in _LEFT_OUT}
        # What changes a step stays; whatever writes files, or stops early, does not.
        callbacks = [entry for entry in trainer["callbacks"] if str(_class_path(entry)).endswith("Accelerate")]
        clock = {"class_path": f"{TrialClock.__module__}.{TrialClock.__qualname__}"}
        settings = {"max_steps": num_steps, "default_root_dir": folder, "callbacks": [*callbacks, clock]}
        written["trainer"] = trainer | _ALONE | settings
        file = Path(folder, "trial.yaml")
        file.write_text(yaml.safe_dump({key: value for key, value in written.items() if key not in _OF_A_WHOLE_FIT}))
        _run([sys.executable, "-m", "lightning_gnnload.plugin.commands.cli", "fit", "--config", str(file)])
        try:
            return statistics.fmean(json.loads(Path(folder, _STEPS).read_text()))
        except (OSError, ValueError) as error:
            raise PlanError(f"of {num_steps} steps of two ranks none was timed: their epochs are short.") from error


def _class_path(entry: Any) -> Any:
    return entry.get("class_path") if isinstance(entry, Mapping) else entry


def _run(command: list[str]) -> None:
    """Runs a command and all that it starts, and ends all of it at an interrupt. Raises PlanError: it failed, or took
    too long."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, errors = process.communicate(timeout=_STARTING_S)
    except subprocess.TimeoutExpired:
        raise PlanError(f"two ranks were not done after {_STARTING_S:.0f} s.") from None
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        last = (errors.strip().splitlines() or ["without a word"])[-1]
        raise PlanError(f"two ranks ended with status {process.returncode}: {last}")
