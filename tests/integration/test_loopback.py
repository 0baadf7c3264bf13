"""No rank listens beyond this machine: torch's defaults do."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.scripts import launch

JOB = """
import ipaddress, json, os
from pathlib import Path
import torch
import torch.distributed as dist
from pytorch_lightning import Callback

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from tests.integration.learnable import quiet_trainer
from tests.unit.plugin.monitor.test_monitor import SeedClassifier, data_module


def listening():
    inodes = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            inodes.add(os.readlink(link))
        except OSError:
            pass
    for table, width in (("tcp", 8), ("tcp6", 32)):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                raw = bytes.fromhex(fields[1][:width])
                words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
                yield ipaddress.ip_address(words)


class Look(Callback):
    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == 1:
            found = list(listening())
            outside = [str(address) for address in found if not address.is_loopback]
            Path(f"listens-{trainer.global_rank}").write_text(json.dumps([len(found), outside]))


if __name__ == "__main__":
    trainer = quiet_trainer(max_steps=2, devices=3, strategy=FactoredStrategy(), callbacks=[Look()])
    trainer.fit(SeedClassifier(), data_module())
"""


def test_ranks_listen_on_loopback_only(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    launch.run(script, folder=tmp_path)
    counts, outside = zip(*(json.loads((tmp_path / f"listens-{rank}").read_text()) for rank in range(2)), strict=True)
    assert outside == ([], [])
    assert sum(counts) > 0  # they do listen: a test that sees no socket sees nothing
