"""Owners of parts are killed, stopped, parted from clients, starved and lied to, while a process samples from them.

It must go on with the same mini-batches and rows, bit for bit, or end with one error that says what is missing.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import os
import secrets
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

from lightning_gnnload import GraphData, partition_graph
from lightning_gnnload.owners.address import Address
from tests import forkserver
from tests.cluster.delay import DelayProxy
from tests.faults.campaign import owned
from tests.faults.campaign.attack import Attack, Verdict
from tests.integration.scripts import launch, toy
from tests.unit.owners.serving import OwnerProcess

SCRIPT = Path(owned.__file__)
NUM_STEPS, PAUSE_S = 60, 0.02
LIMIT_S = 90.0 * launch.PATIENCE
ANSWERS_S = 10.0
"""In which an owner that was killed answers again."""


@dataclass
class Case:
    """Two owners of a part each, with a link before each, and who samples from them."""

    folder: Path
    choose: Random
    scheme: str
    open: ExitStack
    clients: list[Client] = field(default_factory=list)

    @property
    def addresses(self) -> Path:
        return self.folder / "addresses.json"

    def own(self, parts: str, environment: dict[str, str] | None = None) -> OwnerProcess:
        """Starts an owner of parts, and waits until it serves."""
        options = ("--parts", parts, "--listen", f"{self.scheme}127.0.0.1:0")
        owner = OwnerProcess(self.folder / "parts", self.folder / "secret", *options, environment=environment)
        self.open.enter_context(owner)
        owner.wait_until_ready()
        return owner

    def link(self, owner: OwnerProcess) -> DelayProxy:
        return self.open.enter_context(DelayProxy(port_of(owner)))

    def name(self, *where: OwnerProcess | DelayProxy) -> None:
        """Writes where owners are from here on."""
        ports = [each.port if isinstance(each, DelayProxy) else port_of(each) for each in where]
        unfinished = self.addresses.with_suffix(".new")
        unfinished.write_text(json.dumps([f"{self.scheme}127.0.0.1:{port}" for port in ports]))
        unfinished.replace(self.addresses)

    def sample(self, secret: str = "secret", parts: str = "parts", num_steps: int = NUM_STEPS) -> Client:
        client = Client(self, secret, parts, num_steps)
        self.open.callback(client.end)
        self.clients.append(client)
        return client

    def moment(self, client: Client) -> None:
        """Waits for a random moment amid a client's steps."""
        client.reach(self.choose.randrange(NUM_STEPS // 2))
        time.sleep(self.choose.uniform(0, PAUSE_S))


class Client:
    """A process that samples (owned.py), and what it has written."""

    def __init__(self, case: Case, secret: str, parts: str, num_steps: int) -> None:
        self.written = case.folder / f"client-{len(case.clients)}"
        self.written.touch()
        arguments = [case.folder / parts, case.addresses, self.written, num_steps, PAUSE_S]
        environment = {**os.environ, "GNNLOAD_SECRET_FILE": str(case.folder / secret), "OMP_NUM_THREADS": "1"}
        with open(case.folder / "log", "a") as log:
            self.process = forkserver.Popen(
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

    def wait(self) -> tuple[list[str], str]:
        """Returns the digests that it came to, and how it ended."""
        try:
            code = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return [], "hung"
        *steps, end = self.lines or [{}]
        return [step["digest"] for step in steps], end.get("end", f"crashed ({code})")

    @property
    def longest_pause_s(self) -> float:
        at = [line["at"] for line in self.lines if "at" in line]
        return float(np.diff(at).max(initial=0))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def port_of(owner: OwnerProcess) -> int:
    return Address.parse(owner.address).port


def killed_and_started_again(case: Case) -> str:
    """At another port; the link to the old one is gone."""
    first, second = case.own("0"), case.own("1")
    case.name(first, second)
    client = case.sample()
    case.moment(client)
    second.kill()
    case.name(first, case.own("1"))
    return case_ends(case)


def killed_with_a_replica(case: Case) -> str:
    first, second, other = case.own("0"), case.own("1"), case.own("0,1")
    case.name(first, second, other)
    client = case.sample()
    case.moment(client)
    first.kill()
    second.kill()
    return case_ends(case)


def killed_for_good(case: Case) -> str:
    first, second = case.own("0"), case.own("1")
    case.name(first, second)
    client = case.sample()
    case.moment(client)
    case.choose.choice((first, second)).kill()
    return case_ends(case)


def stopped_with_a_replica(case: Case) -> str:
    first, second, other = case.own("0"), case.own("1"), case.own("0,1")
    case.name(first, second, other)
    client = case.sample()
    case.moment(client)
    second.process.send_signal(signal.SIGSTOP)
    return case_ends(case)


def stopped_for_a_while(case: Case) -> str:
    first, second = case.own("0"), case.own("1")
    case.name(first, second)
    client = case.sample()
    case.moment(client)
    second.process.send_signal(signal.SIGSTOP)
    time.sleep(case.choose.uniform(0.1, 5.0))
    second.process.send_signal(signal.SIGCONT)
    return case_ends(case)


def _linked(case: Case, harm: Callable[[DelayProxy], Any], heal: Callable[[DelayProxy], Any], most_s: float) -> str:
    first, second = case.own("0"), case.own("1")
    link = case.link(second)
    case.name(first, link)
    client = case.sample()
    case.moment(client)
    harm(link)
    time.sleep(case.choose.uniform(0, most_s))
    heal(link)
    return case_ends(case)


def parted(case: Case) -> str:
    return _linked(case, DelayProxy.freeze, DelayProxy.mend, 5.0)


def cut(case: Case) -> str:
    return _linked(case, DelayProxy.cut, DelayProxy.mend, 5.0)


def reset(case: Case) -> str:
    return _linked(case, DelayProxy.reset, DelayProxy.mend, 0.0)


def slow(case: Case) -> str:
    """A hundredth of what the network had, and a long way: slower than the deadline of no request."""
    return _linked(case, lambda link: (link.set_delay(50_000), link.set_rate(1_000_000)), DelayProxy.count, 0.0)


def full_disk(case: Case) -> str:
    """The owner's own folders have no room left."""
    full = case.folder / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)], check=True)
    case.open.callback(subprocess.run, ["umount", "--lazy", str(full)], check=True)
    (full / "filler").write_bytes(bytes(64 << 10))
    on_full = {"TMPDIR": str(full), "HOME": str(full), "XDG_CACHE_HOME": str(full), "XDG_RUNTIME_DIR": str(full)}
    first, second = case.own("0", environment=on_full), case.own("1", environment=on_full)
    case.name(first, second)
    case.sample()
    return case_ends(case)


