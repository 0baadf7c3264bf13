"""Trainers that sample their own parts lose nothing: losses and weights are those of the whole graph, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload import partition_graph
from tests.integration.scripts import launch
from tests.integration.scripts.parts import CUT_AFTER, RUNS
from tests.integration.scripts.toy import toy_data
from tests.rings import mostly_matrix
from tests.unit.partition.by_id import ById

pytestmark = pytest.mark.timeout(400)
SCRIPT = Path(__file__).parent / "scripts" / "parts.py"
NUM_STEPS = 10  # an epoch
DEVICES = {"ddp": 2, "factored": 3}


@pytest.fixture(scope="module", params=mostly_matrix(DEVICES, "factored"))
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    """By the run's name and the trainer's rank."""
    strategy, num_devices = request.param, DEVICES[request.param]
    folder = tmp_path_factory.mktemp(strategy)
    partition_graph(toy_data(), folder / "parts", 2, ById(), hops=2, phases=("train", "val"), progress=False)
    launch.run(SCRIPT, strategy, folder / "parts", folder=folder, num_devices=num_devices, timeout_s=200)
    return {
        (name, rank): json.loads((folder / f"{name}-{rank}.json").read_text())
        for name in RUNS
        for rank in range(2)
        if (folder / f"{name}-{rank}.json").exists()
    }


def phase(run: Any, name: str) -> list[Any]:
    return [seen for seen in run["seen"] if seen[0] == name]


@pytest.mark.parametrize("rank", range(2))
def test_losses_and_weights_are_those_of_the_whole_graph(runs: dict[tuple[str, int], Any], rank: int) -> None:
    whole, parts = runs["whole", rank], runs["parts", rank]
    assert len(phase(parts, "train")) == 2 * NUM_STEPS
    assert phase(parts, "train") == phase(whole, "train")
    assert parts["weights"] == whole["weights"]
    assert phase(parts, "train") != phase(runs["parts", 1 - rank], "train")
    assert (whole["sampler"], parts["sampler"]) == ("NeighborSampler", "PartSampler")


@pytest.mark.parametrize("rank", range(2))
def test_an_epoch_is_resumed_where_it_was_cut(runs: dict[tuple[str, int], Any], rank: int) -> None:
    parts, resumed = runs["parts", rank], runs["resumed", rank]
    assert phase(resumed, "train") == phase(parts, "train")[NUM_STEPS + CUT_AFTER + 1 :]
    assert resumed["weights"] == parts["weights"] != runs["cut", rank]["weights"]


def test_caches_serve_what_trainers_gather(runs: dict[tuple[str, int], Any]) -> None:
    for rank in range(2):
        reads = runs["parts", rank]["reads"]
        assert set(reads) == {"cache", "memory"}
        # A tenth of the rows, the most used ones, serve far more than a tenth of the reads.
        assert reads["cache"] > 0.2 * sum(reads.values())
