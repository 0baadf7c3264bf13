"""Owners as processes: killed, frozen, started again; mini-batches stay as they are."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import NeighborSampler, load_partition, partition_graph
from lightning_gnnload.owners.address import GRPC, TCP
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from tests.runif import RunIf
from tests.unit.owners.serving import SECRET, OwnerProcess, graph_data
from tests.unit.toy import content

SAMPLER = NeighborSampler([4, 3], edge_ids=True)
ANSWERS_AGAIN_S = 10.0
FLIGHT = pytest.param(GRPC, marks=RunIf(extras="flight"))
DATA = graph_data()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    partition_graph(DATA, tmp_path / "parts", 2, "random", hops=0, progress=False)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    return tmp_path / "parts"


def started(folder: Path, *options: str) -> OwnerProcess:
    return OwnerProcess(folder, folder.parent / "secret", *options)


def sampled(owners: Owners, step: int) -> Any:
    """One step over the owners, and its rows, which must be those of the whole graph."""
    ours = CollectiveSampler(SAMPLER, owners).sample(None, np.arange(30), epoch=1, step=step)
    assert content(ours) == content(SAMPLER.sample(DATA.graph, np.arange(30), epoch=1, step=step))
    out = np.empty((len(ours.nodes), 20), np.uint8)
    owners.gather("x", ours.nodes.numpy(), out)
    assert (out.view(np.float32)[:, 0] == ours.nodes.numpy()).all()


def connected(folder: Path, addresses: Any, **settings: Any) -> Owners:
    return Owners.connect(load_partition(folder), addresses, secret=SECRET, **settings)


def test_an_owner_is_killed_and_comes_back_at_another_port(folder: Path) -> None:
    with started(folder, "--parts", "0") as first, started(folder, "--parts", "1") as second:
        addresses = [first.wait_until_ready(), second.wait_until_ready()]
        owners = connected(folder, lambda: addresses)
        sampled(owners, 0)
        second.process.kill()
        begun = time.monotonic()
        with started(folder, "--parts", "1") as again:
            addresses[1] = again.wait_until_ready()
            sampled(owners, 1)
            assert time.monotonic() - begun < ANSWERS_AGAIN_S
        owners.close()


@pytest.mark.parametrize("scheme", [TCP, FLIGHT])
def test_a_frozen_owner_is_found_by_the_deadline(folder: Path, scheme: str) -> None:
    listen = ["--listen", f"{scheme}://127.0.0.1:0"]
    with started(folder, *listen) as first, started(folder, *listen) as second:
        processes = {first.wait_until_ready(): first, second.wait_until_ready(): second}
        owners = connected(folder, list(processes), deadline_s=0.5)
        sampled(owners, 0)
        for process in processes.values():  # whichever serves
            process.process.send_signal(signal.SIGSTOP)
            begun = time.monotonic()
            sampled(owners, 1)
            assert time.monotonic() - begun < 5
            process.process.send_signal(signal.SIGCONT)
        owners.close()


@pytest.mark.matrix
def test_owners_are_killed_at_random_moments(folder: Path) -> None:
    """Of two owners of all parts one is killed and started again, ever anew, while mini-batches are drawn."""
    rng = np.random.default_rng(7)
    processes = [started(folder), started(folder)]
    addresses = [process.wait_until_ready() for process in processes]
    owners = connected(folder, lambda: addresses, deadline_s=5)
    try:
        for number in range(12):
            lost = int(rng.integers(2))
            kill_at = time.monotonic() + rng.random() / 10
            step = 0
            while time.monotonic() < kill_at:
                sampled(owners, step := step + 1)
            processes[lost].process.kill()
            for _ in range(5):
                sampled(owners, step := step + 1)
            processes[lost].kill()
            processes[lost] = started(folder)
            addresses[lost] = processes[lost].wait_until_ready()
            sampled(owners, number)
    finally:
        owners.close()
        for process in processes:
            process.kill()


@pytest.mark.parametrize(
    ("number", "scheme"),
    [(signal.SIGTERM, TCP), (signal.SIGINT, TCP), pytest.param(signal.SIGTERM, GRPC, marks=RunIf(extras="flight"))],
)
def test_it_ends_in_a_second_though_clients_are_connected(folder: Path, number: signal.Signals, scheme: str) -> None:
    with started(folder, "--listen", f"{scheme}://127.0.0.1:0") as owner:
        owners = connected(folder, [owner.wait_until_ready()])
        sampled(owners, 0)
        owner.process.send_signal(number)
        begun = time.monotonic()
        assert owner.process.wait(10) == 0
        assert time.monotonic() - begun < 3
        assert owner.process.stderr is not None
        assert owner.process.stderr.read() == b""
        owners.close()
