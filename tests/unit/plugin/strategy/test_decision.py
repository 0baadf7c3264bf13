from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload.plugin.job import FILE_NAME, RoleDecision
from lightning_gnnload.plugin.strategy.roles import load_decision, save_decision

DECISION = RoleDecision(
    8, 3, sample_ms=12.14, train_ms=31.0, sample_cores=2, train_cores=1, batch_bytes=99, measured_on={"graph": [3, 4]}
)


def test_the_line_says_how_many_and_why() -> None:
    assert str(DECISION) == (
        "3 of 8 ranks sample: a batch takes 12.1 ms to make and 31.0 ms to train on, so one sampler feeds 2.6 trainers"
    )
    assert str(RoleDecision(2, 1, reason="there is no other way")) == "1 of 2 ranks samples: there is no other way"
    assert str(replace(DECISION, reason="their number was given")).endswith("2.6 trainers; their number was given")
    assert FILE_NAME in str(replace(DECISION, reused=True))


def test_what_is_saved_comes_back_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    save_decision(DECISION, str(folder))
    assert load_decision(str(folder)) == replace(DECISION, reused=True)
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]  # no temporary file


def edited(**fields: Any) -> str:
    return json.dumps(json.loads(DECISION.to_json()) | fields)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"num_samplers": 3}',
        "[" * 100_000,
        edited(format=0),
        edited(format=None),
        edited(more=1),
        edited(num_samplers="3"),
        edited(num_samplers=0),
        edited(num_samplers=8),  # nobody would train
        edited(num_samplers=True),
        edited(sample_ms="fast"),
        edited(train_ms=-1.0),
        edited(train_ms=float("inf")),
        edited(batch_bytes=None),
        edited(measured_on=[]),
    ],
)
def test_a_broken_or_foreign_file_is_ignored_with_a_warning(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.warns(UserWarning, match=f"{FILE_NAME} is ignored"):
        assert load_decision(str(tmp_path)) is None


def test_bytes_that_are_no_text_are_ignored_too(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"\xff\xfe\x00")
    with pytest.warns(UserWarning, match=f"{FILE_NAME} is ignored"):
        assert load_decision(str(tmp_path)) is None


def test_no_file_and_no_folder_are_nothing_to_warn_of(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_decision(str(tmp_path)) is None
        assert load_decision("s3://bucket/runs") is None
        save_decision(DECISION, "s3://bucket/runs")


def test_a_folder_that_cannot_be_written_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="are not kept for the next run"):
        save_decision(DECISION, str(tmp_path / "file"))
