"""Rows of a mapped file equal those of an array; when the file is cut off, a gather ends and the process does not."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload.errors import GnnLoadError, SeedError
from lightning_gnnload.ops import gather_mapped

PAGE = mmap.PAGESIZE

# The file is cut off between the look at its size that a store takes and the gather: no check can see that.
PRELUDE = """
import mmap, os, signal, sys, threading
import numpy as np
from lightning_gnnload.ops import gather_mapped
path, page = sys.argv[1], mmap.PAGESIZE
table = np.memmap(path, np.uint8, "r", shape=(8, page))
out = np.zeros((4, page), np.uint8)
gather = lambda *ids: gather_mapped(table, np.array(ids), None, out[: len(ids)])
"""


def child(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PRELUDE + code, str(path)], capture_output=True, text=True, timeout=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "rows.bin"
    file.write_bytes(b"".join(bytes([number]) * PAGE for number in range(8)))
    return file


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
    done = child(
        """
os.truncate(path, 4 * page)
assert not gather(1, 6)
assert gather(3, 0, 2) and out[:3, -1].tolist() == [3, 0, 2]
found = []
threads = [threading.Thread(target=lambda row: found.append((row, gather(row))), args=(row,)) for row in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sorted(found) == [(row, row < 4) for row in range(8)], found
print("alive")
""",
        path,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("alive\n", "", 0)


@pytest.mark.parametrize("others", ["", "import faulthandler; faulthandler.enable(); gather(1)"])
def test_other_bus_errors_end_the_process_as_ever(path, others):
    done = child(f"gather(0)\n{others}\nos.truncate(path, page)\nprint(table[5, 0])", path)
    assert done.returncode == -signal.SIGBUS
    assert ("Fatal Python error: Bus error" in done.stderr) == bool(others)


def test_a_handler_that_was_there_before_is_called(path):
    done = child(
        """
signal.signal(signal.SIGBUS, lambda number, frame: print("theirs", flush=True))
gather(0)
os.kill(os.getpid(), signal.SIGBUS)
assert gather(1)
""",
        path,
    )
    assert (done.stdout, done.returncode) == ("theirs\n", 0)
