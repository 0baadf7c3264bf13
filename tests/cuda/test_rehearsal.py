"""What samplers="auto" measures where mini-batches can be drawn on a device: on an emulated one, with planted times."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.ops.cuda.launch import open_device as opening
from lightning_gnnload.pipeline.forecast.stages import StageTimes
from lightning_gnnload.pipeline.source import BatchSource, DeviceSource
from lightning_gnnload.plugin.job import RoleDecision, RolePlan
from lightning_gnnload.plugin.module import trainer_device
from lightning_gnnload.plugin.strategy import agreement, rehearsal, trial
from lightning_gnnload.plugin.strategy.profile import Measured, measure
from lightning_gnnload.plugin.strategy.rehearsal import RehearsalSetting
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler
from tests.cuda.emulated import EmulatedDevice
from tests.cuda.test_trainer_device import on_gpu
from tests.unit.plugin.strategy.test_profile import Model, trainer
from tests.unit.toy import toy_data

SETTING = RehearsalSetting(torch.device("cpu"), 2, (), {"machine": "this"})
GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "LIMIT_S", 0.2)
    monkeypatch.setattr(trial, "_NUM_TURNS", 1)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """What the trainer's device is opened as."""
    device = EmulatedDevice()
    monkeypatch.setattr(opening, "open_device", lambda of: device)
    monkeypatch.setattr(trainer_device, "_root_device", lambda module: GPU)
    return device


class SlowSampler(DeviceSampler):
    """Takes 50 ms more than a device does."""

    def sample(self, draw: Any) -> Any:
        time.sleep(0.05)
        return super().sample(draw)


def on_emulated(module: Any, source: BatchSource) -> DeviceSource:
    device, workload = EmulatedDevice(), source.workload
    return DeviceSource(source, SlowSampler(workload.sampler, place(workload.graph, device), device), device, None)


def module(**settings: Any) -> GraphDataModule:
    return GraphDataModule(toy_data(), NeighborSampler([3, 2]), batch_size=16, **settings)


def measured(data: GraphDataModule, setting: RehearsalSetting = SETTING) -> Measured:
    return measure(trainer(), {"model": Model(), "datamodule": data}, setting, lambda facts: False)


def test_samplers_are_timed_on_their_device_and_on_the_host() -> None:
    found = measured(module(), replace(SETTING, on_sampler=on_emulated))
    assert found.times is not None
    assert found.on_host is not None
    assert (found.times.draws_on_device, found.on_host.draws_on_device) == (True, False)
    assert found.times.sample_ms >= 50 > found.on_host.sample_ms
    # The same steps were timed for both.
    assert found.times.train_fixed_ms == found.on_host.train_fixed_ms


def test_nobody_asks_the_host_where_the_device_is_set(opened: EmulatedDevice) -> None:
    found = measured(module(sampling_device="cuda"), replace(SETTING, on_sampler=on_emulated))
    assert found.times is not None
    assert found.times.draws_on_device
    assert found.on_host is None


def test_a_lone_rank_tries_both(opened: EmulatedDevice) -> None:
    data = module()
    found = measured(data, replace(SETTING, host_threads=(1, 2)))
    assert list(found.steps_ms) == [0, 1, 2]
    assert all(step_ms > 0 for step_ms in found.steps_ms.values())
    assert found.times is None
    assert opened.num_launches > 0
    assert data.trainer is None


@pytest.mark.parametrize("setting", ["cpu", "cuda"])
def test_a_lone_rank_whose_setting_says_who_draws_tries_nothing(opened: EmulatedDevice, setting: Any) -> None:
    found = measured(module(sampling_device=setting), replace(SETTING, host_threads=(2,)))
    assert found == Measured(found.facts)


def test_a_training_that_ends_by_itself_is_told(opened: EmulatedDevice) -> None:
    class Ending(Model):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.trainer.should_stop = batch_idx == 3
            return super().training_step(batch, batch_idx)

    arguments = {"model": Ending(), "datamodule": module()}
    with pytest.raises(RoleConfigError, match="before steps were timed"):
        measure(trainer(), arguments, replace(SETTING, host_threads=(2,)), lambda facts: False)


