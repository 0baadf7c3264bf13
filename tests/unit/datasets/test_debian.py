"""Debian: the shipped file, its conversion, and the script that makes it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets import debian
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.debian import EDGE_TYPES, SOURCE, Debian
from lightning_gnnload.errors import DatasetError
from lightning_gnnload.storage.graphs import MANIFEST

REPOSITORY = Path(__file__).parents[3]
NUM_PACKAGES, NUM_RELATIONS, NUM_CLASSES = 63_436, 342_324, 58


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Debian, GraphData]:
    dataset = Debian(root=tmp_path_factory.mktemp("debian"))
    dataset.prepare()
    return dataset, dataset.load()


def coo(data: GraphData) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources, destinations and types of all edges."""
    graph = data.graph
    assert graph.edge_type is not None
    return graph.indices, np.repeat(np.arange(graph.num_nodes), graph.in_degrees), graph.edge_type


def codes(*parts: np.ndarray) -> np.ndarray:
    """One sorted number for each (src, dst, ...)."""
    return np.sort(np.ravel_multi_index(parts, [NUM_PACKAGES, NUM_PACKAGES, 16][: len(parts)]))


def test_counts(whole: tuple[Debian, GraphData]) -> None:
    dataset, data = whole
    assert (data.num_nodes, data.graph.num_edges) == (NUM_PACKAGES, 2 * NUM_RELATIONS)
    assert len(dataset.names()) == len(set(dataset.names())) == NUM_PACKAGES
    assert data.num_classes == len(dataset.class_names) == NUM_CLASSES
    assert data.y is not None
    assert sorted(data.y.unique().tolist()) == list(range(NUM_CLASSES))
    assert SOURCE.stat().st_size <= 4_000_000


def test_edges_are_simple_and_each_has_its_reverse(whole: tuple[Debian, GraphData]) -> None:
    src, dst, kind = coo(whole[1])
    assert kind.dtype == np.int8
    assert not (src == dst).any()
    assert (np.diff(codes(src, dst, kind)) > 0).all()
    # A reverse under the wrong code, or the right one between the wrong ends, fails here.
    assert np.array_equal(codes(src, dst, kind), codes(dst, src, (kind + len(EDGE_TYPES)) % (2 * len(EDGE_TYPES))))


def test_known_packages(whole: tuple[Debian, GraphData]) -> None:
    dataset, data = whole
    names = dataset.names()
    assert list(names) == sorted(names)
    node = names.index("python3-numpy")
    assert data.y is not None
    assert dataset.class_names[int(data.y[node])] == "python"
    first, last = data.graph.indptr[node : node + 2]
    assert data.graph.edge_type is not None
    by_type = {
        (names[neighbor], dataset.edge_type_names[kind])
        for neighbor, kind in zip(data.graph.in_neighbors(node), data.graph.edge_type[first:last], strict=True)
    }
    # A package hears from what it needs; the reversed type is what needs it.
    assert ("python3", "Depends") in by_type
    assert ("python3-scipy", "rev_Depends") in by_type
    assert ("python3-scipy", "Depends") not in by_type


def test_splits_cover_all_nodes_60_20_20(whole: tuple[Debian, GraphData]) -> None:
    data = whole[1]
    assert [len(data.split(name)) for name in ("train", "val", "test")] == [38_062, 12_687, 12_687]
    assert np.array_equal(np.sort(np.concatenate([data.train, data.val, data.test])), np.arange(NUM_PACKAGES))
    # Not by the alphabet: packages of one name are alike.
    assert abs(data.test.mean() / NUM_PACKAGES - 0.5) < 0.02


