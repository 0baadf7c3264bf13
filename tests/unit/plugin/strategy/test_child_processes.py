"""What becomes of the ranks that a script started."""

import subprocess
import sys
import time
import uuid

import psutil
import pytest

from lightning_gnnload.pipeline import flags
from lightning_gnnload.plugin.strategy.launcher import ChildProcesses
from tests import forkserver

pytestmark = pytest.mark.slow

RANK_0 = f"""
import subprocess, time
import {ChildProcesses.__module__} as tested
from {ChildProcesses.__module__} import ChildProcesses
tested.GRACE_S = 0.5
hanging = subprocess.Popen(["sleep", "60"])
print(hanging.pid, flush=True)
"""
HANGS = """
ChildProcesses([subprocess.Popen(["false"]), hanging], "", lambda local_rank: False)
time.sleep(60)
"""
ENDS = """
ChildProcesses([hanging], "", lambda local_rank: False).expect_end()
"""


def sleeping() -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_rank_that_may_end_is_let_go_and_all_can_see_it() -> None:
    run = uuid.uuid4().hex
    trainer, sampler = sleeping(), sleeping()
    try:
        children = ChildProcesses([trainer, sampler], run, may_end=lambda local_rank: local_rank == 2)
        assert not flags.is_up(flags.rank_ended(run, 2))
        sampler.kill()
        deadline = time.monotonic() + 10
        while not flags.is_up(flags.rank_ended(run, 2)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert children.exit_codes == {2: -9}
        assert not flags.is_up(flags.rank_ended(run, 1))
        assert trainer.poll() is None
    finally:
        children.begin_launch(lambda local_rank: True)
        for process in (trainer, sampler):
            process.kill()
            process.wait()
    deadline = time.monotonic() + 10
    while len(children.exit_codes) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children.exit_codes == {1: -9, 2: -9}
    for flag in children._ended.values():
        flag.lower()


@pytest.mark.parametrize(("does", "status"), [(HANGS, -9), (ENDS, 0)], ids=["hangs", "ends"])
def test_a_rank_that_hangs_ends_with_rank_0(does: str, status: int) -> None:
    run = uuid.uuid4().hex
    command = [sys.executable, "-c", (RANK_0 + does).replace('""', repr(run))]
    with forkserver.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as rank_0:
        assert rank_0.stdout is not None
        hanging = psutil.Process(int(rank_0.stdout.readline()))
        assert rank_0.wait(30) == status
    _, left = psutil.wait_procs([hanging], timeout=10)
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]
