"""What becomes of the ranks that a script started."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest
from torch.multiprocessing import ProcessContext, ProcessExitedException

from lightning_gnnload.errors import ThreadLimitError
from lightning_gnnload.host import flags
from lightning_gnnload.host.flags import Flag
from lightning_gnnload.plugin.strategy.children import ChildProcesses, SpawnedRanks
from tests import forkserver
from tests.threadless import refused

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
TOLD = """
ChildProcesses([subprocess.Popen(["sh", "-c", "exit 143"]), hanging], "", lambda local_rank: False)
time.sleep(1.5)
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


@pytest.mark.parametrize(("does", "status"), [(HANGS, -9), (TOLD, 0), (ENDS, 0)], ids=["hangs", "told", "ends"])
def test_a_rank_that_hangs_ends_with_rank_0(does: str, status: int) -> None:
    run = uuid.uuid4().hex
    command = [sys.executable, "-c", (RANK_0 + does).replace('""', repr(run))]
    with forkserver.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as rank_0:
        assert rank_0.stdout is not None
        hanging = psutil.Process(int(rank_0.stdout.readline()))
        assert rank_0.wait(30) == status
    _, left = psutil.wait_procs([hanging], timeout=10)
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("number", [signal.SIGSTOP, 0])
def test_a_rank_that_hangs_ends_with_rank_0_though_that_ends_well(number: int) -> None:
    run = uuid.uuid4().hex
    hangs = f'hanging.send_signal({int(number)}); ChildProcesses([hanging], "", lambda local_rank: False)'
    command = [sys.executable, "-c", (RANK_0 + hangs).replace('""', repr(run))]
    with forkserver.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as rank_0:
        assert rank_0.stdout is not None
        hanging = psutil.Process(int(rank_0.stdout.readline()))
        assert rank_0.wait(30) == 0
    psutil.wait_procs([hanging], timeout=10)
    assert not is_left(hanging)


def test_a_rank_whose_launch_is_over_may_outlive_rank_0() -> None:
    run = uuid.uuid4().hex
    parted = Flag(flags.rank_parted(run, 1))
    command = [
        sys.executable,
        "-c",
        (RANK_0 + 'ChildProcesses([hanging], "", lambda local_rank: False)').replace('""', repr(run)),
    ]
    try:
        with forkserver.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as rank_0:
            assert rank_0.stdout is not None
            working = psutil.Process(int(rank_0.stdout.readline()))
            assert rank_0.wait(30) == 0
        assert is_left(working)
    finally:
        working.kill()
        parted.lower()


def is_left(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("stopped", [False, True])
def test_a_sampler_that_outlives_all_spawned_trainers_is_ended_and_excused(stopped: bool) -> None:
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=time.sleep, args=(seconds,)) for seconds in (0.2, 0.4, 60)]
    for process in started:
        process.start()
    joined = ProcessContext(started, [""] * 3)
    if stopped:
        os.kill(started[2].pid, signal.SIGSTOP)
    began = time.monotonic()
    SpawnedRanks(started, num_trainers=2, end_timeout_s=1.0).watch()
    join(joined)
    assert time.monotonic() > began + 1.4  # it had its time
    assert started[2].exitcode == 0
    assert started[1].exitcode == 0


def test_ranks_that_no_thread_can_watch_are_ended() -> None:
    script, spawned = sleeping(), multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    spawned.start()
    with refused():
        with pytest.raises(ThreadLimitError, match="The thread gnnload-children cannot start"):
            ChildProcesses([script], uuid.uuid4().hex, may_end=lambda local_rank: True)
        with pytest.raises(ThreadLimitError, match="The thread gnnload-children cannot start"):
            SpawnedRanks([spawned], num_trainers=1, end_timeout_s=1.0).watch()
    assert not any(psutil.pid_exists(process.pid) for process in (script, spawned))


def test_a_sampler_that_fails_by_itself_is_not_excused() -> None:
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=time.sleep, args=(0.2,)), context.Process(target=sys.exit, args=(3,))]
    for process in started:
        process.start()
    SpawnedRanks(started, num_trainers=1, end_timeout_s=1.0).watch()
    with pytest.raises(ProcessExitedException, match="exit code 3"):
        join(ProcessContext(started, [""] * 2))


def join(context: ProcessContext) -> None:
    deadline = time.monotonic() + 20
    while not context.join(timeout=10):
        assert time.monotonic() < deadline
