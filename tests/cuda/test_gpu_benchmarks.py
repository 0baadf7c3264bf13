"""The benchmarks of the CUDA path measure what they say, as far as the emulated device can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lightning_gnnload.plugin.device_report.sampling import measure_sampling, random_topology
from tests.benchmarks import gpu, gpu_aggregation, gpu_epochs, gpu_gather, gpu_sampling
from tests.benchmarks.growth_graph import GrowthGraph
from tests.integration.scripts.toy import toy_data

from .emulated import EmulatedDevice


def test_sampling():
    device = EmulatedDevice()
    figures = measure_sampling(device, random_topology(device, 2000, 20_000), 20, [3, 2], num_turns=1)
    known = replace(figures, num_edges=6e6, num_dst=0, device_ms=2.0, kernels_ms={"sample_neighbors/pick_edges": 1.0})
    # 3 and 6 G edges a second, of 44 bytes each: 132 and 264 GB/s.
    page = gpu_sampling.report(known, reads_per_s=30e9, bytes_per_s=330e9)
    assert "| 2.000 | 3.00 | 10% | 20% |" in page
    assert "| 1.000 | 6.00 | 20% | 40% |" in page


def test_sampling_from_lists_of_the_host(monkeypatch):
    monkeypatch.setattr(gpu_sampling.batches, "FEW_LISTS", 20)
    device = EmulatedDevice()
    topology = gpu_sampling.random_topology(device, 2000, 20_000)
    found = gpu_sampling.host_ms(device, topology, 20, [3, 2], num_turns=1)
    assert found.keys() == {"in order", "as they come"}
    assert "order_reads/sort_reads" in device.launched


@pytest.mark.parametrize(("width", "dtype"), [(16, torch.float32), (5, torch.float16)])
def test_gather(width, dtype):
    case = gpu_gather.Case(EmulatedDevice(), 300, 50, width, dtype)
    rates, missing = gpu_gather.measure(case, num_turns=1)
    assert rates.keys() | missing.keys() == case.ways.keys()
    assert {gpu_gather.OURS, gpu_gather.OURS_HOST, gpu_gather.TORCH} <= rates.keys()


def test_misses():
    device = EmulatedDevice()
    case = gpu_gather.Case(device, 300, 50, 16, torch.float32)
    figures = gpu_gather.measure_misses(device, case.mapped, case.ids.numpy(), num_turns=1)
    assert tuple(figures) == gpu_gather.HITS
    assert {len(of_ways) for of_ways in figures.values()} == {3 + 2 * len(gpu_gather.FAR_BLOCKS)}
    assert {"order_reads/sort_reads", "order_reads/place_reads"} <= device.launched


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_aggregation(dtype, monkeypatch):
    device = EmulatedDevice()
    monkeypatch.setattr("lightning_gnnload.nn.aggregate.device_of", lambda _: device)
    case = gpu_aggregation.Case(device, num_dst=20, fanout=3, num_src=40, width=8, dtype=dtype)
    page = gpu_aggregation.table(case, num_turns=1, bytes_per_s=1e9)
    assert {"aggregate/sum_rows", "aggregate/max_rows"} <= {name.partition("<")[0] for name in device.launched}
    for way in (gpu_aggregation.OURS, "embedding_bag", "PyG, scatter"):
        assert f"| {way} | " in page
    # 60 edges, their rows of 32 or 16 bytes and indices of 4; 20 rows and starts; 40 rows and starts.
    row = 8 * dtype.itemsize
    assert case.moved_bytes("mean") == (60 * (row + 4) + 20 * (row + 4), 120 * (row + 4) + 60 * (row + 4))
    monkeypatch.setitem(gpu_aggregation.WAYS, "embedding_bag", lambda how, block, x, weights: x[: block.num_dst])
    with pytest.raises(gpu_aggregation.BenchmarkError, match="embedding_bag: the mean of"):
        gpu_aggregation.table(case, num_turns=1, bytes_per_s=1e9)


@pytest.mark.parametrize("percent", [0, 10])
def test_stages(percent):
    device, data = EmulatedDevice(), toy_data()
    cache = gpu_epochs.cache_of(percent, "presample")
    draws = gpu_epochs.UploadingSampler(gpu_epochs.NeighborSampler(gpu_epochs.FANOUTS), data.graph, device)
    assert all(ms > 0 for ms in gpu_epochs.stages(device, data, "GCN", draws, cache, num_steps=1))


def test_a_graph_without_rows_is_given_some(tmp_path):
    graph = GrowthGraph(num_nodes=300, num_edges=2000, num_train=50, root=tmp_path)
    graph.prepare()
    data = gpu_epochs.with_rows(graph.load())
    device = EmulatedDevice()
    draws = gpu_epochs.DeviceSampler(
        gpu_epochs.NeighborSampler(gpu_epochs.FANOUTS), gpu_epochs.place(data.graph, device), device
    )
    assert all(ms > 0 for ms in gpu_epochs.stages(device, data, "GraphSAGE", draws, None, num_steps=1))
    toys = toy_data()
    assert gpu_epochs.with_rows(toys) is toys


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("part", [gpu, gpu_sampling, gpu_gather, gpu_aggregation, gpu_epochs])
def test_without_a_gpu_they_say_so_in_a_line(part, capsys):
    assert part.main([]) == 0
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith("skipped: ")
    assert said.err.count("\n") == 1
