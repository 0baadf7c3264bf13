"""Trainers that have a partition's head alone train as those that have the whole graph, bit for bit."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload import partition_graph
from tests.integration.scripts import launch
from tests.integration.scripts.owned import MID_EPOCH
from tests.integration.scripts.toy import toy_data
from tests.rings import mostly_matrix
from tests.unit.owners.serving import OwnerProcess

pytestmark = pytest.mark.timeout(400)
SCRIPT = Path(__file__).parent / "scripts" / "owned.py"


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The head, and the environment of its trainers: two owners run, each beside the folder of its part alone."""
    folder = tmp_path_factory.mktemp("owned")
    partition_graph(toy_data(), folder / "parts", 2, "random", hops=0, progress=False)
    for part in range(2):
        ignored = shutil.ignore_patterns(f"part-{1 - part:04d}")
        shutil.copytree(folder / "parts", folder / f"owner{part}", ignore=ignored)
    shutil.copytree(folder / "parts", folder / "head", ignore=shutil.ignore_patterns("part-*"))
    secret_file = folder / "secret"
    secret_file.touch(0o600)
    secret_file.write_text(secrets.token_hex(32))
    with OwnerProcess(folder / "owner0", secret_file) as first, OwnerProcess(folder / "owner1", secret_file) as second:
        addresses = [owner.wait_until_ready() for owner in (first, second)]
        yield folder / "head", {"GNNLOAD_OWNERS": ",".join(addresses), "GNNLOAD_SECRET_FILE": str(secret_file)}


@pytest.mark.parametrize(
    ("kind", "num_devices", "how"),
    mostly_matrix(
        [("ddp", 2, "script"), ("ddp", 2, "torchrun"), ("ddp_spawn", 2, "script"), ("factored", 3, "script")],
        ("factored", 3, "script"),
    ),
)
def test_losses_and_weights_are_those_of_the_whole_graph(
    kind: str, num_devices: int, how: str, owned: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    head, environment = owned
    arguments = {"folder": tmp_path, "how": how, "num_devices": num_devices, "environment": environment}
    with launch.start(SCRIPT, kind, head, **arguments) as job:
        job.wait(200 * launch.PATIENCE)
    assert job.returncode == 0, job.output

    def wrote(run: str, rank: int) -> Any:
        return json.loads((tmp_path / f"{run}-{rank}.json").read_text())

    # Spawned ranks come back without what the model saw, and the first one's weights alone.
    for rank in range(1 if kind == "ddp_spawn" else 2):
        whole, remote, resumed = (wrote(run, rank) for run in ("whole", "owned", "resumed"))
        assert remote == whole
        assert resumed["weights"] == whole["weights"]
        trained = [[seen for seen in each["seen"] if seen[0] == "train"] for each in (whole, resumed)]
        if kind != "ddp_spawn":
            assert len(trained[0]) == 20
            assert trained[1] == trained[0][MID_EPOCH:]
