"""Rows of a mapped file equal those of an array; when the file is cut off, a gather ends and the process does not."""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload.errors import GnnLoadError, SeedError
from lightning_gnnload.ops import gather_mapped, unwatch_map, watch_map
from tests.forked import in_child

PAGE = mmap.PAGESIZE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Eight rows of a page each, filled with their number."""
    file = tmp_path / "rows.bin"
    file.write_bytes(b"".join(bytes([number]) * PAGE for number in range(8)))
    return file


class Mapped:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = np.memmap(path, np.uint8, "r", shape=(8, PAGE))
        self.out = np.zeros((8, PAGE), np.uint8)

    def gather(self, *ids: int) -> bool:
        return gather_mapped(self.table, np.array(ids), None, self.out[: len(ids)])


def test_rows_equal_indexing(path):
    table = np.memmap(path, np.float32, "r", shape=(8, PAGE // 4))
    out = np.zeros((5, PAGE // 4), np.float32)
    assert gather_mapped(table, np.array([7, 0, 7]), np.array([4, 0, 2]), out)
    np.testing.assert_array_equal(out[[4, 0, 2]], table[[7, 0, 7]])
    assert not out[[1, 3]].any()
    with pytest.raises(SeedError, match=r"ids\[0\] is 8"):
        gather_mapped(table, np.array([8]), None, out[:1])
    with pytest.raises(GnnLoadError, match="are to be written"):
        gather_mapped(table, np.array([0]), None, out[:1, :4].copy())


def test_a_page_that_is_gone_ends_the_gather_alone(path):
    """The file is cut off between the look at its size that a store takes and the gather: no check can see that."""

    def work(mapped: Mapped) -> None:
        mapped.gather(1)
        os.truncate(path, 4 * PAGE)
        assert not mapped.gather(1, 6)
        assert mapped.gather(3, 0, 2)
        assert mapped.out[:3, -1].tolist() == [3, 0, 2]
        found = []
        threads = [threading.Thread(target=lambda row=row: found.append((row, mapped.gather(row)))) for row in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [(row, row < 4) for row in range(8)]

    assert in_child(lambda: work(Mapped(path))) == (0, "")


@pytest.mark.parametrize("with_faulthandler", [False, True])
def test_other_bus_errors_end_the_process_as_ever(path, with_faulthandler):
    def work(mapped: Mapped) -> None:
        mapped.gather(0)
        if with_faulthandler:  # its handler goes in front of ours, and ours in front again: none may call in circles
            faulthandler.enable(2)
            mapped.gather(1)
        os.truncate(path, PAGE)
        mapped.table[5, 0].item()

    status, printed = in_child(lambda: work(Mapped(path)))
    assert status == -signal.SIGBUS
    assert printed.count("Bus error") >= with_faulthandler


def test_a_watched_file_is_named_before_the_process_ends(path):
    """What is mapped is read by other kernels, too, and by torch: they cannot go on, but they can say why."""

    def work(mapped: Mapped) -> None:
        other = np.memmap(path, np.uint8, "r")
        forgotten = watch_map(other, "another name")
        watch_map(mapped.table.reshape(-1), str(path))
        unwatch_map(forgotten)
        os.truncate(path, PAGE)
        mapped.table[5, 0].item()

    status, printed = in_child(lambda: work(Mapped(path)))
    assert status == -signal.SIGBUS
    assert printed == (
        f"lightning_gnnload: {path} was truncated while in use, or its disk fails: a page of it is gone. "
        f"Prepare it again.\n"
    )


def test_a_handler_that_was_there_before_is_called(path):
    def work(mapped: Mapped) -> None:
        signal.signal(signal.SIGBUS, lambda number, frame: os.write(1, b"theirs"))
        mapped.gather(0)
        os.kill(os.getpid(), signal.SIGBUS)
        assert mapped.gather(1)

    assert in_child(lambda: work(Mapped(path))) == (0, "theirs")
