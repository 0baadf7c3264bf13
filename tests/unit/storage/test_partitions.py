"""A partition's folder: mapped, checked, shared, and never half of one."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import Partition, load_graph_data, load_partition, partition_graph, save_graph_data
from lightning_gnnload.errors import GraphDataError, StoreFormatError
from lightning_gnnload.storage import folders, parts
from lightning_gnnload.storage.folders import new_folder
from tests import guards
from tests.forked import in_child
from tests.unit.partition.by_id import ById
from tests.unit.toy import toy_data


def made(folder: Path, num_parts: int = 3, **settings) -> Partition:
    return partition_graph(toy_data(), folder, num_parts, ById(), **{"hops": 2, "progress": False} | settings)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("partition") / "parts"
    made(folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(original, tmp_path / "parts"))


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest.pop("checksum", None)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def flip_last_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_nothing_is_copied_and_parts_wait_until_they_are_asked_for(original: Path) -> None:
    gc.collect()  # what the partition was made with
    partition = load_partition(original)
    mapped = Path("/proc/self/maps").read_text()
    assert f"{original}/x.bin" in mapped
    assert f"{original}/part-" not in mapped
    part = partition.parts[1]
    mapped = Path("/proc/self/maps").read_text()
    assert f"{original}/part-0001/indices.bin" in mapped
    assert f"{original}/part-0000/" not in mapped
    for array in (partition.node_ids, part.graph.indices, part.graph.origin.node_ids):
        assert not array.flags.owndata
    assert partition.parts[1] is part
    assert partition.parts[-2] is part
    assert partition.parts[1:2] == [part]
    assert len(list(partition.parts)) == 3
    with pytest.raises(IndexError):
        partition.parts[3]


def test_seeds_are_known_without_lists(original: Path) -> None:
    gc.collect()  # what others mapped
    partition = load_partition(original)
    seeds = partition.seeds_of("train")
    assert partition.seeds_of("test") is None
    assert f"{original}/part-0002/indices.bin" not in Path("/proc/self/maps").read_text()
    assert [ids.tolist() for ids in seeds] == [part.seeds["train"].tolist() for part in partition.parts]


def test_threads_load_a_part_once(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads, load = [], parts.open_topology
    monkeypatch.setattr(parts, "open_topology", lambda *a, **k: loads.append(a) or load(*a, **k))
    partition, found = load_partition(original), []
    threads = [threading.Thread(target=lambda: found.append(partition.parts[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert all(part is found[0] for part in found)


def test_another_process_gets_the_folder_and_not_its_content(original: Path) -> None:
    partition = load_partition(original, features="disk")
    sent = pickle.dumps(partition)
    assert len(sent) < 1000
    again = pickle.loads(sent)  # noqa: S301  our own bytes
    assert again.node_ids.tolist() == partition.node_ids.tolist()
    assert again.report == partition.report
    assert "DiskFeatureStore" in repr(again.x)


def test_a_part_is_a_graph_folder(original: Path, tmp_path: Path) -> None:
    part = load_partition(original).parts[2]
    data = load_graph_data(original / "part-0002", verify=True)
    assert data.graph.origin.node_ids[data.train].tolist() == part.seeds["train"].tolist()
    save_graph_data(data, tmp_path / "copy")
    copy = load_graph_data(tmp_path / "copy").graph.origin
    for name in ("node_ids", "reach", "edge_starts"):
        assert getattr(copy, name).tolist() == getattr(part.graph.origin, name).tolist()


def test_owners_are_found_by_both_numbers(original: Path) -> None:
    partition = load_partition(original)
    ids = np.arange(300)
    assert partition.part_of(ids).tolist() == partition.owner_of(partition.new_ids).tolist()
    for part in partition.parts:
        assert (partition.part_of(part.graph.origin.node_ids[: part.num_own]) == part.index).all()
    beyond, halves = np.array([0, 300]), np.array([0.5])
    for ids, reason in ((beyond, "id 300 at position 1 is not a node"), (halves, "integer node ids")):
        with pytest.raises(GraphDataError, match=reason):
            partition.part_of(ids)


@pytest.mark.parametrize("file", ["x.bin", "new_ids.bin", "part-0001/indices.bin", "part-0002/reach.bin"])
def test_damage_is_found_when_asked(folder: Path, file: str) -> None:
    load_partition(folder, verify=True)
    flip_last_byte(folder / file)
    with pytest.raises(StoreFormatError, match=f"{file.split('/')[-1]}|numbering|part-"):
        load_partition(folder, verify=True)


def test_a_cut_or_missing_file_is_always_found(folder: Path) -> None:
    os.truncate(folder / "part-0001" / "indices.bin", 4)
    partition = load_partition(folder)
    assert partition.parts[0].index == 0  # others can be used
    with pytest.raises(StoreFormatError, match=r"indices.bin has 4 bytes"):
        partition.parts[1]
    shutil.rmtree(folder / "part-0002")
    with pytest.raises(StoreFormatError, match=r"part-0002 is not a graph folder"):
        partition.parts[2]
    (folder / "node_ids.bin").unlink()
    with pytest.raises(StoreFormatError, match=r"node_ids.bin is missing"):
        load_partition(folder)


def test_parts_of_two_partitions_do_not_mix(folder: Path, tmp_path: Path) -> None:
    made(tmp_path / "other", hops=1)
    shutil.rmtree(folder / "part-0001")
    shutil.copytree(tmp_path / "other" / "part-0001", folder / "part-0001")
    with pytest.raises(StoreFormatError, match=r"part-0001/manifest.json is not the one of this partition"):
        load_partition(folder).parts[1]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("starts", [0, 200, 100, 300]),
        ("starts", [1, 100, 200, 300]),
        ("starts", [0, 100, 200, 299]),
        ("node_ids", [-1, *range(1, 300)]),
        ("new_ids", [300, *range(1, 300)]),
    ],
)
def test_numbers_that_are_none_are_refused_without_verifying(folder: Path, name: str, values: list[int]) -> None:
    np.array(values).tofile(folder / f"{name}.bin")
    with pytest.raises(StoreFormatError, match=rf"{name} .*\b{name}\.bin \(int64 \[\d+\]\)"):
        load_partition(folder)


@pytest.mark.parametrize("change", [lambda ids: ids.fill(300), lambda ids: ids.fill(-1), lambda ids: ids.fill(7)])
def test_nodes_of_a_part_that_cannot_be_its_own_are_refused(folder: Path, change: Callable) -> None:
    ids = np.fromfile(folder / "part-0000" / "node_ids.bin", np.int64)
    change(ids)
    ids.tofile(folder / "part-0000" / "node_ids.bin")
    with pytest.raises(StoreFormatError, match=r"node_ids (span|must be the part's own).*read from node_ids\.bin"):
        load_partition(folder).parts[0]


@pytest.mark.parametrize("start", [-1, 2400])
def test_edges_of_a_part_that_the_whole_has_not_are_refused(folder: Path, start: int) -> None:
    starts = np.fromfile(folder / "part-0000" / "edge_starts.bin", np.int64)
    starts[np.fromfile(folder / "part-0000" / "reach.bin", np.uint8).argmax()] = start
    starts.tofile(folder / "part-0000" / "edge_starts.bin")
    with pytest.raises(StoreFormatError, match="edge_starts go beyond the 2400 edges"):
        load_partition(folder).parts[0]


def test_an_owner_that_lacks_a_node_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "parts", hops=0)
    starts = np.fromfile(tmp_path / "parts" / "starts.bin", np.int64)
    starts[1] += 1
    starts.tofile(tmp_path / "parts" / "starts.bin")
    with pytest.raises(StoreFormatError, match="node_ids must be the part's own"):
        load_partition(tmp_path / "parts").parts[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda described: described.pop("hops"),
        lambda described: described.update(hops=256),
        lambda described: described.update(parts=[]),
        lambda described: described.update(parts=["a"] * 3),
        lambda described: described.update(phases=["trains"]),
        lambda described: described.update(phases=[[]]),
        lambda described: described.update(fingerprint=7),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(folder: Path, change: Callable) -> None:
    edit(folder, lambda manifest: change(manifest["attributes"]["partition"]))
    with pytest.raises(StoreFormatError, match=r"partition is missing|is impossible|int64 \[1\]"):
        load_partition(folder)


def test_other_folders_are_told_from_partitions(tmp_path: Path) -> None:
    save_graph_data(toy_data(), tmp_path / "graph")
    with pytest.raises(StoreFormatError, match=r"not a partition.*partition_graph"):
        load_partition(tmp_path / "graph")
    with pytest.raises(StoreFormatError, match="is not a partition"):
        load_partition(tmp_path / "nothing")


def test_a_partition_is_told_from_a_graph(folder: Path) -> None:
    with pytest.raises(StoreFormatError, match=r"is a partition, not a graph\. Give the graph"):
        load_graph_data(folder)


@pytest.mark.parametrize("stage", ["Dealing nodes out", "Writing parts", "Writing features", "Measuring quality"])
def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    from lightning_gnnload.partition.stages import StageClock

    enter = StageClock.enter

    def interrupt(self: StageClock, name: str | None) -> None:
        enter(self, name)
        if name == stage:
            raise KeyboardInterrupt

    monkeypatch.setattr(StageClock, "enter", interrupt)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("name", ["x.bin", "manifest.json", "parts"])
@pytest.mark.parametrize("exchanges", [True, False])
def test_what_a_killed_run_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool, name: str, exchanges: bool
) -> None:
    """Killed where the named file is opened, or where the whole is moved into its place."""
    target = tmp_path / "parts"
    if exists:
        made(target, 2)

    def work() -> None:
        rename = os.rename

        def opens(file, mode="r"):
            if os.path.basename(file) == name:
                os.kill(os.getpid(), signal.SIGKILL)
            return open(file, mode)

        def renames(source, destination) -> None:
            if os.path.basename(destination) == name:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, destination)

        exchange = folders.exchange

        def exchanged(first, second) -> bool:
            done = exchanges and exchange(first, second)
            if done and name == "parts":  # before the old one is removed
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        monkeypatch.setattr(folders, "exchange", exchanged)
        monkeypatch.setattr(folders, "open", opens, raising=False)
        monkeypatch.setattr(os, "rename", renames)
        made(target, 4, overwrite=True)

    assert in_child(work)[0] == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] != ["parts"]  # the kill has come while there was something
    with new_folder(target, "partition", overwrite=True):
        if exists:  # also where it had been moved away
            is_new = exchanges and name == "parts"
            assert load_partition(target, verify=True).num_parts == (4 if is_new else 2)
    made(target, 3, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]
    assert load_partition(target, verify=True).num_parts == 3


def test_a_folder_that_another_process_is_making_is_left_alone(tmp_path: Path) -> None:
    with new_folder(tmp_path / "parts", "partition", overwrite=False) as first:
        (first / "mine").write_text("")
        made(tmp_path / "parts")
        assert (first / "mine").exists()
        (tmp_path / ".parts-abcdefgh.partial").mkdir()  # nobody's
        (tmp_path / ".parts-mine").mkdir()  # not one of ours
        made(tmp_path / "parts", overwrite=True)
        assert (first / "mine").exists()
        assert not (tmp_path / ".parts-abcdefgh.partial").exists()
        assert (tmp_path / ".parts-mine").exists()
        shutil.rmtree(tmp_path / "parts")
    assert (tmp_path / "parts" / "mine").exists()


def test_what_another_user_left_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, opens = tmp_path / ".parts-abcdefgh.partial", os.open
    theirs.mkdir()

    def refuse(path, *arguments, **settings) -> int:
        if Path(path) == theirs:
            raise PermissionError(13, "Permission denied", str(path))
        return opens(path, *arguments, **settings)

    monkeypatch.setattr(os, "open", refuse)
    assert made(tmp_path / "parts").num_parts == 3
    assert theirs.exists()


def test_features_from_disk(original: Path) -> None:
    part = load_partition(original, features="disk").parts[0]
    out = torch.empty(len(part.graph.origin.node_ids), 5)
    part.x.gather(torch.arange(len(out)), out)
    assert out[:, 0].tolist() == part.graph.origin.node_ids.tolist()


@pytest.mark.parametrize("hops", [0, 2])
def test_a_partition_that_nobody_has_is_closed_at_once(tmp_path: Path, hops: int) -> None:
    """Not when Python next looks for cycles: a process that opens one after the other has descriptors for few."""
    made(tmp_path / "parts", hops=hops)
    before = guards.num_fds()
    gc.disable()
    try:
        partition = load_partition(tmp_path / "parts")
        rows = torch.empty(2, partition.x.shape[1])
        for part in partition.parts:
            part.x.gather(torch.arange(2), rows)
        x, num_open = partition.x, len(os.listdir("/proc/self/fd"))
        assert num_open > before + 10
        del partition, part
        x.gather(torch.arange(2), rows)  # rows alone keep what they need
        del x
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()
