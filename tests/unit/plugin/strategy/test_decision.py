from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload.pipeline.forecast.stages import StageTimes
from lightning_gnnload.plugin.job import FILE_NAME, RoleDecision
from lightning_gnnload.plugin.strategy.roles import load_decision, samplers_needed, save_decision

STAGES = StageTimes(
    sample_ms=20.28,
    gather_ms=4.0,
    making_core_ms=24.0,
    making_wait_ms=0.0,
    convert_ms=1.0,
    train_work_ms=40.0,
    train_fixed_ms=10.0,
    sampler_threads=2,
    torch_threads=4,
)
DECISION = RoleDecision(8, 3, STAGES, num_cores=16, measured_on={"graph": [3, 4]})


def test_the_line_says_how_many_and_why() -> None:
    assert str(DECISION) == (
        "3 of 8 ranks sample: a batch takes 12.1 ms to make and 31.0 ms to train on, so one sampler feeds 2.6 trainers"
        ", and a batch is done every 6.2 ms (with 2 every 6.1 ms, with 4 every 7.8 ms)"
    )
    assert str(RoleDecision(2, 1, reason="there is no other way")) == "1 of 2 ranks samples: there is no other way"
    assert str(replace(DECISION, reason="their number was given")).endswith("7.8 ms); their number was given")
    assert str(replace(DECISION, num_ranks=2, num_samplers=1)).endswith("and a batch is done every 21.0 ms")
    assert FILE_NAME in str(replace(DECISION, reused=True))
    alone = replace(DECISION, num_ranks=1, num_samplers=1, reason="it is alone")
    assert str(alone) == "1 of 1 ranks samples: it is alone; a batch takes 12.1 ms to make and 21.0 ms to train on"


def test_who_gathers_decides_in_which_time_it_counts() -> None:
    """T_s is a sampler's work, T_t a trainer's: 10 ms of gathering move the number of samplers."""
    sampler_gathers = replace(STAGES, sample_ms=20.0, gather_ms=20.0, train_work_ms=0.0, train_fixed_ms=9.0)
    trainer_gathers = replace(sampler_gathers, gather_ms=0.0, train_fixed_ms=19.0)
    decisions = [replace(DECISION, stages=stages) for stages in (sampler_gathers, trainer_gathers)]
    times = [(each.sample_ms or 0.0, each.train_ms or 0.0) for each in decisions]
    assert times == [(20.0, 10.0), (10.0, 20.0)]
    assert [samplers_needed(*each, num_ranks=8) for each in times] == [5, 3]


def test_what_is_saved_comes_back_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    save_decision(DECISION, str(folder))
    assert load_decision(str(folder)) == replace(DECISION, reused=True)
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]  # no temporary file


def edited(**fields: Any) -> str:
    """The file, with other values of the decision or of its stages."""
    told = json.loads(DECISION.to_json())
    of_stages = {name: fields.pop(name) for name in told["stages"].keys() & fields.keys()}
    told["stages"] |= of_stages
    return json.dumps(told | fields)


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
        edited(train_work_ms=-1.0),
        edited(train_fixed_ms=float("inf")),
        edited(sample_ms=float("nan")),
        edited(sample_ms=1e308, gather_ms=1e308),  # together they are infinite
        edited(sample_ms=10**400),
        edited(num_cores=10**400, torch_threads=10**400),
        edited(torch_threads=0),
        edited(sampler_threads=None),
        edited(draws_on_device=1),
        edited(making_wait_ms=None),
        edited(stages={"sample_ms": 1.0}),
        edited(stages=[]),
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
