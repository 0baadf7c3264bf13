"""Trainers and samplers of a machine that place a graph together: their mini-batches are the host's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_gnnload import GraphDataModule, NeighborSampler
from lightning_gnnload.cache.device import shared_lists
from lightning_gnnload.cache.device.shared_lists import SharedLists
from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.errors import CudaUnavailableError, DeviceMemoryError
from lightning_gnnload.ops.cuda.launch import open_device as opening
from lightning_gnnload.ops.cuda.launch import runtime
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.source import DeviceSource
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.strategy.sampler_device import SamplerDevice
from lightning_gnnload.sample.device import placement
from tests.unit.toy import content, toy_data

from .emulated import EmulatedDevice
from .fake_runtime import FakeRuntime
from .ranks import End, as_sharers
from .test_sampler_device import job

BUDGET = 8000
"""Bytes: of a graph of 12,008 and 2,400 more, where lists are in shards, it leaves room for 796 of 2,400 edges."""
SAMPLER = NeighborSampler([4, 3])


class Rank:
    """What a rank's process has: a device of its own, unless it is ``broken``, and those that it meets."""

    def __init__(self, membership: Membership, broken: bool = False) -> None:
        names = [f"gpu-{(membership.index + other) % membership.count}" for other in range(membership.count)]
        self.device, self.runtime = EmulatedDevice(seed=membership.index), FakeRuntime(names)
        self.said: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.said.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("lightning_gnnload").addHandler(handler)

        def open_device(of: Any) -> EmulatedDevice:
            if broken:
                raise CudaUnavailableError("CuPy is not installed.")
            return self.device

        # Of this process, which a test's own is forked for.
        opening.open_device, runtime.runtime_of = open_device, lambda of: self.runtime  # type: ignore[assignment]
        GatherGroup.of = lambda _: SimpleNamespace(membership=lambda _: membership)  # type: ignore[method-assign, assignment, return-value]
        for where in (shared_lists, placement):
            where.budget_beside_model = lambda _: BUDGET  # type: ignore[attr-defined]
        placement.budget_alone = lambda _: BUDGET + 4 * 4 * 300


def module(where: str) -> GraphDataModule:
    return GraphDataModule(toy_data(), SAMPLER, 16, sampling_device=where)  # type: ignore[arg-type]


def wanted() -> list[Any]:
    return [content(batch) for batch in SampledLoader(module("cpu").source("train"), num_threads=0)]


def shared(topology: Any) -> list[int]:
    assert isinstance(topology.memory, SharedLists)
    return [int((topology.location >> 48 == shard).sum()) for shard in range(len(topology.memory.addresses))]


def trained(rank: Rank) -> list[int]:
    """A trainer's epoch; how many lists lie in which shard."""
    made = module("cuda")
    batches = made.train_dataloader()
    assert [content(batch) for batch in batches] == wanted()
    (drawing,) = made._sampling._drawings.values()
    found = shared(drawing.topology)
    made.teardown()
    assert rank.runtime.num_held == 0
    return found


def sampled(rank: Rank) -> list[int]:
    """A sampler's epoch, likewise."""
    sampling, made = SamplerDevice(job()), module("auto")
    source = sampling.source(made, made.source("train"), meets=True)
    assert isinstance(source, DeviceSource)
    assert sampling.source(made, made.source("train"), meets=True)._draws.topology is source._draws.topology  # type: ignore[attr-defined]
    assert [content(batch) for batch in SampledLoader(source, num_threads=0)] == wanted()
    found = shared(source._draws.topology)  # type: ignore[union-attr]
    sampling.close()
    assert rank.runtime.num_held == 0
    return found


@pytest.mark.parametrize("epoch", [trained, sampled])
def test_ranks_whose_devices_hold_less_than_the_graph_share_it(epoch: Callable[[Rank], list[int]]) -> None:
    compiled()
    for end in as_sharers(2, lambda membership: epoch(Rank(membership))):
        assert end.status == 0, end
        assert min(end.value) > 50  # lists in each shard


def alone(rank: Rank) -> list[str]:
    sampling, made = SamplerDevice(job()), module("auto")
    source = sampling.source(made, made.source("train"), meets=True)
    if isinstance(source, DeviceSource):
        assert not isinstance(source._draws.topology.memory, SharedLists)  # type: ignore[union-attr]
    # A second stream over the same graph: no rank waits for others that have placed it.
    again = sampling.source(made, made.source("train"), meets=True)
    assert [content(batch) for batch in SampledLoader(again, num_threads=0)] == wanted()
    assert [content(batch) for batch in SampledLoader(source, num_threads=0)] == wanted()
    return [type(source).__name__, *rank.said]


def test_samplers_go_on_without_one_that_has_no_device() -> None:
    compiled()
    first, second = as_sharers(2, lambda membership: alone(Rank(membership, broken=membership.index == 1)))
    assert first == End(0, ["DeviceSource"])
    assert second == End(0, ["BatchSource", "Sampler rank 2 samples on the CPU: CuPy is not installed."])


def test_samplers_whose_devices_cannot_share_after_all_draw_on_the_host() -> None:
    def work(membership: Membership) -> list[str]:
        rank = Rank(membership)
        if membership.index == 1:
            rank.device.map_host = refuse  # type: ignore[method-assign]
        return alone(rank)

    compiled()
    for end in as_sharers(2, work):
        assert end.status == 0, end
        assert end.value[0] == "BatchSource"
        assert "nothing can be page-locked" in end.value[1]


def refuse(_: Any) -> Any:
    raise DeviceMemoryError("nothing can be page-locked")


def compiled() -> None:
    """Compiles the kernels, which the ranks then load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "open_device", lambda of: EmulatedDevice())
        made = module("cuda")
        assert len(list(made.train_dataloader())) == len(wanted())
        made.teardown()
