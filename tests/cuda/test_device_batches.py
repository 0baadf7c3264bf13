"""Mini-batches made on a device are those that the host makes, in order, with the same errors, and at one wait each."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_gnnload import (
    Graph,
    GraphData,
    LaborSampler,
    LayerSampler,
    NeighborSampler,
    RandomWalkSampler,
    WeightedNeighborSampler,
)
from lightning_gnnload.adapters.pyg.write import to_pyg
from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.device.device_builder import open_on_device
from lightning_gnnload.errors import CudaUnavailableError, SeedError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.sampling.topology import Topology
from lightning_gnnload.pipeline.device_batches import DeviceBatches
from lightning_gnnload.pipeline.device_tables import HostTable
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.source import BatchSource, Draws
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import (
    DevicePartSampler,
    DeviceSampler,
    UploadingSampler,
    can_sample,
    can_sample_parts,
    draws_by_tables,
)
from lightning_gnnload.sample.parts.sampler import PartSampler
from tests import guards
from tests.runif import RunIf
from tests.unit.parts import partition_of
from tests.unit.toy import content, toy_data, toy_graph, toy_source

NUM_STEPS = 7  # 100 seeds, 16 a batch


@pytest.fixture
def device(sampling_device: Device) -> Device:
    return sampling_device


def drawn_on_device(source: BatchSource, device: Device) -> Draws:
    sampler = source.workload.sampler
    graph = source.data.graph
    return DeviceSampler(sampler, place(graph, device, weighted=draws_by_tables(sampler, graph)), device)


def drawn_on_host(source: BatchSource, device: Device) -> Draws:
    return UploadingSampler(source.workload.sampler, source.data.graph, device)


def loader(
    source: BatchSource, device: Device, draws=drawn_on_device, rows=None, convert=None, **settings
) -> SampledLoader:
    if rows is None:
        rows = {name: HostTable(store, device) for name, store in source.features.items()}
    device.record().synchronize()
    convert = convert or (lambda batch: batch)
    batches = DeviceBatches(source, draws(source, device), rows, device, convert=convert, max_threads=1)
    return SampledLoader(source, on_device=lambda: batches, **settings)


def on_host(batch):
    return content(batch.to("cpu"))


@pytest.mark.parametrize("draws", [drawn_on_device, drawn_on_host])
@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([3, 2]),
        NeighborSampler([3, 2], expand="new", edge_ids=True),
        NeighborSampler([2], replace=True),
        NeighborSampler([]),
        WeightedNeighborSampler([3, 2], edge_ids=True),
        RandomWalkSampler(2, num_neighbors=3, weighted=False),
        LayerSampler([20, 20], weighted=False),
        LayerSampler([40, 40], method="fastgcn", expand="new", edge_ids=True, weighted=False),
        RandomWalkSampler(2, num_neighbors=2, normalize=True, include_self=False, expand="new"),
        LaborSampler([4, 3], estimate="sum", layer_dependency=True),
    ],
    ids=repr,
)
def test_a_device_makes_the_batches_of_the_host(device: Device, sampler: NeighborSampler, draws) -> None:
    data, rng = toy_data(), np.random.default_rng(0)
    graph = Graph(data.graph.indptr, data.graph.indices, edge_weight=rng.random(data.graph.num_edges))
    named = GraphData(graph, data.x, data.y.bfloat16(), data.train, tables={"further": torch.rand(300, 2)})
    source = toy_source(named, sampler=sampler)
    expected = [content(batch) for batch in SampledLoader(source)]
    assert [on_host(batch) for batch in loader(source, device, draws)] == expected


def test_layers_by_weight_are_left_to_the_cpu(device: Device) -> None:
    graph, sampler = Graph.from_coo([1, 2], [0, 0], edge_weight=[1.0, 9.0]), LayerSampler([20])
    draw = Draw(np.array([0]), DrawKey(0, 0, 0))
    plain = Graph.from_csc(graph.indptr, graph.indices)
    assert "layers by edge weight" in str(sampler.needs_host(graph))
    assert [draws_by_tables(sampler, graph), sampler.needs_host(plain)] == [False, None]
    with pytest.raises(CudaUnavailableError, match=r"layers by edge weight .* sampling_device='cpu'"):
        DeviceSampler(sampler, place(graph, device), device).sample(draw)
    DeviceSampler(sampler, place(plain, device), device).sample(draw)


def test_tables_are_placed_for_those_who_draw_by_them() -> None:
    weighted, plain = (Graph.from_coo([1, 2], [0, 0], edge_weight=weights) for weights in ([1.0, 9.0], None))
    walks, own = RandomWalkSampler(1), type("Own", (RandomWalkSampler,), {})(1)
    by_tables = [draws_by_tables(sampler, weighted) for sampler in (walks, RandomWalkSampler(1, weighted=False), own)]
    assert by_tables == [True, False, False]
    assert not draws_by_tables(walks, plain)
    assert draws_by_tables(WeightedNeighborSampler([2]), weighted)


def test_the_consumers_stream_waits_for_a_batch(device: Device) -> None:
    source = toy_source()
    for batch in loader(source, device, num_threads=0):
        assert np.array_equal(device.read(batch.x), source.data.x.rows[batch.nodes.cpu()])


@pytest.mark.parametrize("num_threads", [0, 1, 4])
def test_threads_change_nothing_and_end(device: Device, num_threads: int) -> None:
    source = toy_source()
    expected = [content(batch) for batch in SampledLoader(source)]
    made = loader(source, device, num_threads=num_threads)
    assert [on_host(batch) for batch in made] == expected
    for _ in zip(range(2), made, strict=False):  # left in mid-epoch
        pass
    assert not guards.our_threads()


def test_an_epoch_goes_on_where_it_was_left(device: Device) -> None:
    source = toy_source()
    first, second = loader(source, device), loader(source, device)
    batches = iter(first)
    begun = [on_host(next(batches)) for _ in range(3)]
    state = first.state_dict()
    batches.close()
    second.load_state_dict(state)
    assert begun + [on_host(batch) for batch in second] == [content(batch) for batch in SampledLoader(source)]


def test_what_is_measured_of_a_batch_is_what_it_holds(device: Device) -> None:
    for expand in ("all", "new"):
        source = toy_source(sampler=NeighborSampler([3, 2], expand=expand))
        here, there = loader(source, device), SampledLoader(source)
        assert len(list(here)) == len(list(there)) == NUM_STEPS
        for name in ("num_batches", "num_seeds", "num_nodes", "num_edges", "reads"):
            assert getattr(here.stats, name) == getattr(there.stats, name), (name, expand)
        assert here.last is not None
        assert here.last.step == NUM_STEPS - 1
        assert here.stats.sample_ms > 0


@pytest.mark.parametrize("draws", [drawn_on_device, drawn_on_host])
def test_a_bad_seed_is_the_same_error_as_on_the_host(device: Device, draws) -> None:
    source = toy_source()
    source.workload.seeds[50] = 300
    with pytest.raises(SeedError) as of_host:
        list(SampledLoader(source))
    with pytest.raises(SeedError) as of_device:
        list(loader(source, device, draws))
    assert str(of_device.value) == str(of_host.value)
    assert not guards.our_threads()


def test_batches_come_after_an_error(device: Device) -> None:
    source = toy_source()
    made, expected = loader(source, device), SampledLoader(source)
    good, source.workload.seeds[50] = source.workload.seeds[50], -1
    with pytest.raises(SeedError):
        list(made)
    source.workload.seeds[50] = good
    made.set_epoch(1)
    expected.set_epoch(1)
    assert [on_host(batch) for batch in made] == [content(batch) for batch in expected]


class NoHiddenWait(TorchDispatchMode):
    """Forbids what would make the host wait for a CUDA device without saying so: copies from device to device, and
    those between page-locked memory and a device that are not asked to wait, do not."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "item", "is_nonzero")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        assert name not in self.FORBIDDEN, f"{name} waits for the device"
        if name == "_to_copy":
            self._check_copy(args[0], kwargs.get("device") or args[0].device, kwargs.get("non_blocking", False), None)
        if name == "copy_":
            self._check_copy(args[1], args[0].device, kwargs.get("non_blocking", len(args) > 2 and args[2]), args[0])
        if name == "index":
            assert all(each is None or each.dtype != torch.bool for each in args[1]), "a mask waits for the device"
        return func(*args, **kwargs)

    def _check_copy(
        self, source: torch.Tensor, device: torch.device, non_blocking: bool, target: torch.Tensor | None
    ) -> None:
        if source.device == device or "cpu" not in (source.device.type, device.type):
            return
        on_host = source if source.device.type == "cpu" else target  # None: _to_copy allocates pageable memory
        assert non_blocking, "the copy waits for the device"
        assert on_host is not None, "the copy waits for the device, as its memory is pageable"
        assert on_host.is_pinned(), "the copy waits for the device, as its memory is pageable"


