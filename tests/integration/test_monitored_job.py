"""PipelineMonitor in jobs of several processes: one trace for all of them, and nothing else than without it."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.scripts import launch
from tests.rings import mostly_matrix
from tests.unit.plugin.monitor.test_trace import check_chrome

SCRIPT = Path(__file__).parent / "scripts" / "monitored.py"
NUM_TRAINERS = 2


@pytest.mark.parametrize(("kind", "num_devices"), mostly_matrix([("factored", 3), ("ddp", 2)], ("factored", 3)))
def test_all_ranks_are_in_one_trace(tmp_path: Path, kind: str, num_devices: int) -> None:
    launch.run(SCRIPT, kind, folder=tmp_path, num_devices=num_devices)

    for rank in range(NUM_TRAINERS):
        watched, unwatched = json.loads((tmp_path / f"weights-{rank}.json").read_text())
        assert watched == unwatched
    assert json.loads((tmp_path / "report.json").read_text()) == {"batches": 16}

    logs = tmp_path / "lightning_logs" / "version_0"
    assert {file.name for file in logs.iterdir()} >= {"timeline.png", "trace.json", "where_the_time_went.json"}
    assert not list(logs.glob("trace-part*"))
    events = check_chrome(json.loads((logs / "trace.json").read_text()))
    did = Counter((event["pid"], event["name"]) for event in events)
    for rank in range(NUM_TRAINERS):
        trained = [event["args"]["mini_batch"] for event in events if (event["pid"], event["name"]) == (rank, "train")]
        assert trained == [2, 3, 4, 5]
        assert did[rank, "wait"] == did[rank, "backward"] == 4
    makers = {pid for pid, name in did if name == "sample"}
    assert makers == ({NUM_TRAINERS} if kind == "factored" else {0, 1})
    if kind == "factored":
        # A sampler works ahead of both trainers, on the one clock of the machine.
        sampled = Counter(event["args"]["mini_batch"] for event in events if event["name"] == "sample")
        assert all(sampled[number] == NUM_TRAINERS for number in (2, 3, 4, 5))
        ends = {stage: max(event["ts"] + event["dur"] for event in events if of(event, stage, 5)) for stage in ORDER}
        assert [ends[stage] for stage in ORDER] == sorted(ends.values())

    with (logs / "metrics.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["loader/wait_ms"]]
    assert [int(row["step"]) for row in rows] == [3, 7, 11, 15]
    if kind == "factored":
        assert [float(row["loader/samplers_alive"]) for row in rows] == [1.0] * 4


ORDER = ("sample", "gather", "wait", "train")


def of(event: dict, stage: str, number: int) -> bool:
    return event["name"] == stage and event["args"]["mini_batch"] == number
