"""Packed mini-batches: equal to unpacked ones whatever becomes of the files, and within the memory they may take."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    DiskFeatureStore,
    GraphData,
    MemoryFeatureStore,
    NeighborSampler,
    NodeTable,
    load_graph_data,
    save_features,
    save_graph_data,
)
from lightning_gnnload.cache.packed import epochs as epochs_module
from lightning_gnnload.cache.packed import layout as layout_module
from lightning_gnnload.cache.packed import open as open_module
from lightning_gnnload.cache.packed import pack as pack_module
from lightning_gnnload.cache.packed import window as window_module
from lightning_gnnload.cache.packed.ahead import pack_ahead
from lightning_gnnload.cache.packed.folder import Decided, PackingFolder
from lightning_gnnload.cache.packed.layout import Sizes, lay_out
from lightning_gnnload.cache.packed.open import Run, open_packed
from lightning_gnnload.cache.packed.pack import Packer
from lightning_gnnload.cache.packed.rates import Rates
from lightning_gnnload.cache.packed.scan import TableScan
from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.cache.packed.store import ranked
from lightning_gnnload.data.features import TierReads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import FeatureFileError, PackingConfigError, PackingMismatchError, StoreFormatError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.module.packing import run_of
from lightning_gnnload.storage.manifest import CHECKSUM, with_checksum
from tests.forked import in_child
from tests.unit.cache.ranks import together
from tests.unit.seed_tables import kind_of_seeds, plain_graph
from tests.unit.toy import content, toy_data, toy_graph, toy_source, toy_workload
from tests.unit.typed import typed_graph

EPOCHS = 3
MEMORY = {"tables": 45_000, "edges": 60_000, "types": 30_000}
NUM_STEPS = 7  # of an epoch of the toy


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets small tables be larger than the memory, as buffers otherwise take more than they have."""
    monkeypatch.setattr(layout_module, "_LEAST_CHUNK", 4096)
    monkeypatch.setattr(layout_module, "_LEAST_BUFFER", 4096)
    # A disk that reads at random more slowly than any other way.
    monkeypatch.setattr(open_module, "measure_rates", lambda *arguments: Rates(1e9, 1e9, 1e3))


def packing(folder: Path, **settings: Any) -> Packing:
    return Packing(
        str(folder / "packed"), **{"memory": 130_000, "room": "1GB", "window": 5, "always": True, **settings}
    )


@contextmanager
def opened(data: GraphData, settings: Packing, **workload: Any) -> Iterator[BatchSource]:
    """A source over packed rows of a training of EPOCHS epochs; closed at the end."""
    made = toy_workload(data, **{"end_epoch": EPOCHS, **workload})
    run = replace(run_of(data, made, None, 1), lasting_epochs=settings.cycle, progress=False)
    stores = open_packed(settings, run)
    try:
        yield BatchSource(data, made, stores)
    finally:
        for store in stores.values():
            store.close()


def wide_data(**settings: Any) -> GraphData:
    """Rows of 400 bytes, of which memory has room for some."""
    return toy_data(600, 112, width=100, **settings)


def batches(source: BatchSource, epochs: range = range(EPOCHS), num_threads: int = 0) -> list[Any]:
    loader = SampledLoader(source, num_threads=num_threads)
    made = []
    for epoch in epochs:
        loader.set_epoch(epoch)
        made += [content(batch) for batch in loader]
    source.tiers = {tier: rows for tier, rows, _ in loader.stats.reads}  # type: ignore[attr-defined]
    return made


def kind(name: str) -> tuple[GraphData, dict[str, Any]]:
    """Data of one kind of tables and seeds, with the settings of its workload."""
    wide = torch.arange(300 * 40, dtype=torch.float32).view(300, 40)
    if name == "tables":
        tables = {"half": wide[:, :7].half(), "years": torch.arange(300), "wide": wide.view(300, 10, 4)}
        return GraphData(toy_graph(), wide, torch.arange(300) % 7, np.arange(100), tables=tables), {}
    edges = {"sampler": NeighborSampler([4, 3], expand="new", edge_ids=True)}
    if name == "edges":
        graph = plain_graph()
        rows = torch.arange(graph.num_edges * 50.0).view(-1, 50)
        return GraphData(graph, wide, train=np.arange(100), edge_x=rows, edge_tables={"one": rows[:, 0]}), edges
    if name == "types":
        graph, numbers = typed_graph(), torch.arange(6000.0).view(-1, 40)
        papers, authors = NodeTable(numbers[:30], first=0), NodeTable(numbers[:20, :9], first=30)
        of_edges = {("author", "writes", "paper"): {"a": numbers[:120]}, ("paper", "cites", "paper"): {"b": numbers}}
        tables = {"paper": papers, "author": authors}
        return GraphData(graph, train=np.arange(30), tables=tables, edge_tables=of_edges), edges
    data, settings = kind_of_seeds(name)
    data.x = MemoryFeatureStore(wide)  # its own rows are few enough to stay in memory
    return data, settings


