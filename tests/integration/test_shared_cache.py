"""A cache shared by processes, of which some are killed while all write and read it."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from tests.integration.scripts import sharing
from tests.integration.scripts.launch import PATIENCE, start

COUNT = 4


def test_killed_ranks_take_nothing_from_the_others(tmp_path: Path) -> None:
    script, name = Path(sharing.__file__), uuid.uuid4().hex
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(
                start(script, name, index, COUNT, folder=tmp_path, num_devices=COUNT, log=f"output-{index}.txt")
            )
            for index in range(COUNT)
        ]
        wait_for([tmp_path / f"open-{index}" for index in range(COUNT)], jobs)
        for index, after_s in ((2, 0.61), (1, 0.37)):
            time.sleep(after_s)  # 20 renewals, and then some: somewhere in the next one
            jobs[index].kill()
        time.sleep(0.5)
        (tmp_path / "stop").touch()
        for index in (0, 3):
            jobs[index].wait(30 * PATIENCE)
            assert jobs[index].returncode == 0, jobs[index].output
            assert "keeps its rows" not in jobs[index].output
    for index in (0, 3):
        seen = json.loads((tmp_path / f"seen-{index}.json").read_text())
        assert seen["wrong"] == 0, seen
        assert seen["gathers"] > 100, seen
        assert seen["renewals"] > 10, seen
        # Nearly as often as all are there: the killed ones' rows are read still.
        assert seen["hits"] > 0.2 * 2000 * seen["gathers"], seen


def wait_for(files: list[Path], jobs: list) -> None:
    deadline = time.monotonic() + 60 * PATIENCE
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, [job.output for job in jobs]
        assert all(job.process.poll() is None for job in jobs), [job.output for job in jobs]
        time.sleep(0.02)
