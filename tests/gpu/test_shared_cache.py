"""A cache on GPUs that processes share by CUDA's own means: on one GPU, by two processes; on more where there are.

Each process is a new interpreter, which imports torch and compiles the kernels that it is the first to need: half a
minute where nothing else runs, and more than one beside other workers. What hangs is ended after a while, and the
failure shows how far each process had come, and where it stood.
"""

from __future__ import annotations

import json
import signal
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.cache.device.shards import CLOSING_S
from lightning_gnnload.errors import CudaCallError
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.runtime import CupyRuntime
from tests.gpu import sharing
from tests.integration.scripts.launch import PATIENCE, start
from tests.runif import RunIf

LIMIT_S = 90 * PATIENCE  # of a process
pytestmark = pytest.mark.timeout(3 * LIMIT_S)
SHARD_BYTES = sharing.NUM_CACHED // 2 * sharing.WIDTH * 4


def seen_by(
    count: int, end: str, folder: Path, policy: str = "degree", script: Any = sharing
) -> list[tuple[int, dict]]:
    """Status of each process, and what it saw."""
    name = uuid.uuid4().hex
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(
                start(
                    Path(script.__file__),
                    name,
                    index,
                    count,
                    end,
                    policy,
                    folder=folder,
                    log=f"output-{index}.txt",
                    anew=True,
                )
            )
            for index in range(count)
        ]
        if end == "die":
            jobs[-1].wait(LIMIT_S)
            (folder / "killed").touch()
        for job in jobs:
            job.wait(LIMIT_S)
            assert job.returncode in (0, -signal.SIGKILL), job.output
        files = [folder / f"seen-{index}.json" for index in range(count)]
        return [
            (job.returncode, json.loads(file.read_text()) if file.exists() else {})
            for job, file in zip(jobs, files, strict=True)
        ]


def check(seen: dict, shards_bytes: int) -> None:
    assert seen["wrong"] == 0
    assert seen["reads"]["cache"] > 0
    assert seen["reads"]["cache of peers"] > 0
    assert seen["reads"]["memory"] > 0
    assert seen["freed"] >= shards_bytes
    assert seen["closing_s"] < CLOSING_S


@pytest.mark.parametrize("policy", ["degree", "fifo"])
def test_two_processes_share_one_gpu(tmp_path: Path, policy: str) -> None:
    for status, seen in seen_by(2, "close", tmp_path, policy):
        assert status == 0
        check(seen, SHARD_BYTES)


def test_a_killed_process_keeps_nobody_waiting(tmp_path: Path) -> None:
    (status, seen), (killed, _) = seen_by(2, "die", tmp_path)
    assert (status, killed) == (0, -signal.SIGKILL)
    check(seen, SHARD_BYTES)


@RunIf(cuda=2, extras="cuda")
@pytest.mark.parametrize("policy", ["degree", "fifo"])
def test_gpus_read_each_other(tmp_path: Path, policy: str) -> None:
    # Where they have no peer access, each has a copy, and "cache of peers" is missing from the reads.
    for status, seen in seen_by(2, "close", tmp_path, policy):
        assert (status, seen["wrong"]) == (0, 0)


def test_the_runtime_moves_bytes_and_takes_its_errors_away(device: Device) -> None:
    runtime = CupyRuntime(torch.cuda.current_device())
    identities = [runtime.identity(number) for number in range(runtime.num_devices())]
    assert len(set(identities)) == len(identities)
    assert runtime.can_access(runtime.device)
    values = np.random.default_rng(0).integers(0, 256, 1000, dtype=np.uint8)
    first, second = runtime.allocate(2 << 20), runtime.allocate(2 << 20)
    runtime.write(first + 24, values)
    runtime.copy(second, first + 24, len(values))
    assert np.array_equal(runtime.read(second, len(values)), values)
    handle = runtime.export(first)
    assert len(handle) == 64
    for refused in (lambda: runtime.open(handle), lambda: runtime.allocate(1 << 60), lambda: runtime.close(first)):
        with pytest.raises(CudaCallError) as caught:
            refused()
        assert caught.value.name.startswith("cudaError")
    assert device.read(device.zeros(3, torch.int32)).tolist() == [0, 0, 0]  # blamed for none of them
    runtime.free(first)
    runtime.free(second)
