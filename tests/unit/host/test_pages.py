import mmap
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload.host import pages
from lightning_gnnload.host.pages import HUGE_PAGE_BYTES, buffer_memory, mapped_bytes, private_bytes, release_pages
from tests.forked import in_child

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = pytest.mark.skipif(not SETTING.exists(), reason="this kernel has no transparent huge pages")


def asked_for_huge_pages(array: np.ndarray) -> bool:
    """Whether the kernel has marked the memory so."""
    return "hg" in flags_of(array)


def flags_of(array: np.ndarray) -> list[str]:
    """What the kernel keeps of the advice on the memory: "hg", huge pages; "rr", reads at random."""
    mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    for mapping in filter(None, mappings):
        begin, end = (int(address, 16) for address in mapping.split(" ")[0].split("-"))
        if begin <= array.ctypes.data < end:
            return mapping.split("VmFlags:")[1].split()
    raise AssertionError("no mapping holds the array")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.arange(2 * HUGE_PAGE_BYTES + 3, dtype=np.uint8).tofile(tmp_path / "x")
    return tmp_path / "x"


@pytest.mark.parametrize(
    ("num_bytes", "huge"),
    [(HUGE_PAGE_BYTES - mmap.PAGESIZE, False), (HUGE_PAGE_BYTES - 1, True), (HUGE_PAGE_BYTES + 1, True)],
)
def test_buffers_ask_for_huge_pages_where_they_fill_one(num_bytes: int, huge: bool) -> None:
    array = np.frombuffer(buffer_memory(num_bytes), np.uint8)
    assert array.nbytes >= num_bytes
    assert not array.any()
    assert asked_for_huge_pages(array) is huge


def test_a_mapped_file_is_what_it_holds(file: Path) -> None:
    mapped = mapped_bytes(file)
    assert np.array_equal(mapped, np.fromfile(file, np.uint8))
    assert not mapped.flags.writeable
    assert asked_for_huge_pages(mapped)
    assert "rr" not in flags_of(mapped)


def test_a_file_that_memory_cannot_hold_is_read_by_small_pages(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_pages = file.stat().st_size // mmap.PAGESIZE
    monkeypatch.setattr(pages, "free_bytes", lambda: 2 * num_pages * mmap.PAGESIZE)
    mapped = mapped_bytes(file)  # three bytes more than half of it
    assert not asked_for_huge_pages(mapped)
    assert "rr" in flags_of(mapped)
    monkeypatch.setattr(pages, "free_bytes", lambda: (2 * num_pages + 2) * mmap.PAGESIZE)
    assert asked_for_huge_pages(mapped_bytes(file))


@pytest.mark.parametrize("advice", [None, 9999], ids=["another system", "a kernel that refuses"])
def test_without_huge_pages_all_works(file: Path, monkeypatch: pytest.MonkeyPatch, advice: int | None) -> None:
    if advice is None:
        monkeypatch.delattr(pages.mmap, "MADV_HUGEPAGE")
    else:
        monkeypatch.setattr(pages.mmap, "MADV_HUGEPAGE", advice)
    assert len(buffer_memory(HUGE_PAGE_BYTES)) == HUGE_PAGE_BYTES
    assert mapped_bytes(file).nbytes == file.stat().st_size


def test_a_mapped_file_that_is_cut_off_is_named_before_the_process_ends(file: Path) -> None:
    def work() -> None:
        mapped = mapped_bytes(file)
        os.truncate(file, 0)
        mapped[0].item()

    status, printed = in_child(work)
    assert status == -signal.SIGBUS
    assert f"{file} was truncated while in use" in printed


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_mapped_pages_rest_and_come_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)) * (1 << 17))
    mapped = mapped_bytes(tmp_path / "file").view(np.int64)
    total = int(mapped.sum())
    before = resident_bytes()
    release_pages(mapped[5:])
    assert before - resident_bytes() > 16 << 20
    assert int(mapped.sum()) == total


def test_memory_of_ones_own_keeps_what_it_holds() -> None:
    own, heap = private_bytes(1 << 22), np.arange(100)
    own[:] = 7
    for array in (own, own.view(np.int64), heap):
        release_pages(array)
    assert (own == 7).all()
    assert heap.sum() == 4950
