"""How many rows fit, and how much memory is free, in folders laid out as the kernel does."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload.cache.budget import AUTO_SHARE, Allowance, Table, budget, free_bytes, rows_worth_it
from lightning_gnnload.errors import CacheTooSmallError

GIB = 1 << 30
TABLES = st.builds(Table, st.integers(1, 10**6), st.integers(1, 4096), st.integers(0, 24), st.integers(1, 8))


@given(TABLES, st.integers(0, 10**9))
def test_a_capacity_is_used_up_and_not_exceeded(table: Table, capacity: int) -> None:
    try:
        allowed = budget(table, None, capacity, free=10**12)
    except CacheTooSmallError:
        assert 0 < capacity < table.index_bytes + table.bytes_per_row
        return
    assert allowed.num_bytes <= capacity
    one_more = table.index_bytes + (allowed.num_rows + 1) * table.bytes_per_row
    assert allowed.num_rows == table.num_nodes or one_more > capacity


@given(TABLES, st.floats(0, 1))
def test_a_ratio_is_not_exceeded(table: Table, ratio: float) -> None:
    try:
        num_rows = budget(table, ratio, None, free=10**15).num_rows
    except CacheTooSmallError:
        num_rows = 0
    assert num_rows <= Fraction(repr(ratio)) * table.num_nodes < num_rows + 1  # the digits, as they were written


@pytest.mark.parametrize("ratio", [np.float64(0.29), 0.29])
def test_a_ratio_may_come_from_numpy(ratio: float) -> None:
    assert (
        str(budget(Table(100, 8), ratio, None, free=GIB)) == "29 rows, 632 B with their index: ratio=0.29 of 100 rows"
    )


@pytest.mark.parametrize("ratio", [0, 1])
def test_a_ratio_may_be_a_whole_number(ratio: int) -> None:
    assert budget(Table(100, 8), ratio, None, free=GIB).num_rows == 100 * ratio


def test_copies_share_a_capacity() -> None:
    alone = budget(Table(1000, 100, copies=1), None, 44_000, free=GIB)
    replicated = budget(Table(1000, 100, copies=4), None, 44_000, free=GIB)
    assert (alone.num_rows, replicated.num_rows) == (400, 70)  # the index is in four copies, too


def test_nothing_asked_for_is_a_share_of_what_is_free() -> None:
    allowed = budget(Table(10**6, 1024), None, None, free=GIB)
    assert allowed.num_bytes <= GIB * AUTO_SHARE < allowed.num_bytes + 1024
    assert str(allowed) == "258237 rows, 256.0 MiB with their index: 25% of 1.0 GiB of free memory"
    assert "which is all rows" in str(budget(Table(100, 8), None, None, free=GIB))


def test_nothing_asked_for_is_what_training_leaves_once_that_is_known() -> None:
    left = Allowance(GIB // 2, 1, "measured")
    allowed = budget(Table(10**6, 1024), None, None, free=GIB, allowance=left)
    assert allowed.num_bytes <= GIB // 2 < allowed.num_bytes + 1024
    assert allowed.reason == "training leaves 512.0 MiB (measured)"
    # A limit holds, whatever is left.
    assert budget(Table(1000, 100), 0.1, None, free=GIB, allowance=left).num_rows == 100


@pytest.mark.parametrize(
    ("visits", "others", "worth"),
    [
        ([9.0] * 100, 100.0, 100),  # a tenth more always saves a tenth of what is missed, and more
        ([9.0] * 50 + [0.0] * 50, 0.0, 50),  # rows that nobody reads
        ([9.0] * 50 + [0.09] * 50, 100.0, 50),  # 10 rows would save 0.9 of some 100 misses
        ([9.0] * 50 + [0.11] * 50, 100.0, 100),  # 1.1 of some 106
        ([0.001] * 100, 10.0**9, 0),  # a table without rows that are hot
        ([], 10.0, 0),
    ],
)
def test_rows_are_left_out_where_a_tenth_more_saves_less_than_a_hundredth(
    visits: list[float], others: float, worth: int
) -> None:
    assert rows_worth_it(np.array(visits), sum(visits) + others) == worth


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", "MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\nBuffers: 3 kB\n")
    return tmp_path


def write(file: Path, text: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def free(machine: Path) -> int:
    return free_bytes(machine / "proc", machine / "cgroup")


def test_without_control_groups_it_is_the_machines(machine: Path) -> None:
    assert free(machine) == 8 << 20
    write(machine / "proc/self/cgroup", "0::/")
    assert free(machine) == 8 << 20


def limit_v2(folder: Path, limit: object, current: int, inactive: int) -> None:
    write(folder / "memory.max", limit)
    write(folder / "memory.current", current)
    write(folder / "memory.stat", f"anon 5\ninactive_file {inactive}\nactive_file 77")


def test_a_second_version_group_limits_and_idle_pages_of_files_are_free(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "0::/a/b")
    limit_v2(machine / "cgroup/a/b", "max", 3 << 20, 0)
    limit_v2(machine / "cgroup/a", 5 << 20, 4 << 20, 1 << 20)  # a group above it
    assert free(machine) == 2 << 20
    limit_v2(machine / "cgroup/a/b", 1 << 20, 3 << 20, 0)
    assert free(machine) == 0


def test_a_first_version_group_limits(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n0::/")
    write(machine / "cgroup/memory/job/memory.limit_in_bytes", 6 << 20)
    write(machine / "cgroup/memory/job/memory.usage_in_bytes", 2 << 20)
    write(machine / "cgroup/memory/job/memory.stat", "inactive_file 4096\ntotal_inactive_file 1048576")
    assert free(machine) == 5 << 20


def test_in_a_container_the_root_is_its_own_group(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "0::/the/hosts/path")
    limit_v2(machine / "cgroup", 4 << 20, 1 << 20, 0)
    assert free(machine) == 3 << 20


def test_this_machine_says_something_sensible() -> None:
    assert 1 << 20 < free_bytes() < 1 << 50
