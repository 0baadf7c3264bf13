"""Traces of runs, as what is to be simulated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.recorded import read_trace


def event(name: str, ms: float, number: int, **about: float) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": 0.0, "dur": 1e3 * ms, "args": {"mini_batch": number, **about}}


def trace_of(steps_ms: list[float]) -> dict[str, Any]:
    """Each mini-batch took 8 ms to make, 4 of them on a core, a quarter of which to gather."""
    events: list[dict[str, Any]] = [{"name": "thread_name", "ph": "M"}]
    for number, step_ms in enumerate(steps_ms):
        events += [
            event("sample", 6.0, number, num_seeds=64, num_nodes=100 + number, core_ms=4.0),
            event("gather", 2.0, number),
            event("wait", 1.0, number),
            event("train", step_ms, number),
        ]
    return {"traceEvents": events}


def test_a_trace_has_the_stages_and_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    trace = trace_of([10.0, 20.0, 30.0, 20.0])
    trace["traceEvents"].append(event("sample", 99.0, 7, num_seeds=64, num_nodes=9, core_ms=9.0))  # made for later
    file.write_text(json.dumps(trace))
    recorded = read_trace(file)
    assert (recorded.work.sample_ms, recorded.work.gather_ms) == pytest.approx((3.0, 1.0))
    assert (recorded.work.train_fixed_ms, recorded.work.wait_ms, recorded.num_seeds) == (20.0, 0.0, 64)
    assert [shares.training for shares in recorded.shares] == pytest.approx([0.5, 1.0, 1.5, 1.0])
    assert [shares.size for shares in recorded.shares] == pytest.approx([number / 101.5 for number in range(100, 104)])


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ([], "it has no traceEvents"),
        ({"traceEvents": 3}, "it has no traceEvents"),
        (trace_of([1.0, 1.0, 1.0]), "3 mini-batches have all of sample"),
        ({"traceEvents": [{"ph": "X", "name": "train", "dur": 1.0}]}, "names no mini_batch"),
        ({"traceEvents": [event("train", -1.0, 0)]}, "dur is -1000.0"),
        ({"traceEvents": [event("train", float("nan"), 0)]}, "dur is nan"),
        ({"traceEvents": [event("sample", 1.0, 0, num_nodes=-1)]}, "num_nodes is -1"),
    ],
)
def test_files_that_are_none(trace: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(trace))
    with pytest.raises(PlanError, match=message):
        read_trace(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        read_trace(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text('{"traceEvents": [')
    with pytest.raises(PlanError, match="cannot be read"):
        read_trace(tmp_path / "torn.json")
