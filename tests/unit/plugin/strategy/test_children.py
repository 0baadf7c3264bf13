"""What becomes of the ranks that a script started."""

import subprocess
import sys
import time
import uuid

from lightning_gnnload.pipeline import flags
from lightning_gnnload.plugin.strategy.launcher import Children


def sleeping() -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_rank_that_may_end_is_let_go_and_all_can_see_it() -> None:
    run = uuid.uuid4().hex
    trainer, sampler = sleeping(), sleeping()
    try:
        children = Children([trainer, sampler], run, may_end=lambda local_rank: local_rank == 2)
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
