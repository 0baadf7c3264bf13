"""A sampler rank and a trainer rank that share a GPU: mini-batches cross in its memory, by CUDA IPC.

Both are new interpreters, as CUDA's context does not survive a fork. A job that takes longer than it ever should is
ended, and shows where it stood.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gpu import factored
from tests.integration.scripts import launch

LIMIT_S = 180 * launch.PATIENCE


@pytest.mark.timeout(LIMIT_S + 60)
def test_mini_batches_cross_in_the_gpus_memory(tmp_path: Path) -> None:
    launch.run(Path(factored.__file__), folder=tmp_path, timeout_s=LIMIT_S, anew=True)
    (on_host, host_slots), (on_device, device_slots) = (
        json.loads((tmp_path / f"{place}.json").read_text()) for place in ("cpu", "cuda")
    )
    assert on_device == on_host
    assert (host_slots, device_slots) == (["Slot"], ["OpenedSlot"])
