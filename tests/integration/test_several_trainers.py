"""A script may use one Trainer after the other, and goes on alike in every rank, whatever it was in each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.scripts import launch
from tests.rings import mostly_matrix

SCRIPT = Path(__file__).parent / "scripts" / "several.py"


@pytest.mark.parametrize("how", mostly_matrix(["script", "torchrun"], "script"))
def test_ranks_change_roles_and_learn_what_was_found(tmp_path: Path, how: str) -> None:
    launch.run(SCRIPT, folder=tmp_path, how=how, num_devices=3)
    hands = [json.loads((tmp_path / f"hands-{rank}.json").read_text()) for rank in range(3)]
    assert hands == [hands[0]] * 3
    suggestion, rate, first, second, third = hands[0]
    assert 0 < suggestion < 1
    assert rate != 0.01, "samplers hold the model's new learning rate, too"
    assert [first[0], second[0]] == [2, 1]
    assert third == first, "rank 1 trained, sampled and trained again, in a process group of the right size"
