"""Ways to gather random feature rows, and what the machine's memory could do, in one process."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
_MARKS = 127  # what a row holds, its number modulo this, is exact in every dtype


class Gathers:
    """A table ``[num_rows, num_features]``, and rows of it gathered at random.

    Args:
        num_rows: large enough that the table fits no cache.
        num_features: F.
        num_ids: rows gathered at a time, by each thread.
        huge_pages: put the table on 2 MB pages, where the system has them; otherwise on 4 KB pages, as
            mapped files may be.
        dtype: torch's name of it.
        num_threads: threads that gather at once, each a batch of its own, as a loader's do.
    """

    def __init__(
        self,
        num_rows: int,
        num_features: int,
        num_ids: int,
        huge_pages: bool,
        dtype: str = "float32",
        num_threads: int = 1,
    ) -> None:
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.row_bytes = num_features * self.dtype.itemsize
        size_bytes = num_rows * self.row_bytes
        self._memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_HUGEPAGE if huge_pages else mmap.MADV_NOHUGEPAGE)
        before = huge_page_bytes()
        self.table = torch.frombuffer(self._memory, dtype=self.dtype).view(num_rows, num_features)
        self.table[:] = (torch.arange(num_rows) % _MARKS).unsqueeze(1)
        self.huge_share = (huge_page_bytes() - before) / size_bytes
        self.num_ids, self.num_threads = num_ids, num_threads
        self._gatherers = [_Gatherer(self.table, num_ids) for _ in range(num_threads)]
        self._threads = ThreadPoolExecutor(num_threads)
        self._read_out = np.zeros(num_ids * _READS_PER_ROW, np.int32)

    def share_on_huge_pages(self) -> dict[str, float]:
        return {"share": self.huge_share}

    def gather(self, turn: int, way: str, repeats: int, instruction_set: str | None = None) -> dict[str, Any]:
        """GB/s of gathered bytes, of all threads together; ours with one of the kernels' instruction sets."""
        ops.use_instruction_set(instruction_set or ops.instruction_sets()[-1])
        draw, values = np.random.default_rng(turn), []
        for _ in range(repeats):
            ids = [torch.from_numpy(draw.integers(0, len(self.table), self.num_ids)) for _gatherer in self._gatherers]
            outs, took_s = self._at_once(lambda gatherer, ids: gatherer.ways[way](ids), ids)
            for out, asked in zip(outs, ids, strict=True):
                wanted = asked.sort().values if way == "sorted" else asked
                if not torch.equal(out[:, -1].long(), wanted % _MARKS):
                    raise BenchmarkError(f"{way} gathered other rows than it was asked for.")
            values.append(self._gathered_bytes / took_s / 1e9)
            del outs, out
        return self._reply(values, self.row_bytes)

    def copy(self, turn: int, repeats: int) -> dict[str, Any]:
        """GB/s of one memcpy of as many bytes a thread, from anywhere in the table into warm memory."""
        draw, values = np.random.default_rng(turn), []
        last = self.table.nbytes - self.num_ids * self.row_bytes
        for _ in range(repeats):
            places = (draw.integers(0, last + 1, self.num_threads) // 4096 * 4096).tolist()
            _, took_s = self._at_once(_Gatherer.copy, places)
            values.append(self._gathered_bytes / took_s / 1e9)
        return self._reply(values, self.row_bytes)

    def read(self, turn: int, repeats: int) -> dict[str, Any]:
        """GB/s of the 64-byte lines that independent random 4-byte reads touch, on one thread."""
        numbers = self.table.view(-1).view(torch.int32).numpy()
        draw, values = np.random.default_rng(turn), []
        for _ in range(repeats):
            ids = draw.integers(0, len(numbers), len(self._read_out))
            began = time.perf_counter()
            ops.gather_rows(numbers, ids, self._read_out)
            values.append(_LINE_BYTES * len(ids) / (time.perf_counter() - began) / 1e9)
        return self._reply(values, _LINE_BYTES)

    def close(self) -> None:
        self._threads.shutdown()

    @property
    def _gathered_bytes(self) -> int:
        return self.num_threads * self.num_ids * self.row_bytes

    def _at_once(self, work: Callable[[_Gatherer, Any], Any], arguments: list[Any]) -> tuple[list[Any], float]:
        """What the threads' work gave, and the seconds until the last was done."""
        began = time.perf_counter()
        if self.num_threads == 1:  # no thread to wake up
            given = [work(self._gatherers[0], arguments[0])]
        else:
            given = list(self._threads.map(work, self._gatherers, arguments))
        return given, time.perf_counter() - began

    def _reply(self, values: list[float], bytes_each: float) -> dict[str, Any]:
        return {"values": values, "ns a row or read": bytes_each / float(np.median(values))}


class _Gatherer:
    """One thread's output, and its ways to gather."""

    def __init__(self, table: torch.Tensor, num_ids: int) -> None:
        self.table = table
        self.store = MemoryFeatureStore(table)
        shape = (num_ids, table.shape[1])
        # Where the loader writes to: a slot, on 2 MB pages. And where a user would: what torch gives.
        self.slot = Slot(num_ids * self.store.row_bytes)
        self.slot_out = torch.frombuffer(self.slot.array, dtype=table.dtype)[: num_ids * shape[1]].view(shape)
        self.torch_out = torch.zeros(shape, dtype=table.dtype)
        as_bytes = table.view(torch.uint8).numpy()  # NumPy has no bfloat16
        self.ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "ours": self._ours,
            # Reads in the order of the table, sorting included. Less than would be needed: the rows stay so.
            "sorted": lambda ids: self._ours(ids.sort().values),
            "index_select": lambda ids: torch.index_select(table, 0, ids),
            "index_select_out": lambda ids: torch.index_select(table, 0, ids, out=self.torch_out),
            "index_select_slot": lambda ids: torch.index_select(table, 0, ids, out=self.slot_out),
            "subscript": lambda ids: table[ids],
            "numpy_take": lambda ids: torch.from_numpy(as_bytes.take(ids.numpy(), axis=0)).view(table.dtype),
        }

    def copy(self, place: int) -> None:
        ctypes.memmove(self.slot_out.data_ptr(), self.table.data_ptr() + place, self.slot_out.nbytes)

    def _ours(self, ids: torch.Tensor) -> torch.Tensor:
        self.store.gather(ids, self.slot_out)
        return self.slot_out


if __name__ == "__main__":
    serve(Gathers)
