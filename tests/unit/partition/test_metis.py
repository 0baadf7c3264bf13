"""METIS: what it balances and cuts, what it is given, and what is said where it cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload import Graph
from lightning_gnnload.errors import MissingExtraError, PartitionError
from lightning_gnnload.partition import metis
from lightning_gnnload.partition.cut import count_cross_edges
from lightning_gnnload.partition.metis import Metis, undirected_neighbors
from tests.runif import RunIf
from tests.unit.toy import toy_graph


def communities(num: int = 12, size: int = 50) -> Graph:
    """Dense groups, and few edges between them; ids in no order, so that ranges of ids say nothing."""
    rng = np.random.default_rng(1)
    src = rng.integers(0, num * size, 6 * num * size)
    dst = np.where(rng.random(len(src)) < 0.97, src // size * size + rng.integers(0, size, len(src)), src[::-1])
    shuffled = rng.permutation(num * size)
    return Graph.from_coo(shuffled[src], shuffled[dst], num_nodes=num * size)


def assign(
    graph: Graph, partitioner: Metis, seeds: dict[str, np.ndarray], num_parts: int = 4, seed: int = 0
) -> np.ndarray:
    return partitioner.assign(graph, seeds, num_parts, hops=0, seed=seed, advance=lambda what, share: None)


@pytest.mark.parametrize("chunk", [1, 50, 1 << 22])
def test_neighbors_of_both_directions_come_once(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_coo(*np.random.default_rng(0).integers(0, 40, (2, 150)), num_nodes=50)
    monkeypatch.setattr(metis, "_EDGES_A_CHUNK", chunk)
    expected: list[set[int]] = [set() for _ in range(50)]
    for node in range(50):
        for neighbor in graph.in_neighbors(node).tolist():
            if neighbor != node:
                expected[node].add(neighbor)
                expected[neighbor].add(node)
    shares: list[float] = []
    parts = list(undirected_neighbors(graph, advance=shares.append))
    assert np.concatenate([counts for counts, _ in parts]).tolist() == [len(each) for each in expected]
    assert np.concatenate([chunk for _, chunk in parts]).tolist() == [
        node for each in expected for node in sorted(each)
    ]
    assert len(shares) == len(parts)
    assert shares[-1] == 1


@RunIf(extras="partition")
@pytest.mark.parametrize("recursive", [False, True])
def test_communities_stay_whole_and_each_constraint_is_balanced(recursive: bool) -> None:
    graph = communities()
    rng = np.random.default_rng(3)
    seeds = {"train": rng.choice(600, 160, replace=False), "val": np.arange(40), "test": np.empty(0, np.int64)}
    part_of = assign(graph, Metis(recursive=recursive), seeds)
    assert part_of.dtype == np.int32
    for ids in (np.arange(600), seeds["train"], seeds["val"]):
        sizes = np.bincount(part_of[ids], minlength=4)
        assert sizes.max() <= 1.15 * len(ids) / 4 + 1
    assert count_cross_edges(graph, part_of) < 0.3 * graph.num_edges  # 0.75 at random
    assert assign(graph, Metis(recursive=recursive), seeds).tolist() == part_of.tolist()


@RunIf(extras="partition")
def test_seeds_that_lie_together_are_dealt_out() -> None:
    """Without a constraint of their own, these would all end in one part."""
    ring = np.arange(400)
    graph = Graph.from_coo(ring, np.roll(ring, 1))
    part_of = assign(graph, Metis(), {"train": np.arange(100)}, num_parts=2)
    assert 45 <= np.bincount(part_of[:100], minlength=2)[0] <= 55
    assert 190 <= np.bincount(part_of, minlength=2)[0] <= 210


@RunIf(extras="partition")
def test_contiguous_parts_are_in_one_piece_each() -> None:
    side = np.arange(900).reshape(30, 30)
    graph = Graph.from_coo(
        np.concatenate([side[1:].ravel(), side[:, 1:].ravel()]),
        np.concatenate([side[:-1].ravel(), side[:, :-1].ravel()]),
    )
    part_of = assign(graph, Metis(contiguous=True), {}, num_parts=5)
    for part in range(5):
        reached = {int(np.flatnonzero(part_of == part)[0])}
        frontier = list(reached)
        while frontier:
            row, column = divmod(frontier.pop(), 30)
            near = [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
            found = {30 * r + c for r, c in near if 0 <= r < 30 and 0 <= c < 30 and part_of[30 * r + c] == part}
            frontier += found - reached
            reached |= found
        assert len(reached) == np.count_nonzero(part_of == part)


@RunIf(extras="partition")
def test_a_disconnected_graph_has_no_contiguous_parts() -> None:
    with pytest.raises(PartitionError, match="non-contiguous input graph"):
        assign(Graph.from_coo([0, 2], [1, 3]), Metis(contiguous=True), {}, num_parts=2)


@RunIf(extras="partition")
def test_a_graph_without_edges_is_balanced_all_the_same() -> None:
    empty = Graph.from_csc(np.zeros(101, np.int64), np.empty(0, np.int32))
    assert np.bincount(assign(empty, Metis(), {"train": np.arange(10)})).max() <= 30


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"recursive": True, "contiguous": True}, "one of the two"), ({"tolerance": 0.0}, "tolerance is 0.0")],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(PartitionError, match=said):
        Metis(**settings)


@RunIf(extras="partition")
def test_too_little_memory_is_told_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metis, "free_bytes", lambda: 100_000)
    with pytest.raises(PartitionError, match=r"more than 0\.0 GiB .* method='bgl'"):
        assign(toy_graph(), Metis(), {})


def test_without_pymetis_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[partition\]"):
        assign(toy_graph(), Metis(), {})


SCRIPTS: dict[str, tuple[str, type[BaseException], str]] = {
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": ("killed", PartitionError, "too little memory"),
    "import sys; print('METIS says', 'why'); sys.exit(4)": ("fails", PartitionError, "METIS says why"),
    "import sys; sys.exit(3)": ("has no memory", PartitionError, "too little memory"),
}


@RunIf(extras="partition")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: SCRIPTS[script][0].replace(" ", "_"))
def test_the_end_of_its_process_is_explained(script: str, tmp_path: Path, stands_in: Callable[[str], None]) -> None:
    _, error, said = SCRIPTS[script]
    stands_in(script)
    with pytest.raises(error, match=said):
        assign(toy_graph(), Metis(), {})


@RunIf(extras="partition")
def test_an_interrupt_ends_its_process(tmp_path: Path, stands_in: Callable[[str], None]) -> None:
    mark = tmp_path / "pid"
    stands_in(f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)")

    def interrupt(what: str, share: float) -> None:
        if mark.exists() and mark.read_text():
            raise KeyboardInterrupt

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt):
        Metis().assign(toy_graph(), {}, 2, hops=0, seed=0, advance=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a script in the place of METIS's process."""

    def replace(script: str) -> None:
        file = tmp_path / "stand_in.py"
        file.write_text(script)
        monkeypatch.setattr(metis.metis_process, "__file__", str(file))

    return replace
