"""Mini-batches of graphs with types and times, of rows and of links, are those of the host if a device makes them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, HGTSampler, LayerSampler, NeighborSampler, WeightedNeighborSampler
from lightning_gnnload.errors import CudaUnavailableError, LoaderConfigError, SeedError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.launch import open_device as opening
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.source import DeviceSource
from lightning_gnnload.sample.base import draw_here
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler, UploadingSampler
from lightning_gnnload.sample.seeds.rows import NodeSeeds
from tests.ops.graphs import read_batch
from tests.runif import RunIf
from tests.unit.plugin.module.test_works_with import KINDS, data_of, module

from .emulated import EmulatedDevice
from .sampled import assert_equal


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """What every trainer's device is opened as."""
    device = EmulatedDevice()
    monkeypatch.setattr(opening, "open_device", lambda of: device)
    return device


def told(held: Any) -> Any:
    """Everything that a batch of any format holds, in lists and dicts."""
    if isinstance(held, torch.Tensor):
        return str(held.dtype), held.tolist()
    if isinstance(held, dict):
        return {str(name): told(each) for name, each in held.items()}
    if isinstance(held, list | tuple):
        return [told(each) for each in held]
    if is_dataclass(held):
        return {each.name: told(getattr(held, each.name)) for each in fields(held)}
    return told(held.to_dict()) if hasattr(held, "to_dict") else str(held)


def both(kind: str, sampler: Any = None, **settings: Any) -> tuple[list[Any], list[Any]]:
    """All batches as the host makes them, and as the device does."""
    made: list[list[Any]] = []
    for where in ("cpu", "cuda"):
        batches = module(kind, sampler, sampling_device=where, **settings)
        made.append([told(batch) for batch in batches.train_dataloader()])
        batches.teardown()
    assert len(made[0]) == 2
    return made[0], made[1]


@pytest.mark.parametrize("form", ["blocks", pytest.param("pyg", marks=RunIf(extras="pyg"))])
@pytest.mark.parametrize("kind", KINDS)
def test_a_data_module_serves_the_same_batches(opened: EmulatedDevice, kind: str, form: Any) -> None:
    """Types, times, a node in several rows, and links whose edges are left out, with features of each type."""
    there, here = both(kind, batch_format=form, bare=form == "pyg")
    assert here == there
    assert any(name.startswith("sample_typed/pick_typed") for name in opened.launched)


@pytest.mark.parametrize(
    "settings", [{"sharing": "time"}, {"pick": "last"}, {"window": 20}, {"before": "<"}, {"order": "path"}]
)
@pytest.mark.parametrize("kind", ["times", "types, times, links"])
def test_settings_of_time(opened: EmulatedDevice, kind: str, settings: dict[str, Any]) -> None:
    there, here = both(kind, NeighborSampler([3, 2], edge_ids=True, **settings))
    assert here == there


def test_times_that_are_ignored(opened: EmulatedDevice) -> None:
    there, here = both("types, times", NeighborSampler([3, 2], before=None, sharing="disjoint"))
    assert here == there


@pytest.mark.parametrize(
    ("kind", "sampler"),
    [
        ("types", WeightedNeighborSampler([3, 2])),
        ("types", LayerSampler([20, 20], edge_ids=True, weighted=False)),
        ("types, links", WeightedNeighborSampler([{"buys": 3}, -1])),
    ],
)
def test_other_samplers(opened: EmulatedDevice, kind: str, sampler: Any) -> None:
    there, here = both(kind, sampler, exclude=None)
    assert here == there


@pytest.mark.parametrize("expand", ["all", "new"])
def test_what_the_host_draws_is_uploaded_with_types_and_queries(opened: EmulatedDevice, expand: Any) -> None:
    data = data_of("types, times, links")
    rows = module("types, times, links", NeighborSampler([3, 2], expand=expand)).source("train").workload.kind
    sampler, key = rows.sampler, DrawKey(1, 2, 3)
    asked = rows.ask(np.arange(10), key)
    arena, layout = draw_here(sampler, data.graph, asked.draw)
    expected = read_batch(layout, arena)
    on_device = DeviceSampler(sampler, place(data.graph, opened), opened)
    for draws in (UploadingSampler(sampler, data.graph, opened), on_device):
        assert_equal(draws.sample(asked.draw), expected)


@pytest.mark.parametrize("expand", ["all", "new"])
def test_a_sampler_rank_draws_on_its_device_and_gathers_on_the_host(opened: EmulatedDevice, expand: Any) -> None:
    source = module("types, times, links", NeighborSampler([3, 2], expand=expand)).source("train")
    draws = DeviceSampler(source.workload.sampler, place(source.data.graph, opened), opened)
    there, here = SampledLoader(source), SampledLoader(DeviceSource(source, draws, opened, None))
    assert [told(batch) for batch in here] == [told(batch) for batch in there]


BUYS, KNOWS, SEES = ("user", "buys", "item"), ("user", "knows", "user"), ("item", "seen_by", "user")


def wide_graph(timed: bool = False, weighted: bool = False) -> Graph:
    rng = np.random.default_rng(0)
    counts = {"user": 40, "item": 70, "shop": 5}
    edges = {
        kind: (rng.integers(0, counts[kind[0]], count), rng.integers(0, counts[kind[2]], count))
        for kind, count in {BUYS: 900, KNOWS: 300, SEES: 500, ("shop", "sells", "item"): 0}.items()
    }
    times = {BUYS: rng.integers(0, 9, 900), SEES: rng.integers(0, 1000, 500)}
    node_time = {"user": rng.integers(0, 900, 40)}
    more: dict[str, Any] = {"edge_time": times, "node_time": node_time} if timed else {}
    if weighted:  # some zero, and of one type next to nothing but a few: draws from shares
        even, skewed = rng.random(900) * (rng.random(900) < 0.6), np.exp(20 * rng.standard_normal(500))
        more["edge_weight"] = {BUYS: even, KNOWS: np.zeros(300), SEES: skewed}
    return Graph.from_hetero(counts, edges, **more)


