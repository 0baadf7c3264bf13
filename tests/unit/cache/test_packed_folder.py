"""Folders of packed mini-batches: whatever becomes of their files, rows are the same, and nobody else's are touched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    GraphData,
    MemoryFeatureStore,
    NeighborSampler,
    load_graph_data,
    save_graph_data,
)
from lightning_gnnload.cache.packed import pack as pack_module
from lightning_gnnload.cache.packed import window as window_module
from lightning_gnnload.cache.packed.ahead import pack_ahead
from lightning_gnnload.cache.packed.folder import Decided, PackingFolder
from lightning_gnnload.cache.packed.open import open_packed
from lightning_gnnload.cache.packed.pack import Packer
from lightning_gnnload.errors import PackingConfigError, PackingMismatchError, StoreFormatError
from lightning_gnnload.plugin.module.packing import run_of
from lightning_gnnload.storage.manifest import CHECKSUM, with_checksum
from tests.unit.cache.packed_runs import EPOCHS, NUM_STEPS, batches, opened, packing, wide_data
from tests.unit.toy import toy_graph, toy_source, toy_workload

pytestmark = pytest.mark.usefixtures("small_buffers")


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
