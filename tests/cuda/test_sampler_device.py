"""Where a sampler rank draws, and what it says where that is not its device."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import GraphDataModule, NeighborSampler, ShadowSampler
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.errors import CudaUnavailableError, LoaderConfigError
from lightning_gnnload.ops.cuda.launch import open_device as opening
from lightning_gnnload.ops.cuda.launch import runtime
from lightning_gnnload.pipeline.source import BatchSource, DeviceSource
from lightning_gnnload.plugin.job import RoleDecision, RolePlan
from lightning_gnnload.plugin.strategy.sampler_device import SamplerDevice, reader_of
from lightning_gnnload.sample.device import placement
from lightning_gnnload.sample.parts.sampler import PartSampler
from tests.cuda.emulated import EmulatedDevice
from tests.cuda.fake_runtime import FakeRuntime
from tests.unit.parts import partition_of
from tests.unit.toy import toy_data, toy_source, toy_workload

GPU = torch.device("cuda", 3)


def job(**changed: Any) -> Any:
    return SimpleNamespace(
        **{"device": GPU, "shares_devices": False, "switching": False, "global_rank": 2, "num_sampler_threads": 4}
        | {"decision": None}
        | {"roles": RolePlan(4, 2), "local_rank": 3}
        | changed
    )


def module(setting: str, sampler: Any = None) -> GraphDataModule:
    return GraphDataModule(toy_data(), sampler or NeighborSampler([2]), sampling_device=setting)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """What every device is opened as."""
    found = EmulatedDevice()
    monkeypatch.setattr(opening, "open_device", lambda of: found)
    monkeypatch.setattr(runtime, "runtime_of", lambda of: FakeRuntime())
    return found


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(of: torch.device) -> Any:
        raise CudaUnavailableError(f"{of} is on strike")

    monkeypatch.setattr(opening, "open_device", refuse)


@pytest.mark.parametrize("setting", ["auto", "cuda"])
def test_a_sampler_draws_on_its_device_and_places_the_graph_once(device: EmulatedDevice, setting: str) -> None:
    sampling, source = SamplerDevice(job()), toy_source()
    drawn = [sampling.source(module(setting), source) for _ in range(2)]
    assert all(isinstance(each, DeviceSource) for each in drawn)
    assert drawn[0]._draws.topology is drawn[1]._draws.topology
    assert drawn[0]._draws.topology.about


def test_a_sampler_places_the_part_that_it_stands_beside(device: EmulatedDevice) -> None:
    data = toy_data()
    partition = partition_of(data.graph, np.arange(300) % 2, {"train": data.train}, hops=1)
    order = LocalOrder([part.seeds["train"] for part in partition.parts])
    sampler = PartSampler(NeighborSampler([2]), partition)
    source = BatchSource(data, toy_workload(data, sampler=sampler, order=order, num_ranks=2))
    for local_rank, part in ((2, 0), (3, 1)):
        drawing = SamplerDevice(job(local_rank=local_rank)).source(module("auto"), source)._draws
        assert list(drawing._parts) == [part]


@pytest.mark.parametrize(("root", "setting"), [(GPU, "cpu"), (torch.device("cpu"), "auto")])
def test_nothing_is_opened_where_nothing_was_asked_for(no_device: None, root: torch.device, setting: str) -> None:
    source = toy_source()
    assert SamplerDevice(job(device=root)).source(module(setting), source) is source
    assert reader_of(module(setting), root) is None
    assert SamplerDevice(job()).source(None, source) is source


def test_a_sampler_draws_on_the_host_where_that_was_measured_to_be_faster(device: EmulatedDevice) -> None:
    source, decision = toy_source(), RoleDecision(4, 2, host_threads=4)
    assert SamplerDevice(job(decision=decision)).source(module("auto"), source) is source
    assert isinstance(SamplerDevice(job(decision=decision)).source(module("cuda"), source), DeviceSource)
    assert isinstance(SamplerDevice(job(decision=RoleDecision(4, 2))).source(module("auto"), source), DeviceSource)


def test_a_device_that_is_none_is_told_of_once(no_device: None, caplog: pytest.LogCaptureFixture) -> None:
    sampling, source = SamplerDevice(job()), toy_source()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert sampling.source(module("auto"), source) is source
    assert caplog.messages == ["Sampler rank 2 samples on the CPU: cuda:3 is on strike"]
    assert reader_of(module("auto"), GPU) is None
    with pytest.raises(CudaUnavailableError, match="on strike"):
        sampling.source(module("cuda"), source)


def test_a_sampler_without_kernels_draws_on_the_host(device: EmulatedDevice, caplog: pytest.LogCaptureFixture) -> None:
    sampling, shared = SamplerDevice(job()), ShadowSampler([2], num_layers=1)
    source = toy_source(sampler=shared)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert sampling.source(module("auto", shared), source) is source
    assert caplog.messages == ["Sampler rank 2 samples on the CPU: ShadowSampler has no kernels for a device."]
    assert isinstance(sampling.source(module("auto"), toy_source()), DeviceSource), "another phase's sampler may have"
    with pytest.raises(LoaderConfigError, match=r"sampling_device='cuda', but ShadowSampler has no kernels"):
        sampling.source(module("cuda", shared), source)


@pytest.mark.parametrize(
    ("changed", "is_shared"), [({}, False), ({"shares_devices": True}, True), ({"switching": True}, True)]
)
def test_a_device_that_trains_as_well_holds_less_of_the_graph(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], is_shared: bool
) -> None:
    budgets, place = [], placement.place

    def told(*given: Any, budget_bytes: int, **settings: Any) -> Any:
        budgets.append(budget_bytes)
        return place(*given, budget_bytes=budget_bytes, **settings)

    monkeypatch.setattr(placement, "place", told)
    alone, beside = placement.budget_alone(device), placement.budget_beside_model(device)
    SamplerDevice(job(**changed)).source(module("cuda"), toy_source())
    assert budgets == [(beside if is_shared else alone) - 4 * 4 * 300]  # each thread's table takes 4 bytes a node
    assert beside < alone


def test_a_trainers_device_is_named_alike_everywhere(device: EmulatedDevice) -> None:
    reader = reader_of(module("auto"), GPU)
    assert reader is not None
    assert reader.name == FakeRuntime().identity(0)
