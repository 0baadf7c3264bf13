"""torchrun's agent, killed: its ranks have nobody to end them, and end by themselves."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.faults.test_faults import END_S, RUNNING, SCRIPT, await_files
from tests.integration.scripts import launch


def test_ranks_end_with_their_agent(tmp_path: Path) -> None:
    with launch.start(SCRIPT, "nothing", folder=tmp_path, how="torchrun", num_devices=3) as job:
        await_files(job, tmp_path, RUNNING)
        job.process.send_signal(signal.SIGKILL)
        job.wait(END_S)
    # One rank at least saw it; what that did may end the others first.
    assert "torchrun's agent is gone" in job.output
    assert "hangs since" not in job.output, "ended by force"