@pytest.mark.parametrize("share", [1.0, 0.7, 0.4, 0.0], ids=["whole", "hot lists", "offsets", "mapped"])
@pytest.mark.parametrize("timed", [False, True])
def test_the_batch_is_the_same_wherever_lists_lie(device: Device, timed: bool, share: float) -> None:
    graph = wide_graph(timed)
    sampler = NeighborSampler([{"buys": 4, "seen_by": -1}, 3, {"knows": 2, "buys": 1}], edge_ids=True)
    topology = place(graph, device, budget_bytes=1 << 20)
    num_bytes = graph.indptr.nbytes + graph.run_ptr.nbytes + graph.indices.nbytes
    num_bytes += graph.edge_time.nbytes if timed else 0
    topology = place(graph, device, budget_bytes=int(share * num_bytes))
    where = {1.0: "all of it", 0.7: "offsets and the lists of", 0.4: "offsets", 0.0: "page-locked host memory"}[share]
    assert where in topology.about
    draws, key = DeviceSampler(sampler, topology, device), DrawKey(1, 0, 5)
    seeds = np.random.default_rng(1).permutation(110)[:20] if not timed else np.arange(20)
    asked = NodeSeeds(graph, sampler, seeds).ask(seeds, key)
    arena, layout = draw_here(sampler, graph, asked.draw)
    assert_equal(draws.sample(asked.draw), read_batch(layout, arena))


@pytest.mark.parametrize("share", [1.0, 0.7, 0.4, 0.0], ids=["whole", "hot lists", "offsets", "mapped"])
@pytest.mark.parametrize(
    "fanouts", [[3, 2], [{"buys": 5, "knows": 2, "seen_by": -1}, {"seen_by": 40, "buys": 1}], [{"sells": 3}]], ids=str
)
def test_draws_by_weight_and_type(device: Device, fanouts: Any, share: float) -> None:
    graph, seeds = wide_graph(weighted=True), np.random.default_rng(1).permutation(115)[:20]
    assert graph.run_ptr is not None
    num_bytes = graph.indptr.nbytes + graph.run_ptr.nbytes + graph.indices.nbytes + 8 * graph.num_edges
    topology = place(graph, device, weighted=True, budget_bytes=int(share * num_bytes))
    wide = replace(topology.lists, run_ptr=device.put(graph.run_ptr.astype(np.int64)))
    for step, (again, expand) in enumerate(product([False, True], ["all", "new"])):
        sampler = WeightedNeighborSampler(fanouts, replace=again, expand=expand, edge_ids=True)  # type: ignore[arg-type]
        draws = DeviceSampler(sampler, replace(topology, lists=wide) if step % 2 else topology, device)
        key = DrawKey(1, 0, step)
        assert_equal(draws.sample(Draw(seeds, key)), read_batch(*draw_here(sampler, graph, Draw(seeds, key))[::-1]))


def test_weights_of_edges_whose_types_cut_no_lists(device: Device) -> None:
    rng, sampler, key = np.random.default_rng(0), WeightedNeighborSampler([3, 2]), DrawKey(1, 2, 3)
    src, dst, kind = rng.integers(0, [[30], [30], [4]], (3, 300))
    graph, seeds = Graph.from_coo(src, dst, 30, rng.random(300), edge_type=kind), np.arange(9)
    sample = DeviceSampler(sampler, place(graph, device, weighted=True), device).sample(Draw(seeds, key))
    assert_equal(sample, read_batch(*draw_here(sampler, graph, Draw(seeds, key))[::-1]))


def test_no_more_memory_than_the_budget(device: Device) -> None:
    """Which runs and times count for."""
    graph = wide_graph(timed=True)
    arrays = (graph.indptr, graph.indices, graph.run_ptr, graph.edge_time)
    num_bytes = sum(array.nbytes for array in arrays if array is not None)
    assert "all of it" in place(graph, device, budget_bytes=num_bytes).about
    assert "all of it" not in place(graph, device, budget_bytes=num_bytes - 1).about


def test_a_workspace_without_a_hash_table_is_replaced(device: Device) -> None:
    graph, sampler, key = wide_graph(timed=False), NeighborSampler([3, 2], sharing="disjoint"), DrawKey(1, 2, 3)
    draws, seeds = DeviceSampler(sampler, place(graph, device), device), np.array([1, 1, 50])
    draws.sample(Draw(np.array([1, 50]), key))
    draw = NodeSeeds(graph, sampler, seeds).ask(seeds, key, names=np.arange(3)).draw
    arena, layout = draw_here(sampler, graph, draw)
    for _ in range(2):
        assert_equal(draws.sample(draw), read_batch(layout, arena))


def test_what_no_device_draws_is_refused_by_name(opened: EmulatedDevice) -> None:
    with pytest.raises(LoaderConfigError, match="HGTSampler has no kernels"):
        both("types", HGTSampler([2]))
    graph = Graph.from_coo([1, 2], [0, 0], edge_type=[0, 1])
    sampler = NeighborSampler([{0: 1}])
    with pytest.raises(CudaUnavailableError, match=r"draws by the edge_type of Graph\.from_coo"):
        DeviceSampler(sampler, place(graph, opened), opened).sample(Draw(np.array([0]), DrawKey(0, 0, 0)))
    timed = place(wide_graph(timed=True), opened)
    with pytest.raises(SeedError, match="the seeds have none"):
        DeviceSampler(NeighborSampler([2]), timed, opened).sample(Draw(np.array([0]), DrawKey(0, 0, 0)))
