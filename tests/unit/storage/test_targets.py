"""Nothing that is not ours is ever replaced by a folder of ours, and nothing is lost with one."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from lightning_gnnload import (
    DiskFeatureStore,
    Graph,
    GraphData,
    load_graph_data,
    load_partition,
    partition_graph,
    save_features,
    save_graph_data,
)
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.errors import FeatureFileError, StoreFormatError
from lightning_gnnload.storage import folders
from tests.unit.toy import toy_data

ROWS = torch.arange(6.0).view(3, 2)
WRITERS: dict[str, Callable[..., object]] = {
    "graph": partial(save_graph_data, toy_data()),
    "features": partial(save_features, ROWS, progress=False),
    "partition": partial(partition_graph, toy_data(), num_parts=2, method="random", hops=1, progress=False),
}


def listed(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(params=WRITERS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_folder_of_the_same_kind_is_replaced(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "it"
    WRITERS[kind](folder=place)
    if kind == "partition":
        (place / "quality.json").touch()  # which the command line adds
        (place / "quality.png").touch()
    edit(place, version=7)  # of another release
    WRITERS[kind](folder=place, overwrite=True)
    assert json.loads((place / "manifest.json").read_text())["version"] == 1
    assert os.listdir(tmp_path) == ["it"]


def test_an_empty_folder_has_nothing_to_lose(tmp_path: Path, kind: str) -> None:
    (tmp_path / "it").mkdir()
    with pytest.raises(StoreFormatError, match="exists already"):
        WRITERS[kind](folder=tmp_path / "it")
    WRITERS[kind](folder=tmp_path / "it", overwrite=True)
    assert (tmp_path / "it" / "manifest.json").exists()


def edit(place: Path, **changes: object) -> None:
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda place: (place / "thesis.tex").touch(), r"also holds thesis\.tex, which"),
        (lambda place: (place / "notes").mkdir(), r"also holds notes, which"),
        (lambda place: (place / "my own.bin").touch(), r"also holds my own\.bin, which"),
        (lambda place: (place / "part-0007").mkdir(), r"also holds part-0007, which"),
        (lambda place: (place / "manifest.json").unlink(), "no sound manifest.json of this package"),
        (lambda place: (place / "manifest.json").write_text("{"), "no sound manifest.json of this package"),
        (lambda place: edit(place, format="theirs"), "no sound manifest.json of this package"),
        (lambda place: edit(place, version="1"), "no sound manifest.json of this package"),
        (lambda place: edit(place, arrays=[]), "no sound manifest.json of this package"),
    ],
)
def test_a_folder_that_holds_anything_else_stays(tmp_path: Path, kind: str, spoil, message: str) -> None:
    place = tmp_path / "it"
    WRITERS[kind](folder=place)
    spoil(place)
    before = listed(tmp_path)
    with pytest.raises(StoreFormatError, match=message):
        WRITERS[kind](folder=place, overwrite=True)
    assert listed(tmp_path) == before


@pytest.mark.parametrize("name", ["part-0001/thesis.tex", "quality.csv"])
def test_nor_does_a_part_hold_anything_else(tmp_path: Path, name: str) -> None:
    WRITERS["partition"](folder=tmp_path / "it")
    (tmp_path / "it" / name).touch()
    with pytest.raises(StoreFormatError, match=f"also holds {Path(name).name}"):
        WRITERS["partition"](folder=tmp_path / "it", overwrite=True)
    assert (tmp_path / "it" / name).exists()


def test_a_folder_of_another_kind_stays(tmp_path: Path) -> None:
    """A graph whose folder was given for its parts would be gone with its edge features."""
    for kind, write in WRITERS.items():
        write(folder=tmp_path / kind)
    for kind, write in WRITERS.items():
        for other in WRITERS.keys() - {kind}:
            with pytest.raises(StoreFormatError, match=f"folder, which a {kind} does not replace"):
                write(folder=tmp_path / other, overwrite=True)
    load_graph_data(tmp_path / "graph")
    load_partition(tmp_path / "partition")
    DiskFeatureStore(tmp_path / "features", direct=False).close()


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_and_links_stay(tmp_path: Path, kind: str, overwrite: bool) -> None:
    WRITERS[kind](folder=tmp_path / "target")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "nowhere").symlink_to("gone")
    before = listed(tmp_path)
    for name, message in (("file", "is no folder"), ("link", "is a link, to target"), ("nowhere", "a link, to gone")):
        with pytest.raises(StoreFormatError, match=message if overwrite else "exists already"):
            WRITERS[kind](folder=tmp_path / name, overwrite=overwrite)
    assert listed(tmp_path) == before
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("folder", ["", ".", "..", "/", "a/..", "a\0b"])
def test_what_names_no_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreFormatError, match="does not name a folder"):
        WRITERS[kind](folder=folder, overwrite=True)
    assert listed(tmp_path) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/x", "x\0y", "\ud800", "x" * 252, None, 3])
def test_an_array_that_no_file_can_hold_is_refused_before_its_rows_are_asked_for(tmp_path: Path, name) -> None:
    with pytest.raises(StoreFormatError, match=r"must name an array|cannot name an array"):
        save_features(iter([pytest.fail]), tmp_path / "x", name=name, progress=False)
    assert listed(tmp_path) == []


def test_a_place_that_cannot_be_written_is_known_before_the_work(tmp_path: Path) -> None:
    class Unasked(Dataset):
        def prepare(self) -> None:
            pytest.fail("a data set was fetched for a folder that cannot be")

        load = prepare  # type: ignore[assignment]

    (tmp_path / "file").touch()
    (tmp_path / "there").mkdir()
    for place, message in (("file/it", "is no folder"), ("there", "exists already")):
        with pytest.raises(StoreFormatError, match=message):
            partition_graph(Unasked(), tmp_path / place, 2, hops=1)


def test_what_comes_into_a_folder_while_it_is_written_anew_stays(tmp_path: Path) -> None:
    place = tmp_path / "x"
    save_features(ROWS, place, progress=False)

    def rows():
        yield ROWS
        (place / "thesis.tex").touch()

    with pytest.raises(StoreFormatError, match=r"also holds thesis\.tex"):
        save_features(rows(), place, overwrite=True, progress=False)
    assert listed(tmp_path) == ["x", "x/manifest.json", "x/thesis.tex", "x/x.bin"]


def test_a_folder_that_came_meanwhile_is_told_as_such(tmp_path: Path) -> None:
    """Not as a disk without room, and it is not replaced unasked."""

    def rows():
        yield ROWS
        save_features(ROWS, tmp_path / "x", progress=False)

    with pytest.raises(StoreFormatError, match="exists already"):
        save_features(rows(), tmp_path / "x", progress=False)
    save_features(rows_then(lambda: shutil.rmtree(tmp_path / "x")), tmp_path / "x", overwrite=True, progress=False)
    assert listed(tmp_path) == ["x", "x/manifest.json", "x/x.bin"]


def rows_then(act: Callable[[], object]):
    yield ROWS
    act()


def test_a_system_that_cannot_exchange_folders_renames_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "exchange", lambda first, second: False)
    for factor in (1, 2):
        save_features(ROWS * factor, tmp_path / "x", overwrite=True, progress=False)
    store = DiskFeatureStore(tmp_path / "x", direct=False)
    out = torch.empty(3, 2)
    store.gather(torch.arange(3), out)
    store.close()
    assert torch.equal(out, ROWS * 2)
    assert os.listdir(tmp_path) == ["x"]


def test_a_folder_in_the_place_of_another_is_there_at_every_moment(tmp_path: Path) -> None:
    """The system that the tests run on exchanges folders, or these tests show nothing."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert folders.exchange(tmp_path / "a", tmp_path / "b")
    assert listed(tmp_path) == ["a", "a/b", "b", "b/a"]
    with pytest.raises(FileNotFoundError):
        folders.exchange(tmp_path / "a", tmp_path / "c")


