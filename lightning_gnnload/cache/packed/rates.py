"""Rates of a disk, and whether packing pays on it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload.cache.builder import lies_in_memory
from lightning_gnnload.cache.packed.scan import TableScan
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.host.direct import DirectFile, page_buffer, whole_pages
from lightning_gnnload.host.memory import in_units

_PROBE_BYTES = 64 << 20  # read, and written: a tenth of a second on most disks
_PROBED_ROWS = 4096


@dataclass(frozen=True)
class Rates:
    """How fast a table is read and a folder written: bytes a second in order, and rows a second at random."""

    read: float
    write: float
    rows: float

    def packed_s(self, table_bytes: float, packed_bytes: float) -> float:
        """Returns the seconds that one window takes: its table is read, its rows are written and read again."""
        return table_bytes / self.read + packed_bytes * (1 / self.write + 1 / self.read)

    def scanned_s(self, table_bytes: float, num_scans: float) -> float:
        """Returns the seconds of so many passes over the table."""
        return num_scans * table_bytes / self.read

    def direct_s(self, num_rows: float) -> float:
        """Returns the seconds that so many rows take at random."""
        return num_rows / self.rows

    def __str__(self) -> str:
        return (
            f"{in_units(int(self.read))}/s in order, {in_units(int(self.write))}/s written, {self.rows:,.0f} rows/s at "
            "random"
        )


def measure_rates(stores: Sequence[FeatureStore], folder: Path, chunk_bytes: int) -> Rates:
    """Measures the rates of the largest table and of a folder, within a second on most disks. Raises OSError: the
    folder cannot be written to. Takes the memory of two chunks."""
    store = max(stores, key=lambda store: store.shape[0] * store.row_bytes)
    num_rows = min(store.shape[0], max(_PROBE_BYTES // max(store.row_bytes, 1), 1))
    begin = (store.shape[0] - num_rows) // 2
    began = time.monotonic()
    with TableScan(store, chunk_bytes) as scan:
        for _ in scan.chunks([np.arange(begin, begin + num_rows)]):
            pass
    read = num_rows * store.row_bytes / max(time.monotonic() - began, 1e-6)
    rng, rows = np.random.default_rng(0), 0.0
    for _ in range(2):  # the better one: the first may wait for what a disk or a store does at first
        ids = torch.from_numpy(rng.integers(store.shape[0], size=min(_PROBED_ROWS, store.shape[0])))
        out = torch.empty(len(ids), store.shape[1], dtype=store.dtype)
        began = time.monotonic()
        store.gather(ids, out)
        rows = max(rows, len(ids) / max(time.monotonic() - began, 1e-6))
    return Rates(read, _write_rate(folder, chunk_bytes), rows)


def all_in_memory(stores: Sequence[FeatureStore]) -> bool:
    """Whether no table is on a disk."""
    return all(lies_in_memory(store) for store in stores)


def _write_rate(folder: Path, chunk_bytes: int) -> float:
    path = folder / f".rate-{os.getpid()}"
    memory = page_buffer(chunk_bytes)[: whole_pages(chunk_bytes)]
    memory[:] = 1
    file = DirectFile(lambda flags: os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600), str(path))
    try:
        os.unlink(path)  # nothing is left of it, whatever happens
        began = time.monotonic()
        num_pieces = -(-_PROBE_BYTES // len(memory))
        for piece in range(num_pieces):
            file.write(piece * len(memory), memory)
        os.fsync(file.fd)
        return num_pieces * len(memory) / max(time.monotonic() - began, 1e-6)
    finally:
        file.close()
