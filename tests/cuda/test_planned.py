"""Batches made by one native call are those that launches one by one make: for every sampler, other keys, other seeds
and fewer of them, and whatever order the driver runs streams in."""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import lightning_gnnload
from lightning_gnnload.errors import CudaCallError, DeviceMemoryError, KernelCompileError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.plans.planned import PlannedBatches
from lightning_gnnload.ops.cuda.sampling import batch
from lightning_gnnload.ops.cuda.sampling.layers import sample_layers
from lightning_gnnload.ops.cuda.sampling.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.sampling.queries import HostQueries
from lightning_gnnload.ops.cuda.sampling.typed import sample_typed_neighbors
from lightning_gnnload.ops.cuda.sampling.walks import sample_walks
from lightning_gnnload.ops.cuda.sampling.weighted import sample_weighted_neighbors
from lightning_gnnload.ops.cuda.sampling.workspace import DeviceWorkspace
from lightning_gnnload.ops.walks import Walks
from tests.ops.typed_graphs import random_queries, random_typed_graph
from tests.ops.weighted_graphs import WeightedGraph

from .allocator import UNWRITTEN
from .emulated import EmulatedDevice
from .emulated_libcuda import EmulatedLibcuda
from .sampled import skewed_graph, topology_of
from .test_typed import placed, rows_of, two_types
from .test_weighted import weighted_topology

NUM_NODES = 400
UNIFORM = {
    "[3, 2]": lambda w, t, d: sample_neighbors(w, t, d.seeds, [3, 2], d.key),
    "[10, 25]": lambda w, t, d: sample_neighbors(w, t, d.seeds, [10, 25], d.key),
    "new": lambda w, t, d: sample_neighbors(w, t, d.seeds, [5, 4, 3], d.key, expand="new", edge_ids=True, replace=True),
    "no hops": lambda w, t, d: sample_neighbors(w, t, d.seeds, [], d.key),
    "layers": lambda w, t, d: sample_layers(w, t, d.seeds, [40, 70], "dsp", d.key, edge_ids=True),
    "walks": lambda w, t, d: sample_walks(w, t, d.seeds, Walks(3, 5), d.key, num_hops=2, num_neighbors=3),
}
WEIGHTED = {
    "weighted": lambda w, t, d: sample_weighted_neighbors(w, t, d.seeds, [3, 2], d.key, edge_ids=True),
    "walks by weight": lambda w, t, d: sample_walks(
        w, t, d.seeds, Walks(3, 5), d.key, num_hops=2, num_neighbors=3, weighted=True
    ),
    "weighted, many": lambda w, t, d: sample_weighted_neighbors(w, t, d.seeds, [40, 3], d.key, edge_ids=True),
}


@pytest.fixture(params=[0, 1], ids=["in order", "deferred"])
def device(request: pytest.FixtureRequest) -> EmulatedDevice:
    return EmulatedDevice(library=EmulatedLibcuda(deferred=bool(request.param), seed=3), num_processors=2)


def arrays(sample) -> list:
    hops = [
        (hop.num_dst, hop.num_src, *(None if a is None else (a.dtype, a.tolist()) for a in _columns(hop)))
        for hop in sample.hops
    ]
    return [sample.nodes.tolist(), None if sample.queries is None else sample.queries.tolist(), hops]


def _columns(hop):
    return hop.indptr, hop.indices, hop.edge_ids, hop.edge_weights, hop.edge_types


def check(device: EmulatedDevice, topology, eager, draws: list[Draw], table: str) -> int:
    """Returns how many batches were made by one call."""
    made, other = PlannedBatches(device, topology, eager, table), DeviceWorkspace(device, topology.num_nodes, table)
    num_made = 0
    for trial, draw in enumerate(draws):
        before = device.num_launches
        sample = arrays(made.draw(draw))
        num_made += device.num_launches == before
        assert sample == arrays(eager(other, topology, draw)), trial
    return num_made


