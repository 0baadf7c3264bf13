"""FactoredStrategy whose ranks have devices trains on the same mini-batches, to the same losses, as with the CPU."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.scripts import device_ring, launch


def test_samplers_and_trainers_on_devices(tmp_path: Path) -> None:
    job = launch.run(Path(device_ring.__file__), folder=tmp_path, num_devices=3, timeout_s=120 * launch.PATIENCE)
    for trainer in range(2):
        seen, slots, launches = {}, {}, {}
        for case in ("cpu", "device ring", "host ring", "killed"):
            seen[case], slots[case], launches[case] = json.loads((tmp_path / f"{case}-{trainer}.json").read_text())
        assert {entry[0] for entry in seen["cpu"]} == {"sanity", "train", "val"}
        assert seen["device ring"] == seen["cpu"]
        assert seen["host ring"] == seen["cpu"]
        assert seen["killed"] == seen["cpu"]
        assert (slots["cpu"], slots["device ring"], slots["host ring"]) == (["Slot"], ["OpenedSlot"], ["Slot"])
        drawn = {"sample_neighbors/pick_edges"}
        assert not drawn & set(launches["host ring"]), "a trainer draws nothing while a sampler does"
        assert drawn <= set(launches["killed"]), "it draws on its own device when the sampler is lost"
    assert job.output.count("The trainers sample themselves from here on") == 1
