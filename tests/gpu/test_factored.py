"""A sampler rank and a trainer rank that share a GPU: mini-batches cross in its memory, by CUDA IPC."""

from __future__ import annotations

import json
from pathlib import Path

from tests.gpu import factored
from tests.integration.scripts import launch


def test_mini_batches_cross_in_the_gpus_memory(tmp_path: Path) -> None:
    launch.run(Path(factored.__file__), folder=tmp_path, timeout_s=240 * launch.PATIENCE, anew=True)
    (on_host, host_slots), (on_device, device_slots) = (
        json.loads((tmp_path / f"{place}.json").read_text()) for place in ("cpu", "cuda")
    )
    assert on_device == on_host
    assert (host_slots, device_slots) == (["Slot"], ["OpenedSlot"])
