"""Rows read from a file equal those cut out of its bytes, by ring and by threads; a file cut off is named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload.errors import FeatureFileError, GnnLoadError, SamplerConfigError, SeedError
from lightning_gnnload.ops import RowFile, RowReader, read_rows
from tests import oracle
from tests.forked import in_child
from tests.seccomp import IO_URING_ENTER, IO_URING_SETUP, forbid

READ_BYTES = 32 << 10
RING = pytest.mark.parametrize("use_ring", [True, False], ids=["ring", "threads"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.bin"


@pytest.fixture
def opened(path: Path) -> Iterator[list[int]]:
    """Descriptors that a test opens."""
    descriptors: list[int] = []
    yield descriptors
    for fd in descriptors:
        os.close(fd)


def written(path: Path, num_bytes: int) -> bytes:
    content = np.random.default_rng(num_bytes).integers(0, 256, num_bytes, np.uint8).tobytes()
    path.write_bytes(content)
    return content


@RING
@pytest.mark.parametrize(
    ("row_bytes", "unit", "offset", "in_flight"),
    [
        (1, 1, 0, 1),
        (4, 512, 0, 3),
        (400, 512, 0, 64),  # rows that cross units
        (512, 512, 24, 7),
        (512, 1, 5, 64),
        (4096, 4096, 0, 2),
        (5000, 512, 100, 1024),
        (READ_BYTES + 3, 512, 1, 2),  # a row that is larger than a read
    ],
)
def test_rows_and_bytes_equal_the_reference(path, opened, row_bytes, unit, offset, in_flight, use_ring):
    num_rows = max(40, min(3000, 2**20 // row_bytes))
    content = written(path, offset + num_rows * row_bytes)  # it ends amid a unit
    opened.append(os.open(path, os.O_RDONLY))
    file = RowFile(opened[0], str(path), offset, num_rows, row_bytes, unit)
    reader = RowReader(row_bytes, unit, in_flight, use_ring=use_ring)
    rng = np.random.default_rng(row_bytes)
    for ids in (
        rng.integers(0, num_rows, 500),  # with repeats
        np.arange(num_rows)[::-1].copy(),  # all of them: reads as large as they get
        np.array([num_rows - 1, 0]),
        np.empty(0, np.int64),
    ):
        positions = rng.permutation(len(ids) + 3)[: len(ids)]
        out = np.full((len(ids) + 3, row_bytes), 0xA5, np.uint8)
        tally = read_rows(reader, file, ids, positions, out)
        wanted = np.full_like(out, 0xA5)
        wanted[positions] = oracle.read_rows(content, offset, row_bytes, ids)
        np.testing.assert_array_equal(out, wanted)
        # A row may stick out of its first unit and into its last.
        a_read = max(READ_BYTES, -(-row_bytes // unit) * unit + unit)
        a_read = -(-a_read // 4096) * 4096
        reads = oracle.planned_reads(offset, row_bytes, unit, a_read, ids)
        assert tally == (len(reads), sum(end - begin for begin, end in reads))
        plain = np.empty((len(ids), row_bytes), np.uint8)
        assert read_rows(reader, file, ids, None, plain) == tally
        np.testing.assert_array_equal(plain, oracle.read_rows(content, offset, row_bytes, ids))


def test_io_uring_is_used_where_the_system_has_it():
    allowed = Path("/proc/sys/kernel/io_uring_disabled")
    if not allowed.exists() or allowed.read_text().strip() != "0":
        pytest.skip("this system has no io_uring, or says that not everyone may use it")
    assert RowReader(512, 512).has_ring
    assert not RowReader(512, 512, use_ring=False).has_ring


@RING
def test_a_file_cut_off_is_told_by_name_and_sizes(path, opened, use_ring):
    written(path, 100 * 512)
    opened.append(os.open(path, os.O_RDONLY))
    file = RowFile(opened[0], str(path), 0, 100, 512, 512)
    reader = RowReader(512, 512, 4, use_ring=use_ring)
    out = np.empty((50, 512), np.uint8)
    os.truncate(path, 60 * 512 + 7)
    with pytest.raises(FeatureFileError, match=rf"{path} was truncated while in use: it has 30727 bytes.*51200"):
        read_rows(reader, file, np.arange(0, 100, 2), None, out)
    # What is still there is still read, with the same reader: nothing of the failed call is left in it.
    ids = np.arange(10, 60)
    read_rows(reader, file, ids, None, out)
    np.testing.assert_array_equal(out, oracle.read_rows(path.read_bytes(), 0, 512, ids))


@RING
def test_a_file_that_cannot_be_read_is_named(path, opened, use_ring):
    path.write_bytes(b"x" * 512)
    opened.append(os.open(path, os.O_WRONLY))
    file = RowFile(opened[0], str(path), 0, 1, 512, 1)
    with pytest.raises(FeatureFileError, match=f"{path}: 512 bytes at 0 cannot be read: Bad file descriptor"):
        read_rows(RowReader(512, 1, use_ring=use_ring), file, np.array([0]), None, np.empty((1, 512), np.uint8))


def test_after_its_ring_failed_a_reader_reads_no_more(path, opened):
    # What was begun before could be taken for what is read now.
    written(path, 100 * 512)
    opened.append(os.open(path, os.O_RDONLY))
    file, out = RowFile(opened[0], str(path), 0, 100, 512), np.empty((50, 512), np.uint8)
    before = rings()
    reader = RowReader(512, 1, 64)
    if not reader.has_ring:
        pytest.skip("this system has no io_uring, or does not let this process have it")
    (ring,) = rings() - before
    opened += [saved := os.dup(ring), null := os.open(os.devnull, os.O_RDONLY)]
    os.dup2(null, ring)
    with pytest.raises(FeatureFileError, match=r"reading by io_uring failed: .* use_ring=False"):
        read_rows(reader, file, np.arange(0, 100, 2), None, out)
    os.dup2(saved, ring)
    with pytest.raises(FeatureFileError, match="Make another RowReader"):
        read_rows(reader, file, np.arange(1, 100, 2), None, out)


def rings() -> set[int]:
    """Descriptors of this process's rings."""
    links = {int(fd): Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    return {fd for fd, link in links.items() if link.is_symlink() and "io_uring" in str(link.readlink())}


@pytest.mark.parametrize("bad", [-1, 10, 2**62])
def test_bad_ids_and_positions_are_named_and_nothing_is_written(path, opened, bad):
    written(path, 80)
    opened.append(os.open(path, os.O_RDONLY))
    file, reader = RowFile(opened[0], str(path), 0, 10, 8), RowReader(8, 1)
    out = np.zeros((10, 8), np.uint8)
    with pytest.raises(SeedError, match=rf"ids\[1\] is {bad}, but the table has 10 rows"):
        read_rows(reader, file, np.array([3, bad]), np.array([0, 1]), out)
    with pytest.raises(SeedError, match=rf"positions\[1\] is {bad}, but out has 10 rows"):
        read_rows(reader, file, np.array([3, 4]), np.array([0, bad]), out)
    assert not out.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unit": 3}, "unit is 3, but must be a power of two"),
        ({"unit": 0}, "unit is 0"),
        ({"row_bytes": -1}, "row_bytes is -1"),
        ({"row_bytes": 1 << 25}, "row_bytes is 33554432"),
        ({"num_rows": 2.5}, "num_rows is 2.5, but must be an integer"),
        ({"num_rows": 2**60}, "too many"),
    ],
)
def test_files_that_cannot_be(settings, message):
    with pytest.raises(SamplerConfigError, match=message):
        RowFile(**{"fd": 0, "name": "", "offset": 0, "num_rows": 1, "row_bytes": 8, "unit": 1, **settings})