def test_only_a_disk_without_room_asks_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(FeatureFileError, match=r"cannot be written: .*Input/output error.*on a disk that works"):
        save_graph_data(toy_data(), tmp_path / "it")


def test_paths_and_names_of_any_bytes(tmp_path: Path, kind: str) -> None:
    """Native code, manifests, warnings and logs take text alone."""
    parent = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    WRITERS[kind](folder=parent / "it")
    with pytest.raises(StoreFormatError, match="exists already"):
        WRITERS[kind](folder=parent / "it")
    WRITERS[kind](folder=parent / "it", overwrite=True)
    for direct in (True, False):
        if kind != "graph":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # where the file system refuses direct reads
                DiskFeatureStore(parent / "it", direct=direct).close()
    if kind == "graph":
        data = load_graph_data(parent / "it", verify=True)
        save_graph_data(data, parent / "again", attributes={"source": str(parent)})
        assert json.loads((parent / "again" / "manifest.json").read_text())["attributes"] == {"source": str(parent)}
    elif kind == "partition":
        assert pickle.loads(pickle.dumps(load_partition(parent / "it", verify=True))).num_parts == 2  # noqa: S301
    (parent / "it" / os.fsdecode(b"th\xe8se.tex")).touch()
    with pytest.raises(StoreFormatError, match="also holds") as caught:
        WRITERS[kind](folder=parent / "it", overwrite=True)
    assert str(parent) in str(caught.value)


@pytest.mark.parametrize("kind_of_node", ["\ud800", "x" * 300])
def test_types_that_no_file_can_be_named_by(tmp_path: Path, kind_of_node: str) -> None:
    graph = Graph.from_hetero({kind_of_node: 2}, {(kind_of_node, "of", kind_of_node): ([0], [1])})
    data = GraphData(graph, {kind_of_node: torch.zeros(2, 1)})
    with pytest.raises(StoreFormatError, match="cannot name an array"):
        save_graph_data(data, tmp_path / "graph")
    assert listed(tmp_path) == []


def test_attributes_that_are_no_json_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for attributes in ({"a": {1, 2}}, {"a": Path()}):
        with pytest.raises(StoreFormatError, match="attributes are no JSON"):
            save_graph_data(toy_data(), tmp_path / "graph", attributes=attributes)
    assert listed(tmp_path) == []