def two_clients(case: Case) -> str:
    """Of whom one is killed amid a request: the other does not notice."""
    first, second = case.own("0"), case.own("1")
    case.name(first, second)
    left, stays = case.sample(), case.sample()
    case.moment(left)
    left.process.kill()
    case.clients = [stays]
    return case_ends(case)


def another_graph(case: Case) -> str:
    """Parts of the same shape, of another graph: named, before anything is read of them."""
    data = toy.toy_data()
    indices = data.graph.indices.copy()
    indices[0] = (indices[0] + 1) % data.graph.num_nodes
    other = GraphData(type(data.graph)(data.graph.indptr, indices), x=data.x, y=data.y, train=data.train)
    partition_graph(other, case.folder / "others", 2, "random", hops=0, progress=False)
    first, second = case.own("0"), case.own("1")
    case.name(first, second)
    case.sample(parts="others")
    return case_ends(case)


def no_secret(case: Case) -> str:
    first, second = case.own("0"), case.own("1")
    case.name(first, second)
    write_secret(case.folder / "other secret")
    case.sample(secret="other secret")
    return case_ends(case)


def write_secret(file: Path) -> None:
    file.touch(0o600)
    file.write_text(secrets.token_hex(16))


def case_ends(case: Case) -> str:
    """Waits for the last client, and says in a few words what came of it."""
    digests, end = case.clients[-1].wait()
    if digests != expected()[: len(digests)]:
        return "other batches"
    if end == "ended":
        return "the same batches" if len(digests) == NUM_STEPS else "ended early"
    return end.partition(":")[0]


@functools.cache
def expected() -> list[str]:
    """What a process that has the whole graph comes to."""
    data = toy.toy_data()
    rows = data.stores["x"]

    def gather(nodes: torch.Tensor) -> torch.Tensor:
        out = torch.empty(len(nodes), rows.shape[1])
        rows.gather(nodes, out)
        return out

    return list(itertools.islice(owned.digests(owned.SAMPLER, data.graph, gather), NUM_STEPS))


WAYS: dict[str, tuple[Callable[[Case], str], str]] = {
    "killed, started again": (killed_and_started_again, "the same batches"),
    "killed, a replica left": (killed_with_a_replica, "the same batches"),
    "killed for good": (killed_for_good, "OwnerLostError"),
    "stopped, a replica left": (stopped_with_a_replica, "the same batches"),
    "stopped for a while": (stopped_for_a_while, "the same batches"),
    "parted for a while": (parted, "the same batches"),
    "cut for a while": (cut, "the same batches"),
    "connections reset": (reset, "the same batches"),
    "a slow link": (slow, "the same batches"),
    "a full disk": (full_disk, "the same batches"),
    "two clients": (two_clients, "the same batches"),
    "another graph's parts": (another_graph, "OwnerLostError"),
    "without the secret": (no_secret, "OwnerLostError"),
}
"""What is done, and what must come of it. Who may ask anew for addresses waits for one that takes it, to the end of its
patience."""
_SCHEMES = {"TCP": "", "Flight": "grpc://"}


class Owners(Attack):
    name = "owners"
    good = frozenset({"the same batches", "one clear error"})
    ways = tuple(f"{way}, over {front}" for way in WAYS for front in _SCHEMES)

    def obstacle(self, way: str) -> str:
        if way.endswith("Flight") and importlib.util.find_spec("pyarrow") is None:
            return "needs pyarrow, which the extra 'flight' installs"
        if way.startswith("a full disk") and os.getuid():
            return "needs root, to fill a disk of its own"
        return ""

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        harm, _, front = way.rpartition(", over ")
        do, wanted = WAYS[harm]
        folder.mkdir()
        partition_graph(toy.toy_data(), folder / "parts", 2, "random", hops=0, progress=False)
        write_secret(folder / "secret")
        with ExitStack() as stack:
            case = Case(folder, choose, _SCHEMES[front], stack)
            came = do(case)
            seen = (folder / "log").read_text() + str(case.clients[-1].lines[-1:])
            figures = {"s of the longest pause": case.clients[-1].longest_pause_s}
        if came == wanted != "the same batches":
            came = "one clear error"
        elif (
            came == "the same batches"
            and harm == "killed, started again"
            and figures["s of the longest pause"] > ANSWERS_S
        ):
            came = "the same batches, late"
        return Verdict(came, seen, figures)