@pytest.mark.parametrize("in_flight", [0, -1, 1025])
def test_readers_that_cannot_be(in_flight):
    with pytest.raises(SamplerConfigError, match="in_flight is"):
        RowReader(8, 1, in_flight)


def test_what_does_not_fit_is_refused(path, opened):
    written(path, 80)
    opened.append(os.open(path, os.O_RDONLY))
    file, ids, out = RowFile(opened[0], str(path), 0, 10, 8), np.arange(2), np.zeros((2, 8), np.uint8)
    with pytest.raises(SamplerConfigError, match="made for rows of 4 bytes"):
        read_rows(RowReader(4, 1), file, ids, None, out)
    with pytest.raises(GnnLoadError, match="rows of 8 bytes are to be written"):
        read_rows(RowReader(8, 1), file, ids, None, np.zeros((2, 7), np.uint8))
    with pytest.raises(GnnLoadError, match="out has 3 rows"):
        read_rows(RowReader(8, 1), file, ids, None, np.zeros((3, 8), np.uint8))
    with pytest.raises(SamplerConfigError, match="reader is None"):
        read_rows(None, file, ids, None, out)


def test_rows_without_bytes(path, opened):
    path.write_bytes(b"")
    opened.append(os.open(path, os.O_RDONLY))
    file = RowFile(opened[0], str(path), 0, 5, 0)
    assert read_rows(RowReader(0, 1), file, np.array([4]), None, np.empty((1, 0), np.uint8)) == (0, 0)


@pytest.mark.parametrize("system_call", [IO_URING_SETUP, IO_URING_ENTER], ids=["setup", "enter"])
def test_where_a_container_forbids_the_ring_threads_read(path: Path, system_call: int) -> None:
    """A filter that lets a process make a ring, and not enter it, must not make each read fail."""
    content = written(path, 400 * 1000)

    def read() -> None:
        forbid(system_call)
        file = RowFile(os.open(path, os.O_RDONLY), str(path), 0, 1000, 400)
        ids, out = np.arange(0, 1000, 7), np.empty((143, 400), np.uint8)
        read_rows(RowReader(400, 1, 8, use_ring=True), file, ids, np.arange(143), out)
        np.testing.assert_array_equal(out, oracle.read_rows(content, 0, 400, ids))

    assert in_child(read) == (0, "")