@pytest.mark.parametrize("name", ["tables", "edges", "types", "timed nodes", "links among negatives"])
def test_all_kinds_of_tables_and_seeds_are_equal(name: str, tmp_path: Path) -> None:
    data, settings = kind(name)
    expected = batches(toy_source(data, **settings))
    with opened(data, packing(tmp_path, memory=MEMORY.get(name, 34_000)), **settings) as source:
        assert batches(source) == expected
        assert source.tiers["packed"] > 0


@pytest.mark.parametrize("num_threads", [0, 2])
def test_rows_come_from_memory_and_packed_stretches_alone(num_threads: int, tmp_path: Path) -> None:
    data = wide_data()
    expected = batches(toy_source(data))
    with opened(data, packing(tmp_path)) as source:
        assert batches(source, num_threads=num_threads) == expected
        assert source.tiers.keys() == {"cache", "packed"}
        # Those that were used are gone; the next one is packed while one trains.
        assert len(os.listdir(tmp_path / "packed/windows")) <= 3
    assert not (tmp_path / "packed").exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gnnload-pack")]


def test_files_of_windows_that_were_used_are_closed(tmp_path: Path) -> None:
    data = wide_data()
    with opened(data, packing(tmp_path, window=3), end_epoch=5) as source:
        for epoch in range(5):
            batches(source, range(epoch, epoch + 1))
            links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_open(int(fd))]
            removed = [link for link in links if str(tmp_path) in link and link.endswith("rows.bin (deleted)")]
            assert len(removed) <= 4  # of some 12 in the end


