"""GraphSAINT's draws: how often each node and pair of nodes is drawn, beside the law of inclusion by enumeration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.saint import edge_odds, nodes_by_degree, nodes_of_edges, nodes_of_walks
from tests.oracle import saint

EDGES = [(0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (2, 4), (3, 2)]  # by source and target; no edge leaves node 4
NUM_NODES, SAMPLES = 5, 4000
INDPTR, INDICES = np.array([0, 3, 4, 6, 7, 7]), np.array([dst for _, dst in EDGES])
IN_DEGREES, OUT_DEGREES = [2, 1, 2, 1, 1], [3, 1, 2, 1, 0]
PAPERS = [1 / OUT_DEGREES[src] + 1 / IN_DEGREES[dst] for src, dst in EDGES]
HEAVY = [1e9, 1e9, 1.0, 2.0, 4.0, 1.0, 1.0]  # draws with replacement would seldom come to the others
ODDS, HEAVY_ODDS = edge_odds(INDPTR, INDICES), np.cumsum(HEAVY)

DRAWS: dict[str, tuple[Callable[[DrawKey], np.ndarray], saint.Law]] = {
    "nodes": (lambda key: nodes_by_degree(INDPTR, 3, key), saint.by_degree(EDGES, 3)),
    "edges": (lambda key: nodes_of_edges(INDPTR, INDICES, ODDS, 2, key), saint.of_edges(EDGES, PAPERS, 2)),
    "few heavy edges": (
        lambda key: nodes_of_edges(INDPTR, INDICES, HEAVY_ODDS, 3, key),
        saint.of_edges(EDGES, HEAVY, 3),
    ),
    "all edges": (lambda key: nodes_of_edges(INDPTR, INDICES, ODDS, 7, key), saint.of_edges(EDGES[:0], [], 7)),
    "walks": (
        lambda key: nodes_of_walks(INDPTR, INDICES, 2, 2, key),
        saint.of_walks(EDGES, NUM_NODES, num_walks=2, walk_length=2),
    ),
}


@pytest.mark.parametrize("name", [name for name in DRAWS if name != "all edges"])
def test_every_set_of_nodes_is_drawn_as_often_as_the_law_says(name: str) -> None:
    draw, law = DRAWS[name]
    counts: dict[frozenset[int], int] = dict.fromkeys(law, 0)
    for step in range(SAMPLES):
        nodes = draw(DrawKey(1, 0, step)).tolist()
        assert nodes == sorted(set(nodes))
        counts[frozenset(nodes)] += 1  # a KeyError: a set that cannot be
    for nodes, chance in law.items():
        # Some 60 sets of four laws, at five sigma and a count for rare ones: a false alarm has the chance 1e-4.
        assert abs(counts[nodes] - SAMPLES * chance) < 5 * np.sqrt(SAMPLES * chance * (1 - chance)) + 4, nodes


def test_all_edges_where_there_are_no_more() -> None:
    assert DRAWS["all edges"][0](DrawKey(0, 0, 0)).tolist() == [0, 1, 2, 3, 4]


def test_odds_are_the_papers() -> None:
    assert np.diff(ODDS, prepend=0.0) == pytest.approx(PAPERS)


def test_a_draw_depends_on_seed_epoch_and_step() -> None:
    def drawn(*key: int) -> list[int]:
        ring = np.arange(1001)
        return nodes_of_walks(ring, np.roll(np.arange(1000), -1), 5, 3, DrawKey(*key)).tolist()

    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert [drawn(*key) for key in keys] == [drawn(*key) for key in keys]
    assert len({str(drawn(*key)) for key in keys}) == len(keys)
