"""A bit that is not what was written is found, with its place: at once, or beside other work."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    SeedTable,
    load_graph_data,
    partition_graph,
    save_features,
    save_graph_data,
)
from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.storage import background, damage, folders, manifest
from lightning_gnnload.storage.background import BackgroundCheck
from lightning_gnnload.storage.damage import FileCheck, check_folder, find_damage
from lightning_gnnload.storage.open_folder import OpenFolder
from tests.unit.toy import toy_data

ROWS = torch.arange(60, dtype=torch.float32).view(20, 3)  # 240 bytes


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 bytes, in chunks of 36 bytes that do not end where stretches do."""
    for module in (folders, damage, manifest):
        monkeypatch.setattr(module, "STRETCH_BYTES", 100)
    monkeypatch.setattr(folders, "CHUNK_BYTES", 36)
    monkeypatch.setattr(damage, "_READ_BYTES", 64)


def found(folder: Path) -> list[FileCheck]:
    with OpenFolder(folder) as opened:
        return [finding for finding in check_folder(opened) if finding.error is not None]


@pytest.mark.usefixtures("short_stretches")
def test_each_stretch_is_checked_by_itself(tmp_path: Path) -> None:
    """Wrong code goes on from what it found, so that all stretches after the first damage are damaged."""
    save_features(ROWS, tmp_path / "x", progress=False)
    entry = json.loads((tmp_path / "x" / "manifest.json").read_text())["arrays"]["x"]
    assert len(entry["crc32_after"]) == 2

    def stretches() -> list[tuple[int, int]]:
        with OpenFolder(tmp_path / "x") as opened:
            return [tuple(stretch) for stretch in find_damage(opened.array("x"))]

    assert stretches() == []
    for at, wanted in ((0, (0, 100)), (99, (0, 100)), (100, (100, 200)), (199, (100, 200)), (239, (200, 240))):
        flip(tmp_path / "x" / "x.bin", at)
        assert stretches() == [wanted]
        flip(tmp_path / "x" / "x.bin", at)
    flip(tmp_path / "x" / "x.bin", 7)
    flip(tmp_path / "x" / "x.bin", 230)
    assert stretches() == [(0, 100), (200, 240)]
    [finding] = found(tmp_path / "x")
    assert (finding.file, finding.array, finding.size_bytes) == (tmp_path / "x" / "x.bin", "x", 240)
    assert "x.bin is damaged: bytes 0 to 99, 200 to 239 of array 'x'" in str(finding.error)


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("size", [0, 33, 34, 50, 67])
def test_sizes_about_those_of_stretches(tmp_path: Path, size: int) -> None:
    save_features(torch.arange(float(size))[:, None], tmp_path / "x", progress=False)  # 0, 132, 136, 200, 268 bytes
    assert found(tmp_path / "x") == []
    if size:
        flip(tmp_path / "x" / "x.bin", -1)
        assert len(found(tmp_path / "x")) == 1


@pytest.mark.usefixtures("short_stretches")
def test_a_folder_from_before_stretches_is_checked_whole(tmp_path: Path) -> None:
    save_features(ROWS, tmp_path / "x", progress=False)
    file = tmp_path / "x" / "manifest.json"
    content = json.loads(file.read_text())
    del content["checksum"]
    del content["arrays"]["x"]["crc32_after"]
    file.write_text(json.dumps(content))
    assert found(tmp_path / "x") == []
    flip(tmp_path / "x" / "x.bin", 200)
    assert "bytes 0 to 239 of array 'x'" in str(found(tmp_path / "x")[0].error)


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("after", [[1], [1, 2, 3], [1, -1], [1, "2"], 7, {"a": 1}, [1, 2.0], [True, 2], None])
def test_checksums_that_are_none(tmp_path: Path, after) -> None:
    save_features(ROWS, tmp_path / "x", progress=False)
    file = tmp_path / "x" / "manifest.json"
    content = json.loads(file.read_text())
    del content["checksum"]
    content["arrays"]["x"]["crc32_after"] = after
    file.write_text(json.dumps(content))
    with OpenFolder(tmp_path / "x") as opened, pytest.raises(StoreFormatError, match="malformed"):
        opened.array("x")