def test_the_guard_forbids_copies_that_wait_and_no_others() -> None:
    """As far as can be told without a device: meta tensors are no host's."""
    here, there = torch.zeros(3), torch.zeros(3, device="meta")
    with NoHiddenWait():
        here.to(torch.float64)
        there.to(torch.float64)
        there.copy_(there)
        for waits in (
            lambda: here.to("meta"),
            lambda: here.to("meta", non_blocking=True),
            lambda: there.copy_(here),
            lambda: there.copy_(here, non_blocking=True),
            lambda: here[here > 0],
            lambda: here.sum().item(),
        ):
            with pytest.raises(AssertionError, match=r"waits? for the device"):
                waits()


@RunIf(cuda=1)
def test_the_guard_lets_staged_copies_pass() -> None:
    staged = torch.zeros(3, pin_memory=True)
    there = torch.zeros(3, device="cuda")
    with NoHiddenWait():
        staged.to("cuda", non_blocking=True)
        there.copy_(staged, non_blocking=True)
        staged.copy_(there, non_blocking=True)
        with pytest.raises(AssertionError, match="waits for the device"):
            staged.copy_(there)


@pytest.mark.parametrize(("expand", "convert", "ratio"), [("all", None, 0.0), ("new", None, 0.3), ("new", to_pyg, 1.0)])
def test_the_host_waits_once_a_batch(device: Device, expand: str, convert, ratio: float) -> None:
    if convert is not None:
        pytest.importorskip("torch_geometric")
    source = toy_source(sampler=NeighborSampler([3, 2], expand=expand))
    rows = {"x": open_on_device(FeatureCache("degree", ratio=ratio), source.data.x, source.workload, device)}
    made = loader(source, device, rows=rows, num_threads=0, convert=convert)
    list(made)  # kernels are compiled, and workspaces made
    reads = device.num_reads
    with NoHiddenWait():
        num_batches = sum(1 for _ in made)
    assert num_batches == NUM_STEPS
    assert device.num_reads - reads == num_batches + 1  # and once an epoch for what was read from where


