"""Whatever ends a trainer ends the job on all its machines within seconds, and each says who it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_faults import END_S, SCRIPT, await_files
from tests.integration.scripts import launch
from tests.integration.scripts.meeting import by_lightning, by_static_agents, free_port

RUNNING = [("trainer-0", "sampler-2"), ("trainer-1", "sampler-3")]
"""Of each node."""


KILLED_0 = "TrainerDiedError: trainer rank 0 is gone without a word"
KILLED_1 = "TrainerDiedError: trainer rank 1 is gone without a word"
RAISED = "TrainerFailedError: trainer rank 1 failed in stage"


@pytest.mark.parametrize(
    ("start", "happens", "node", "says"),
    [
        (by_lightning, "nothing", 0, (KILLED_0, KILLED_0)),
        (by_lightning, "nothing", 1, (KILLED_1, KILLED_1)),
        (by_lightning, "training_step", None, (RAISED, RAISED)),
        # torchrun's agent ends the other ranks of its node before they can speak.
        (by_static_agents, "nothing", 1, (KILLED_1, "Signal 9 (SIGKILL)")),
    ],
)
def test_both_nodes_end_and_name_the_trainer(
    tmp_path: Path, start: Callable[..., Any], happens: str, node: int | None, says: tuple[str, str]
) -> None:
    port = free_port()
    with ExitStack() as stack:
        jobs, folders = [], [tmp_path / f"node-{number}" for number in range(2)]
        for number, folder in enumerate(folders):
            options = start(number, port)
            job = launch.start(SCRIPT, happens, 2, folder=folder, num_devices=2, **options)
            jobs.append(stack.enter_context(job))
        if node is None:
            await_files(jobs[1], folders[1], ("failing",))
        else:
            for job, folder, names in zip(jobs, folders, RUNNING, strict=True):
                await_files(job, folder, names)
            os.kill(int((folders[node] / f"trainer-{node}").read_text()), signal.SIGKILL)
        seconds = [job.wait(2 * END_S) for job in jobs]
    print(f"{happens} on node {node}: {max(seconds):.1f} s")
    for job, words in zip(jobs, says, strict=True):
        assert words in job.output, job.output
        assert "hangs since" not in job.output, f"ended by force\n{job.output}"
        assert job.returncode != 0
