"""Several machines: each with samplers and a queue of its own, and together what one machine would be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.scripts import launch
from tests.integration.scripts.meeting import by_lightning, by_meeting_agents, by_static_agents, free_port
from tests.integration.scripts.namespaces import ADDRESSES, two_machines
from tests.rings import mostly_matrix

pytestmark = pytest.mark.timeout(400)
SCRIPT = Path(__file__).parent / "scripts" / "nodes.py"
CASE, SPAWNED_CASE = "after", "max_steps"


STARTS = {
    "Lightning": by_lightning,
    "torchrun, static": by_static_agents,
    "torchrun, c10d": by_meeting_agents,
}


def run_on_two(
    folder: Path, starts: Sequence[Mapping[str, Any]], num_samplers: int = 1, case: str = CASE
) -> list[Path]:
    """Runs one launch on each node to its end; the folders that they wrote to."""
    folders = [folder / f"node-{node}" for node in range(2)]
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(
                launch.start(SCRIPT, 2, num_samplers, case, folder=node, num_devices=1 + num_samplers, **start)
            )
            for node, start in zip(folders, starts, strict=True)
        ]
        for job in jobs:
            job.wait(120)
    assert [job.returncode for job in jobs] == [0, 0], "\n".join(job.output for job in jobs)
    return folders


def load(folder: Path, file: str, case: str = CASE) -> Any:
    return json.loads((folder / case / file).read_text())


def check_equal_to_one_node(one_node: Path, folders: list[Path]) -> None:
    for rank, folder in enumerate(folders):
        assert load(folder, f"trainer-{rank}.json") == load(one_node, f"trainer-{rank}.json")
        # The script goes on alike in every rank, a sampler's too, beside a trainer that is not trainer 0.
        assert load(folder, "hands-0.json") == load(one_node, f"hands-{rank}.json")
        assert load(folder, "hands-1.json") == load(one_node, "hands-2.json")


@pytest.mark.parametrize("how", mostly_matrix(STARTS, "torchrun, static"))
def test_two_nodes_train_as_one_does(one_node: Path, tmp_path: Path, how: str) -> None:
    port = free_port()
    folders = run_on_two(tmp_path, [STARTS[how](node, port) for node in range(2)])
    check_equal_to_one_node(one_node, folders)


@pytest.mark.matrix
def test_two_nodes_of_spawned_ranks_train_as_one_does(one_node: Path, tmp_path: Path) -> None:
    port = free_port()
    starts = [{"how": "spawn", **by_lightning(node, port)} for node in range(2)]
    for rank, folder in enumerate(run_on_two(tmp_path, starts, case=SPAWNED_CASE)):
        file = f"trainer-{rank}.json"
        assert load(folder, file, SPAWNED_CASE) == load(one_node, file, SPAWNED_CASE)


@pytest.mark.matrix
def test_every_node_has_samplers_of_its_own(one_node: Path, tmp_path: Path) -> None:
    """Two on each; with queues shared between nodes, or names that clash, batches would be another's or not come."""
    port = free_port()
    folders = run_on_two(tmp_path, [by_lightning(node, port) for node in range(2)], num_samplers=2)
    check_equal_to_one_node(one_node, folders)


@pytest.mark.matrix
def test_two_machines_open_ports_to_each_other_only(one_node: Path, tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        try:
            machines = stack.enter_context(two_machines())
        except PermissionError as error:
            pytest.skip(str(error))
        starts = [
            {"prefix": machine, **by_lightning(node, port, ADDRESSES[0])} for node, machine in enumerate(machines)
        ]
        folders = run_on_two(tmp_path, starts)
    check_equal_to_one_node(one_node, folders)
    for rank, folder in enumerate(folders):
        listens = json.loads((folder / f"listens-{rank}.json").read_text())
        assert listens
        assert set(listens) == {ADDRESSES[rank]}, "on the cable, and nowhere else"
