"""Packed mini-batches: equal to unpacked ones in every run, and within the memory they may take."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import nullcontext
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
    save_features,
)
from lightning_gnnload.cache.packed import epochs as epochs_module
from lightning_gnnload.cache.packed import open as open_module
from lightning_gnnload.cache.packed.ahead import pack_ahead
from lightning_gnnload.cache.packed.layout import Sizes, lay_out
from lightning_gnnload.cache.packed.open import Run, open_packed
from lightning_gnnload.cache.packed.pack import Packer
from lightning_gnnload.cache.packed.rates import Rates
from lightning_gnnload.cache.packed.scan import TableScan
from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.cache.packed.store import ranked
from lightning_gnnload.data.features import TierReads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import FeatureFileError, PackingConfigError, PackingMismatchError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.module.packing import run_of
from tests.forked import in_child
from tests.unit.cache.packed_runs import EPOCHS, MEMORY, NUM_STEPS, batches, kind, opened, packing, wide_data
from tests.unit.cache.ranks import together
from tests.unit.toy import content, toy_data, toy_graph, toy_source, toy_workload

pytestmark = pytest.mark.usefixtures("small_buffers")


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
        while reader._ahead is None or reader._ahead.number != 4:  # the system takes a moment to end a thread
            assert time.monotonic() < deadline
            time.sleep(0.01)
            if len(reader._in_use) <= 1:  # what is read ahead
                store.announce(BatchRequest(0, 3, 0, 1))


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
