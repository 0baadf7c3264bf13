import mmap
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, MemoryFeatureStore, NeighborSampler
from lightning_gnnload.data import features
from lightning_gnnload.host import huge_pages
from lightning_gnnload.host.huge_pages import SWITCH, can_move_to_huge_pages, move_to_huge_pages
from lightning_gnnload.host.pages import HUGE_PAGE_BYTES
from lightning_gnnload.pipeline import source
from lightning_gnnload.sample.workload import Workload

NUM_BYTES = 4 * HUGE_PAGE_BYTES
needs_collapse = pytest.mark.skipif(not can_move_to_huge_pages(), reason="this system moves no memory to 2 MB pages")


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "LEAST_BYTES", NUM_BYTES)
    monkeypatch.delenv(SWITCH, raising=False)


def small_pages(num_bytes: int = NUM_BYTES, flags: int = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) -> np.ndarray:
    """Numbered bytes, as torch allocates them: without advice, on 4 KB pages."""
    array = np.frombuffer(mmap.mmap(-1, num_bytes, flags=flags), np.uint8)
    array[:] = np.arange(num_bytes) % 251
    return array


def huge_bytes(array: np.ndarray) -> int:
    """How much of the mappings that hold the array lies on 2 MB pages."""
    found = 0
    for mapping in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)[1:]:
        begin, end = (int(address, 16) for address in mapping.split(" ")[0].split("-"))
        if begin < array.ctypes.data + array.nbytes and array.ctypes.data < end:
            found += int(mapping.partition("AnonHugePages:")[2].split()[0]) << 10
    return found


@needs_collapse
def test_an_array_moves_to_huge_pages_and_stays_what_it_is() -> None:
    array = small_pages()
    before, address, had = array.copy(), array.ctypes.data, huge_bytes(array)
    moved = move_to_huge_pages(array)
    assert moved >= NUM_BYTES - HUGE_PAGE_BYTES  # whole pages alone
    assert huge_bytes(array) - had >= moved // 2  # a system short of such pages may have merged fewer
    assert array.ctypes.data == address
    assert np.array_equal(array, before)


@needs_collapse
def test_memory_that_another_process_shares_stays_one_copy() -> None:
    array = small_pages()
    (asked_read, asked_write), (told_read, told_write) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told_write, b"%d" % move_to_huge_pages(array))
        os.read(asked_read, 1)
        os._exit(0)
    moved_by_child = os.read(told_read, 20)
    moved_beside = move_to_huge_pages(array)
    os.write(asked_write, b"x")
    os.waitpid(child, 0)
    for end in (asked_read, asked_write, told_read, told_write):
        os.close(end)
    assert (moved_by_child, moved_beside) == (b"0", 0)
    assert move_to_huge_pages(array) > 0  # alone again


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS])
def test_shared_memory_and_small_arrays_are_left_alone(flags: int) -> None:
    assert move_to_huge_pages(small_pages(flags=flags)) == 0
    assert move_to_huge_pages(small_pages(NUM_BYTES - 4096)) == 0


def test_a_mapped_file_is_left_alone(tmp_path: Path) -> None:
    np.zeros(NUM_BYTES, np.uint8).tofile(tmp_path / "x")
    assert move_to_huge_pages(np.memmap(tmp_path / "x", np.uint8, "c")) == 0


def test_the_variable_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    assert move_to_huge_pages(small_pages()) == 0


@pytest.mark.parametrize("setting", ["always madvise [never]", None])
def test_nothing_moves_where_the_system_serves_no_huge_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None
) -> None:
    if setting is not None:
        (tmp_path / "enabled").write_text(setting)
    monkeypatch.setattr(huge_pages, "_SETTING", tmp_path / "enabled")
    assert move_to_huge_pages(small_pages()) == 0
    assert not can_move_to_huge_pages()


def test_a_kernel_that_cannot_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_COLLAPSE", 9999)
    assert move_to_huge_pages(small_pages()) == 0
    assert not can_move_to_huge_pages()


def test_tables_and_graphs_are_moved_once_when_they_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    for module in (features, source):
        monkeypatch.setattr(module, "move_to_huge_pages", lambda array: moved.append(array.ctypes.data))
    store = MemoryFeatureStore(torch.ones(4, 2))
    for _ in range(2):
        store.gather(torch.tensor([1, 2]), torch.empty(2, 2))
    assert moved == [store.rows.data_ptr()]
    graph = Graph.from_coo([0, 1, 2], [1, 2, 3])
    batches = source.BatchSource(GraphData(graph, store), Workload(graph, NeighborSampler([1]), np.arange(4)))
    for _ in range(2):
        batches.open()
    assert moved[1:] == [graph.indptr.ctypes.data, graph.indices.ctypes.data]
