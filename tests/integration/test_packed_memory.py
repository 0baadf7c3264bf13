"""Packed mini-batches in a process that may have a third of its table's size, libraries and all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.errors import Unavailable
from tests.benchmarks.memory_limit import MemoryLimit
from tests.integration.scripts.launch import PATIENCE, ROOT
from tests.integration.scripts.packed import NUM_NODES, WIDTH

ROW_BYTES = 4 * WIDTH

pytestmark = pytest.mark.matrix


@pytest.fixture
def limit() -> Iterator[MemoryLimit]:
    try:
        with MemoryLimit(NUM_NODES * ROW_BYTES // 3) as limit:
            yield limit
    except Unavailable as error:
        pytest.skip(f"needs a control group of its own: {error}")


def test_a_process_packs_and_reads_a_table_of_three_times_its_memory(limit: MemoryLimit, tmp_path: Path) -> None:
    filled = np.random.default_rng(1).random((NUM_NODES // 40, WIDTH), np.float32)
    with open(tmp_path / "x.bin", "wb") as file:  # 2 GB with holes, which take no room on the disk
        for number, row in enumerate(filled):  # the training nodes are among them
            file.seek(40 * number * ROW_BYTES)
            file.write(row)
        file.truncate(NUM_NODES * ROW_BYTES)
    script = [sys.executable, "-m", "tests.integration.scripts.packed", str(tmp_path)]
    made = [
        subprocess.run(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=100 * PATIENCE, check=True)
        for arguments in (script, [*script, str(limit.procs)])
    ]
    plain, packed = (process.stdout.split() for process in made)
    assert (plain[1], packed[1]) == ("False", "True")
    assert packed[0] == plain[0]
