"""Ways to gather random feature rows, and what the machine's memory could do, in one process."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lightning_gnnload import MemoryFeatureStore, ops
from lightning_gnnload.pipeline.slots import Slot
from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.memory import huge_page_bytes
from tests.benchmarks.serve import serve

_LINE_BYTES = 64
_READS_PER_ROW = 8


class Gathers:
    """A float32 table ``[num_rows, num_features]`` whose rows hold their own number.

    Args:
        num_rows: large enough that the table fits no cache.
        num_features: F.
        num_ids: rows gathered at a time.
        huge_pages: put the table on 2 MB pages, where the system has them; otherwise on 4 KB pages, as
            mapped files are.
    """

    def __init__(self, num_rows: int, num_features: int, num_ids: int, huge_pages: bool) -> None:
        size_bytes = num_rows * num_features * 4
        self._memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_HUGEPAGE if huge_pages else mmap.MADV_NOHUGEPAGE)
        before = huge_page_bytes()
        rows = np.frombuffer(self._memory, np.float32).reshape(num_rows, num_features)
        rows[:] = np.arange(num_rows, dtype=np.float32)[:, None]
        self.huge_share = (huge_page_bytes() - before) / size_bytes
        self.table = torch.from_numpy(rows)
        self.store = MemoryFeatureStore(self.table)
        self.num_ids = num_ids
        shape = (num_ids, num_features)
        # Where the loader writes to: a slot, on 2 MB pages. And where a user would: what torch gives.
        self.slot_out = torch.frombuffer(Slot(num_ids * num_features * 4).array, dtype=torch.float32)
        self.slot_out = self.slot_out[: num_ids * num_features].view(shape)
        self.torch_out = torch.zeros(shape)
        self.read_out = np.zeros(num_ids * _READS_PER_ROW, np.int32)
        self._ways: dict[str, Callable[[torch.Tensor], Any]] = {
            "ours": self._ours,
            "index_select": lambda ids: torch.index_select(self.table, 0, ids),
            "index_select_out": lambda ids: torch.index_select(self.table, 0, ids, out=self.torch_out),
            "index_select_slot": lambda ids: torch.index_select(self.table, 0, ids, out=self.slot_out),
            "subscript": lambda ids: self.table[ids],
            "numpy_take": lambda ids: torch.from_numpy(rows.take(ids.numpy(), axis=0)),
        }

    def share_on_huge_pages(self) -> dict[str, float]:
        return {"share": self.huge_share}

    def gather(self, turn: int, way: str, repeats: int) -> dict[str, Any]:
        """GB/s of gathered bytes."""
        draw, values = np.random.default_rng(turn), []
        for _ in range(repeats):
            ids = torch.from_numpy(draw.integers(0, len(self.table), self.num_ids))
            began = time.perf_counter()
            out = self._ways[way](ids)
            took_s = time.perf_counter() - began
            if not np.array_equal(out[:, -1].numpy(), ids.numpy().astype(np.float32)):
                raise BenchmarkError(f"{way} gathered other rows than it was asked for.")
            values.append(self.torch_out.nbytes / took_s / 1e9)
            del out
        return self._reply(values, self.torch_out.nbytes / self.num_ids)

    def copy(self, turn: int, repeats: int) -> dict[str, Any]:
        """GB/s of one memcpy of as many bytes, from one end of the table to the other, into warm memory."""
        size_bytes = self.torch_out.nbytes
        places = np.random.default_rng(turn).integers(0, self.table.nbytes - size_bytes, repeats) // 4096 * 4096
        values = []
        for place in places.tolist():
            began = time.perf_counter()
            ctypes.memmove(self.slot_out.data_ptr(), self.table.data_ptr() + place, size_bytes)
            values.append(size_bytes / (time.perf_counter() - began) / 1e9)
        return self._reply(values, size_bytes / self.num_ids)

    def read(self, turn: int, repeats: int) -> dict[str, Any]:
        """GB/s of the 64-byte lines that independent random 4-byte reads touch."""
        numbers = self.table.view(torch.int32).flatten().numpy()
        draw, values = np.random.default_rng(turn), []
        for _ in range(repeats):
            ids = draw.integers(0, len(numbers), len(self.read_out))
            began = time.perf_counter()
            ops.gather_rows(numbers, ids, self.read_out)
            values.append(_LINE_BYTES * len(ids) / (time.perf_counter() - began) / 1e9)
        return self._reply(values, _LINE_BYTES)

    def _ours(self, ids: torch.Tensor) -> torch.Tensor:
        self.store.gather(ids, self.slot_out)
        return self.slot_out

    @staticmethod
    def _reply(values: list[float], bytes_each: float) -> dict[str, Any]:
        return {"values": values, "ns a row or read": bytes_each / float(np.median(values))}


if __name__ == "__main__":
    serve(Gathers)
