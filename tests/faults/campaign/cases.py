"""Cases: owners of a partition's parts, and processes that sample from them while owners suffer harm."""

from __future__ import annotations

import functools
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from lightning_gnnload.owners.address import Address
from tests import forkserver
from tests.cluster.delay import DelayProxy
from tests.cluster.network import Network
from tests.faults.campaign import owned
from tests.integration.scripts import launch, toy
from tests.unit.owners.serving import OwnerProcess

SCRIPT = Path(owned.__file__)
NUM_STEPS, PAUSE_S = 60, 0.02
LIMIT_S = 60.0 * launch.PATIENCE
PATIENCE_S = 25.0 * launch.PATIENCE
"""In which an owner that is to come back has done so; who is refused, or is not to find one, has less to wait."""
SHORT_PATIENCE_S = 2.0
TRAINER, STORAGE = "trainer", "storage"
"""The machines of a case's network."""


@dataclass
class Case:
    """A trial's folder, owners and clients.

    Attributes:
        parts: the folder of the partition, which trials share: who changes it takes :meth:`own_parts`.
        scheme: of addresses.
        is_final: whether the client is to end by an error, and hence not to wait long for owners.
    """

    folder: Path
    parts: Path
    choose: Random
    scheme: str
    open: ExitStack
    is_final: bool = False
    clients: list[Client] = field(default_factory=list)
    network: Network | None = None

    @property
    def addresses(self) -> Path:
        return self.folder / "addresses.json"

    def own(self, parts: str, *, is_anew: bool = False, at: str = "", port: int = 0, **settings: Any) -> OwnerProcess:
        """Starts an owner of parts, and waits until it serves; ``is_anew``, as a new interpreter, as a user does."""
        owner = self.start_owner(parts, is_anew=is_anew, at=at, port=port, **settings)
        owner.wait_until_ready()
        return owner

    def start_owner(
        self, parts: str, *, is_anew: bool = False, at: str = "", port: int = 0, folder: Path | None = None, **kept: Any
    ) -> OwnerProcess:
        popen: Callable[..., Any] = subprocess.Popen if is_anew else forkserver.Popen
        machine = self.network[at] if self.network is not None and at else None
        host = machine.address if machine else "127.0.0.1"
        options = ("--parts", parts, "--listen", f"{self.scheme}{host}:{port}")
        popen = machine.popen if machine else popen
        owner = OwnerProcess(folder or self.parts, self.folder / "secret", *options, popen=popen, **kept)
        return self.open.enter_context(owner)

    def own_parts(self) -> Path:
        """Returns a copy of the partition, to be changed."""
        return Path(shutil.copytree(self.parts, self.folder / "parts"))

    def full(self, num_bytes: int) -> Path:
        """Makes a disk of its own that has room for so many bytes."""
        disk = self.folder / f"disk-{num_bytes}"
        disk.mkdir()
        size = max(num_bytes, 4 << 10)  # 0 would be as much as there is
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], check=True)
        self.open.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
        return disk

    def connect_machines(self, bytes_per_s: int = 0) -> Network:
        """Puts owners and clients that are started ``at`` one on machines of their own."""
        self.network = self.open.enter_context(Network(TRAINER, STORAGE, bytes_per_s=bytes_per_s))
        return self.network

    def link(self, owner: OwnerProcess) -> DelayProxy:
        return self.open.enter_context(DelayProxy(Address.parse(owner.address).port))

    def name(self, *where: OwnerProcess | DelayProxy) -> None:
        """Writes where owners are from here on."""
        addresses = [
            each.address if isinstance(each, OwnerProcess) else f"{self.scheme}127.0.0.1:{each.port}" for each in where
        ]
        unfinished = self.addresses.with_suffix(".new")
        unfinished.write_text(json.dumps(addresses))
        unfinished.replace(self.addresses)

    def sample(
        self, secret: str = "secret", parts: Path | None = None, num_steps: int = NUM_STEPS, at: str = ""
    ) -> Client:
        patience_s = SHORT_PATIENCE_S if self.is_final else PATIENCE_S
        client = Client(self, secret, parts or self.parts, num_steps, patience_s, at)
        self.open.callback(client.end)
        self.clients.append(client)
        return client

    def moment(self, client: Client) -> None:
        """Waits for a random moment amid a client's steps."""
        client.reach(self.choose.randrange(NUM_STEPS // 2))
        time.sleep(self.choose.uniform(0, PAUSE_S))

    def ends(self) -> str:
        """Waits for the last client, and says in a few words what came of it."""
        return self.clients[-1].ends()


class Client:
    """A process that samples (owned.py), and what it has written."""

    def __init__(self, case: Case, secret: str, parts: Path, num_steps: int, patience_s: float, at: str) -> None:
        self.num_steps = num_steps
        self.written = case.folder / f"client-{len(case.clients)}"
        self.written.touch()
        arguments = [parts, case.addresses, self.written, num_steps, PAUSE_S, patience_s]
        environment = {**os.environ, "GNNLOAD_SECRET_FILE": str(case.folder / secret), "OMP_NUM_THREADS": "1"}
        popen = case.network[at].popen if case.network is not None and at else forkserver.Popen
        with open(case.folder / "log", "a") as log:
            self.process = popen(
                [sys.executable, str(SCRIPT), *map(str, arguments)],
                env=environment, cwd=launch.ROOT, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def lines(self) -> list[dict[str, Any]]:
        text = self.written.read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def reach(self, step: int) -> None:
        """Waits until it has made so many steps, or has ended."""
        deadline = time.monotonic() + LIMIT_S
        while len(self.lines) <= step and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)

    def ends(self) -> str:
        """Waits for its end, and says in a few words what came of it."""
        try:
            code = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            return "hung"
        *steps, end = self.lines or [{}]
        digests, said = [step["digest"] for step in steps], end.get("end", f"crashed ({code})")
        if digests != expected(self.num_steps)[: len(digests)]:
            return "other batches"
        if said == "ended":
            return "the same batches" if len(digests) == self.num_steps else "ended early"
        return str(said.partition(":")[0])

    @property
    def longest_pause_s(self) -> float:
        at = [line["at"] for line in self.lines if "at" in line]
        return float(np.diff(at).max(initial=0))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def write_secret(file: Path) -> None:
    file.touch(0o600)
    file.write_text(secrets.token_hex(16))


@functools.cache
def expected(num_steps: int) -> list[str]:
    """What a process that has the whole graph comes to."""
    data = toy.toy_data()
    rows = data.stores["x"]

    def gather(nodes: torch.Tensor) -> torch.Tensor:
        out = torch.empty(len(nodes), rows.shape[1])
        rows.gather(nodes, out)
        return out

    return list(itertools.islice(owned.digests(owned.SAMPLER, data.graph, gather), num_steps))
