"""What is loaded is of one version, whoever replaces the folder meanwhile; and of two who do, the last one's stays."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    FeatureStore,
    Graph,
    GraphData,
    Partition,
    load_graph_data,
    load_partition,
    partition_graph,
    save_graph_data,
)
from lightning_gnnload.datasets.folder import GraphFolder
from lightning_gnnload.datasets.linksplit import LinkSplit
from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.storage import folders

NUM_NODES, SECONDS = 40, 3.0
CONTEXT = multiprocessing.get_context("fork")


def version(number: int) -> GraphData:
    """All of it tells the version: features, labels, a table."""
    of = torch.full((NUM_NODES, 3), float(number))
    nodes = np.arange(NUM_NODES)
    graph = Graph.from_coo(nodes, np.roll(nodes, 1 + number % 7))
    return GraphData(graph, of, of[:, 0].long(), train=nodes, tables={"again": of.double()}, num_classes=10**6)


def save(number: int, folder: Path) -> None:
    save_graph_data(version(number), folder, overwrite=True)


def save_parts(number: int, folder: Path) -> None:
    partition_graph(version(number), folder, 2, "random", hops=1, seed=number, overwrite=True, progress=False)


def rows(store: FeatureStore) -> torch.Tensor:
    out = torch.empty(store.shape, dtype=store.dtype)
    store.gather(torch.arange(len(out)), out)
    return out


def versions_of(data: GraphData) -> set[float]:
    assert data.x is not None
    assert data.y is not None
    numbers = {*rows(data.x).flatten().tolist(), *data.y.tolist(), *rows(data.tables["again"]).flatten().tolist()}
    turned = {(int(data.graph.in_neighbors(node)[0]) - node) % NUM_NODES for node in range(NUM_NODES)}
    return numbers | ({-1.0} if {1 + int(max(numbers)) % 7} != turned else set())


def versions_of_parts(partition: Partition) -> set[float]:
    assert partition.x is not None
    numbers = {*rows(partition.x).flatten().tolist()}
    for part in partition.parts:
        assert part.x is not None
        assert part.y is not None
        numbers |= {*rows(part.x).flatten().tolist(), *part.y.tolist()}
    return numbers


def write_for_ever(write: Callable[[int, Path], None], folder: Path, start: int, step: int) -> None:
    for number in range(start, 10**6, step):
        write(number, folder)


@contextmanager
def writers(write: Callable[[int, Path], None], folder: Path, count: int = 1) -> Iterator[list]:
    found = [CONTEXT.Process(target=write_for_ever, args=(write, folder, first, count)) for first in range(count)]
    for process in found:
        process.start()
    try:
        yield found
        assert all(process.is_alive() for process in found), "a writer has failed"
    finally:
        for process in found:
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join()


def loads(load: Callable[[], set[float]], seconds: float = SECONDS) -> list[set[float]]:
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        found.append(load())
    return found


@pytest.mark.parametrize("features", ["mapped", "disk"])
def test_a_graph_that_is_loaded_while_it_is_replaced_is_one_version(tmp_path: Path, features) -> None:
    """Arrays that are opened by their paths are of two versions in some 6 of 100 loads, and others find no folder."""
    folder = tmp_path / "graph"
    save(0, folder)

    def load() -> set[float]:
        data = load_graph_data(folder, features=features)
        found = versions_of(data)
        for store in data.stores.values():
            store.close()
        return found

    with warnings.catch_warnings(), writers(save, folder):
        warnings.filterwarnings("ignore", ".*its file system refuses direct reads")
        found = loads(load)
    assert len(set.union(*found)) > 3, "the folder was not replaced often enough for this to show anything"
    assert [mixed for mixed in found if len(mixed) != 1] == []


@pytest.mark.matrix
def test_a_partition_that_is_loaded_while_it_is_replaced_is_one_version_or_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    save_parts(0, folder)
    refused = 0

    def load() -> set[float]:
        nonlocal refused
        partition = load_partition(folder)
        try:
            return versions_of_parts(partition)
        except StoreFormatError as error:
            assert "was replaced or removed after it was loaded" in str(error)  # noqa: PT017  none is fine, too
            refused += 1
            return {float(rows(partition.x)[0, 0])}

    with writers(save_parts, folder):
        found = loads(load, 2 * SECONDS)
    assert len(set.union(*found)) > 3
    assert [mixed for mixed in found if len(mixed) != 1] == []
    assert refused < len(found)


@pytest.mark.matrix
@pytest.mark.parametrize("exchanges", [True, False])
def test_two_that_replace_one_folder_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    """By two renames a folder, each may find the other's; that was told as a disk without room."""
    if not exchanges:
        monkeypatch.setattr(folders, "exchange", lambda first, second: False)
    folder = tmp_path / "graph"
    save(0, folder)
    with writers(save, folder, 3):
        time.sleep(SECONDS)
    if exchanges:
        assert len(versions_of(load_graph_data(folder, verify=True))) == 1
    save(7, folder)
    assert versions_of(load_graph_data(folder, verify=True)) == {7.0}
    assert os.listdir(tmp_path) == ["graph"]  # what the killed ones left is gone


