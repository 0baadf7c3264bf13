"""Another user of the machine watches a job's sockets, connects to all, and takes the names that may come next."""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from tests.integration.scripts import launch
from tests.runif import RunIf
from tests.strangers import as_stranger

JOB = """
import json, os
from pathlib import Path
import torch

from lightning_gnnload import FactoredStrategy
from tests.integration.learnable import quiet_trainer
from tests.unit.plugin.monitor.test_monitor import SeedClassifier, data_module


class Classifier(SeedClassifier):
    def test_step(self, batch):
        pass


if __name__ == "__main__":
    torch.manual_seed(0)
    model, ends = Classifier(), []
    for _ in range(3):
        trainer = quiet_trainer(max_steps=20, devices=3, strategy=FactoredStrategy(connect_timeout_s=60))
        trainer.fit(model, data_module())
        ends.append(trainer.global_step)
    Path(f"ends-{trainer.global_rank}.json").write_text(json.dumps([ends, os.environ["MASTER_PORT"]]))
"""


@RunIf(root=True)
def test_a_job_of_several_fits_runs_as_if_nobody_were_there(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    ports: set[int] = set()
    with launch.start(script, folder=tmp_path) as job:
        while job.process.poll() is None:
            names, listening = _sockets_of(job.processes())
            ports |= listening
            as_stranger(lambda names=names, listening=listening: _attack(names, listening))
        job.wait(60 * launch.PATIENCE)
    assert job.returncode == 0, job.output
    for rank in range(3):
        ends, port = json.loads((tmp_path / f"ends-{rank}.json").read_text())
        assert len(ends) == 3
        assert int(port) not in ports  # the store lies in memory
    assert ports  # gloo's: who sees no socket sees nothing


def _sockets_of(processes: list[psutil.Process]) -> tuple[set[str], set[int]]:
    """Lists a job's names in the abstract namespace, and the ports of loopback that it listens at: of no other job, as
    tests run side by side."""
    inodes = set()
    for process in processes:
        with suppress(OSError):
            folder = Path(f"/proc/{process.pid}/fd")
            inodes |= {os.readlink(link).removeprefix("socket:[").removesuffix("]") for link in folder.iterdir()}
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    names = {row[7] for row in rows if len(row) > 7 and row[6] in inodes and row[7].startswith("@gnnload")}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return names, {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def _attack(names: set[str], ports: set[int]) -> None:
    with ExitStack() as held:

        def opened(family: int, kind: int) -> socket.socket:
            made = held.enter_context(socket.socket(family, kind))
            made.settimeout(0.05)
            return made

        for name in names:
            for kind in (socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
                with suppress(OSError):
                    made = opened(socket.AF_UNIX, kind)
                    made.connect(name.replace("@", "\0", 1))
                    made.send(b"nonsense")
                # Names that count would have these next.
                for later in (1, 2):
                    told = re.sub(r"-(\d+)(-\d+)$", lambda m, n=later: f"-{int(m[1]) + n}{m[2]}", name)
                    with suppress(OSError):
                        made = opened(socket.AF_UNIX, kind)
                        made.bind(told.replace("@", "\0", 1))
                        made.listen()
        for port in ports:
            with suppress(OSError):
                made = opened(socket.AF_INET, socket.SOCK_STREAM)
                made.connect(("127.0.0.1", port))
                made.send(b"nonsense" * 100)