def other_value(value: Any) -> Any:
    match value:
        case bool() | None:
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case dict():
            return value | {"x": 1}
    return [*value, 1]


def changed_manifests(whole: Any) -> Iterator[tuple[str, Any]]:
    """Yields manifests with one key, or one value, that is another by a letter or by one; and where."""
    places: list[Any] = [(whole, key) for key in whole]
    while places:
        holder, key = places.pop()
        value = holder[key]
        inner = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        places += [(value, each) for each in inner]
        if isinstance(holder, dict):
            before = list(holder.items())
            for other in (f"{key[:-1]}{'x' if key[-1:] != 'x' else 'y'}", None):
                if (key, other) == ("checksum", None):
                    continue  # folders of before have none
                holder.clear()
                holder.update({other if name == key else name: each for name, each in before})
                if other is None:
                    del holder[None]
                yield f"{key} becomes {other}", whole
                holder.clear()
                holder.update(before)
        holder[key] = other_value(value)
        yield f"{key} is {holder[key]!r:.50}", whole
        holder[key] = value


def test_a_manifest_with_one_letter_changed_is_refused(tmp_path: Path) -> None:
    save_features(ROWS, tmp_path / "x", progress=False)
    partition_graph(toy_data(), tmp_path / "parts", 2, "random", hops=1, progress=False)
    table = SeedTable([0, 2], y=[1.0, 2.0], time=[5, 6], node_type="a")
    graph = Graph.from_hetero(
        {"a": 3, "b": 2}, {("a", "to", "b"): ([0, 1], [1, 0])}, edge_time={("a", "to", "b"): [1, 1 << 40]}
    )
    given = GraphData(
        graph, x={"a": np.zeros((3, 2), np.float32)}, train=table, user_ids={"a": np.array(["u", "v", "w"])}
    )
    save_graph_data(given, tmp_path / "typed", attributes={"licence": "none", "since": 1.5})
    num_changed = 0
    for place in (tmp_path / "x", tmp_path / "parts", tmp_path / "parts" / "part-0001", tmp_path / "typed"):
        file = place / "manifest.json"
        sound = file.read_bytes()
        assert json.loads(sound).keys() == manifest.KEYS - manifest.LATER
        for where, changed in changed_manifests(json.loads(sound)):
            with pytest.raises(StoreFormatError, match="manifest"):
                print(where, manifest.parse_manifest(file, json.dumps(changed).encode()))
            num_changed += 1
        assert manifest.parse_manifest(file, sound)
    assert num_changed > 500
    less = {key: value for key, value in json.loads(sound).items() if key not in ("checksum", "clock")}
    with pytest.raises(StoreFormatError, match="the keys 'clock' are missing"):
        manifest.parse_manifest(file, json.dumps(manifest.with_checksum(less)).encode())
    old = json.loads(sound)
    del old["checksum"], old["seed_tables"]  # what folders of before may lack
    assert "seed_tables" not in manifest.parse_manifest(file, json.dumps(old).encode())
    with pytest.raises(StoreFormatError, match="there is no key 'seed_tablez'"):
        manifest.parse_manifest(file, json.dumps(old | {"seed_tablez": {}}).encode())


def test_all_that_is_wrong_with_a_partition_is_found(tmp_path: Path) -> None:
    place = tmp_path / "parts"
    partition_graph(toy_data(), place, 3, "random", hops=1, progress=False)
    assert found(place) == []
    flip(place / "x.bin", 5)
    flip(place / "part-0000" / "indices.bin", 0)
    os.truncate(place / "part-0000" / "indptr.bin", 8)
    (place / "part-0001" / "reach.bin").unlink()
    flip(place / "part-0002" / "manifest.json", -3)
    told = {str(finding.file.relative_to(place)): str(finding.error) for finding in found(place)}
    assert told.keys() == {
        "x.bin",
        "part-0000/indices.bin",
        "part-0000/manifest.json",
        "part-0001/manifest.json",
        "part-0002/manifest.json",
    }
    assert "indptr.bin has 8 bytes" in told["part-0000/manifest.json"]
    assert "reach.bin is missing" in told["part-0001/manifest.json"]


