"""The emulator runs right kernels rightly, under any order of threads, and finds wrong ones."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.host.pages import private_bytes
from lightning_gnnload.ops.cuda.launch.device import Mapped

from .allocator import OverrunError
from .emulated import EmulatedDevice
from .streams import UnorderedError

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(("types", "dtype"), [("int32_t", "int32"), ("int64_t", "int64"), ("float", "float32")])
def test_shuffles_bring_the_values_of_other_lanes(emulated: EmulatedDevice, types: str, dtype: str) -> None:
    values = RANDOM.integers(-1000, 1000, (3, 64)).astype(dtype)
    sums = emulated.empty(6, emulated.put(values).dtype)
    emulated.launch("warps", "sum_warps", (types,), blocks=3, threads=64, values=emulated.put(values), sums=sums)
    np.testing.assert_array_equal(sums.numpy(), values.reshape(6, 32).sum(1))


@pytest.mark.parametrize("width", [4, 32])
def test_shuffles_stay_within_their_group(emulated: EmulatedDevice, width: int) -> None:
    values = RANDOM.integers(-1000, 1000, 64) << 40
    sums = emulated.empty(64, torch.int64)
    emulated.launch("warps", "scan_groups", blocks=2, threads=32, values=emulated.put(values), sums=sums, width=width)
    np.testing.assert_array_equal(sums.numpy(), values.reshape(-1, width).cumsum(1).ravel())


def test_halves_of_a_warp_meet_apart(emulated: EmulatedDevice) -> None:
    values = RANDOM.integers(0, 5, 64).astype(np.int32)
    counts = emulated.empty(64, torch.int32)
    emulated.launch("warps", "count_equal", blocks=1, threads=64, values=emulated.put(values), counts=counts)
    expected = [np.sum(half == value) for half in values.reshape(4, 16) for value in half]
    np.testing.assert_array_equal(counts.numpy(), expected)


@pytest.mark.parametrize(("types", "dtype"), [("int32_t", torch.int32), ("double", torch.float64)])
def test_a_barrier_orders_shared_memory_and_its_absence_shows(
    emulated: EmulatedDevice, types: str, dtype: torch.dtype
) -> None:
    values = torch.arange(384).to(dtype)
    expected = values.reshape(3, 128).flip(1).ravel()
    right = 0
    for with_barrier in [1] * 5 + [0] * 5:
        reversed_values = emulated.empty(384, dtype)
        emulated.launch(
            "warps",
            "reverse",
            (types,),
            blocks=3,
            threads=128,
            shared_bytes=128 * dtype.itemsize,
            values=values,
            reversed=reversed_values,
            with_barrier=with_barrier,
        )
        right += bool(torch.equal(reversed_values, expected))
    assert right == 5


def test_shared_memory_holds_nothing_when_a_block_begins(emulated: EmulatedDevice) -> None:
    found = emulated.empty(20, torch.int32)
    emulated.launch("warps", "leave_behind", blocks=10, threads=32, shared_bytes=128, found=found)
    assert 7 not in found
    assert 0 not in found


def test_atomics_count_and_blocks_come_in_another_order_each_time(emulated: EmulatedDevice) -> None:
    values = RANDOM.integers(0, 7, 40 * 32).astype(np.int32)
    orders = set()
    for _ in range(2):
        counts, order = emulated.zeros(7, torch.int32), emulated.empty(40, torch.int64)
        ticket = emulated.zeros(1, torch.int64)
        arguments = {"values": emulated.put(values), "counts": counts, "ticket": ticket, "order": order}
        emulated.launch("warps", "count_values", blocks=40, threads=32, **arguments)
        np.testing.assert_array_equal(counts.numpy(), np.bincount(values))
        assert sorted(order.tolist()) == list(range(40))
        orders.add(tuple(order.tolist()))
    assert len(orders) == 2


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("lane_outside_mask", "calls __any_sync with the mask 0x0000ffff, which leaves out its own lane"),
        ("early_end", r"waits at __any_sync.* for thread 7, which .*ended"),
        ("other_collective", r"wait for each other: .*__a(ny|ll)_sync\(0xffffffff\), .* at __a(ny|ll)_sync"),
        ("other_mask", "wait for each other: .*(0xffffffff|0x55555557).*(0xffffffff|0x55555557)"),
        ("divergent_barrier", r"waits at __syncthreads.* thread \d+.* ended"),
        ("other_barrier", "wait for each other: .*__syncthreads.*__syncthreads"),
        ("outside_shared", "wrote behind its 256 bytes of dynamic shared memory"),
        ("deep_stack", "needs more than 65536 bytes of stack"),
    ],
)
def test_misuse_is_found_and_named_and_the_next_launch_is_sound(
    emulated: EmulatedDevice, kernel: str, message: str
) -> None:
    out = emulated.empty(64, torch.int32)
    with pytest.raises(GnnLoadError, match=f"warps/{kernel}: block 0: .*{message}"):
        emulated.launch("warps", kernel, blocks=1, threads=64, shared_bytes=256, out=out)
    test_halves_of_a_warp_meet_apart(emulated)


BEYOND = """
import torch
from pathlib import Path
from tests.cuda.emulated import EmulatedDevice
device = EmulatedDevice(kernels=Path("tests/cuda/kernels"))
values, too_few = torch.zeros(64, dtype=torch.int32), torch.zeros(48, dtype=torch.int32)
device.launch("warps", "count_equal", blocks=1, threads=64, values=values, counts=too_few)
"""


@pytest.mark.skipif("GNNLOAD_SANITIZED" not in os.environ, reason="needs the sanitizers: make sanitize")
def test_a_sanitizer_sees_what_kernels_touch() -> None:
    done = subprocess.run([sys.executable, "-c", BEYOND], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode
    assert "heap-buffer-overflow" in done.stderr
    assert "count_equal" in done.stderr


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"width": None}, "'width' is None, but int32_t holds"),
        ({"width": 1 << 31}, "'width' is 2147483648"),
        ({"values": torch.zeros(64, dtype=torch.int32)}, "'values' is of torch.int32"),
        ({"values": torch.zeros((64, 2), dtype=torch.int64)[:, 0]}, "without gaps"),
        ({"more": 1}, r"unknown: \['more'\]"),
        ({"threads": 48}, "multiple of 32"),
        ({"blocks": 0}, "1 to 2"),
        ({"shared_bytes": 1 << 20}, "1048576 bytes of 49152"),
    ],
)
def test_wrong_arguments_are_refused(emulated: EmulatedDevice, changed: dict, message: str) -> None:
    words = torch.zeros(64, dtype=torch.int64)
    arguments = {"blocks": 1, "threads": 64, "values": words, "sums": words.clone(), "width": 32}
    with pytest.raises(GnnLoadError, match=message):
        emulated.launch("warps", "scan_groups", **(arguments | changed))


def test_unknown_instantiations_are_refused(emulated: EmulatedDevice) -> None:
    words = torch.zeros(64, dtype=torch.int64)
    with pytest.raises(GnnLoadError, match="not instantiated"):
        emulated.launch("warps", "sum_warps", ("double",), blocks=1, threads=64, values=words, sums=words.clone())


def scan(device: EmulatedDevice, values: torch.Tensor | Mapped | int, sums: torch.Tensor) -> None:
    device.launch("warps", "scan_groups", blocks=1, threads=32, values=values, sums=sums, width=32)


def test_work_on_two_streams_that_nothing_orders_is_found(emulated: EmulatedDevice) -> None:
    first, second, third = (emulated.zeros(32, torch.int64) for _ in range(3))
    made = emulated.record()
    with emulated.side_stream():
        made.wait()
        scan(emulated, first, second)
        done = emulated.record()
    scan(emulated, first, third)  # both only read
    with pytest.raises(UnorderedError, match="reads memory on stream 'default' that was written on stream 'side"):
        scan(emulated, second, third)
    with pytest.raises(UnorderedError, match="writes memory on stream 'default' that was read on stream 'side"):
        scan(emulated, third, first)
    done.wait()
    scan(emulated, second, third)
    scan(emulated, third, first)


def test_streams_may_share_an_allocation_but_not_its_bytes(emulated: EmulatedDevice) -> None:
    whole = emulated.zeros(160, torch.int64)
    made = emulated.record()
    with emulated.side_stream():
        made.wait()
        scan(emulated, whole[:32], whole[32:64])
    scan(emulated, whole[64:96], whole[96:128])
    with pytest.raises(UnorderedError, match="was written on stream 'side"):
        scan(emulated, whole[48:80], whole[128:])


def test_the_host_orders_streams_when_it_waits(emulated: EmulatedDevice) -> None:
    values, sums = emulated.zeros(32, torch.int64), emulated.zeros(32, torch.int64)
    made = emulated.record()
    with emulated.side_stream():
        made.wait()
        scan(emulated, values, sums)
        emulated.read(sums)
    scan(emulated, sums, values)
    assert emulated.num_reads == 1


def test_a_store_after_a_look_loses_what_came_between_and_an_atomic_does_not(emulated: EmulatedDevice) -> None:
    values = np.arange(64, dtype=np.int32)
    found: dict[int, set[int]] = {0: set(), 1: set()}
    for by_store in [0] * 5 + [1] * 5:
        least = emulated.put(np.array([100], np.int32))
        arguments = {"values": emulated.put(values), "least": least, "by_store": by_store}
        emulated.launch("warps", "find_least", blocks=1, threads=64, **arguments)
        found[by_store].add(int(emulated.read(least)[0]))
    assert found[0] == {0}
    assert found[1] > {0} or 0 not in found[1]


@pytest.mark.skipif("GNNLOAD_SANITIZED" in os.environ, reason="then the sanitizer ends the process")
@pytest.mark.parametrize("place", [-1, 5])
def test_who_writes_beside_a_tensor_is_told(emulated: EmulatedDevice, place: int) -> None:
    out = emulated.empty(5, torch.int32)
    emulated.launch("warps", "write_outside", blocks=1, threads=32, out=out, place=4)
    with pytest.raises(OverrunError, match="before or behind a tensor of 20 bytes"):
        emulated.launch("warps", "write_outside", blocks=1, threads=32, out=out, place=place)


@pytest.mark.skipif("GNNLOAD_SANITIZED" in os.environ, reason="then memory is not used again")
def test_an_address_that_outlives_its_tensor_is_told_or_leads_to_another(emulated: EmulatedDevice) -> None:
    values, sums = emulated.zeros(32, torch.int64), emulated.empty(32, torch.int64)
    scan(emulated, values.data_ptr(), sums)
    address = values.data_ptr()
    del values
    with pytest.raises(OverrunError, match="a tensor that was freed"):
        scan(emulated, address, sums)
    others = emulated.put(np.full(32, 7))
    assert others.data_ptr() == address
    scan(emulated, address, sums)
    assert sums.tolist() == [7 * count for count in range(1, 33)]


@pytest.mark.parametrize("how", ["not told", "told", "waited for", "waited for by the host"])
def test_memory_comes_back_to_its_stream_at_once(emulated: EmulatedDevice, how: str) -> None:
    """Whatever other streams still do with it, unless torch was told of them or the stream has waited for them."""
    out = emulated.empty(32, torch.int64)
    ready = emulated.record()
    with emulated.side_stream():
        ready.wait()
        values = emulated.zeros(32, torch.int64)
        made = emulated.record()
    made.wait()
    scan(emulated, values, out)
    if how == "told":
        values.record_stream(emulated.current_stream())
    done = emulated.record()
    del values
    with emulated.side_stream():
        if how == "waited for":
            done.wait()
        if how == "waited for by the host":
            done.synchronize()
        if how == "not told":
            with pytest.raises(UnorderedError, match="freed after it was read on stream 'default'"):
                emulated.empty(1, torch.int64)
        else:
            emulated.empty(1, torch.int64)


def test_what_torch_does_is_work_of_the_stream(emulated: EmulatedDevice) -> None:
    values = emulated.zeros(32, torch.int64)
    made = emulated.record()
    with emulated.side_stream():
        made.wait()
        sums = values.cumsum(0)
        done = emulated.record()
    with pytest.raises(UnorderedError, match="add reads memory on stream 'default' that was written on stream 'side"):
        sums + 1
    with pytest.raises(UnorderedError, match="fill_ writes memory on stream 'default' that was read on stream 'side"):
        values.fill_(1)
    values.view(4, 8)
    done.wait()
    twice = sums + sums
    del sums, twice
    with emulated.side_stream(), pytest.raises(UnorderedError, match="read on stream 'default'"):
        values.cumsum(0)


def test_the_host_waits_before_it_writes_what_a_device_reads(emulated: EmulatedDevice) -> None:
    mapped, sums = emulated.map_host(private_bytes(256).view(np.int64)), emulated.empty(32, torch.int64)
    scan(emulated, mapped, sums)
    read = emulated.record()
    with pytest.raises(UnorderedError, match="stream 'default' may still read"):
        emulated.streams.host_writes(mapped.address + 8, 8)
    emulated.streams.host_writes(mapped.address + 256, 8)
    read.synchronize()
    emulated.streams.host_writes(mapped.address, 256)


def test_a_copy_of_memory_that_is_registered_in_part_is_refused() -> None:
    """As CUDA refuses it, "invalid argument". What a device maps leaves alone what lies beside it on the heap."""
    device, heap = EmulatedDevice(), np.arange(4 * 4096, dtype=np.int64)
    mapped = device.map_host(heap[100:300])
    assert device.copy_from_host(heap).tolist() == heap.tolist()
    assert mapped.tensor.tolist() == heap[100:300].tolist()
    own = private_bytes(2 * 4096)
    kept = device.map_host(own[:4096])
    with pytest.raises(RuntimeError, match="invalid argument"):
        device.copy_from_host(own)
    del kept
    device.copy_from_host(own)