def subject(device: EmulatedDevice, name: str) -> tuple:
    """A topology, how its batches are drawn by hand, and a draw for each step."""
    rng = np.random.default_rng(0)
    indptr, indices = skewed_graph(3, np.int64, NUM_NODES, 6000)
    if name in ("typed", "along paths"):
        graph = two_types()
        fanouts = np.array([[3, 2, 1], [2, 0, 1]])
        queries = rows_of(range(24), until=np.arange(24, dtype=np.uint32) + 20, along_path=True)

        def eager(workspace, topology, draw):
            return sample_typed_neighbors(workspace, topology, draw.seeds, fanouts, draw.key, queries=draw.queries)

        topology = placed(device, graph, graph.lists())
        asked = queries if name == "along paths" else None
        return topology, eager, lambda step: Draw(rng.permutation(60)[:24], DrawKey(1, 2, step), asked)
    if name in WEIGHTED:
        topology = weighted_topology(device, WeightedGraph.of(indptr, indices, rng.random(6000)))
    else:
        topology = topology_of(device, indptr, indices)
    draws = (UNIFORM | WEIGHTED)[name]
    return topology, draws, lambda step: Draw(rng.permutation(NUM_NODES)[:24], DrawKey(2**63 + step, 3, 7 * step))


@pytest.mark.parametrize("table", ["stamp", "hash"])
@pytest.mark.parametrize("name", [*UNIFORM, *WEIGHTED])
def test_a_batch_of_one_call_is_that_of_many(device: EmulatedDevice, name: str, table: str) -> None:
    topology, eager, draw = subject(device, name)
    draws = [draw(step) for step in range(9)]
    for step, num_seeds in [(3, 23), (5, 23), (6, 5), (7, 5)]:
        draws[step] = draws[step]._replace(seeds=draws[step].seeds[:num_seeds])
    # The first batch of 24 seeds and of 5 are recorded; the very first not where it makes tables for those that follow.
    num_by_hand = 2 + (table == "hash" or name.startswith("weighted"))
    assert check(device, topology, eager, draws, table) == len(draws) - num_by_hand


