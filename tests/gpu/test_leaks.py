"""Thousands of batches, and no memory or descriptor more than after the first ones.

What the process took from the device is known for the whole device alone, so it counts where nobody else is there; in
parallel runs, what torch has reserved stands for it.
"""

from __future__ import annotations

import gc
import os
import threading

import numpy as np
import torch

from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from tests.cuda.sampled import skewed_graph, topology_of


def held() -> tuple[int, int, int]:
    """Bytes that tensors have, bytes that the process took from the device, and open descriptors."""
    gc.collect()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    taken = torch.cuda.memory_reserved() if "PYTEST_XDIST_WORKER" in os.environ else total - free
    return torch.cuda.memory_allocated(), taken, len(os.listdir("/proc/self/fd"))


def assert_no_more_than(before: tuple[int, int, int]) -> None:
    allocated, taken, descriptors = held()
    assert allocated <= before[0]
    assert taken <= before[1] * 1.01
    assert descriptors <= before[2]


def test_batches_leave_nothing(device: Device) -> None:
    table, topology = DeviceWorkspace(device, 5000), topology_of(device, *skewed_graph(1, num_nodes=5000))
    seeds = np.random.default_rng(0)

    def run(steps: range) -> None:
        for step in steps:
            with device.side_stream():
                sample_neighbors(
                    table, topology, seeds.permutation(5000)[:200], [5, 4, 3], DrawKey(0, 0, step), edge_ids=True
                )

    run(range(200))
    before = held()
    run(range(200, 5000))
    assert_no_more_than(before)


def test_threads_that_end_leave_nothing(device: Device) -> None:
    def work() -> None:
        with device.side_stream():
            device.read(device.put(np.arange(1000)))

    def run(count: int) -> None:
        for _ in range(count):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

    run(40)
    before = held()
    run(400)
    assert_no_more_than(before)


def test_mapped_memory_is_given_back(device: Device) -> None:
    array = np.arange(1 << 22)
    mapped = device.map_host(array)
    assert torch.equal(mapped.tensor, torch.from_numpy(array))
    again = device.map_host(array[100:])  # its pages are registered already
    del mapped
    gc.collect()
    # Still registered for `again`; a third would fail if the first had taken the pages with it.
    third = device.map_host(array)
    del again, third
    gc.collect()
    cudart = torch.cuda.cudart()
    assert int(cudart.cudaHostRegister(array.ctypes.data, array.nbytes, 0)) == 0  # its pages are free again
    cudart.cudaHostUnregister(array.ctypes.data)
