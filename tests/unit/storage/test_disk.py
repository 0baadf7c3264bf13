"""DiskFeatureStore gives the rows that were saved, by every way of reading, and tells of files that went bad."""

from __future__ import annotations

import errno
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_gnnload import DiskFeatureStore, MemoryFeatureStore, load_graph_data, save_features, save_graph_data
from lightning_gnnload.errors import FeatureFileError, SamplerConfigError, SeedError, StoreFormatError
from lightning_gnnload.storage import disk
from tests import guards
from tests.unit.toy import toy_data

pytestmark = pytest.mark.filterwarnings("error")
WAYS = {"direct": {}, "mapped": {"direct": False}, "one at a time": {"in_flight": 1}}
DTYPES = [torch.bfloat16, torch.float32, torch.int8]


@contextmanager
def opened(folder: Path, **settings: Any) -> Iterator[DiskFeatureStore]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "its file system refuses direct reads")
        store = DiskFeatureStore(folder, **settings)
    yield store
    store.close()


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(1000, 100, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def folder(tmp_path: Path, rows: torch.Tensor) -> Path:
    save_features(rows, tmp_path / "x", progress=False)
    return tmp_path / "x"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [0, 1, 100, 128])
def test_gathers_equal_indexing(tmp_path: Path, way: str, dtype: torch.dtype, width: int) -> None:
    rows = torch.randn(300, width, generator=torch.Generator().manual_seed(1)).mul(20).to(dtype)
    save_features(rows, tmp_path / "x", progress=False)
    ids = torch.tensor([299, 0, 0, 7, 8, 9, 150])  # unsorted, repeated, neighbours, the file's last
    with opened(tmp_path / "x", **WAYS[way]) as store:
        assert (store.shape, store.dtype) == ((300, width), dtype)
        out = torch.empty(7, width, dtype=dtype)
        [read] = store.gather(ids, out)
        assert torch.equal(out, rows[ids])
        assert (read.tier, read.rows) == ("disk", 7)
        apart = torch.full((12, width), 3).to(dtype)
        positions = torch.tensor([11, 2, 3, 0, 9, 8, 7])
        assert store.gather_at(ids, positions, apart) == (read,)
        assert torch.equal(apart[positions], rows[ids])
        assert apart[[1, 4, 5, 6, 10]].eq(3).all()


def test_bytes_are_those_of_whole_sectors(folder: Path) -> None:
    with opened(folder) as store:
        if not store.direct:
            pytest.skip("this file system refuses direct reads")
        unit = store._file.unit
        out = torch.empty(2, 100)
        [one] = store.gather(torch.tensor([0, 0]), out)
        assert one.num_bytes == unit  # rows of 400 bytes, from byte 0 on: in one sector
        [two] = store.gather(torch.tensor([0, 900]), out)
        crosses = 900 * 400 // unit != (901 * 400 - 1) // unit
        assert two.num_bytes == (2 + crosses) * unit
    with opened(folder, direct=False) as store:
        assert store.gather(torch.tensor([0, 900]), out)[0].num_bytes == 800


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [-1, 1000, 2**40])
def test_an_id_outside_the_table_is_refused(folder: Path, way: str, bad: int) -> None:
    with opened(folder, **WAYS[way]) as store, pytest.raises(SeedError, match=str(bad)):
        store.gather(torch.tensor([0, bad]), torch.empty(2, 100))


@pytest.mark.parametrize("way", WAYS)
def test_threads_gather_at_once(folder: Path, rows: torch.Tensor, way: str) -> None:
    """Each with a reader of its own: one that two threads shared would mix up their buffers, or refuse."""
    wrong: list[int] = []
    with opened(folder, **WAYS[way]) as store:

        def work(number: int) -> None:
            draw, out = torch.Generator().manual_seed(number), torch.empty(50, 100)
            for _ in range(20):
                ids = torch.randint(1000, (50,), generator=draw)
                store.gather(ids, out)
                if not torch.equal(out, rows[ids]):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_fork_makes_readers_of_its_own(folder: Path, rows: torch.Tensor) -> None:
    """The parent's rings are memory that both share: answers of one would reach the other."""
    with opened(folder) as store:
        out = torch.empty(1, 100)
        store.gather(torch.tensor([3]), out)
        parents = store._idle[0]
        pid = os.fork()
        if pid == 0:
            store.gather(torch.tensor([4]), out)
            os._exit(0 if torch.equal(out[0], rows[4]) and store._idle[0] is not parents else 1)
        assert os.waitpid(pid, 0)[1] == 0
        store.gather(torch.tensor([5]), out)
        assert torch.equal(out[0], rows[5])