def is_open(fd: int) -> bool:
    """Whether a descriptor that was listed is still open."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_the_next_stretch_is_read_ahead_in_two_buffers(tmp_path: Path) -> None:
    with opened(wide_data(), packing(tmp_path)) as source:
        reader = source.features["x"]._cold._reader  # type: ignore[attr-defined]
        make = source.make
        ahead: list[int | None] = []

        def made(request: BatchRequest, slot: Any) -> Any:
            payload = make(request, slot)
            ahead.append(None if reader._ahead is None else reader._ahead.number)
            return payload

        source.make = made  # type: ignore[method-assign]
        batches(source, range(2), num_threads=1)
        # Windows of five steps: the first stretch of the next one is read ahead where it is packed in time.
        assert [ahead[number] for number in (0, 1, 2, 3, 5, 6, 7, 8)] == [1, 2, 3, 4] * 2
        assert {ahead[4], ahead[9]} <= {None, 0}
        assert len(reader._in_use) + len(reader._idle) == 2


def test_a_reader_without_memory_reads_stretches_in_parts(tmp_path: Path) -> None:
    data = toy_data(600, 112, width=3000)  # 12,000 bytes a row: more than a buffer's page
    expected = batches(toy_source(data))
    run = replace(run_of(data, toy_workload(data, end_epoch=EPOCHS), None, 1), progress=False)
    pack_ahead(packing(tmp_path, memory=1_000_000), run, range(EPOCHS))  # so that checksums are compared
    with opened(data, packing(tmp_path, memory=1_000_000)) as source:
        stores = source.features["x"]
        assert stores._cold._reader._size < 12_000 * 20  # type: ignore[attr-defined]
        assert batches(source) == expected
        assert source.tiers.keys() == {"cache", "packed"}


@pytest.mark.parametrize("chunk_bytes", [5000, 1 << 20])
def test_a_scan_finds_the_rows_of_any_store(chunk_bytes: int, tmp_path: Path) -> None:
    rows = torch.arange(30_000 * 25, dtype=torch.float32).view(30_000, 25)
    save_features(rows, tmp_path / "x", progress=False)
    mapped = MemoryFeatureStore(np.memmap(tmp_path / "x/x.bin", np.float32, "r", shape=rows.shape))
    few, many, none = np.array([3, 29_999]), np.arange(0, 30_000, 3), np.empty(0, np.int64)
    for store in (DiskFeatureStore(tmp_path / "x"), mapped, MemoryFeatureStore(rows)):
        for lists in ([few], [few, many], [none]):
            with TableScan(store, chunk_bytes) as scan:
                places = [(first, chunk.copy()) for first, chunk in scan.chunks(lists)]
            for ids in lists:
                there = [chunk[ids[(ids >= n) & (ids < n + len(chunk))] - n] for n, chunk in places]
                assert np.array_equal(
                    np.concatenate([*there, np.empty((0, 100), np.uint8)]).view(np.float32), rows[ids]
                )
        if isinstance(store, DiskFeatureStore):
            with TableScan(store, chunk_bytes) as scan:
                assert len(list(scan.chunks([few]))) <= 2  # what nobody wants is not read
                assert scan.num_bytes == 0


def test_ranks_of_repeated_ids() -> None:
    order, ranks = ranked(np.array([7, 3, 7, 5, 3]))
    assert ranks.tolist() == [0, 0, 1, 2, 2]
    assert sorted(order[:2].tolist()) == [1, 4]


def test_a_resumed_run_and_one_by_another_epoch_find_their_windows(tmp_path: Path) -> None:
    data = wide_data()
    expected = batches(toy_source(data))
    with opened(data, packing(tmp_path)) as source:
        # From the middle of an epoch on, which the window before has begun; then back, and beyond the run's end.
        late = list(map(content, SampledLoader(source, num_threads=0).batches(1, 4, NUM_STEPS)))
        assert late == expected[NUM_STEPS + 4 : 2 * NUM_STEPS]
        assert batches(source, range(2)) == expected[: 2 * NUM_STEPS]
        assert batches(source, range(9, 10)) == batches(toy_source(data), range(9, 10))


def test_a_run_that_begins_in_mid_epoch_waits_for_the_window_of_its_first_step(tmp_path: Path) -> None:
    data = wide_data()
    made = toy_workload(data, end_epoch=EPOCHS)
    run = replace(run_of(data, made, None, 1), epoch=1, step=4, progress=False)
    stores = open_packed(packing(tmp_path), run)
    assert "window-00000002" in os.listdir(tmp_path / "packed/windows")
    assert not (tmp_path / "packed/windows/window-00000000").exists()
    stores["x"].close()


def test_only_steps_that_a_run_takes_are_packed(tmp_path: Path) -> None:
    data = wide_data()
    made = toy_workload(data, end_epoch=EPOCHS)
    run = replace(run_of(data, made, None, 1), limit=(4, 6), progress=False)
    stores = open_packed(packing(tmp_path), run)
    timeline = stores["x"]._cold.timeline  # type: ignore[attr-defined]
    source = BatchSource(data, made, stores)
    expected = batches(toy_source(data))
    loader = SampledLoader(source, num_threads=0)
    steps = [(0, 0), (0, 3), (1, 0), (1, 1), (0, 4), (1, 2)]  # the last two are behind the limits
    for epoch, step in steps:
        assert content(next(iter(loader.batches(epoch, step, step + 1)))) == expected[epoch * NUM_STEPS + step]
    by_tier = {tier: rows for tier, rows, _ in loader.stats.reads}
    assert by_tier["packed"] > 0 < by_tier["memory"]
    numbers = [timeline.step_of(BatchRequest(epoch, step, 0, 1)) for epoch, step in steps]
    assert numbers == [0, 3, 4, 5, None, None]
    assert [timeline.span(number) for number in range(3)] == [range(5), range(5, 6), range(6, 6)]
    stores["x"].close()


def test_nothing_is_packed_where_memory_keeps_all_rows(tmp_path: Path) -> None:
    data = wide_data()
    with opened(data, packing(tmp_path, memory="4MB", window=None)) as source:
        assert not list(tmp_path.glob("packed/windows/*"))
        assert batches(source) == batches(toy_source(data))
        assert source.tiers["cache"] > 0 == source.tiers.get("memory", 0)


def test_stretches_that_threads_leave_behind_keep_nothing_from_being_read_ahead(tmp_path: Path) -> None:
    with opened(wide_data(), packing(tmp_path)) as source:
        store = source.features["x"]
        reader = store._cold._reader  # type: ignore[attr-defined]
        for step in (0, 1, 2):
            leaving = threading.Thread(target=store.announce, args=(BatchRequest(0, step, 0, 1),))
            leaving.start()
            leaving.join()
        del leaving
        deadline = time.monotonic() + 30
        while len(reader._in_use) > 1:  # what is read ahead; the system takes a moment to end a thread
            assert time.monotonic() < deadline
            time.sleep(0.01)
        store.announce(BatchRequest(0, 3, 0, 1))
        assert reader._ahead.number == 4


def test_epochs_of_a_cycle_come_again_and_stay(tmp_path: Path) -> None:
    data = wide_data()
    expected = batches(toy_source(data, cycle=2), range(5))
    assert expected[: 2 * NUM_STEPS] == batches(toy_source(data), range(2)) == expected[2 * NUM_STEPS : 4 * NUM_STEPS]
    for _ in range(2):
        with opened(data, packing(tmp_path, cycle=2), cycle=2) as source:
            assert batches(source, range(5)) == expected
            assert source.tiers.keys() == {"cache", "packed"}
        assert len(os.listdir(tmp_path / "packed/windows")) == 3
    # A disk may forget what was packed by the time that it is read again.
    with opened(data, packing(tmp_path / "new", cycle=2), cycle=2) as source:
        assert batches(source, range(2)) == expected[: 2 * NUM_STEPS]
        for rows in tmp_path.glob("new/packed/windows/*/rows.bin"):
            np.memmap(rows, np.uint8, "r+")[::64] ^= 1
        with pytest.warns(UserWarning, match="by their checksum"):
            assert batches(source, range(2, 5)) == expected[2 * NUM_STEPS :]
    # Another cycle has other mini-batches, from its second epoch on.
    with pytest.raises(PackingMismatchError, match=r"2 epochs in turn.* there, .*3 epochs in turn"):  # noqa: SIM117
        with opened(data, packing(tmp_path, cycle=3), cycle=3):
            pass


def test_a_cycle_that_is_scanned_is_scanned_in_later_rounds_too(tmp_path: Path) -> None:
    data = wide_data()
    with opened(data, packing(tmp_path, cycle=2, room=9), cycle=2) as source:
        assert batches(source, range(6)) == batches(toy_source(data, cycle=2), range(6))
        groups = source.features["x"]._cold  # type: ignore[attr-defined]
        assert source.tiers.keys() == {"cache", "scanned"}
        # A step behind, of a thread that was overtaken, is no reason to scan; it comes again in the next round.
        begin = groups._group.steps.start
        assert begin > 0
        assert not groups._is_due(begin - 1)
        assert groups._is_due(groups._group.steps.stop % (2 * NUM_STEPS))


def test_half_precision_rounds_all_rows_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = wide_data()
    data.x = MemoryFeatureStore(data.x.rows / 7)
    loader = SampledLoader(toy_source(data), num_threads=0)
    expected = [batch.x.half().float() for batch in loader]
    with opened(data, packing(tmp_path, dtype="float16")) as source:
        assert all(torch.equal(x, batch.x) for x, batch in zip(expected, SampledLoader(source), strict=True))
        # Also where a mini-batch is read from the table, or scanned: it must not depend on where rows come from.
        unpacked = SampledLoader(BatchSource(data, source.workload, source.features, announces=False), num_threads=0)
        assert torch.equal(next(iter(unpacked)).x, expected[0])
    with opened(data, packing(tmp_path, dtype="float16", room=9)) as source:
        assert all(torch.equal(x, batch.x) for x, batch in zip(expected, SampledLoader(source), strict=True))
    with monkeypatch.context() as patched:  # where packing does not pay, and memory keeps some rows
        patched.setattr(open_module, "all_in_memory", lambda stores: False)
        patched.setattr(open_module, "measure_rates", lambda *arguments: Rates(1, 1, 1e12))
        with opened(data, packing(tmp_path, dtype="float16", always=False)) as source:
            assert all(torch.equal(x, batch.x) for x, batch in zip(expected, SampledLoader(source), strict=True))
    with opened(data, packing(tmp_path, dtype="float16", always=False)) as source:  # a table in memory
        assert all(torch.equal(x, batch.x) for x, batch in zip(expected, SampledLoader(source), strict=True))
    # So are those of a trainer that samples in the place of samplers that were lost.
    run = replace(run_of(data, toy_workload(data), None, 1), progress=False)
    rounded = open_module.unpacked(packing(tmp_path, dtype="float16"), run)
    made = SampledLoader(BatchSource(data, run.workload, rounded), num_threads=0)
    assert all(torch.equal(x, batch.x) for x, batch in zip(expected, made, strict=True))
    years = GraphData(data.graph, torch.arange(600)[:, None], train=data.train)
    with pytest.raises(PackingConfigError, match=r"'x' has torch\.int64"):  # noqa: SIM117
        with opened(years, packing(tmp_path, dtype="float16")):
            pass
    data.x.rows[5:] *= 1e6
    with pytest.raises(PackingConfigError, match="beyond 65,504"):  # noqa: SIM117
        with opened(data, packing(tmp_path, dtype="float16")) as source:
            batches(source)


def test_without_room_groups_are_scanned(tmp_path: Path) -> None:
    data = wide_data()
    with opened(data, packing(tmp_path, room=1000)) as source:
        assert batches(source, num_threads=2) == batches(toy_source(data))
        assert source.tiers.keys() <= {"cache", "scanned", "memory"}
        assert source.tiers["scanned"] > 0
        groups = source.features["x"]._cold  # type: ignore[attr-defined]
        assert 1 < groups.num_scans < EPOCHS * NUM_STEPS  # memory has room for some mini-batches
        assert not (tmp_path / "packed/windows/window-00000000").exists()


def test_a_disk_that_is_full_in_the_middle_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, allocate, sizes = wide_data(), os.posix_fallocate, list[int]()

    def full(fd: int, offset: int, size: int) -> None:
        sizes.append(size)
        if len(sizes) > 2:
            raise OSError(28, "No space left on device")
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    with opened(data, packing(tmp_path)) as source:
        with pytest.warns(UserWarning, match="no room for packed mini-batches"):
            made = batches(source)
        assert made == batches(toy_source(data))
        assert {"packed", "scanned"} < source.tiers.keys()
    assert not (tmp_path / "packed").exists()


@pytest.mark.parametrize("during_packing", [False, True])
def test_a_folder_that_is_removed_in_the_middle_keeps_nobody_waiting(
    during_packing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove() -> None:
        while (tmp_path / "packed").exists():  # the packer may be writing to it
            shutil.rmtree(tmp_path / "packed", ignore_errors=True)

    def sample(packer: Packer, steps: range, *others: Any) -> list[list[np.ndarray]]:
        if steps.start == packer.timeline.window:
            remove()
        return sample_before(packer, steps, *others)

    sample_before = Packer._sample
    if during_packing:
        monkeypatch.setattr(Packer, "_sample", sample)
    data = wide_data()
    with (  # noqa: PT031  it is warned as soon as packing notices
        pytest.warns(UserWarning, match="the folder was removed"),
        opened(data, packing(tmp_path)) as source,
    ):
        made = batches(source, range(1))
        if not during_packing:
            remove()
        made += batches(source, range(1, EPOCHS))
    assert made == batches(toy_source(data))


@pytest.mark.parametrize("place", ["memory", "file", "private changes of a file"])
def test_windows_of_a_table_of_which_any_row_has_changed_are_refused(place: str, tmp_path: Path) -> None:
    wide_data().x.rows.numpy().tofile(tmp_path / "x.bin")

    def again(change: float) -> GraphData:
        data = wide_data()
        if place == "private changes of a file":
            data.x = MemoryFeatureStore(np.memmap(tmp_path / "x.bin", np.float32, "c", shape=data.x.rows.shape))
        data.x.rows[1] += change
        if place == "file":
            save_graph_data(data, tmp_path / "graph", overwrite=True)
            data = load_graph_data(tmp_path / "graph")
        return data

    data = again(0)
    pack_ahead(packing(tmp_path), replace(run_of(data, toy_workload(data), None, 1), progress=False), range(EPOCHS))
    with opened(data, packing(tmp_path)):
        pass
    with pytest.raises(PackingMismatchError, match="tables"), opened(again(1), packing(tmp_path)):
        pass


def test_windows_of_tables_in_another_order_are_refused(tmp_path: Path) -> None:
    rows = torch.arange(600 * 50.0).view(600, 50)
    tables = {"price": rows, "cost": -rows}

    def of(*names: str) -> GraphData:
        return GraphData(toy_graph(600), train=np.arange(112), tables={name: tables[name] for name in names})

    run = replace(run_of(data := of("price", "cost"), toy_workload(data), None, 1), progress=False)
    pack_ahead(packing(tmp_path), run, range(1))
    with pytest.raises(PackingMismatchError, match="order of tables"), opened(of("cost", "price"), packing(tmp_path)):
        pass


@pytest.mark.parametrize(("cycle", "limit"), [(None, None), (None, 4), (2, None), (2, 4)])
def test_windows_that_are_longer_than_what_was_packed_ahead_are_agreed_on(
    cycle: int | None, limit: int | None, tmp_path: Path
) -> None:
    data, settings = wide_data(), packing(tmp_path, window=10, cycle=cycle, memory=200_000)
    workload = toy_workload(data, end_epoch=EPOCHS, **({} if cycle is None else {"cycle": cycle}))
    run = replace(run_of(data, workload, None, 1), progress=False)
    assert [pack_ahead(settings, run, epochs).num_new for epochs in (range(1), range(2), range(1, 2))] == [1, 1, 0]
    store = open_packed(settings, replace(run, limit=(limit, None), lasting_epochs=cycle))["x"]
    assert store._cold.timeline.window == 10  # type: ignore[attr-defined]
    store.close()
    assert len(os.listdir(tmp_path / "packed/windows")) == 2


def test_a_window_that_goes_while_it_is_opened_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Vanishing(window_module.OpenFolder):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            shutil.rmtree(path)

    path = tmp_path / "window-00000000"
    path.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(window_module, "OpenFolder", Vanishing)
        assert window_module.open_window(path, "", range(1), [4], 1) is None
    path.write_text("mine")  # no folder
    with pytest.raises(StoreFormatError, match="is no folder of a window") as problem:
        window_module.open_window(path, "", range(1), [4], 1)
    assert "save_graph_data" not in str(problem.value)
    window_module.remove_window(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("damage", ["bits", "signs", "order", "end", "manifest", "rows"])
def test_damaged_windows_are_packed_anew(damage: str, tmp_path: Path) -> None:
    data, settings = wide_data(), packing(tmp_path)
    run = replace(run_of(data, toy_workload(data), None, 1), progress=False)
    assert pack_ahead(settings, run, range(EPOCHS)).num_new == 5
    assert pack_ahead(settings, run, range(EPOCHS)).num_new == 0
    window = tmp_path / "packed/windows/window-00000001"
    rows, manifest = window / "rows.bin", window / "window.json"
    content_of = np.fromfile(rows, np.uint8)
    if damage == "bits":
        content_of[100] ^= 1
        content_of.tofile(rows)
    elif damage == "signs":
        content_of[[103, 207]] ^= 128
        content_of.tofile(rows)
    elif damage == "order":
        content_of[:800] = np.roll(content_of[:800], 400)  # two rows
        content_of.tofile(rows)
    elif damage == "end":
        os.truncate(rows, rows.stat().st_size - 4096)
    elif damage == "rows":
        rows.unlink()
    else:
        manifest.write_text(manifest.read_text().replace('"counts": [[', '"counts": [[1'))
    with pytest.warns(UserWarning, match=r"packed anew") as warned, opened(data, settings) as source:
        assert batches(source) == batches(toy_source(data))
    assert len(warned) == 1
    assert pack_ahead(settings, run, range(EPOCHS)).num_new == 1  # the new one was for that run alone


def test_rows_that_a_table_does_not_have_index_nothing(tmp_path: Path) -> None:
    data, settings = wide_data(), packing(tmp_path)
    run = replace(run_of(data, toy_workload(data), None, 1), progress=False)
    pack_ahead(settings, run, range(1))
    hot = np.array([0, 2**63 - 1, -(2**63), -1, 5])  # whose differences, modulo 2**64, are all positive
    hot.tofile(tmp_path / "packed/hot-0.bin")
    manifest = json.loads((tmp_path / "packed/packing.json").read_text())
    manifest["hot"] = [{"count": len(hot), "crc32": zlib.crc32(hot.data)}]
    del manifest[CHECKSUM]
    (tmp_path / "packed/packing.json").write_text(json.dumps(with_checksum(manifest)))
    with pytest.warns(UserWarning, match="does not list rows of its table"), opened(data, settings) as source:
        assert batches(source, range(1)) == batches(toy_source(data), range(1))


def test_another_run_is_refused_by_what_differs(tmp_path: Path) -> None:
    data, settings = wide_data(), packing(tmp_path)
    run = replace(run_of(data, toy_workload(data), None, 1), progress=False)
    pack_ahead(settings, run, range(1))
    other_rows = wide_data()
    other_rows.x = MemoryFeatureStore(data.x.rows + 1)
    for problem, other, workload in (
        ("batch size: 16 there, 8 here", data, {"batch_size": 8}),
        ("seed: 3 there, 4 here", data, {"seed": 4}),
        (r"sampler: .*3, 2.*there, .*3, 3", data, {"sampler": NeighborSampler([3, 3])}),
        ("tables: ", other_rows, {}),
    ):
        with pytest.raises(PackingMismatchError, match=problem), opened(other, settings, **workload):
            pass
    with pytest.raises(PackingConfigError, match=r"window=4, but the windows in .* have 5 steps"):  # noqa: SIM117
        with opened(data, replace(settings, window=4)):
            pass
    # What was packed for a run alone, which was killed, does not bind others.
    for manifest in tmp_path.glob("packed/windows/*/window.json"):
        manifest.write_text(manifest.read_text().replace('"stays": true', '"stays": false'))
    with opened(data, settings, batch_size=8) as source:
        assert batches(source, range(1)) == batches(toy_source(data, batch_size=8), range(1))


@pytest.mark.parametrize(
    "name", ["thesis.tex", "hot-1.bin", ".rate-card.txt", "windows/mine.txt", "windows/window-00000003/thesis.tex"]
)
def test_a_folder_of_another_program_is_left_as_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(PackingConfigError, match="files that are no packed mini-batches"):
        PackingFolder(str(tmp_path))
    assert (tmp_path / name).read_text() == "mine"


def test_what_others_put_among_windows_is_never_removed(tmp_path: Path) -> None:
    mine = [tmp_path / f"packed/windows/window-{number:08d}/thesis.tex" for number in (0, 9)]
    with opened(wide_data(), packing(tmp_path)) as source:
        for path in mine:
            path.parent.mkdir(exist_ok=True)  # the first one is a window of ours
            path.write_text("mine")
        batches(source)
    assert [path.read_text() for path in mine] == ["mine"] * 2


def test_a_folder_whose_writer_was_killed_is_still_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: PackingFolder, name: str, content: bytes) -> None:
        if name == "hot-1.bin":
            raise KeyboardInterrupt
        write_before(folder, name, content)

    write_before = PackingFolder._write
    monkeypatch.setattr(PackingFolder, "_write", write)
    hot = np.arange(3)
    with pytest.raises(KeyboardInterrupt):
        PackingFolder(str(tmp_path / "packed")).write({}, Decided(5, 5, NUM_STEPS, 0.5, (hot, hot)))
    again = PackingFolder(str(tmp_path / "packed"))
    with pytest.raises(StoreFormatError, match=r"hot-1\.bin cannot be read"):
        again.read({}, [3, 3])
    again.close()
    assert not (tmp_path / "packed").exists()


def test_a_packer_that_was_killed_is_taken_over_from(tmp_path: Path) -> None:
    """A process is killed in the middle of a window, whose lock another one waits for."""
    data, ready = wide_data(), tmp_path / "ready"

    def hang(*_: Any, **__: Any) -> None:
        ready.touch()
        time.sleep(60)

    pid = os.fork()
    if pid == 0:
        pack_module.write_window_manifest = hang  # type: ignore[assignment]
        pack_ahead(packing(tmp_path), replace(run_of(data, toy_workload(data), None, 1), progress=False), range(1))
        os._exit(1)
    while not ready.exists():
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    killing = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    killing.start()
    began = time.monotonic()
    with opened(data, packing(tmp_path)) as source:  # waits for the lock, and for the end of the other
        assert time.monotonic() - began > 0.1
        assert batches(source) == batches(toy_source(data))
        assert "packed" in source.tiers
    killing.join()
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert not list(tmp_path.glob("packed/windows/.*"))


def test_errors_of_the_packing_thread_reach_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, pack = wide_data(), Packer.pack

    def fail(self: Packer, number: int, **settings: Any) -> int:
        if number == 1:
            raise FeatureFileError("x.bin was cut off")
        return pack(self, number, **settings)

    monkeypatch.setattr(Packer, "pack", fail)
    with opened(data, packing(tmp_path)) as source, pytest.raises(FeatureFileError, match="cut off"):
        batches(source, num_threads=1)


def test_a_window_that_is_late_is_not_waited_for_longer_than_trainers_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs_module, "_PATIENCE_S", 0.05)
    data = wide_data()
    with opened(data, packing(tmp_path)) as source:
        lock = os.open(tmp_path / "packed/windows", os.O_RDONLY)
        source.features["x"].announce(BatchRequest(0, 0, 0, 1))
        # Another job packs; what it packs is not what this one waits for.
        time.sleep(0.3)
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = batches(source)
        os.close(lock)
        assert made == batches(toy_source(data))
        assert source.tiers.keys() == {"cache", "packed", "memory"}


def test_ranks_of_a_machine_pack_once_and_share_hot_rows(tmp_path: Path) -> None:
    data, packed = wide_data(), list[int]()

    def work(membership: Any) -> list[Any]:
        workload = toy_workload(data, batch_size=8, num_ranks=2, end_epoch=1)
        rank, run = membership.index, run_of(data, workload, None, 1)
        run = replace(run, ranks=(0, 1), own_ranks=(rank,), num_processes=2, progress=False)
        stores = open_packed(packing(tmp_path, memory=200_000), run, membership)
        packed.append(len(os.listdir(tmp_path / "packed/windows")))
        loader = SampledLoader(BatchSource(data, workload, stores), num_ranks=2, rank=rank, num_threads=1)
        made = [content(batch) for batch in loader], {tier for tier, *_ in loader.stats.reads}
        for store in stores.values():
            store.close()
        return list(made)

    for rank, (made, tiers) in enumerate(together(2, work)):
        loader = SampledLoader(toy_source(data, batch_size=8), num_ranks=2, rank=rank, num_threads=0)
        assert made == [content(batch) for batch in loader]
        assert tiers == {"cache", "packed"}
    assert not (tmp_path / "packed").exists()


def test_ranks_read_windows_of_which_the_first_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, settings = wide_data(), packing(tmp_path, memory=200_000, window=None)
    workload = toy_workload(data, batch_size=8, num_ranks=2, end_epoch=1)
    run = replace(run_of(data, workload, None, 1), ranks=(0, 1), num_processes=2, progress=False)
    with monkeypatch.context() as patched:
        patched.setattr(open_module, "lay_out", lambda *sizes, **of: replace(lay_out(*sizes, **of), window=5, first=2))
        pack_ahead(settings, run, range(1))

    def work(membership: Any) -> list[range]:
        store = open_packed(settings, replace(run, own_ranks=(membership.index,)), membership)["x"]
        store.close()
        return [store._cold.timeline.span(number) for number in range(3)]  # type: ignore[attr-defined]

    assert together(2, work) == [[range(2), range(2, 7), range(7, 7)]] * 2


def test_the_layout_shares_memory_and_names_the_fastest_way() -> None:
    store: Any = _Table(1_000_000, 128)
    hotness = np.random.default_rng(0).random(1_000_000)
    sizes = Sizes({"x": store}, {"x": hotness}, {"x": 50_000.0}, {"x": 60_000}, 1, 2, 1, None, {"x": 512})
    fast_disk, slow_disk = Rates(1e9, 1e9, 2e7), Rates(1e9, 1e9, 2e4)
    memory = 170_000_000  # a third of the table
    layout = lay_out(sizes, memory, 10**12, window=None, whole=None, rates=slow_disk)
    taken = layout.hot_share * 512e6 + 4e6 + layout.reader_bytes + 2 * layout.chunk_bytes + layout.staging_bytes
    assert layout.way == "packed"
    assert 0.8 * memory < taken < memory
    assert layout.window > 20
    assert 0 < layout.first <= layout.window
    # Memory for 4 bytes of each row, and for pieces; and as few passes as that allows: 15 MB of rows a step.
    assert layout.window * 4 * 50_000 < memory / 8
    short = lay_out(replace(sizes, num_steps=30), memory, 10**12, window=None, whole=None, rates=slow_disk)
    assert 30 / 2 <= short.window <= 30
    assert lay_out(sizes, memory, 10**12, window=None, whole=None, rates=fast_disk).way == "direct"
    assert lay_out(sizes, memory, 10**6, window=None, whole=None, rates=slow_disk).way == "scanned"
    assert lay_out(sizes, memory, 10**12, window=7, whole=None, rates=fast_disk, always=True).window == 7
    with pytest.raises(PackingConfigError, match="too little to pack"):
        lay_out(sizes, 4_100_000, 10**12, window=None, whole=None, rates=slow_disk)


class _Table:
    """The sizes of a table."""

    def __init__(self, num_rows: int, width: int) -> None:
        self.shape, self.row_bytes = (num_rows, width), 4 * width


def test_memory_stays_within_the_limit(tmp_path: Path) -> None:
    """A process packs and reads with far less memory than the table has."""
    num_rows, table_bytes = 150_000, 150_000 * 1024
    table = torch.zeros(num_rows, 256)
    table[:, 0] = torch.arange(num_rows)
    save_features(table, tmp_path / "x", progress=False)
    graph = toy_graph(num_rows, 300_000)
    data = GraphData(graph, DiskFeatureStore(tmp_path / "x"), train=np.arange(6000))
    del table

    def train() -> None:
        list(SampledLoader(toy_source(data, batch_size=100), num_threads=1).batches(0, 0, 3))
        before = peak_bytes()
        with opened(data, packing(tmp_path, memory="24MB", window=None), batch_size=100, end_epoch=1) as source:
            loader = SampledLoader(source, num_threads=1)
            assert all(torch.equal(batch.x[:, 0].long(), batch.nodes) for batch in loader)
            assert {tier for tier, *_ in loader.stats.reads} == {"cache", "packed"}
        # What threads and Python take beside buffers stays below some MB; the table has 154.
        assert peak_bytes() - before < 24e6 + 16e6 < table_bytes / 3

    assert in_child(train) == (0, "")


def peak_bytes() -> int:
    """The most memory that this process has had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def test_other_rows_than_were_packed_are_read_from_the_table(tmp_path: Path) -> None:
    data = wide_data()
    with opened(data, packing(tmp_path)) as source:
        store, request = source.features["x"], BatchRequest(0, 0, 0, 1)
        packed = source.rows_of(request)["x"]
        location = store.location  # type: ignore[attr-defined]
        # As many rows as were packed, but others: as of a sampler whose code has changed since.
        others = np.setdiff1d(np.flatnonzero(location < 0), packed)[: (location[packed] < 0).sum()]
        for ids in (packed[::-1].copy(), others, packed[::2]):
            out = torch.empty(len(ids), 100)
            store.announce(request)
            with pytest.warns(UserWarning, match="other rows of 'x'") if ids is others else nullcontext():
                store.gather(torch.from_numpy(ids.copy()), out)
            assert torch.equal(out, data.x.rows[ids])


