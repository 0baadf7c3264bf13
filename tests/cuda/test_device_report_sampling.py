"""What ``gnnload doctor --gpu`` and the benchmarks time of sampling is what a training does."""

from __future__ import annotations

import pytest
import torch

from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.plugin.device_report.sampling import TimedLaunches, measure_sampling, random_topology


def test_a_random_graph_is_skewed_towards_nodes_of_any_id(device: Device) -> None:
    topology = random_topology(device, 2000, 20_000)
    assert topology.num_edges == pytest.approx(20_000, rel=0.1)
    counts = torch.bincount(topology.indices.cpu(), minlength=2000)
    assert len(counts) == 2000
    hottest = counts.argsort(descending=True)[:200]
    assert counts[hottest].sum() > 0.25 * topology.num_edges  # a tenth of the nodes: 0.32 expected
    assert 700 < hottest.float().mean() < 1300
    assert topology.max_degree == int(topology.indptr.diff().max())


def test_a_batch_is_timed_as_a_whole_and_by_kernel(device: Device) -> None:
    times = measure_sampling(device, random_topology(device, 2000, 20_000), 20, [3, 2], num_turns=2)
    assert 20 < times.num_nodes <= 20 * (1 + 3 + 8)
    assert times.num_edges <= times.num_dst * 3
    assert times.least_bytes == times.num_edges * 44 + times.num_dst * 52
    assert {"number_nodes/relabel", "sample_neighbors/pick_edges"} <= times.kernels_ms.keys()
    of_picks = {"sample_neighbors/count_edges", "sample_neighbors/pick_edges"}
    assert times.picking_ms == pytest.approx(sum(times.kernels_ms[name] for name in of_picks))
    assert times.host_ms > 0
    assert times.device_ms > 0


def test_launches_are_timed_by_kernel_and_forgotten(device: Device) -> None:
    timed = TimedLaunches(device)
    for _ in range(3):
        timed.launch("probe", "do_nothing", blocks=1, threads=32, count=0)
    assert timed.take_ms().keys() == {"probe/do_nothing"}
    assert timed.take_ms() == {}
    assert timed.torch_device == device.torch_device
