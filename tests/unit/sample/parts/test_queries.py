"""Queries on the wire: what an owner is told of them is checked before it counts or indexes anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_gnnload.errors import GnnLoadError, SamplerConfigError
from lightning_gnnload.ops import DrawKey, Queries
from lightning_gnnload.owners.owner import Owner
from lightning_gnnload.sample.group.messages import Answer, Message
from lightning_gnnload.sample.parts.edges import HopEdges
from lightning_gnnload.sample.parts.queries import PairNumbers
from tests.unit.sample.parts.graphs import flat_graph
from tests.unit.sample.ranks import disjoint

SAMPLER = {
    "kind": "lightning_gnnload.sample.neighbor:NeighborSampler",
    "settings": {"fanouts": [2], "replace": False, "edge_ids": True, "before": "<=", "pick": "uniform"},
}
ABOUT = {"operation": "draw", "part": 0, "sampler": SAMPLER, "key": [1, 2, 3, 0], "edge_ids": True}
QUERIES = {"by_row": True, "along_path": True, "path_end": 1}


def task(**changes: Any) -> Message:
    """A good one, of three nodes and two queries, and some edges that are left out, some of them of no list here."""
    arrays: dict[str, Any] = {
        "rows": np.array([3, 3, 5]),
        "query": np.array([0, 1, 1], np.uint8),
        "name": np.array([7, 8], np.uint32),
        "until": np.array([9, 4], np.uint32),
        "excluded": np.array([0, 10**9, 25]),
        "excluded_query": np.array([0, 1, 1]),
    }
    about: dict[str, Any] = {**ABOUT, "queries": {**QUERIES, **changes.pop("queries", {})}}
    about["sampler"] = {**SAMPLER, "settings": {**SAMPLER["settings"], **changes.pop("sampler", {})}}  # type: ignore[dict-item]
    about["key"] = changes.pop("key", about["key"])
    arrays = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    return Message(about, arrays)


def owner() -> Owner:
    graph = flat_graph(1, by_type=True)
    return Owner(disjoint(graph, np.zeros(graph.num_nodes, np.int64), 1))


def test_a_question_in_order_is_answered() -> None:
    [result] = owner().answer(task().to_bytes()).pieces
    arrays = Message.from_bytes(result).arrays
    answer = Answer(0, np.arange(3), arrays)
    edges = int(answer.numbers("counts", 100, 3).sum())
    assert edges > 3
    assert answer.numbers("until", 2**32, edges).max() <= 9
    assert answer.numbers("edge_ids", 200, edges).max() < 200


@pytest.mark.parametrize(
    "changes",
    [
        {"query": np.array([0, 1, 2])},
        {"query": np.array([0, 1, -1])},
        {"query": np.array([0, 1])},
        {"query": np.array([0, 1, 2**31])},
        {"query": np.array([0.0, 1, 1])},
        {"query": None},
        {"name": np.array([7, 8, 9])},
        {"name": np.array([7, -8])},
        {"name": np.array([7, 2**32])},
        {"until": np.array([9])},
        {"until": None},  # along paths, there is one
        {"since": np.array([1, 2, 3])},
        {"excluded": None},
        {"excluded_query": None},
        {"excluded_query": np.array([0, 1, 2])},
        {"excluded_query": np.array([0, 1])},
        {"excluded": np.array([-1, 3, 4])},
        {"rows": np.array([3, 3, 29])},
        {"rows": np.array([3, 3, 3]), "query": np.array([0, 1, 1])},  # twice for one query
        {"queries": {"path_end": 2}},
        {"queries": {"path_end": "1"}},
        {"queries": {"path_end": None}},
        {"queries": {"by_row": 3}},
        {"sampler": {"fanouts": [2**40]}},
        {"sampler": {"fanouts": [2, 2]}},
        {"sampler": {"fanouts": [[["none", 2]]]}},
        {"sampler": {"fanouts": [[[0, 2**40]]]}},
        {"sampler": {"fanouts": 2}},
        {"sampler": {"num_threads": 2}},
        {"key": [1, 2]},
        {"key": [1, 2, 2**32, 0]},
        {"key": [1, 2, 3, 2**20]},
    ],
    ids=str,
)
def test_what_is_no_question_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(GnnLoadError):
        owner().answer(task(**changes).to_bytes())


def test_pairs_that_have_no_numbers_are_refused() -> None:
    queries = Queries(np.array([0], np.int32), name=np.zeros(1 << 18, np.uint32))
    with pytest.raises(SamplerConfigError, match=r"262144 queries, .* 31 bits, .* Use a smaller batch"):
        PairNumbers(queries, np.array([1]), 2**30)
    assert len(PairNumbers(queries, np.array([1]), 2**28).seeds) == 1


def test_along_paths_a_bound_has_one_number() -> None:
    """Two queries that come to the same bound differ; one that comes to its own bound again is itself."""
    queries = Queries(
        np.array([0, 1], np.int32), np.array([5, 6], np.uint32), until=np.array([9, 9], np.uint32), along_path=True
    )
    pairs = PairNumbers(queries, np.array([4, 4]), 8)
    edges = HopEdges(np.array([3, 2]), np.array([1, 2, 1, 1, 1]), until=np.array([9, 3, 3, 3, 9], np.uint32))
    found = pairs.find(pairs.seeds, edges).neighbors
    assert pairs.nodes_of(found).tolist() == [1, 2, 1, 1, 1]
    assert pairs.queries_of(found).tolist() == [0, 0, 0, 1, 1]
    assert len(np.unique(found)) == 5
    asked = pairs.asked_by(found, DrawKey(0, 0, 0))
    assert asked.until is not None
    assert asked.until[asked.of_seed].tolist() == [9, 3, 3, 3, 9]
    assert asked.name is not None
    assert asked.name[asked.of_seed][[0, 4]].tolist() == [5, 6]
    assert len(np.unique(asked.name)) == 4
