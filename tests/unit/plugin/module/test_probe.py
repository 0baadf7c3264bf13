"""MachineMemory: what a cache may take of the machine's memory, as the process that trains sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload import Graph
from lightning_gnnload.plugin.module import probe
from lightning_gnnload.plugin.module.probe import MachineMemory
from tests.unit.toy import private_pages, toy_graph


def test_what_sampling_reads_from_a_graphs_files_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "free_bytes", lambda: 1 << 30)
    graph = toy_graph()
    np.save(tmp_path / "indices.npy", graph.indices)
    mapped = Graph(graph.indptr, np.load(tmp_path / "indices.npy", mmap_mode="r"))
    assert MachineMemory(graph).use().free == 1 << 30
    assert MachineMemory(mapped).use().free == (1 << 30) - graph.indices.nbytes


def test_what_a_process_held_at_its_peak_counts_once_it_is_given_back() -> None:
    memory = MachineMemory(toy_graph())
    before = memory.use()
    held = private_pages(64 << 20)
    while_held = memory.use()
    held.close()
    after = memory.use()
    assert while_held.reserved - before.reserved > 48 << 20
    assert after.peak - after.reserved > 48 << 20  # the system counts in steps, and so about 64 MiB