def test_no_more_than_three_batches_lie_on_the_device(device: Device) -> None:
    """A maker waits until the consumer has begun the step before the last."""
    source = toy_source()
    made = loader(source, device)
    waited = []
    batches = made.on_device()
    assert batches is not None
    record = device.record

    class Watched:
        def __init__(self, step: int) -> None:
            self.step, self.event = step, record()

        def wait(self) -> None:
            waited.append((threading.current_thread().name, self.step))
            self.event.wait()

    given = iter(range(100))
    for _ in made:
        batches._handed[-1] = Watched(next(given))
    makers = [step for name, step in waited if name.startswith("gnnload")]
    assert makers, "no batch waited for the consumer"
    assert makers == sorted(makers)
    assert len(makers) >= NUM_STEPS - 4


def test_what_has_no_form_for_a_device_says_why() -> None:
    class Own(NeighborSampler):
        pass

    assert can_sample(NeighborSampler([2])) is None
    assert "Own has no kernels" in str(can_sample(Own([2])))


def test_uploaded_batches_do_not_change_when_the_next_is_drawn(device: Device) -> None:
    """The arena that they are copied from is used again at once."""
    graph = toy_graph()
    draws = UploadingSampler(NeighborSampler([3, 2]), graph, device)
    first = draws.sample(Draw(np.arange(10), DrawKey(0, 0, 0)))
    before = first.nodes.tolist(), first.hops[1].indices.tolist()
    draws.sample(Draw(np.arange(50, 70), DrawKey(0, 0, 1)))
    assert (first.nodes.tolist(), first.hops[1].indices.tolist()) == before


@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([3, 2]),
        NeighborSampler([3, 2], expand="new"),
        WeightedNeighborSampler([3, 2]),
        RandomWalkSampler(1, walk_length=2),
        LaborSampler([3, 2]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("budget_bytes", [1 << 20, 0])
def test_parts_give_the_batches_of_the_whole_graph(device: Device, sampler: NeighborSampler, budget_bytes: int) -> None:
    """By its ids, also where the names of a part's nodes stay in the host's memory."""
    rng, whole = np.random.default_rng(0), toy_graph()
    graph = Graph(whole.indptr, whole.indices, edge_weight=rng.random(whole.num_edges))
    seeds = np.arange(0, 300, 3)
    partition = partition_of(graph, rng.integers(3, size=300), {"train": seeds}, hops=2)
    parts = PartSampler(sampler, partition)

    def placed(part: Graph) -> Topology:
        return place(part, device, weighted=draws_by_tables(sampler, graph), budget_bytes=budget_bytes)

    on_device = DevicePartSampler(parts, placed, device)
    for part in partition.parts:
        mine = part.seeds["train"][:20]
        sample = on_device.sample(Draw(mine, DrawKey(1, 2, part.index)))
        batch = sampler.sample(graph, mine, seed=1, epoch=2, step=part.index)
        assert sample.nodes.tolist() == batch.nodes.tolist()
        for hop, block in zip(sample.hops, reversed(batch.blocks), strict=True):
            assert hop.indptr.tolist() == block.indptr.tolist()
            assert hop.indices.tolist() == block.indices.tolist()
    assert "edge ids of a part" in str(can_sample_parts(PartSampler(NeighborSampler([2], edge_ids=True), partition)))