def test_reads_are_counted(tmp_path: Path) -> None:
    data = wide_data()
    with opened(data, packing(tmp_path)) as source:
        payload = source.make(BatchRequest(0, 0, 0, 1), Slot())
        by_tier = {read.tier: read for read in payload.reads}
        assert sum(read.rows for read in payload.reads) == payload.num_nodes
        assert by_tier["packed"] == TierReads("packed", by_tier["packed"].rows, by_tier["packed"].rows * 400)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"memory": "2 quarts"}, "memory='2 quarts'"),
        ({"room": -1}, "room=-1"),
        ({"window": 0}, "window=0"),
        ({"cycle": True}, "cycle=True"),
        ({"dtype": "int8"}, "dtype='int8' is not known"),
        ({"folder": ""}, "folder=''"),
        ({"always": "yes"}, "always='yes'"),
    ],
)
def test_settings_are_checked_where_they_are_made(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(PackingConfigError, match=problem):
        Packing(**{"folder": "packed", **settings})


def test_a_table_in_memory_is_left_alone(tmp_path: Path) -> None:
    data = wide_data()
    run = replace(run_of(data, toy_workload(data), None, 1), progress=False)
    assert isinstance(run, Run)
    assert open_packed(packing(tmp_path, always=False), run)["x"] is data.x
    assert not (tmp_path / "packed").exists()
