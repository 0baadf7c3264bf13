"""Where the host waits for the device: once a batch, and nowhere else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Block, aggregate
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from lightning_gnnload.ops.cuda.tables.gather import gather_rows
from tests.cuda.sampled import skewed_graph, topology_of
from tests.integration.scripts.toy import toy_module


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every wait that torch knows of, by its warning; others are no waits, such as Python's own of forks."""
    told: list[str] = []

    def note(message: Warning | str, *_: Any, **__: Any) -> None:
        if "synchroniz" in str(message):
            told.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", note)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield told
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_the_guard_sees_a_wait_and_nothing_else(device: Device, waits: list[str]) -> None:
    warnings.warn("this process is multi-threaded", DeprecationWarning, stacklevel=1)
    assert not waits
    device.zeros(1, torch.int64).item()
    assert waits


def test_a_batch_waits_once(device: Device, waits: list[str]) -> None:
    table, topology = DeviceWorkspace(device, 2000), topology_of(device, *skewed_graph(1, num_nodes=2000))
    rows = device.put(np.arange(2000 * 7, dtype=np.float32).reshape(2000, 7))
    error = device.zeros(1, torch.int64)
    sample_neighbors(table, topology, np.arange(50), [5, 3], DrawKey(0, 0, 0))  # compiles, allocates
    waits.clear()
    for step in range(1, 21):
        before, num_waits = device.num_reads, len(waits)
        with device.side_stream():
            sample = sample_neighbors(table, topology, np.arange(50), [5, 3], DrawKey(0, 0, step))
            out = device.empty(len(sample.nodes) * 7, torch.float32).view(-1, 7)
            gather_rows(device, rows, sample.nodes, out, error)
            ready = device.record()
        ready.wait()
        assert device.num_reads - before == 1
        assert len(waits) - num_waits <= 1  # the read itself, where torch counts it
    assert torch.equal(out.cpu(), rows[sample.nodes].cpu())


def test_a_loader_waits_once_a_batch(device: Device, waits: list[str]) -> None:
    """And once an epoch, for what was read from where."""
    loader = toy_module(sampling_device="cuda").train_dataloader()
    list(loader)  # opens the device, compiles, allocates
    waits.clear()
    before = device.num_reads
    num_batches = sum(1 for _ in loader)
    assert device.num_reads - before == num_batches + 1
    assert len(waits) <= num_batches + 1


def test_put_does_not_wait_and_the_host_may_change_the_array_at_once(device: Device) -> None:
    """Behind a kernel that takes long, many copies are staged before the first is done."""
    busy = torch.empty(8192, 8192, device=device.torch_device)
    busy @ busy  # cuBLAS is loaded
    torch.cuda.synchronize()
    for _ in range(20):
        busy @ busy
    array = np.zeros(100_000, np.int64)
    begun, copies = device.record(), []
    for value in range(50):
        array[:] = value
        copies.append(device.put(array))
    assert not begun.is_done()
    assert [copy.unique().tolist() for copy in copies] == [[value] for value in range(50)]


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_sums_of_neighbours_wait_for_nothing(device: Device, waits: list[warnings.WarningMessage], how: str) -> None:
    there = device.torch_device
    indptr = torch.arange(0, 60, 3, dtype=torch.int32, device=there)
    indices = torch.arange(57, dtype=torch.int32, device=there).remainder_(40)
    x = torch.randn(40, 9, device=there, requires_grad=True)
    weights = None if how == "max" else torch.rand(57, device=there, requires_grad=True)
    for _ in range(2):  # the first compiles
        waits.clear()
        aggregate(Block(indptr, indices, 19, 40), x, how, weights).sum().backward()  # type: ignore[arg-type]
    assert not waits
