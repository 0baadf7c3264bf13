"""Under SLURM, which starts every rank and tells each by variables which one it is."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.faults.test_faults import SCRIPT as ENDLESS
from tests.faults.test_faults import await_files
from tests.integration.scripts import launch
from tests.integration.scripts.meeting import free_port
from tests.integration.test_nodes import SCRIPT, check_equal_to_one_node

pytestmark = pytest.mark.timeout(400)


@contextmanager
def srun(
    script: Path, *arguments: object, folder: Path, num_nodes: int, path: str = ""
) -> Iterator[tuple[list[launch.Job], list[Path]]]:
    """Two tasks on each node, as ``srun --ntasks-per-node=2`` starts them; their working folders, by node."""
    shared = {
        "SLURM_JOB_ID": "987654",
        "SLURM_JOB_NAME": "train",
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_NODELIST": "localhost",
        "SLURM_NNODES": str(num_nodes),
        "SLURM_NTASKS": str(2 * num_nodes),
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_TASKS_PER_NODE": f"2(x{num_nodes})",
        "MASTER_PORT": free_port(),  # SLURM's own choice follows from the job's number, which is always the same here
    }
    if path:
        shared["PATH"] = path
    folders = [folder / f"node-{node}" for node in range(num_nodes)]
    with ExitStack() as stack:
        jobs = []
        for task in range(2 * num_nodes):
            node, local = divmod(task, 2)
            own = {"SLURM_PROCID": str(task), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(node)}
            # Each has an output file of its own, and all of a node the same working folder.
            job = launch.start(
                script,
                *arguments,
                folder=folders[node],
                log=f"task-{local}.txt",
                num_devices=2,
                environment=shared | own,
            )
            jobs.append(stack.enter_context(job))
        yield jobs, folders


def test_tasks_of_two_nodes_train_as_one_node_does(one_node: Path, tmp_path: Path) -> None:
    with srun(SCRIPT, 2, 1, "after", folder=tmp_path, num_nodes=2) as (jobs, folders):
        for job in jobs:
            job.wait(120)
    assert [job.returncode for job in jobs] == [0] * 4, "\n".join(job.output for job in jobs)
    check_equal_to_one_node(one_node, folders)


def test_a_sampler_outlives_the_signal_to_requeue(tmp_path: Path) -> None:
    """SLURM sends it to all tasks. Lightning saves and requeues in trainers; it would kill a sampler."""
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text('#!/bin/sh\necho "$@" > requeued\n')
    scontrol.chmod(0o755)
    with srun(ENDLESS, "nothing", folder=tmp_path, num_nodes=1, path=f"{scontrol.parent}:/usr/bin:/bin") as (
        jobs,
        (node,),
    ):
        for job in jobs:
            await_files(job, node, ("trainer-0", "sampler-1"))
        for job in jobs:
            job.process.send_signal(signal.SIGUSR1)
        await_files(jobs[0], node, ("requeued",))
        time.sleep(1)
        assert [job.process.poll() for job in jobs] == [None, None], "\n".join(job.output for job in jobs)
        for job in jobs:
            job.process.send_signal(signal.SIGTERM)
        for job in jobs:
            job.wait(10)
    assert (node / "requeued").read_text() == "requeue 987654\n"
    assert list(node.glob("hpc_ckpt_*.ckpt"))
    assert "Error" not in jobs[1].output
