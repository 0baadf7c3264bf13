"""``python -m tests.benchmarks.gpu_gather [--quick]``: feature rows gathered on a GPU.

All ways gather the same random rows into the same memory; GB/s are of the rows, read once. What the machine could do
is a copy of as many bytes, on the device for a table that lies there, and over the bus for one in the host's memory.
The second table is of a cache that holds a share of the rows, and reads the others over the bus: in milliseconds of a
gather, with what puts them in order.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.host.pages import buffer_memory
from lightning_gnnload.ops.cuda.launch.device import Device, Mapped
from lightning_gnnload.ops.cuda.launch.timing import timed_ms
from lightning_gnnload.ops.cuda.tables.bus_order import AS_THEY_COME, Reads, order_reads
from lightning_gnnload.ops.cuda.tables.gather import gather_rows
from lightning_gnnload.ops.cuda.tables.tiers import TieredTable, gather_tiered
from tests.benchmarks import gpu_device, machine
from tests.benchmarks.errors import BenchmarkError, Unavailable

Way = Callable[[], object]
COPY, OURS, TORCH, WHOLEGRAPH = "device copy", "ours", "torch.index_select", "pylibwholegraph"
BUS_COPY, OURS_HOST, TORCH_HOST = "bus copy", "ours, from host memory", "torch, on the host, then copied"


class Case:
    """A table of one width and dtype on the device and in the host's memory, and ids."""

    def __init__(self, device: Device, num_rows: int, num_ids: int, width: int, dtype: torch.dtype) -> None:
        self.device, there = device, device.torch_device
        row_bytes = width * dtype.itemsize
        memory = torch.frombuffer(buffer_memory(num_rows * row_bytes), dtype=torch.uint8)[: num_rows * row_bytes]
        self.host = memory.view(dtype).view(num_rows, width)
        self.host.copy_(torch.arange(num_rows).remainder(127).unsqueeze(1))
        self.mapped = device.map_host(memory.numpy().reshape(num_rows, row_bytes))
        self.table = self.host.to(there)
        self.ids = torch.from_numpy(np.random.default_rng(0).integers(0, num_rows, num_ids))
        self.ids_there = self.ids.to(there)
        self.out = torch.empty(num_ids, width, dtype=dtype, device=there)
        self.other = torch.zeros_like(self.out)
        self.staged = torch.empty(num_ids, width, dtype=dtype, pin_memory=there.type == "cuda")
        self.error = device.zeros(1, torch.int64)

    @property
    def ways(self) -> dict[str, Way]:
        out_bytes = self.out.view(torch.uint8)
        return {
            COPY: lambda: self.out.copy_(self.other),
            OURS: lambda: gather_rows(self.device, self.table, self.ids_there, self.out, self.error),
            TORCH: lambda: torch.index_select(self.table, 0, self.ids_there, out=self.out),
            WHOLEGRAPH: self._wholegraph(),
            BUS_COPY: lambda: self.out.copy_(self.staged, non_blocking=True),
            OURS_HOST: lambda: gather_rows(self.device, self.mapped, self.ids_there, out_bytes, self.error),
            TORCH_HOST: self._through_host,
        }

    def check(self, name: str) -> None:
        """Raises BenchmarkError: these are not the rows that were asked for."""
        if name not in (COPY, BUS_COPY) and not torch.equal(self.out[:, -1].long(), self.ids_there % 127):
            raise BenchmarkError(f"{name} gathered other rows than it was asked for.")

    def _through_host(self) -> None:
        torch.index_select(self.host, 0, self.ids, out=self.staged)
        self.out.copy_(self.staged, non_blocking=True)

    def _wholegraph(self) -> Way:
        """On one device, in a communicator of one process."""
        embedding = None

        def gather() -> None:
            nonlocal embedding
            if embedding is None:
                embedding = _whole_memory(self.table)
            self.out.copy_(embedding.gather(self.ids_there))

        return gather


HITS = (100, 99, 90, 50, 0)  # percent
FAR_BLOCKS = (16, 33, 66, 132, 264)
AS_THEY_ARE, IN_BUCKETS, IN_ORDER = "as they come", "by bucket", "in order"


