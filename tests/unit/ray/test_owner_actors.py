"""Where Ray shall put owners, and which parts they have there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from lightning_gnnload import load_partition, partition_graph
from lightning_gnnload.ray.owner_actors import parts_of, places
from tests.unit.owners.serving import graph_data


def node(address: str, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {
        "NodeID": address.encode().hex().ljust(56, "0"),
        "NodeManagerAddress": address,
        "Alive": alive,
        "Resources": resources,
    }


def nodes_of(nodes: list[dict[str, Any]], num_owners: int) -> list[str]:
    found = places(nodes, num_owners)
    assert all(place["scheduling_strategy"].soft for place in found)  # else a lost machine's owner has no other place
    return [bytes.fromhex(place["scheduling_strategy"].node_id).decode().strip("\0") for place in found]


def test_owners_are_on_machines_with_storage_in_turn() -> None:
    nodes = [node("c", storage=1), node("a"), node("b", storage=2), node("d", alive=False, storage=1)]
    assert nodes_of(nodes, 3) == ["b", "c", "b"]
    # A whole unit each would leave an owner no room beside another, when its machine is lost.
    assert sum(place["resources"]["storage"] for place in places(nodes, 100)) < 1


def test_without_storage_machines_owners_are_anywhere() -> None:
    nodes = [node("a"), node("b")]
    assert nodes_of(nodes, 3) == ["a", "b", "a"]
    assert [place["resources"] for place in places(nodes, 1)] == [{}]


def test_owners_share_the_parts_that_all_have_and_else_have_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    partition_graph(graph_data(), folder, 5, "random", hops=0, progress=False)
    partition = load_partition(folder)
    assert [parts_of(partition, 2, index) for index in range(2)] == [[0, 2, 4], [1, 3]]
    assert [parts_of(partition, 7, index) for index in (4, 5, 6)] == [[4], [0], [1]]
    for part in (0, 3):
        shutil.rmtree(folder / f"part-{part:04d}")
    assert parts_of(load_partition(folder), 2, 1) == [1, 2, 4]
