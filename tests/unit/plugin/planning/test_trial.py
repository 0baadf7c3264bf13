"""Two ranks that are trained to see what they take to meet, and when they are not."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.machine import Machine, machine_of
from lightning_gnnload.pipeline.forecast.search import forecast_epoch
from lightning_gnnload.pipeline.forecast.work import RunLayout
from lightning_gnnload.plugin.planning import trial
from lightning_gnnload.plugin.planning.trial import TrialClock, trained_step_ms, trial_layout, with_meeting
from tests.unit.pipeline.forecast.runs import measured_run

TWO_CORES = Machine(cores=2, memory_gib=16.0)


def configuration(root: Path) -> dict[str, Any]:
    sizes: dict[str, Any] = {
        "kind": "citation",
        "num_nodes": 2000,
        "num_edges": 12000,
        "num_features": 8,
        "train_fraction": 0.5,
    }
    return {
        "trainer": {
            "accelerator": "cpu",
            "max_epochs": 1,
            "fast_dev_run": True,
            "limit_train_batches": 2,
            "callbacks": [{"class_path": "ModelCheckpoint", "init_args": {"dirpath": str(root / "checkpoints")}}],
        },
        "model": {"class_path": "SAGE", "init_args": {"hidden": 8}},
        "data": {
            "data": {"class_path": "Synthetic", "init_args": sizes | {"root": str(root)}},
            "sampler": {"class_path": "NeighborSampler", "init_args": {"fanouts": [2]}},
            "batch_size": 32,
        },
    }


def test_two_ranks_train_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    mine = RunLayout(batch_size=32, torch_threads=2)
    layout = trial_layout(measured_run(global_batch=32, mine=mine), TWO_CORES)
    assert layout is not None
    # More steps than the user's limits allow, by a model whose step takes no second.
    assert 0 < trained_step_ms(configuration(tmp_path), mine, layout, num_steps=16) < 60_000
    assert not (tmp_path / "checkpoints").exists()


def test_what_ranks_say_when_they_cannot_is_passed_on() -> None:
    ending = "import sys; print('first', 'no such model', sep=chr(10), file=sys.stderr); sys.exit(3)"
    with pytest.raises(PlanError, match="status 3: no such model"):
        trial._run([sys.executable, "-S", "-c", ending])


def test_ranks_that_hang_are_ended_with_all_that_they_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {child!r}])"
    monkeypatch.setattr(trial, "_STARTING_S", 1.5)
    with pytest.raises(PlanError, match="not done after"):
        trial._run([sys.executable, "-S", "-c", parent])
    number = int((tmp_path / "pid").read_text())
    for _ in range(100):  # until the system has taken it away
        if not Path(f"/proc/{number}").exists() or "Z" in Path(f"/proc/{number}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    os.kill(number, 9)
    pytest.fail("a rank outlived the one that started it")


def test_a_trial_makes_the_forecast_of_its_layout_true(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measured_run(mine=RunLayout(batch_size=1024, torch_threads=2))
    layout = trial_layout(measured, TWO_CORES)
    assert layout is not None
    expected_ms = forecast_epoch(replace(measured, meeting_ms=0.0), layout, TWO_CORES).step.step_ms
    for took_ms in (1.5 * expected_ms, 0.5 * expected_ms):  # none are faster than their work
        monkeypatch.setattr(trial, "trained_step_ms", lambda *_, took_ms=took_ms: took_ms)
        after = with_meeting(measured, {}, TWO_CORES)
        step_ms = forecast_epoch(after, layout, TWO_CORES).step.step_ms
        assert step_ms == pytest.approx(max(took_ms, expected_ms), rel=0.01)
        # One rank has nobody to meet.
        alone = replace(layout, way="auto", trainers=1)
        assert forecast_epoch(after, alone, TWO_CORES) == forecast_epoch(measured, alone, TWO_CORES)


def test_ranks_are_tried_only_where_two_can_train(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measured_run()
    assert trial_layout(measured, Machine(cores=1, memory_gib=16.0)) is None
    assert trial_layout(measured, machine_of({"cores": 8, "memory_gib": 16, "gpus": ["L4"]})) is None
    odd = measured_run(global_batch=33, mine=RunLayout(batch_size=33))
    assert trial_layout(odd, TWO_CORES) is None
    monkeypatch.setenv("WORLD_SIZE", "2")  # torchrun's, whose ranks would be taken for theirs
    assert with_meeting(measured, {}, TWO_CORES) is measured


def test_the_first_steps_of_a_fit_and_of_its_epochs_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = iter(range(0, 10**6, 2))
    monkeypatch.setattr(trial.time, "perf_counter", lambda: float(next(now_s)))
    clock, fit = TrialClock(), SimpleNamespace(is_global_zero=True, default_root_dir=tmp_path)
    for num_steps in (9, 9, 3):
        clock.on_train_epoch_start(fit, None)  # type: ignore[arg-type]
        next(now_s)
        for _ in range(num_steps):
            clock.on_train_batch_end()
    clock.on_train_end(fit, None)  # type: ignore[arg-type]
    assert json.loads((tmp_path / trial._STEPS).read_text()) == [2000.0] * (8 + 8 + 2 - trial._WARM_UP)
