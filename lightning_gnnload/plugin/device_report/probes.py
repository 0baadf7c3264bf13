"""Probes: what a device does, in figures with the names of those of the H200."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.host.memory import free_bytes
from lightning_gnnload.host.pages import buffer_memory
from lightning_gnnload.ops import MAX_SHARDS
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.timing import timed_ms
from lightning_gnnload.ops.cuda.probe import copy_bytes_per_s, launch_us, random_minima_per_s, random_reads_per_s
from lightning_gnnload.ops.cuda.tables.bus_order import AS_THEY_COME
from lightning_gnnload.ops.cuda.tables.gather import gather_rows
from lightning_gnnload.ops.cuda.tables.rows import Table
from lightning_gnnload.ops.cuda.tables.tiers import MissCounts, TieredTable, gather_tiered, order_missed
from lightning_gnnload.plugin.device_report import figures
from lightning_gnnload.plugin.device_report.figures import Figure
from lightning_gnnload.plugin.device_report.sampling import measure_sampling, random_topology

_ROW_BYTES = 512
_SHARE = 4  # of free memory, a quarter at most


@dataclass(frozen=True)
class ProbeSize:
    """How much probes measure with; the default is what the H200 was measured with."""

    num_nodes: int = 111_059_956
    num_edges: int = 1_615_685_872
    num_rows: int = 8_000_000
    num_ids: int = 1_900_000
    num_missed: int = 400_000  # ids whose rows come over the bus
    copy_bytes: int = 1 << 30
    turns: int = 20
    calls: int = 2000
    scale: float = 1.0  # of tables of random reads, and of the seeds of mini-batches
    blocks: int | None = None


SMALL = ProbeSize(2000, 20_000, 400, 300, 100, 1 << 12, turns=1, calls=3, scale=0.005, blocks=1)
"""For a device that is emulated: it measures nothing, and runs all."""


def ceilings(device: Device, size: ProbeSize) -> Iterator[Figure]:
    """Yields copies, on the device and over the bus, random reads and atomic minima."""
    turns, num_bytes = size.turns, size.copy_bytes
    yield Figure(figures.COPY, copy_bytes_per_s(device, num_bytes, turns) / 1e9, "GB/s")
    here = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=device.torch_device.type == "cuda")
    there = device.empty(num_bytes, torch.uint8)
    for name, target, source in ((figures.BUS, there, here), (figures.BUS_BACK, here, there)):
        ms = timed_ms(device, lambda t=target, s=source: t.copy_(s, non_blocking=True), turns)  # type: ignore[misc]
        yield Figure(name, num_bytes / ms / 1e6, "GB/s")
    del here, there
    for name, rate in ((figures.READS, random_reads_per_s), (figures.MINIMA, random_minima_per_s)):
        for table, table_bytes in figures.TABLES.items():
            used = min(int(table_bytes * size.scale), device.free_bytes() // 2)
            per_s = rate(device, used, num_turns=turns, blocks=size.blocks)
            about = _if_less(table_bytes, used, "bytes")
            yield Figure(f"{name}, {table}", per_s / 1e9, "10^9/s", about)


def host_costs(device: Device, size: ProbeSize) -> Iterator[Figure]:
    """Yields the microseconds of the host that calls take."""
    yield Figure(figures.LAUNCH, launch_us(device, min(size.calls, 500)), "us")
    word = device.zeros(1, torch.int64)
    for name, call in (
        (figures.TORCH_OP, lambda: word.add_(1)),
        (figures.EVENT, device.record),
        (figures.READ_BACK, lambda: device.read(word)),
    ):
        yield Figure(name, _call_us(device, call, min(size.calls, 500)), "us")


def batches(device: Device, size: ProbeSize) -> Iterator[Figure]:
    """Yields mini-batches of the four sizes, as a training draws them, and their kernels alone."""
    # An id an edge; an offset, a number of the table and an id while it is made, and chunks of float64.
    room = device.free_bytes() // 2
    share = min(1.0, room / (size.num_edges * 4 + size.num_nodes * 24 + (1 << 31)))
    num_nodes, num_edges = int(size.num_nodes * share), int(size.num_edges * share)
    topology = random_topology(device, num_nodes, num_edges)
    for num_seeds, fanouts in figures.BATCHES:
        used = max(int(num_seeds * min(size.scale, 1)), 1)
        times = measure_sampling(device, topology, used, fanouts, size.turns)
        about = f"{times.num_nodes:,.0f} nodes, {times.num_edges:,.0f} edges"
        if num_nodes != ProbeSize.num_nodes:
            about += f"; of a graph of {num_nodes:,} nodes, {num_edges:,} edges"
        yield Figure(figures.batch_name(num_seeds, fanouts), times.host_ms, "ms", about)
        yield Figure(figures.kernels_name(num_seeds, fanouts), sum(times.kernels_ms.values()), "ms", about)


def rows(device: Device, size: ProbeSize) -> Iterator[Figure]:
    """Yields gathers of rows: from the device, over the bus, and from caches of several hit rates."""
    room = min(device.free_bytes() // 2, free_bytes()) // _SHARE
    num_rows = min(size.num_rows, room // _ROW_BYTES)
    num_ids, num_missed = min(size.num_ids, num_rows), min(size.num_missed, num_rows)
    about = _if_less(ProbeSize.num_rows, num_rows, "rows in the table")
    memory = torch.frombuffer(buffer_memory(num_rows * _ROW_BYTES), dtype=torch.uint8)[: num_rows * _ROW_BYTES]
    host = memory.view(torch.int32).view(num_rows, -1)
    host.copy_(torch.arange(num_rows, dtype=torch.int32).unsqueeze(1))
    table = host.to(device.torch_device)
    mapped = device.map_host(host.numpy())
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, num_rows, num_ids)).to(device.torch_device)
    probe = _RowProbe(device, size.turns)
    yield probe.gathered(figures.ROWS, table, ids, about)
    out = torch.empty(len(ids), table.shape[1], dtype=table.dtype, device=table.device)
    yield probe.figure(figures.TORCH_ROWS, lambda: torch.index_select(table, 0, ids, out=out), out, ids, about)
    few = ids[:num_missed].contiguous()
    yield probe.gathered(figures.ROWS_ON_BUS, mapped, few, about)
    yield probe.gathered(figures.SORTED_ON_BUS, mapped, few.sort().values, about)
    num_hot = max(num_rows // 2, 1)
    location = torch.arange(num_rows, dtype=torch.int32, device=table.device)
    location[num_hot:] = -1
    cached = TieredTable.of(device, location, [table.data_ptr()], [num_hot], _ROW_BYTES, mapped)
    rng = np.random.default_rng(1)
    for hits in figures.HITS:
        is_hit = rng.random(num_ids) < hits / 100
        mixed = np.where(is_hit, rng.integers(0, num_hot, num_ids), rng.integers(num_hot, num_rows, num_ids))
        yield probe.cached(figures.cached_name(hits), cached, device.put(mixed), out, about)


class _RowProbe:
    """Times gathers, and sees that their rows are those that were asked for."""

    def __init__(self, device: Device, turns: int) -> None:
        self._device, self._turns = device, turns
        self._error = device.zeros(1, torch.int64)
        self._counts = device.zeros(MAX_SHARDS + 1, torch.int64)

    def gathered(self, name: str, table: Table, ids: torch.Tensor, about: str) -> Figure:
        out = torch.empty(len(ids), _ROW_BYTES // 4, dtype=torch.int32, device=ids.device)
        return self.figure(name, partial(gather_rows, self._device, table, ids, out, self._error), out, ids, about)

    def cached(self, name: str, table: TieredTable, ids: torch.Tensor, out: torch.Tensor, about: str) -> Figure:
        misses = MissCounts(self._device)

        def gather() -> None:  # as caches do
            few = misses.expects_few(len(ids))
            far = AS_THEY_COME if few else order_missed(self._device, table, ids)
            gather_tiered(self._device, table, ids, out, self._counts, self._error, far, counts_address=misses.address)

        self._counts.zero_()
        return self.figure(name, gather, out, ids, about)

    def figure(
        self, name: str, gather: Callable[[], object], out: torch.Tensor, ids: torch.Tensor, about: str
    ) -> Figure:
        ms = timed_ms(self._device, gather, self._turns)
        if not bool((out[:, -1] == ids).all()):
            raise GnnLoadError(f"{name}: the device gathered other rows than it was asked for. Report it.")
        return Figure(name, out.nbytes / ms / 1e6, "GB/s", about)


def _if_less(standard: int, used: int, unit: str) -> str:
    """Says what a figure was measured with, where that is not what the H200's was."""
    return "" if used == standard else f"with {used:,} {unit}"


def _call_us(device: Device, call: Callable[[], object], num_calls: int, num_turns: int = 5) -> float:
    runs = []
    for _ in range(num_turns):
        device.record().synchronize()
        began = time.perf_counter()
        for _ in range(num_calls):
            call()
        runs.append(time.perf_counter() - began)
    return statistics.median(runs) / num_calls * 1e6
