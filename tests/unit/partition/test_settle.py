import numpy as np
import pytest

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.partition import settle as settling
from lightning_gnnload.partition.partitioner import OPEN
from lightning_gnnload.partition.settle import settle


def silent(task: str, share: float) -> None:
    pass


def cliques(num_cliques: int, size: int, seed: int = 0) -> Graph:
    """Clique ``c`` is of the nodes ``c``, ``c + C``, ...; each node has four of its own for in-neighbours."""
    rng = np.random.default_rng(seed)
    dst = np.repeat(np.arange(num_cliques * size), 4)
    return Graph.from_coo(dst % num_cliques + num_cliques * rng.integers(0, size, len(dst)), dst)


def test_without_votes_a_node_goes_to_the_lightest_part_that_holds_it() -> None:
    graph = Graph.from_coo([], [], num_nodes=6)
    part = np.array([0, OPEN, OPEN, OPEN, OPEN, 2], np.int32)
    held = np.array([1, 0b011, 0b001, 0b101, 0, 0b100], np.uint64)
    # Loads 1 0 1; node 1 may go to 0 or 1; node 2 to 0 only; node 3 to 0 or 2; node 4, which none holds, to any.
    assert settle(graph, part, held, 3, silent).tolist() == [0, 1, 0, 2, 1, 2]
    # All are to choose from where nothing is known; of equal loads, the first.
    assert settle(graph, part, None, 3, silent).tolist() == [0, 1, 0, 1, 2, 2]


def test_nodes_go_where_their_in_neighbours_are() -> None:
    graph = cliques(4, 100)
    part = np.full(400, OPEN, np.int32)
    part[:8] = [2, 0, 3, 1] * 2  # two nodes of each clique are seeds
    assert settle(graph, part, None, 4, silent).tolist() == [2, 0, 3, 1] * 100
    # Not to a part that does not hold them.
    held = np.full(400, 0b1111, np.uint64)
    held[40] = 0b0010
    assert settle(graph, part, held, 4, silent)[40] == 1


def test_no_part_owns_a_twentieth_more_than_its_share() -> None:
    graph = Graph.from_coo(np.zeros(398, np.int64), np.arange(2, 400))  # all votes are node 0's
    part = np.full(400, OPEN, np.int32)
    part[:2] = [0, 1]
    owned = np.bincount(settle(graph, part, None, 2, silent), minlength=2)
    assert owned.tolist() == [211, 189]  # 200 + 10 + 1


def test_seeds_stay_and_nothing_is_changed_in_place() -> None:
    graph = cliques(2, 50)
    part = np.full(100, OPEN, np.int32)
    part[:20] = np.random.default_rng(0).integers(0, 2, 20)  # at odds with the cliques
    given = part.copy()
    settled = settle(graph, part, None, 2, silent)
    np.testing.assert_array_equal(part, given)
    np.testing.assert_array_equal(settled[:20], given[:20])
    assert settle(graph, settled, None, 2, silent) is settled  # nothing is open


def test_slices_change_nothing_and_an_interrupt_comes_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = cliques(4, 100)
    part = np.full(400, OPEN, np.int32)
    part[:40] = np.arange(40) % 3
    whole = settle(graph, part, None, 3, silent)
    monkeypatch.setattr(settling, "_SLICE_EDGES", 100)
    told: list[float] = []
    np.testing.assert_array_equal(settle(graph, part, None, 3, lambda task, share: told.append(share)), whole)
    assert len(told) == 3 * 16 + 1
    assert told == sorted(told)
    assert told[-1] == 1

    def interrupt(task: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        settle(graph, part, None, 3, interrupt)
