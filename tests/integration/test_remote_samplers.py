"""Samplers on machines of their own: mini-batches come over TCP, and weights are those of one machine."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.scripts import launch
from tests.integration.scripts.meeting import by_lightning, free_port

pytestmark = pytest.mark.timeout(200)
SCRIPT = Path(__file__).parent / "scripts" / "nodes.py"


def start_options(node: int, port: str, secret: Path, sampler_nodes: int = 1) -> dict[str, Any]:
    options = by_lightning(node, port)
    options["environment"] |= {
        "GNNLOAD_SECRET_FILE": str(secret),
        "SAMPLER_NODES": str(sampler_nodes),
    }
    return options


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("a secret of thirty-two characters")
    file.chmod(0o600)
    return file


def load(folder: Path, file: str, case: str) -> Any:
    return json.loads((folder / case / file).read_text())


def run_on(folder: Path, secret: Path, num_samplers: int, case: str, num_devices: int, num_nodes: int) -> list[Path]:
    port, folders = free_port(), [folder / f"node-{node}" for node in range(num_nodes)]
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(
                launch.start(
                    SCRIPT,
                    num_nodes,
                    num_samplers,
                    case,
                    folder=place,
                    num_devices=num_devices,
                    **start_options(node, port, secret),
                )
            )
            for node, place in enumerate(folders)
        ]
        for job in jobs:
            job.wait(120)
    print("\n".join(job.output for job in jobs))
    assert [job.returncode for job in jobs] == [0] * num_nodes, "\n".join(job.output for job in jobs)
    return folders


def test_a_machine_samples_for_the_trainers_of_another_one(one_node: Path, tmp_path: Path, secret: Path) -> None:
    folders = run_on(tmp_path, secret, 0, "after", num_devices=2, num_nodes=2)
    for rank in range(2):
        assert load(folders[0], f"trainer-{rank}.json", "after") == load(one_node, f"trainer-{rank}.json", "after")
    # Its script goes on as trainer 0's does.
    for rank in range(2):
        assert load(folders[1], f"hands-{rank}.json", "after") == load(one_node, "hands-2.json", "after")
