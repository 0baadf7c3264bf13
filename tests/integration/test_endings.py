"""Whatever a training script does after ``fit``, it does alike in every rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.scripts import endings, launch
from tests.rings import mostly_matrix

pytestmark = pytest.mark.timeout(150)
PER_TRAINER = {"metrics", "losses", "callbacks", "by_hand"}
"""What is not reduced over the trainers, so that it is trainer 0's in the samplers alone."""


def held(folder: Path, how: str, num_devices: int) -> list[dict[str, Any]]:
    job = launch.run(Path(endings.__file__), folder=folder, how=how, num_devices=num_devices)
    assert "lacks model" not in job.output  # SWA's own schedule, which it names, is the trainers' alone
    return [json.loads(path.read_text()) for path in sorted(folder.glob("holds-*.json"))]


@pytest.mark.parametrize(("how", "num_devices"), mostly_matrix([("script", 3), ("torchrun", 2)], ("script", 3)))
def test_a_samplers_script_holds_what_trainer_0s_does(tmp_path: Path, how: str, num_devices: int) -> None:
    first, *others = held(tmp_path, how, num_devices)
    *trainers, sampler = others
    assert len(trainers) == num_devices - 2
    assert first["as_saved"]
    assert first["weights"] != first["resumed"][1]
    for name, wanted in first.items():
        assert sampler[name] == wanted, name
        for trainer in trainers:
            assert name in PER_TRAINER or trainer[name] == wanted, name
    assert first["stopped"][0] == 1, "the module's own callback has stopped it"
    assert len(first["losses"][0]) == 8


@pytest.mark.matrix
def test_a_script_that_spawns_its_ranks_goes_on_alone(tmp_path: Path) -> None:
    assert held(tmp_path, "spawn", 2) == [{"as_saved": True}]