class CachedCase:
    """Ids of which a cache on the device holds a share, and the host all; the device has but the rows that are hit."""

    def __init__(self, device: Device, mapped: Mapped, ids: np.ndarray, hits: int) -> None:
        self.device, num_rows, row_bytes = device, *mapped.tensor.shape
        self.ids, self.mapped, self.num_rows = device.put(ids), mapped, num_rows
        is_hit = np.zeros(num_rows, bool)
        is_hit[np.random.default_rng(hits).permutation(num_rows)[: num_rows * hits // 100]] = True
        held = np.flatnonzero(is_hit)
        location = np.full(num_rows, -1, np.int32)
        location[held] = np.arange(len(held))
        self.location = device.put(location)
        self.held = device.empty(max(len(held), 1) * row_bytes, torch.uint8)
        self.error, self.taken = device.zeros(1, torch.int64), device.zeros(ops.MAX_SHARDS + 1, torch.int64)
        if len(held):
            gather_rows(device, mapped, device.put(held), self.held.view(len(held), row_bytes), self.error)
        self.out = device.empty(len(ids) * row_bytes, torch.uint8).view(len(ids), row_bytes)
        self.num_missed = int((~is_hit[ids]).sum())
        self.staged = torch.empty(self.num_missed, row_bytes, dtype=torch.uint8)
        if device.torch_device.type == "cuda":
            self.staged = self.staged.pin_memory()

    def table(self, *, backed: bool) -> TieredTable:
        row_bytes = self.out.shape[1]
        addresses, num_rows = [self.held.data_ptr()], [len(self.held) // row_bytes]
        backing = self.mapped if backed else None
        return TieredTable.of(self.device, self.location, addresses, num_rows, row_bytes, backing)

    @property
    def ways(self) -> dict[str, Way]:
        table, bare = self.table(backed=True), self.table(backed=False)

        def gather(table: TieredTable, how: str = AS_THEY_ARE, far_blocks: int | None = None) -> None:
            far = AS_THEY_COME
            if how != AS_THEY_ARE:
                reads = Reads(self.ids, len(self.ids), self.num_rows, self.location)
                far = order_reads(self.device, reads, sorts=how == IN_ORDER)
            gather_tiered(self.device, table, self.ids, self.out, self.taken, self.error, far, far_blocks)

        return {
            "no backing": lambda: gather(bare),
            "a copy of the misses": lambda: self.out[: self.num_missed].copy_(self.staged, non_blocking=True),
            AS_THEY_ARE: lambda: gather(table),
            **{
                f"{how}, {blocks} blocks": partial(gather, table, how, blocks)
                for how in (IN_BUCKETS, IN_ORDER)
                for blocks in FAR_BLOCKS
            },
        }

    def check(self, name: str) -> None:
        """Raises BenchmarkError: these are not the rows that were asked for."""
        if name in ("no backing", "a copy of the misses"):
            return
        ids = self.ids.cpu()
        if not torch.equal(self.out[-1000:].cpu(), self.mapped.tensor[ids[-1000:]]):
            raise BenchmarkError(f"{name} gathered other rows than it was asked for.")


def measure_misses(device: Device, mapped: Mapped, ids: np.ndarray, num_turns: int) -> dict[int, dict[str, float]]:
    """Milliseconds of each way, by the percentage of hits."""
    figures: dict[int, dict[str, float]] = {}
    for hits in HITS:
        case = CachedCase(device, mapped, ids, hits)
        figures[hits] = {}
        for name, way in case.ways.items():
            figures[hits][name] = timed_ms(device, way, num_turns)
            case.check(name)
    return figures


def _whole_memory(table: torch.Tensor):  # type: ignore[no-untyped-def]
    try:
        import pylibwholegraph.torch as wholegraph

        everybody, _ = wholegraph.init_torch_env_and_create_wm_comm(0, 1, 0, 1)
        made = wholegraph.create_embedding(everybody, "continuous", "cuda", table.dtype, list(table.shape))
        made.get_embedding_tensor().get_local_tensor()[0].copy_(table)
        return made
    except Exception as error:  # a library that is missing, or of a version that we do not know
        raise Unavailable(f"{type(error).__name__}: {error}") from error


def measure(case: Case, num_turns: int) -> tuple[dict[str, float], dict[str, str]]:
    """GB/s of each way, and why another was not measured."""
    rates, missing = {}, {}
    for name, way in case.ways.items():
        try:
            ms = timed_ms(case.device, way, num_turns)
        except Unavailable as reason:
            missing[name] = str(reason)
            continue
        case.check(name)
        rates[name] = case.out.nbytes / ms / 1e6
    return rates, missing


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_gather", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: a small table, few turns")
    parser.add_argument("--rows", type=int, default=4_000_000, help="of the table, which should fit no cache")
    parser.add_argument("--ids", type=int, default=1_000_000, help="rows gathered at a time")
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.ids, options.turns = 100_000, 20_000, 3
    device = gpu_device.opened()
    if device is None:
        return 0
    others = machine.Neighbours()
    columns = (COPY, OURS, TORCH, WHOLEGRAPH, BUS_COPY, OURS_HOST, TORCH_HOST)
    print(f"{options.ids:,} of {options.rows:,} rows; GB/s, medians of {options.turns} turns.\n")
    print("| rows of | " + " | ".join(columns) + " |")
    print("| --- |" + " ---: |" * len(columns))
    missing: dict[str, str] = {}
    for width, dtype in ((16, torch.float32), (100, torch.float32), (128, torch.float32), (256, torch.float16)):
        rates, missing = measure(Case(device, options.rows, options.ids, width, dtype), options.turns)
        cells = (f"{rates[name]:.1f}" if name in rates else "" for name in columns)
        print(f"| {width} {str(dtype).removeprefix('torch.')} | " + " | ".join(cells) + " |", flush=True)
    case = Case(device, options.rows, options.ids, 128, torch.float32)
    figures = measure_misses(device, case.mapped, case.ids.numpy(), max(options.turns // 4, 1))
    print("\n| 128 float32, ms at hits of | " + " | ".join(f"{hits} %" for hits in figures) + " |")
    print("| --- |" + " ---: |" * len(figures))
    for name in figures[HITS[0]]:
        print(f"| {name} | " + " | ".join(f"{of_ways[name]:.2f}" for of_ways in figures.values()) + " |")
    print("".join(f"\nNot measured: {name}, {reason}\n" for name, reason in missing.items()))
    print("\n".join(f"- {line}" for line in [*gpu_device.describe(device), others.describe()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
