"""A graph on GPUs whose lists processes read of each other by CUDA's own means: on one GPU, and on more where there
are."""

from __future__ import annotations

import signal
from pathlib import Path

from lightning_gnnload.cache.device.shards import CLOSING_S
from tests.gpu import graph_sharing
from tests.gpu.test_shared_cache import seen_by
from tests.runif import RunIf


def test_two_processes_of_one_gpu_draw_what_the_cpu_draws(tmp_path: Path) -> None:
    for status, seen in seen_by(2, "close", tmp_path, script=graph_sharing):
        assert status == 0
        assert "on 1 linked device" in seen["about"]
        assert "page-locked" not in seen["about"]  # together they have room for all lists
        assert seen["closing_s"] < CLOSING_S


def test_a_killed_process_is_named_at_the_next_batch(tmp_path: Path) -> None:
    (status, seen), (killed, _) = seen_by(2, "die", tmp_path, script=graph_sharing)
    assert (status, killed) == (0, -signal.SIGKILL)
    assert seen["lost"].startswith("the graph's shard of rank 1 of ")
    assert seen["closing_s"] < CLOSING_S


@RunIf(cuda=2, extras="cuda")
def test_gpus_draw_from_each_other(tmp_path: Path) -> None:
    # Where they have no peer access, each places for itself, and says so.
    for status, _ in seen_by(2, "close", tmp_path, script=graph_sharing):
        assert status == 0