def test_parts_are_never_those_of_a_later_version(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    save_parts(1, folder)
    partition, sent = load_partition(folder), pickle.dumps(load_partition(folder))
    assert partition.parts[0].y is not None
    save_parts(1, folder)  # of equal content, the timings of its report aside
    assert pickle.loads(sent).folder_fingerprint == partition.folder_fingerprint  # noqa: S301  our own bytes
    save_parts(2, folder)
    assert partition.parts[0].y.tolist() == [1] * len(partition.parts[0].y)
    with pytest.raises(StoreFormatError, match=r"parts was replaced or removed after it was loaded, and part 1"):
        partition.parts[1]
    with pytest.raises(StoreFormatError, match=r"was replaced since the process that sent this partition"):
        pickle.loads(sent)  # noqa: S301
    shutil.rmtree(folder)
    with pytest.raises(StoreFormatError, match="was replaced or removed"):
        partition.seeds_of("train")


def test_equal_content_has_equal_fingerprints(tmp_path: Path) -> None:
    """Wherever it was written, and from whatever source: what ranks of several machines compare."""
    save_graph_data(version(1), tmp_path / "a", attributes={"source": "here"})
    save_graph_data(version(1), tmp_path / "b", attributes={"source": "there", "times": [1, 2]})
    save_graph_data(version(2), tmp_path / "c")
    a, b, c = (load_graph_data(tmp_path / name) for name in "abc")
    assert a.folder_fingerprint == b.folder_fingerprint != c.folder_fingerprint
    assert a.folder_fingerprint is not None
    assert len(a.folder_fingerprint) == 64
    assert a.folder == tmp_path / "a"
    assert pickle.loads(pickle.dumps(a)).folder_fingerprint == a.folder_fingerprint  # noqa: S301
    assert a.with_graph_columns().folder_fingerprint == a.folder_fingerprint
    assert LinkSplit(GraphFolder(str(tmp_path / "a"))).load().folder_fingerprint == a.folder_fingerprint
    assert version(1).folder_fingerprint is None
    for name, number in (("p", 1), ("q", 1), ("r", 2)):
        save_parts(number, tmp_path / name)
    p, q, r = (load_partition(tmp_path / name).folder_fingerprint for name in "pqr")
    assert p == q != r


def test_a_folder_that_never_holds_still_is_an_error(tmp_path: Path) -> None:
    save(0, tmp_path / "graph")

    def replaced(opened) -> None:
        save(0, tmp_path / "graph")
        raise StoreFormatError("a file is missing")

    from lightning_gnnload.storage import open_folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_folder, "_MOST_TRIES", 3)
        with pytest.raises(StoreFormatError, match="was replaced 3 times while it was read"):
            open_folder.read_folder(tmp_path / "graph", replaced)


def test_no_folder_stays_open_but_that_of_parts(tmp_path: Path) -> None:
    save(0, tmp_path / "graph")
    save_parts(0, tmp_path / "parts")

    def held() -> list[str]:
        places = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return [os.readlink(place) for place in places if os.path.isdir(place) and os.path.exists(place)]

    data = load_graph_data(tmp_path / "graph", verify=True)
    with pytest.raises(StoreFormatError):
        load_partition(tmp_path / "graph")
    assert str(tmp_path / "graph") not in held()
    partition = load_partition(tmp_path / "parts", verify=True)
    assert held().count(str(tmp_path / "parts")) == 1
    assert not [place for place in held() if "part-" in place]
    del partition, data
    gc.collect()
    assert str(tmp_path / "parts") not in held()
