"""Ranks that hold a part each train as those that hold the whole graph, bit for bit, and end together when one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload import partition_graph
from tests.integration.scripts import launch
from tests.integration.scripts.together import RUNS
from tests.integration.scripts.toy import toy_data
from tests.rings import mostly_matrix
from tests.unit.partition.by_id import ById

pytestmark = pytest.mark.timeout(400)
NUM_STEPS = 10  # an epoch, of two trainers
SCRIPT = Path(__file__).parent / "scripts" / "together.py"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two, of which each node's list lies in one."""
    folder = tmp_path_factory.mktemp("together") / "parts"
    partition_graph(toy_data(), folder, 2, ById(), hops=0, progress=False)
    return folder


@pytest.mark.parametrize(
    ("strategy", "num_devices"), mostly_matrix([("ddp", 2), ("factored", 3), ("factored", 4)], ("factored", 3))
)
def test_losses_and_weights_are_those_of_the_whole_graph(
    strategy: str, num_devices: int, parts: Path, tmp_path: Path
) -> None:
    launch.run(SCRIPT, strategy, parts, folder=tmp_path, num_devices=num_devices, timeout_s=200)

    def wrote(run: str, rank: int) -> Any:
        return json.loads((tmp_path / f"{run}-{rank}.json").read_text())

    num_trainers = 2 if strategy == "ddp" else num_devices - 2
    for rank in range(num_trainers):
        whole, together = (wrote(run, rank) for run in RUNS)
        # Evaluation is local to the parts as well, so a trainer sees other seeds of it than over the whole graph.
        trained, expected = ([seen for seen in each["seen"] if seen[0] == "train"] for each in (together, whole))
        assert len(trained) == 2 * NUM_STEPS * 2 // num_trainers
        assert trained == expected
        assert together["weights"] == whole["weights"]
    ranks = range(2) if strategy == "ddp" else range(num_trainers, num_devices)
    assert [wrote("whole", rank)["sampled"] for rank in ranks] == [[0, 0], [0, 0]]
    # Whoever makes a mini-batch holds its seeds, but for two an epoch that one part has more than whole slices. A busy
    # machine's samplers also help one that is late. Of a shuffle a half of 640 would be foreign, give or take 13.
    sampled, foreign = zip(*(wrote("together", rank)["sampled"] for rank in ranks), strict=True)
    assert min(sampled) > 0
    assert sum(foreign) == 4 if strategy == "ddp" else 4 <= sum(foreign) < 240


@pytest.mark.parametrize(
    ("strategy", "num_devices", "how"),
    mostly_matrix([("ddp", 2, "raises"), ("factored", 3, "killed")], ("factored", 3, "killed")),
)
def test_the_end_of_one_rank_is_the_end_of_all(
    strategy: str, num_devices: int, how: str, parts: Path, tmp_path: Path
) -> None:
    arguments = (SCRIPT, strategy, parts, how)
    with launch.start(*arguments, folder=tmp_path, num_devices=num_devices) as job:
        job.wait(100 * launch.PATIENCE)
    assert job.returncode != 0
    assert not list(tmp_path.glob("together-*.json"))
    # Of a job's ranks, the factored one's first trains.
    told = "MemoryError: no room for a mini-batch" if how == "raises" else "rank 1 lost rank 2"
    assert told in job.output