@pytest.mark.parametrize("way", WAYS)
def test_a_file_cut_off_while_in_use_is_told_by_name_and_sizes(folder: Path, rows: torch.Tensor, way: str) -> None:
    out = torch.empty(1, 100)
    with opened(folder, **WAYS[way]) as store:
        os.truncate(folder / "x.bin", 4096 + 7)
        with pytest.raises(FeatureFileError, match=r"x\.bin was truncated while in use.*has 4103 bytes.*400000"):
            store.gather(torch.tensor([999]), out)
        if way != "mapped":  # what is there is given still, and the store is sound
            store.gather(torch.tensor([2]), out)
            assert torch.equal(out[0], rows[2])


def test_a_map_cut_off_after_the_look_at_its_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read of a page that is gone is a signal that ends processes: this one must go on, with an error."""
    with opened(folder, direct=False) as store:
        whole = os.stat(folder / "x.bin")
        os.truncate(folder / "x.bin", 0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", lambda fd: whole)
            with pytest.raises(FeatureFileError, match="truncated while in use, or its disk fails"):
                store.gather(torch.tensor([999]), torch.empty(1, 100))


def test_a_file_system_without_direct_reads_is_read_through_the_page_cache(
    folder: Path, rows: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_reads_in", lambda fd, unit: False)
    with pytest.warns(UserWarning, match=r"x\.bin: its file system refuses direct reads"):
        store = DiskFeatureStore(folder)
    assert not store.direct
    out = torch.empty(2, 100)
    assert store.gather(torch.tensor([999, 1]), out)[0].num_bytes == 800
    assert torch.equal(out, rows[[999, 1]])
    store.close()


def test_a_disk_that_fails_at_once_leaves_no_descriptor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fd: int, unit: int) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "_reads_in", failing)
    before = guards.num_fds()
    with pytest.raises(FeatureFileError, match="Input/output error"):
        DiskFeatureStore(folder)
    assert guards.num_fds() == before


def test_it_closes_its_file_and_then_gathers_no_more(folder: Path) -> None:
    before = guards.num_fds()
    store = DiskFeatureStore(folder)
    store.close()
    store.close()
    assert guards.num_fds() == before
    with pytest.raises(FeatureFileError, match="was closed"):
        store.gather(torch.tensor([0]), torch.empty(1, 100))
    for _ in range(3):
        DiskFeatureStore(folder).gather(torch.tensor([0]), torch.empty(1, 100))
    assert guards.num_fds() == before


def test_what_is_no_table_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match="no array 'y', but x"):
        DiskFeatureStore(folder, name="y")
    with pytest.raises(StoreFormatError, match="not a graph folder"):
        DiskFeatureStore(tmp_path)
    with pytest.raises(SamplerConfigError, match="in_flight is 0"):
        DiskFeatureStore(folder, in_flight=0)


def test_a_graph_folder_is_loaded_with_its_features_on_disk(tmp_path: Path) -> None:
    data = toy_data()
    save_graph_data(data, tmp_path / "graph")
    loaded = load_graph_data(tmp_path / "graph", features="disk")
    assert isinstance(loaded.x, DiskFeatureStore)
    assert isinstance(data.x, MemoryFeatureStore)
    out = torch.empty(2, 5)
    loaded.x.gather(torch.tensor([7, 300 - 1]), out)
    assert torch.equal(out, data.x.rows[[7, 299]])
    with pytest.raises(StoreFormatError, match="features='memory'"):
        load_graph_data(tmp_path / "graph", features="memory")  # type: ignore[arg-type]
