"""What tests/gpu does on a device, done small by emulation: its first run there is not the first of its code."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_gnnload.cache.peers import Membership
from lightning_gnnload.sample.weighted import WeightedNeighborSampler
from tests.gpu import sharing, test_bit_identity, test_bit_identity_typed, test_bit_identity_weighted

from .emulated import EmulatedDevice
from .fake_runtime import FakeRuntime
from .ranks import as_sharers

HUBS = {500: 2}


def test_every_node_is_drawn_for() -> None:
    test_bit_identity.check_every_node(EmulatedDevice(), num_nodes=400, hubs=HUBS, batch=10)


@pytest.mark.parametrize("sampler", test_bit_identity_typed.SAMPLERS, ids=repr)
def test_draws_by_type(sampler: Any) -> None:
    test_bit_identity_typed.check(EmulatedDevice(), sampler, share=1e-4, batch=20, steps=2)


@pytest.mark.parametrize("kind", test_bit_identity_weighted.WEIGHTS)
def test_draws_by_weight(kind: str) -> None:
    graph = test_bit_identity_weighted.weighted_graph(kind, 300, HUBS)
    samplers = [WeightedNeighborSampler([fanout], edge_ids=True) for fanout in (1, 8, 33)]
    test_bit_identity_weighted.check_seeds(EmulatedDevice(), graph, samplers, 20)


@pytest.mark.parametrize("settings", test_bit_identity_weighted.VISITS, ids=str)
def test_visits(settings: dict[str, Any]) -> None:
    graph = test_bit_identity_weighted.weighted_graph("even", 300, HUBS)
    samplers = test_bit_identity_weighted.visiting(settings)
    test_bit_identity_weighted.check_seeds(EmulatedDevice(), graph, samplers, 10)


@pytest.mark.parametrize("dies", [False, True])
def test_two_processes_share_one_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, dies: bool) -> None:
    """Whatever they wait for of each other, they get: what hangs on a device is not the order of their steps."""
    monkeypatch.setattr(sharing, "N", 500)
    monkeypatch.setattr(sharing, "NUM_CACHED", 300)
    monkeypatch.setattr(sharing, "NUM_IDS", 100)
    monkeypatch.chdir(tmp_path)
    sharing.share(Membership("alone", 0, 1), EmulatedDevice(), FakeRuntime(), dies=False)  # compiles the kernels
    if dies:
        (tmp_path / "killed").touch()  # no parent waits for the dying one here

    def work(membership: Membership) -> dict[str, Any]:
        return sharing.share(membership, EmulatedDevice(membership.index), FakeRuntime(["gpu-0"]), dies=dies)

    ends = as_sharers(2, work)
    assert [end.status for end in ends] == [0, -9 if dies else 0], ends
    for end in ends[: 1 if dies else 2]:
        assert end.value["wrong"] == 0
        assert min(end.value["reads"][tier] for tier in ("cache", "cache of peers", "memory")) > 0
        assert end.value["closing_s"] < 10