# In the background.


def check(folder: Path, notes: Path) -> BackgroundCheck:
    with OpenFolder(folder) as opened:
        fingerprint = opened.fingerprint
    found = BackgroundCheck(folder, fingerprint, notes)
    assert found.wait(60)
    return found


@pytest.mark.parametrize("file", ["x.bin", "part-0001/indices.bin", "y.bin"])
def test_damage_is_told_later(tmp_path: Path, file: str) -> None:
    place = tmp_path / "parts"
    partition_graph(toy_data(), place, 2, "random", hops=1, progress=False)
    flip(place / file, 0)
    with pytest.raises(StoreFormatError, match=f"{file} is damaged"):
        check(place, tmp_path / "notes").raise_damage()
    assert not (tmp_path / "notes").exists()


def test_what_was_found_whole_is_not_read_again_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    real = background.check_folder
    monkeypatch.setattr(background, "check_folder", lambda folder, *more: reads.append("read") or real(folder, *more))
    save_graph_data(toy_data(), tmp_path / "graph")
    for _ in range(3):
        check(tmp_path / "graph", tmp_path / "notes").raise_damage()
    assert reads == ["read"]
    flip(tmp_path / "graph" / "x.bin", 0)  # a file that is written again has another time
    with pytest.raises(StoreFormatError, match=r"x\.bin is damaged"):
        check(tmp_path / "graph", tmp_path / "notes").raise_damage()
    save_graph_data(toy_data(), tmp_path / "graph", overwrite=True)
    check(tmp_path / "graph", tmp_path / "notes").raise_damage()
    assert reads == ["read"] * 3


def test_notes_that_cannot_be_written_are_no_damage(tmp_path: Path) -> None:
    save_graph_data(toy_data(), tmp_path / "graph")
    (tmp_path / "file").touch()
    check(tmp_path / "graph", tmp_path / "file" / "notes").raise_damage()


def test_a_folder_that_was_replaced_or_is_gone_is_no_damage(tmp_path: Path) -> None:
    save_graph_data(toy_data(), tmp_path / "graph")
    loaded = load_graph_data(tmp_path / "graph")
    save_features(ROWS, tmp_path / "x", progress=False)
    flip(tmp_path / "x" / "x.bin", 0)
    assert loaded.folder_fingerprint is not None
    for place in (tmp_path / "x", tmp_path / "nowhere"):  # of another version, or of none
        later = BackgroundCheck(place, loaded.folder_fingerprint, tmp_path / "notes")
        assert later.wait(60)
        later.raise_damage()


def test_it_ends_when_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "_READ_BYTES", 4096)
    save_features(torch.zeros(1 << 20, 8), tmp_path / "x", progress=False)  # 8192 reads, with a rest after each
    with OpenFolder(tmp_path / "x") as opened:
        long = BackgroundCheck(tmp_path / "x", opened.fingerprint, tmp_path / "notes")
    began = time.monotonic()
    long.stop()
    long.stop()
    assert time.monotonic() - began < 5
    assert long.wait(0)
    assert not (tmp_path / "notes").exists()


def test_the_page_cache_stays_as_it_was(tmp_path: Path) -> None:
    """Otherwise a check of 50 GB drives out of memory what training needs there."""
    save_features(torch.zeros(1 << 22, 4), tmp_path / "x", progress=False)  # 64 MiB

    def resident() -> int:
        fd = os.open(tmp_path / "x" / "x.bin", os.O_RDONLY)
        try:
            return int(background._pages_in_memory(fd).sum())
        finally:
            os.close(fd)

    if resident():
        pytest.skip("this file system keeps its files in memory")
    with open(tmp_path / "x" / "x.bin", "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.seek(16 << 20)
        file.read(16 << 20)  # what somebody uses, amid the file
    before = resident()
    assert before > 0
    check(tmp_path / "x", tmp_path / "notes").raise_damage()
    assert abs(resident() - before) < 100  # of 16384 pages
    assert (tmp_path / "notes").exists()