def test_features_are_finite_and_scaled(whole: tuple[Debian, GraphData]) -> None:
    x = np.empty((0, 0)) if whole[1].x is None else whole[1].x.rows.numpy()  # type: ignore[attr-defined]
    assert (x.shape, x.dtype) == ((NUM_PACKAGES, 128), np.float32)
    assert np.isfinite(x).all()
    assert x.std(axis=0).min() > 0.3
    assert np.allclose((x**2).mean(axis=1), 1, atol=1e-4)
    # Words of other rows, by an offset that is one too many, would leave the packages of a family unlike.
    names = whole[0].names()
    one, other, stranger = (x[names.index(name)] for name in ("libreoffice-l10n-de", "libreoffice-l10n-fr", "0ad"))
    assert one @ other / 128 > 0.7 > 0.3 > one @ stranger / 128


def test_one_direction_of_one_type(tmp_path: Path) -> None:
    dataset = Debian(tmp_path, edge_types=("Pre-Depends",), both_directions=False)
    dataset.prepare()
    src, dst, kind = coo(dataset.load())
    names = dataset.names()
    assert dataset.edge_type_names == ("Pre-Depends",)
    assert not kind.any()
    assert len(kind) == 995
    assert ("dpkg", "0ad") in {(names[a], names[b]) for a, b in zip(src, dst, strict=True)}


def test_equal_arguments_share_a_folder() -> None:
    assert Debian(edge_types=("Suggests", "Depends")) == Debian(edge_types=["Depends", "Suggests", "Suggests"])  # type: ignore[arg-type]
    assert eval(repr(Debian("/data"))) == Debian("/data")
    variants = [
        Debian(),
        Debian(both_directions=False),
        Debian(edge_types=("Depends",)),
        Debian(edge_types=("Suggests",)),
    ]
    assert len({variant.folder for variant in variants}) == len(variants)
    assert all(variant.folder.parent == default_root() for variant in variants)


@pytest.mark.parametrize(
    ("edge_types", "problem"),
    [
        (("Depends", "Breaks"), "'Breaks'"),
        ((), "at least one"),
        ("Depends", "'Depends'; edge_types must be a tuple"),
    ],
)
def test_bad_edge_types(edge_types: tuple[str, ...], problem: str) -> None:
    with pytest.raises(DatasetError, match=problem) as caught:
        Debian(edge_types=edge_types)
    assert ", ".join(EDGE_TYPES) in str(caught.value)


def test_load_before_prepare(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"prepare\(\)"):
        Debian(tmp_path).load()


def small(root: Path) -> Debian:
    return Debian(root, edge_types=("Pre-Depends",))


def test_prepare_twice_writes_once(tmp_path: Path) -> None:
    dataset = small(tmp_path / "new" / "root")
    dataset.prepare()
    assert dataset.folder.parent.stat().st_mode & 0o777 == 0o700
    before = {file: file.stat().st_mtime_ns for file in dataset.folder.iterdir()}
    dataset.prepare()
    assert {file: file.stat().st_mtime_ns for file in dataset.folder.iterdir()} == before


def test_broken_folder_is_an_error_until_prepared_again(tmp_path: Path) -> None:
    dataset = small(tmp_path)
    dataset.prepare()
    os.truncate(dataset.folder / "x.bin", 1000)
    with pytest.raises(DatasetError, match=r"x\.bin has 1000 bytes"):
        dataset.load()
    dataset.prepare()
    assert dataset.load().num_nodes == NUM_PACKAGES


def test_folder_of_another_source_is_replaced(tmp_path: Path) -> None:
    dataset = small(tmp_path)
    dataset.prepare()
    manifest = dataset.folder / MANIFEST
    described = json.loads(manifest.read_text().replace(dataset.settings["source_sha256"], "0" * 64))
    del described["checksum"]
    manifest.write_text(json.dumps(described))
    with pytest.raises(DatasetError, match="other settings"):
        dataset.load()
    dataset.prepare()
    dataset.load()


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut short"], ids=["missing", "empty", "cut"])
def test_missing_or_broken_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    source = tmp_path / "debian.npz"
    if content is not None:
        source.write_bytes(content)
    monkeypatch.setattr(debian, "SOURCE", source)
    with pytest.raises(DatasetError, match=r"cannot read .*debian\.npz.*Install the package again"):
        Debian(tmp_path / "root").prepare()


