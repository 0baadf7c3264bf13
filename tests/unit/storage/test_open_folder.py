"""A folder that others may have written or damaged: its files and its manifest are checked before they are used."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_gnnload import load_graph_data
from lightning_gnnload.errors import StoreFormatError
from tests.unit.storage.conftest import edit


@pytest.mark.parametrize("name", ["x.bin", "indptr.bin", "train.bin"])
@pytest.mark.parametrize("size", [0, 5, 1000])
def test_a_file_of_another_size_is_named(folder: Path, name: str, size: int) -> None:
    # A map shorter than its arrays is a bus error at some later batch.
    os.truncate(folder / name, size)
    with pytest.raises(StoreFormatError, match=rf"{name} has {size} bytes, but the manifest says \d+"):
        load_graph_data(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "y.bin").unlink()
    with pytest.raises(StoreFormatError, match=r"y\.bin is missing"):
        load_graph_data(folder)


def test_folders_that_are_not_ours(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(StoreFormatError, match=r"is not a graph folder.*save_graph_data.*save_features"):
        load_graph_data(tmp_path)
    for version in (0, 2):
        edit(folder, lambda manifest, version=version: manifest.update(version=version))
        with pytest.raises(StoreFormatError, match=rf"format version {version}.*reads version 1"):
            load_graph_data(folder)
    edit(folder, lambda manifest: manifest.update(format="theirs"))
    with pytest.raises(StoreFormatError, match="another program"):
        load_graph_data(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "[" * 100_000, '{"a":' * 100_000, "\0", "9" * 5000])
def test_a_manifest_that_is_no_manifest(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    with pytest.raises(StoreFormatError, match="manifest"):
        load_graph_data(folder)
    (folder / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(StoreFormatError, match="cannot be read"):
        load_graph_data(folder)


@pytest.mark.parametrize("place", ["../secret.bin", "/{parent}/secret.bin", "sub/secret.bin", "..", ".", ""])
def test_a_manifest_cannot_name_files_outside_its_folder(folder: Path, place: str) -> None:
    (folder / "sub").mkdir()
    for secret in (folder.parent / "secret.bin", folder / "sub" / "secret.bin"):
        shutil.copy(folder / "x.bin", secret)
    name = place.format(parent=folder.parent)
    edit(folder, lambda manifest: manifest["arrays"]["x"].update(file=name))
    with pytest.raises(StoreFormatError, match=r"malformed|missing"):
        load_graph_data(folder)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([2**31, 2**63, 2**70, -(2**70), 0.5, float("nan")])
    | st.sampled_from(["", "x.bin", "y.bin", "..", "int32", "float64", "bfloat16", "complex64", "a" * 5000, "\0"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["file", "dtype", "shape", "crc32"]), inner)
    ),
    max_leaves=4,
)


def places(value, at=()):
    yield at
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*at, key))


@given(st.data())
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_change_of_the_manifest_loads_or_is_a_format_error(folder: Path, data: st.DataObject) -> None:
    # Whatever a manifest says, the answer is one error class that says which folder: nothing else may come out.
    original = (folder / "manifest.json").read_text()
    manifest = json.loads(original)
    del manifest["checksum"]
    at = data.draw(st.sampled_from([place for place in places(manifest) if place]))
    inner = manifest
    for key in at[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[at[-1]] = data.draw(JSON)
    else:
        del inner[at[-1]]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    try:
        load_graph_data(folder, verify=data.draw(st.booleans()))
    except StoreFormatError as error:
        assert str(folder) in str(error)  # noqa: PT017  most changes fail, some may not
    finally:
        (folder / "manifest.json").write_text(original)


@pytest.mark.parametrize("name", ["manifest.json", "x.bin"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_not_waited_for(folder: Path, name: str, make) -> None:
    # A pipe is read for ever when nobody writes to it, and /dev/zero until memory is full.
    (folder / name).unlink()
    make(folder / name)
    with pytest.raises(StoreFormatError, match=rf"has no {name}|{name} is missing"):
        load_graph_data(folder)


@pytest.mark.parametrize("name", ["manifest.json", "x.bin"])
def test_links_lead_nowhere_else(folder: Path, name: str) -> None:
    os.rename(folder / name, folder.parent / "elsewhere")
    (folder / name).symlink_to("../elsewhere")
    with pytest.raises(StoreFormatError, match=rf"{name} is a link out of its folder, to .*elsewhere"):
        load_graph_data(folder)
    (folder / name).unlink()
    os.rename(folder.parent / "elsewhere", folder / "other")
    (folder / name).symlink_to("other")
    assert load_graph_data(folder, verify=True).num_nodes == 3
    (folder.parent / "link").symlink_to(folder)  # to the folder itself, as people do
    assert load_graph_data(folder.parent / "link").num_nodes == 3


def test_a_huge_manifest_is_not_read(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 1 << 40)  # a hole
    with pytest.raises(StoreFormatError, match=r"manifest.json cannot be read: it has 1099511627776 bytes"):
        load_graph_data(folder)


@pytest.mark.parametrize("key", ["num_classes", "num_nodes"])
@pytest.mark.parametrize("value", [-1, True, 2.0, 2**60, "3"])
def test_counts_are_counts(folder: Path, key: str, value) -> None:
    edit(folder, lambda manifest: manifest.update({key: value}))
    with pytest.raises(StoreFormatError, match=f"'{key}' is missing or of the wrong kind"):
        load_graph_data(folder)


@pytest.mark.parametrize("task", [[], {}, 1, "none of these"])
def test_a_task_is_one_that_is_there(folder: Path, task) -> None:
    edit(folder, lambda manifest: manifest.update(task=task))
    with pytest.raises(StoreFormatError, match="'task' is missing or of the wrong kind"):
        load_graph_data(folder)