def test_the_data_module_does_what_was_decided(opened: EmulatedDevice) -> None:
    """Its batches are the same; those of the host are uploaded, where a cache lies on the device, or made by it."""
    seen: dict[int, list[Any]] = {}
    for way in (0, 2):
        data = on_gpu(module())
        data._trainer.strategy.role_decision = RoleDecision(1, 1, host_threads=way)
        source = data.source("train")
        batches = data._sampling.batches(data, source, lambda batch: batch)
        seen[way] = [None if batches is None else batches.draws_there]
        data._sampling.close()
    assert seen == {0: [True], 2: [None]}


def lone_job(tmp_path: Any, **changed: Any) -> Any:
    return SimpleNamespace(
        **{"roles": RolePlan(1, 1), "switching": False, "device": GPU, "samplers": "auto"}
        | {"num_sampler_threads": 2, "has_sampler_threads": False, "start_method": "popen"}
        | changed
    )


def decided(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, found: Measured, **changed: Any) -> tuple[Any, Any]:
    settings: list[RehearsalSetting] = []

    def fake(trainer: Any, arguments: Any, setting: RehearsalSetting, is_known: Any) -> Measured:
        settings.append(setting)
        return replace_facts(found, is_known)

    def replace_facts(found: Measured, is_known: Any) -> Measured:
        return Measured(found.facts) if is_known(found.facts) else found

    monkeypatch.setattr(agreement.profile, "measure", fake)
    monkeypatch.setattr(agreement, "_facts", lambda job, trainer: {})
    user = trainer(default_root_dir=tmp_path)
    user.state.fn = agreement.TrainerFn.FITTING
    return agreement._decide(lone_job(tmp_path, **changed), user, {}), settings


def test_a_lone_rank_draws_where_steps_are_shorter(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    cores = len(os.sched_getaffinity(0))
    found = Measured({"batch_size": 16}, steps_ms={0: 8.8, 2: 7.0})
    decision, [setting] = decided(monkeypatch, tmp_path, found)
    assert setting.host_threads == tuple(sorted({2, max(cores - 2, 2)}))
    assert str(decision) == (
        "1 of 1 ranks samples: it trains too, as it is the only one; a step takes 8.8 ms where its device draws, 7.0 "
        "ms where 2 threads of the host do, so 2 threads of the host draw"
    )
    again, _ = decided(monkeypatch, tmp_path, found)
    assert again == replace(decision, reused=True), "kept with all that it depends on"
    other, [setting] = decided(monkeypatch, tmp_path, Measured({"batch_size": 8}), has_sampler_threads=True)
    assert setting.host_threads == (2,)
    assert (other.host_threads, other.drawing) == (0, "")


TIMES = StageTimes(12.0, 0.0, 1.0, 11.0, 0.0, 0.0, 30.0, sampler_threads=1, draws_on_device=True, trains_on_device=True)


@pytest.mark.parametrize(
    ("device_ms", "host_ms", "samplers", "host_threads"),
    [
        (3.0, 40.0, 1, 0),
        (24.0, 5.6, 1, 4),  # 1.4 ms a batch of four threads: one sampler is enough, where devices take two
        (12.0, 48.0, 2, 0),  # as fast: devices leave cores to others
        (12.0, 47.6, 2, 0),  # less than measuring errs by
        (1.0, 2.0, 1, 0),  # either way training is what a batch waits for
    ],
)
def test_samplers_draw_where_batches_are_trained_on_sooner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, device_ms: float, host_ms: float, samplers: int, host_threads: int
) -> None:
    times = replace(TIMES, sample_ms=device_ms)
    on_host = replace(TIMES, sample_ms=host_ms, sampler_threads=4, draws_on_device=False)
    found = Measured({"batch_size": 16}, times, on_host)
    decision, _ = decided(monkeypatch, tmp_path, found, roles=RolePlan(8, 1))
    assert (decision.num_samplers, decision.host_threads) == (samplers, host_threads)
    assert decision.stages == (on_host if host_threads else times)
    where = "so the host draws" if host_threads else "so devices draw"
    assert f"{device_ms:.1f} ms where a sampler's device draws, in {host_ms / 4:.1f} ms where 4 threads" in str(
        decision
    )
    assert str(decision).endswith(where)


def test_the_strategy_gives_its_loader_the_threads(opened: EmulatedDevice) -> None:
    strategy = FactoredStrategy(samplers="auto")
    strategy.decide(RoleDecision(1, 1, host_threads=14))
    loader = SimpleNamespace(num_threads=2)
    strategy._beside(loader)  # type: ignore[arg-type]
    assert loader.num_threads == 14