@pytest.mark.matrix
def test_two_processes_prepare_at_once(tmp_path: Path) -> None:
    # They fork from a fresh process: a fork of this one would have torch's thread pool without its threads.
    code = f"""
import os
from {Debian.__module__} import Debian
child = os.fork()
Debian({str(tmp_path)!r}, ("Pre-Depends",)).prepare()
if child:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, timeout=60)
    assert small(tmp_path).load().num_nodes == NUM_PACKAGES
    assert [entry.name for entry in tmp_path.iterdir() if not entry.name.endswith(".lock")] == [
        small(tmp_path).folder.name
    ]


INDEX = """\
Package: app
Section: contrib/games
Pre-Depends: libc6 (>= 2.34)
Depends: libc6 (>= 2.34), libz:any (<< 2), editor | web-browser [amd64], app
Recommends: missing, tool <!nocheck>,
 libz
Description: app, the App for app-data and text

Package: tool
Section: utils
Provides: editor (= 1.0), tool-virtual
Description: Tool for text

Package: libz
Section: libs
Depends: libc6, libc6 | tool
Enhances: app
Description: compression library
 the extended description

Package: libc6
Section: libs
Provides: libz
Description: C library for programs

Package: browser
Section: web
Provides: web-browser, editor
Description: web browser of text
"""


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    pytest.importorskip("scipy", reason="scripts/make_debian.py needs scipy")
    path = REPOSITORY / "scripts" / "make_debian.py"
    spec = importlib.util.spec_from_file_location("make_debian", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_debian"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["make_debian"]


def test_relations_of_a_small_index(script: ModuleType) -> None:
    packages = script.parse_index(INDEX)
    names = list(packages)
    assert names == ["app", "browser", "libc6", "libz", "tool"]

    def related(field: str) -> set[tuple[str, str]]:
        return {(names[a], names[b]) for a, b in script.relations(packages, field)}

    # Every alternative counts, and every provider of a virtual package; a real one (libz) stands for itself.
    needs_of_app = {("app", name) for name in ("libc6", "libz", "tool", "browser")}
    assert related("Depends") == needs_of_app | {("libz", "libc6"), ("libz", "tool")}
    assert related("Pre-Depends") == {("app", "libc6")}
    assert related("Recommends") == {("app", "tool"), ("app", "libz")}
    assert related("Suggests") == set()
    assert related("Enhances") == {("libz", "app")}


def test_own_name_is_not_among_the_words(script: ModuleType) -> None:
    packages = script.parse_index(INDEX)
    assert script.description_words(packages["app"]) == ["the", "for", "app", "data", "and", "text"]
    assert script.description_words(packages["libz"]) == [
        "compression",
        "library",
        "the",
        "extended",
        "description",
    ]


def test_script_makes_the_same_readable_file_twice(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "Packages"
    index.write_text(INDEX)
    files = [tmp_path / "one.npz", tmp_path / "two.npz"]
    for file in files:
        monkeypatch.setattr(sys, "argv", ["make_debian.py", str(index), "--out", str(file)])
        script.main()
    assert files[0].read_bytes() == files[1].read_bytes()

    monkeypatch.setattr(debian, "SOURCE", files[0])
    dataset = Debian(tmp_path / "root", both_directions=False)
    dataset.prepare()
    data = dataset.load()
    assert dataset.class_names == ("games", "libs", "utils", "web")
    assert data.y is not None
    assert data.y.tolist() == [0, 3, 1, 1, 2]
    src, dst, kind = coo(data)
    edges = {
        (dataset.names()[a], dataset.names()[b], dataset.edge_type_names[k])
        for a, b, k in zip(src, dst, kind, strict=True)
    }
    assert len(edges) == 10
    assert ("libz", "app", "Recommends") in edges
    assert ("app", "libz", "Enhances") in edges
