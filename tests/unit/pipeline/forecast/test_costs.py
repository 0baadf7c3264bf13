"""Costs of messages as files have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.costs import ASSUMED, MessageCosts, read_costs


def test_a_file_or_a_plan_tells_costs(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text('{"ask_ms": 0.5, "answer_gb_s": 4}')
    assert read_costs(file) == MessageCosts(ask_ms=0.5, answer_gb_s=4)
    file.write_text(json.dumps({"measured": {}, "costs": {"answer_ms": 2}}))
    assert read_costs(file) == MessageCosts(answer_ms=2)
    file.write_text('{"measured": {}}')
    assert read_costs(file) == ASSUMED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[1]", r"costs: \[1\] not known"),
        ('{"ask_s": 1}', "costs: ask_s not known; there are ask_ms"),
        ('{"ask_ms": -1}', "costs: ask_ms is -1"),
        ('{"ask_ms": true}', "costs: ask_ms is True"),
        ('{"ask_gb_s": 0}', "costs: ask_gb_s is 0"),
        ('{"ask_gb_s": NaN}', "costs: ask_gb_s is nan"),
        ('{"measured": 1, "costs": "free"}', "costs: 'free' not known"),
    ],
)
def test_files_that_are_none(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(PlanError, match=message) as error:
        read_costs(file)
    assert str(file) in str(error.value)
