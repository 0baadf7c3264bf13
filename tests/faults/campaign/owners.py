"""Owners of parts are killed, stopped, parted from their clients, starved and lied to, while a process samples from them.

It must go on with the same mini-batches and rows, bit for bit, or end with one error that says what is missing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from lightning_gnnload import GraphData, partition_graph
from tests import forkserver
from tests.cluster.delay import DelayProxy
from tests.cluster.owners import OwnerProcess, secret_file
from tests.faults.campaign import owned
from tests.faults.campaign.attack import Attack, Verdict
from tests.integration.scripts import launch, toy

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

    def own(self, parts: str, **settings: Any) -> OwnerProcess:
        owner = OwnerProcess(
            self.folder / "parts", parts, scheme=self.scheme, secret=self.folder / "secret", **settings
        )
        return self.open.enter_context(owner)

    def link(self, owner: OwnerProcess) -> DelayProxy:
        return self.open.enter_context(DelayProxy(owner.port))

    def name(self, *ports: int) -> None:
        """Writes which addresses owners have from here on."""
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


def killed_and_started_again(case: Case) -> str:
    """At another port; the link to the old one is gone."""
    first, second = case.own("0"), case.own("1")
    case.name(first.port, second.port)
    client = case.sample()
    case.moment(client)
    second.kill()
    case.name(first.port, case.own("1").port)
    return case_ends(case)


def killed_with_a_replica(case: Case) -> str:
    first, second, other = case.own("0"), case.own("1"), case.own("0,1")
    case.name(first.port, second.port, other.port)
    client = case.sample()
    case.moment(client)
    first.kill()
    second.kill()
    return case_ends(case)


def killed_for_good(case: Case) -> str:
    first, second = case.own("0"), case.own("1")
    case.name(first.port, second.port)
    client = case.sample()
    case.moment(client)
    case.choose.choice((first, second)).kill()
    return case_ends(case)


def stopped_with_a_replica(case: Case) -> str:
    first, second, other = case.own("0"), case.own("1"), case.own("0,1")
    case.name(first.port, second.port, other.port)
    client = case.sample()
    case.moment(client)
    second.send(signal.SIGSTOP)
    return case_ends(case)


def stopped_for_a_while(case: Case) -> str:
    first, second = case.own("0"), case.own("1")
    case.name(first.port, second.port)
    client = case.sample()
    case.moment(client)
    second.send(signal.SIGSTOP)
    time.sleep(case.choose.uniform(0.1, 5.0))
    second.send(signal.SIGCONT)
    return case_ends(case)


def _linked(case: Case, harm: Callable[[DelayProxy], Any], heal: Callable[[DelayProxy], Any], most_s: float) -> str:
    first, second = case.own("0"), case.own("1")
    link = case.link(second)
    case.name(first.port, link.port)
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
    case.name(first.port, second.port)
    case.sample()
    return case_ends(case)


def two_clients(case: Case) -> str:
    """Of whom one is killed amid a request: the other does not notice."""
    first, second = case.own("0"), case.own("1")
    case.name(first.port, second.port)
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
    case.name(first.port, second.port)
    case.sample(parts="others")
    return case_ends(case)


def no_secret(case: Case) -> str:
    first, second = case.own("0"), case.own("1")
    case.name(first.port, second.port)
    secret_file(case.folder / "other secret")
    case.sample(secret="other secret")
    return case_ends(case)


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
    "another graph's parts": (another_graph, "PartitionMismatchError"),
    "without the secret": (no_secret, "refused"),
}
"""What is done, and what must come of it."""


def case_ends(case: Case) -> str:
    """What came of the last client, in a few words."""
    digests, end = case.clients[-1].wait()
    if digests != expected(len(digests)):
        return "other batches"
    if end == "ended":
        return "the same batches" if len(digests) == NUM_STEPS else "ended early"
    return end.partition(":")[0]


class Owners(Attack):
    name = "owners"
    good = frozenset({"the same batches", "named"})
    ways = (*(f"{way}, over {front}" for way in WAYS for front in ("TCP", "Flight")),)

    @cached_property
    def digests(self) -> list[str]:
        """What a process that has the whole graph comes to."""
        data = toy.toy_data()
        seeds = np.asarray(data.train)
        return list(islice(owned.digests(owned.SAMPLER, data.graph, seeds, lambda nodes: data.x[nodes]), NUM_STEPS))
