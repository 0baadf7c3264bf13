"""``python -m tests.benchmarks.cached_gather [--quick]``: feature rows through a cache and of one byte a number.

All ways take turns at gathering random rows, each turn anew, so that none finds what another left in the processor's
caches; a way's time is compared with the plain gather's of the same turn, and the median of the ratios counts.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lightning_gnnload import MemoryFeatureStore, QuantizedFeatureStore, ops
from lightning_gnnload.data.features import byte_rows
from lightning_gnnload.host.pages import buffer_memory
from tests.benchmarks import machine
from tests.benchmarks.errors import BenchmarkError

_MARKS = 127  # what a row holds, its number modulo this, is exact in every dtype
_PLAIN, _COPY = "plain", "memcpy"
_HIT_PERCENT = (100, 50, 0)
_COLUMNS = (_COPY, "100 %", "50 %", "50 %, misses told", "0 %", "int8")


class Case:
    """A table of one width and dtype, rows of it in a cache, and the same in int8; all on 2 MB pages."""

    def __init__(self, num_rows: int, num_ids: int, width: int, dtype: torch.dtype) -> None:
        marks = torch.arange(num_rows).remainder(_MARKS).unsqueeze(1)
        self.table = _tensor(num_rows, width, dtype).copy_(marks)
        self.store = MemoryFeatureStore(self.table)
        self.int8 = QuantizedFeatureStore(
            _tensor(num_rows, width, torch.int8).copy_(marks), torch.ones(width), dtype=dtype
        )
        self.out = _tensor(num_ids, width, dtype).zero_()
        self.missed = np.zeros((2, num_ids), np.int64)
        # A shard that holds all: what is in the cache lies elsewhere than the table, in another order.
        order = np.random.default_rng(0).permutation(num_rows)
        self.shard = _tensor(num_rows, width, dtype)
        for begin in range(0, num_rows, 1 << 16):
            part = torch.from_numpy(order[begin : begin + (1 << 16)])
            self.shard[begin : begin + len(part)] = self.table[part]
        place = np.empty(num_rows, np.int32)
        place[order] = np.arange(num_rows)
        chance = np.random.default_rng(1).random(num_rows)
        self.location = {}
        for percent in _HIT_PERCENT:
            kept = _tensor(num_rows, 1, torch.int32).numpy().ravel()
            kept[:] = np.where(chance * 100 < percent, place, -1)
            self.location[percent] = kept
        self.draw, self.order = np.random.default_rng(2), np.random.default_rng(3)
        self.ways: dict[str, Callable[[torch.Tensor], Any]] = {
            _PLAIN: lambda ids: self.store.gather(ids, self.out),
            _COPY: self._copy,
            "100 %": lambda ids: self._cached(ids, 100),
            "50 %": lambda ids: self._cached(ids, 50),
            "50 %, misses told": self._told,
            "0 %": lambda ids: self._cached(ids, 0),
            "int8": lambda ids: self.int8.gather(ids, self.out),
        }

    def turn(self) -> dict[str, float]:
        """Seconds that each way had the processor for: kernels have one thread, and others' turns are not theirs."""
        took_s = {}
        # In another order each turn: what the way before has left in the caches is worth up to a quarter of the time.
        for name, way in self.order.permutation(np.array(list(self.ways.items()), object)):
            ids = torch.from_numpy(self.draw.integers(0, len(self.table), len(self.out)))
            began = time.thread_time()
            way(ids)
            took_s[name] = time.thread_time() - began
            if name != _COPY and not torch.equal(self.out[:, -1].long(), ids % _MARKS):
                raise BenchmarkError(f"{name} gathered other rows than it was asked for.")
        return took_s

    def _cached(self, ids: torch.Tensor, percent: int) -> None:
        ops.gather_tiered(
            self.location[percent], [byte_rows(self.shard)], byte_rows(self.table), ids.numpy(), byte_rows(self.out)
        )

    def _told(self, ids: torch.Tensor) -> None:
        """As in front of a store that is not in memory: hits first, then the misses are asked for."""
        _, count = ops.gather_tiered(
            self.location[50], [byte_rows(self.shard)], None, ids.numpy(), byte_rows(self.out), *self.missed
        )
        missed = torch.from_numpy(self.missed[:, :count])
        self.store.gather_at(missed[0], missed[1], self.out)

    def _copy(self, ids: torch.Tensor) -> None:
        begin = int(ids[0]) % max(len(self.table) - len(self.out), 1)
        ctypes.memmove(self.out.data_ptr(), self.table[begin].data_ptr(), self.out.nbytes)


def _tensor(num_rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    memory = torch.frombuffer(buffer_memory(num_rows * width * dtype.itemsize), dtype=torch.uint8)
    return memory[: num_rows * width * dtype.itemsize].view(dtype).view(num_rows, width)


def measure(case: Case, num_turns: int) -> tuple[float, dict[str, float]]:
    """GB/s of the plain gather, and by way its time in times of the plain gather's: medians over the turns."""
    case.turn()  # memory, caches and files are warm after it
    turns = [case.turn() for _ in range(num_turns)]
    plain = statistics.median(turn[_PLAIN] for turn in turns)
    ratios = {name: statistics.median(turn[name] / turn[_PLAIN] for turn in turns) for name in _COLUMNS}
    return case.out.nbytes / plain / 1e9, ratios


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cached_gather", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: a small table, few turns")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table, which should fit no cache")
    parser.add_argument("--ids", type=int, default=100_000, help="rows gathered at a time")
    parser.add_argument("--turns", type=int, default=25)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.ids, options.turns = 20_000, 4_000, 3
    others = machine.Neighbours()
    command = " ".join(["python -m tests.benchmarks.cached_gather", *arguments])
    print(f"`{command}`")
    print(
        f"\n{options.ids:,} of {options.rows:,} rows, one thread, all on 2 MB pages; medians of {options.turns} turns."
    )
    print(
        "Times in times of the plain gather, by the share of ids that the cache holds; int8 becomes the row's dtype.\n"
    )
    print("| rows of | plain gather, GB/s | " + " | ".join(_COLUMNS) + " |")
    print("| --- |" + " ---: |" * (len(_COLUMNS) + 1))
    for width in (16, 100, 128, 256):
        for dtype in (torch.float32, torch.float16):
            rate, ratios = measure(Case(options.rows, options.ids, width, dtype), options.turns)
            name = f"{width} {str(dtype).removeprefix('torch.')}"
            print(f"| {name} | {rate:.1f} | " + " | ".join(f"{ratios[way]:.2f}" for way in _COLUMNS) + " |", flush=True)
    print("\n" + "\n".join(f"- {line}" for line in [*machine.describe(), others.describe()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