def test_lists_that_come_over_the_bus(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read in the order of their places, which is another one for each batch."""
    monkeypatch.setattr(batch, "FEW_LISTS", 1)
    topology, eager, draw = subject(device, "[3, 2]")
    on_bus = replace(topology, indices=device.map_host(topology.indices.numpy()))
    assert check(device, on_bus, eager, [draw(step) for step in range(6)], "stamp") == 5
    assert any("order_reads" in name for name in device.launched)


@pytest.mark.parametrize("number", range(16))
def test_a_batch_of_queries_of_one_call_is_that_of_many(device: EmulatedDevice, number: int) -> None:
    """Queries of one form: with other names, times, seeds and edges left out."""
    rng = np.random.default_rng(number)
    graph = random_typed_graph(rng, untyped=number % 5 == 0)
    seeds, queries, _ = random_queries(rng, graph, min(33, graph.size))
    fanouts = rng.choice([0, 1, 2, 3, 5], (2, len(graph.ends)))
    options = {
        "edge_ids": True,
        "expand": str(rng.choice(["all", "new"])),
        "pick": str(rng.choice(["uniform", "last"])),
    }

    def eager(workspace, topology, draw):
        return sample_typed_neighbors(
            workspace, topology, draw.seeds, fanouts, draw.key, queries=draw.queries, **options
        )

    draws = []
    for trial in range(5):
        order = rng.permutation(len(seeds))[: len(seeds) - trial % 2]
        lots = {name: getattr(queries, name) for name in ("name", "since", "until")}
        others = {name: None if lot is None else np.roll(lot, trial) for name, lot in lots.items()}
        draws.append(
            Draw(
                seeds[order],
                DrawKey(trial, 2**32 - 1, number),
                replace(queries, of_seed=queries.of_seed[order], **others),
            )
        )
    topology = placed(device, graph, graph.lists(untyped=number % 5 == 0))
    assert check(device, topology, eager, draws, "hash") > 0
    if number % 3 == 0:  # one query for all
        draws = [Draw(rng.permutation(graph.size)[: len(seeds)], draw.key) for draw in draws]
        assert check(device, topology, eager, draws, "stamp") > 2


class Counted(TorchDispatchMode):
    """Counts torch's operations."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def python_calls(work) -> int:
    """Counts the calls of the package's functions."""
    count, package = 0, str(Path(lightning_gnnload.__file__).parent)

    def note(frame, event, _) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(package)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", [*UNIFORM, *WEIGHTED, "typed", "along paths"])
def test_what_a_batch_costs_the_host(name: str) -> None:
    """Without a device, what can be counted: calls of the driver by name, allocations, and Python's part."""
    library = EmulatedLibcuda()
    device = EmulatedDevice(library=library, num_processors=2)
    topology, eager, draw = subject(device, name)
    batches = PlannedBatches(device, topology, eager, "hash" if name == "along paths" else "stamp")
    for step in range(4):
        batches.draw(draw(step))
    by_hand = DeviceWorkspace(device, topology.num_nodes, batches.workspace.table)
    for step in range(3):
        before = device.num_launches
        eager(by_hand, topology, draw(step))
    num_launches = device.num_launches - before
    library.forget_counts()
    allocated, empty = [], device.empty
    device.empty = lambda *form: allocated.append(form) or empty(*form)
    next_draw = draw(10)
    with Counted() as torch_calls:
        sample = batches.draw(next_draw)
    num_inputs = 1 if next_draw.queries is None else 1 + len(HostQueries.of(next_draw.queries, 24, topology).arrays)
    num_cleared = {"along paths": 4}.get(name, 0)  # hash tables, of nodes and of times: their slots and their stamps
    assert library.count("cuLaunchKernel") == num_launches + 1  # and the copy of the outputs
    assert library.count("cuMemsetD8Async") == 1 + num_cleared
    assert library.count("cuMemcpyHtoDAsync_v2") == num_inputs
    assert library.count("cuMemcpyDtoHAsync_v2") == library.count("cuEventRecord") == 1
    assert len(allocated) == 1
    num_tensors = (
        1 + (sample.queries is not None) + sum(sum(c is not None for c in _columns(hop)) for hop in sample.hops)
    )
    # A view for each tensor, and one of the slab for each dtype; the emulated device fills what it allocates.
    assert torch_calls.calls.count("as_strided") == num_tensors
    assert torch_calls.calls.count("view") <= 1 + 3
    assert set(torch_calls.calls) <= {"empty", "lift_fresh", "view", "detach", "as_strided"}
    assert python_calls(lambda: batches.draw(draw(11))) <= 110


def test_others_go_on_while_a_batch_is_made() -> None:
    """Its call has no hold of the interpreter: another thread counts on, while the driver takes its time."""
    library = EmulatedLibcuda()
    device = EmulatedDevice(library=library)
    topology, eager, draw = subject(device, "[3, 2]")
    batches = PlannedBatches(device, topology, eager)
    for step in range(3):
        batches.draw(draw(step))
    library.spend(us=5_000)  # 16 calls and more: 80 ms, of which Python's part is below 5
    count, ends = 0, threading.Event()

    def count_on() -> None:
        nonlocal count
        while not ends.is_set():
            count += 1

    other = threading.Thread(target=count_on)
    other.start()
    try:
        time.sleep(0.02)
        begun, at = count, time.monotonic()
        batches.draw(draw(4))
        took, counted = time.monotonic() - at, count - begun
        library.spend(us=0)
        begun, at = count, time.monotonic()
        time.sleep(took)
        alone = count - begun
    finally:
        ends.set()
        other.join(10)
    assert counted > alone / 4


def test_whatever_call_fails_is_an_error_of_ours_and_the_next_batch_is_right() -> None:
    library = EmulatedLibcuda()
    device = EmulatedDevice(library=library)
    topology, eager, draw = subject(device, "[3, 2]")
    batches = PlannedBatches(device, topology, eager)
    for step in range(3):
        batches.draw(draw(step))
    expected = DeviceWorkspace(device, topology.num_nodes)
    library.forget_counts()
    batches.draw(draw(3))
    entries = ("cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord")
    num_calls = sum(library.count(entry) for entry in entries)
    for call in range(2, num_calls + 4):  # after the first, by which the driver looks at the thread's context
        library.fail(call, "CUDA_ERROR_ILLEGAL_ADDRESS")
        with pytest.raises(CudaCallError, match=r"(clear|copy|start|mark|draw|enter).*CUDA_ERROR_ILLEGAL_ADDRESS"):
            batches.draw(draw(4))
        library.fail(0)
        next_draw = draw(5)
        assert arrays(batches.draw(next_draw)) == arrays(eager(expected, topology, next_draw)), call


def test_a_plan_that_makes_something_else_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """As on a device that nobody has tried: the first batch is compared, and a warning names what differs."""
    device = EmulatedDevice(library=EmulatedLibcuda())
    topology, eager, draw = subject(device, "[3, 2]")
    draws = [draw(step) for step in range(4)]
    wrong = []

    def spoilt(workspace, topology, draw):
        sample = eager(workspace, topology, draw)
        if not wrong:
            sample.hops[1].indices.numpy()[0] ^= 1  # unseen by torch, as a fault of a device would be
        return wrong.append(1) or sample

    batches = PlannedBatches(device, topology, spoilt)
    batches.draw(draws[0])
    assert "indices of hop 1 of a batch otherwise by one call" in caplog.text
    expected = DeviceWorkspace(device, topology.num_nodes)
    for again in draws:
        before = device.num_launches
        assert arrays(batches.draw(again)) == arrays(eager(expected, topology, again))
        assert device.num_launches - before == 2 * 10


def test_plans_come_and_go() -> None:
    """A thread keeps 16; more forms than that take no more memory, and are recorded again when they come back."""
    device = EmulatedDevice(library=EmulatedLibcuda())
    topology, eager, draw = subject(device, "[3, 2]")
    batches = PlannedBatches(device, topology, eager)
    free = []
    for round_ in range(3):
        for num_seeds in range(1, 25):
            drawn = draw(round_)
            batches.draw(drawn._replace(seeds=drawn.seeds[:num_seeds]))
        free.append(device.free_bytes())
    assert free[1] == free[2]
    assert len(batches._plans) == 16


def test_a_table_that_grows_in_a_batch_without_a_plan_ends_the_plans() -> None:
    """Else they would number nodes in memory that is another's by then."""
    device = EmulatedDevice(library=EmulatedLibcuda())
    topology, _, draw = subject(device, "[3, 2]")

    def eager(workspace, topology, draw):
        return sample_neighbors(workspace, topology, draw.seeds, [-1] if draw.key.epoch else [3], draw.key)

    batches, expected = (
        PlannedBatches(device, topology, eager, "hash"),
        DeviceWorkspace(device, topology.num_nodes, "hash"),
    )
    few = [Draw(draw(step).seeds[:4], DrawKey(0, 0, step)) for step in range(8)]
    without_plan = [Draw(np.arange(NUM_NODES - 24, NUM_NODES), DrawKey(0, 1, step)) for step in range(4)]
    hubs = Draw(np.arange(24), DrawKey(0, 1, 9))
    for trial, drawn in enumerate([*without_plan, *few[:4], hubs, *few[4:]]):
        assert arrays(batches.draw(drawn)) == arrays(eager(expected, topology, drawn)), trial
        taken = device.empty(5000, torch.int64)  # what was freed is soon another's
        taken.fill_(7)


def test_a_plan_that_failed_is_not_used_uncompared(caplog: pytest.LogCaptureFixture) -> None:
    """A form is recorded twice; where both its plans fail, even when they are compared, it goes on by launches."""
    caplog.set_level(logging.DEBUG, "lightning_gnnload")
    num_failed = 0
    for call in range(28, 46):
        library = EmulatedLibcuda()
        device = EmulatedDevice(library=library)
        topology, eager, draw = subject(device, "[3, 2]")
        batches, expected = PlannedBatches(device, topology, eager), DeviceWorkspace(device, topology.num_nodes)
        eager(expected, topology, draw(0))  # which loads its kernels, and so does the next
        PlannedBatches(device, topology, eager).draw(draw(1))
        caplog.clear()
        for step in range(2):
            library.fail(call)
            with suppress(CudaCallError):  # of a plan that stands
                batches.draw(draw(step))
        library.fail(0)
        has_failed = caplog.text.count("is launched kernel by kernel") == 2
        next_draw, before = draw(3), device.num_launches
        sample = batches.draw(next_draw)
        assert (device.num_launches > before) == has_failed, call
        assert arrays(sample) == arrays(eager(expected, topology, next_draw))
        num_failed += has_failed
    assert num_failed > 5


def test_whatever_memory_is_short_the_batch_is_right_and_so_is_the_next() -> None:
    """Plans and their scratch are given up for it, and made again."""
    num_short, wanted = 0, list[list]()
    for allocation in range(1, 24):
        device = EmulatedDevice(library=EmulatedLibcuda(seed=allocation))
        topology, eager, draw = subject(device, "[3, 2]")
        batches = PlannedBatches(device, topology, eager, "hash")
        few = [draw(step) for step in range(7)]
        many = [Draw(np.arange(150) + step, DrawKey(0, 0, step)) for step in range(2)]
        drawn = [*few[:3], many[0], *few[3:5], many[1], *few[5:]]
        if not wanted:
            by_hand = DeviceWorkspace(device, topology.num_nodes)
            wanted = [arrays(eager(by_hand, topology, one)) for one in drawn]
        for one in drawn[:3]:
            batches.draw(one)
        left, empty = allocation, device.memory.empty

        def short(count: int, dtype: torch.dtype, empty=empty) -> torch.Tensor:
            nonlocal left
            left -= 1
            if not left:
                raise DeviceMemoryError(f"no {count} elements")
            return empty(count, dtype)

        device.memory.empty = short  # type: ignore[method-assign]
        assert [arrays(batches.draw(one)) for one in drawn[3:]] == wanted[3:], allocation
        num_short += left <= 0
    assert num_short > 15


def test_scratch_makes_room_for_a_batch_of_another_form() -> None:
    """A device with memory for every batch draws every batch."""
    device = EmulatedDevice(library=EmulatedLibcuda())
    topology, eager, draw = subject(device, "[3, 2]")
    expected, batches = DeviceWorkspace(device, topology.num_nodes), PlannedBatches(device, topology, eager)
    draws = [draw(step) for step in range(6)]
    draws[4:] = [one._replace(seeds=one.seeds[:17]) for one in draws[4:]]
    wanted = [arrays(eager(expected, topology, one)) for one in draws]
    samples = [arrays(batches.draw(one)) for one in draws[:4]]
    device.memory.total_bytes -= device.free_bytes() - (8 << 10)  # scratch is there, and room for a slab
    assert samples + [arrays(batches.draw(one)) for one in draws[4:]] == wanted


def test_what_there_was_no_memory_for_is_not_taken_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    device = EmulatedDevice(library=EmulatedLibcuda())
    topology, eager, draw = subject(device, "[3, 2]")
    batches, known = PlannedBatches(device, topology, eager), DeviceWorkspace(device, topology.num_nodes, "hash")
    for step in range(3):
        batches.draw(draw(step))
    (plan,) = batches._plans.values()
    scratch, empty, left = device.empty(plan.scratch_bytes, torch.uint8), device.memory.empty, [0]

    def short(count: int, dtype: torch.dtype) -> torch.Tensor:
        left[0] -= count > 0
        if left[0] < 0:
            raise DeviceMemoryError(f"no {count} elements")
        return empty(count, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(device.memory, "empty", short)
        with pytest.raises(DeviceMemoryError):
            plan.bind(scratch)
    batches._scratch = scratch
    batches.draw(draw(3))
    assert (scratch != UNWRITTEN).any()
    left[0] = 1
    with monkeypatch.context() as patch:
        patch.setattr(device.memory, "empty", short)
        with pytest.raises(DeviceMemoryError):
            known.begin(100, 100)
    assert known.num_growths == 1  # what is gone
    known.begin(90, 90)
    assert len(known.stamps) == len(known.slots) == 256


def test_a_kernel_that_does_not_compile_leaves_batches_as_they_were() -> None:
    device = EmulatedDevice(library=EmulatedLibcuda())
    topology, eager, draw = subject(device, "[3, 2]")
    kernel = device.kernel

    def refused(op, name, types=()):
        if op == "copy_pieces":
            raise KernelCompileError("copy_pieces does not compile")
        return kernel(op, name, types)

    device.kernel = refused  # type: ignore[method-assign]
    assert check(device, topology, eager, [draw(step) for step in range(4)], "stamp") == 0
