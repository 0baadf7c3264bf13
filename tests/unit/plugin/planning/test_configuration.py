"""The configuration that a plan writes: only ranks, threads and cache differ from the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_gnnload.pipeline.forecast.work import RunLayout
from lightning_gnnload.plugin.planning.configuration import as_yaml_file, planned_configuration

MONITOR = "lightning_gnnload.PipelineMonitor"
LONE = RunLayout(batch_size=1024)
FACTORED = RunLayout(way="factored", trainers=2, samplers=1, threads=3, batch_size=512)


def planned(
    trainer: dict[str, Any], mine: RunLayout, layout: RunLayout, **data: Any
) -> tuple[dict[str, Any], list[str]]:
    given = {
        "seed_everything": 7,
        "trainer": trainer,
        "model": {"class_path": "M"},
        "data": {"batch_size": 1024} | data,
    }
    written, changes = planned_configuration(given, mine, layout, plan_file=Path("plan.json"))
    assert (written["seed_everything"], written["model"]) == (7, {"class_path": "M"})
    assert given["data"] == {"batch_size": 1024} | data  # the user's stays
    return written, changes


def test_ranks_and_threads_are_written_and_all_else_stays() -> None:
    written, changes = planned({"max_epochs": 3, "logger": False}, LONE, FACTORED)
    trainer = written["trainer"]
    assert (trainer["devices"], trainer["max_epochs"], trainer["logger"]) == (3, 3, False)
    settings = {"samplers": 1, "sampler_threads": 3, "switching": False}
    assert trainer["strategy"] == {"class_path": "lightning_gnnload.FactoredStrategy", "init_args": settings}
    assert written["data"]["batch_size"] == 512
    assert "data.batch_size: 512 (was 1024)" in changes
    text = as_yaml_file(written, changes, "run.yaml")
    assert text.startswith("# Planned from run.yaml. Changed:\n#   trainer.devices: 3")
    assert yaml.safe_load(text) == written
    assert yaml.safe_load(as_yaml_file(written, ["a: 1\nb: 2"], "run.yaml --out one\ntwo: 2")) == written


def test_settings_of_the_strategy_that_no_layout_decides_stay() -> None:
    strategy = {"class_path": "FactoredStrategy", "init_args": {"samplers": 2, "staleness": 1, "switching": 2}}
    mine = RunLayout(way="factored", trainers=1, samplers=2, switching=True, batch_size=1024)
    layout = RunLayout(way="factored", trainers=2, samplers=1, switching=True, batch_size=512)
    written, _ = planned({"strategy": strategy, "devices": 3}, mine, layout)
    assert written["trainer"]["strategy"] == {
        "class_path": "FactoredStrategy",
        "init_args": {"samplers": 1, "staleness": 1, "switching": 2, "sampler_threads": 1},
    }
    assert written["trainer"]["devices"] == 3


@pytest.mark.parametrize(
    ("strategy", "layout", "expected"),
    [
        (None, LONE, None),
        ("ddp", LONE, "auto"),
        ({"class_path": "FactoredStrategy", "init_args": {"samplers": 1}}, LONE, "auto"),
        (None, RunLayout(way="ddp", trainers=2, batch_size=512), "ddp"),
        ("ddp_spawn", RunLayout(way="ddp", trainers=2, batch_size=512), "ddp_spawn"),
    ],
)
def test_a_strategy_is_only_replaced_where_it_must_be(strategy: Any, layout: RunLayout, expected: Any) -> None:
    written, _ = planned({} if strategy is None else {"strategy": strategy}, FACTORED, layout)
    assert written["trainer"].get("strategy") == expected
    assert written["data"]["num_threads"] == 1


def test_a_lone_device_takes_turns_with_a_queue() -> None:
    layout = RunLayout(way="factored", switching=True, threads=4, slots=16, batch_size=1024)
    written, _ = planned({}, LONE, layout)
    assert written["trainer"]["strategy"]["init_args"] == {
        "samplers": 1,
        "sampler_threads": 4,
        "switching": True,
        "queue_depth": 16,
    }
    assert "devices" not in written["trainer"] or written["trainer"]["devices"] == 1


def test_the_monitor_that_is_there_is_told_of_the_plan() -> None:
    there = [{"class_path": "ModelCheckpoint"}, {"class_path": "PipelineMonitor", "init_args": {"stall_s": 9.0}}]
    written, _ = planned({"callbacks": there}, LONE, LONE)
    assert written["trainer"]["callbacks"] == [
        there[0],
        {"class_path": "PipelineMonitor", "init_args": {"stall_s": 9.0, "plan": "plan.json"}},
    ]
    written, _ = planned({}, LONE, LONE)
    assert [entry["class_path"] for entry in written["trainer"]["callbacks"]] == [MONITOR]


def test_a_cache_is_written_as_a_policy_and_a_share() -> None:
    written, _ = planned({}, LONE, RunLayout(batch_size=1024, cache=0.2))
    assert written["data"]["cache"] == {"policy": "presample", "ratio": 0.2}
    written, _ = planned({}, RunLayout(batch_size=1024, cache=0.2), LONE, cache={"ratio": 0.2})
    assert written["data"]["cache"] is None
