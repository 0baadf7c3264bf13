"""Owners as processes: killed, frozen, started again; mini-batches stay as they are."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from lightning_gnnload import NeighborSampler, load_partition, partition_graph
from lightning_gnnload.errors import OwnerLostError, PartitionMismatchError, StrangerError
from lightning_gnnload.owners.address import GRPC, TCP, Address
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.ways import open_connection
from lightning_gnnload.sample.group.messages import Message
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from tests import forkserver
from tests.integration.scripts import launch
from tests.runif import RunIf
from tests.unit.owners.serving import SECRET, OwnerProcess, graph_data
from tests.unit.toy import content

SAMPLER = NeighborSampler([4, 3], edge_ids=True)
ANSWERS_AGAIN_S = 10.0
FLIGHT = pytest.param(GRPC, marks=RunIf(extras="flight"))
DATA = graph_data()
BOTH_FRONTS = pytest.mark.parametrize("scheme", ["", pytest.param("grpc://", marks=RunIf(extras="flight"))])
MANY_ROWS = Message({"operation": "rows", "part": 0, "table": "x"}, {"rows": np.zeros(10**6, np.uint8)}).to_bytes()
"""A request whose answer, of 20 MB, no socket takes."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    partition_graph(DATA, tmp_path / "parts", 2, "random", hops=0, progress=False)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    return tmp_path / "parts"


def started(folder: Path, *options: str, **settings: Any) -> OwnerProcess:
    """Starts an owner as a fork of one that has imported all; one that comes back in time is a new interpreter."""
    return OwnerProcess(folder, folder.parent / "secret", *options, **{"popen": forkserver.Popen, **settings})


def sampled(owners: Owners, step: int) -> Any:
    """One step over the owners, and its rows, which must be those of the whole graph."""
    ours = CollectiveSampler(SAMPLER, owners).sample(None, np.arange(30), epoch=1, step=step)
    assert content(ours) == content(SAMPLER.sample(DATA.graph, np.arange(30), epoch=1, step=step))
    out = np.empty((len(ours.nodes), 20), np.uint8)
    owners.gather("x", ours.nodes.numpy(), out)
    assert (out.view(np.float32)[:, 0] == ours.nodes.numpy()).all()


def test_parts_named_twice_are_told_once(folder: Path) -> None:
    with started(folder, "--parts", "1,0,1") as owner:
        assert owner.process.stdout is not None
        assert json.loads(owner.process.stdout.readline())["parts"] == [0, 1]


def connected(folder: Path, addresses: Any, **settings: Any) -> Owners:
    return Owners.connect(load_partition(folder), addresses, secret=SECRET, **settings)


def test_an_owner_is_killed_and_comes_back_at_another_port(folder: Path) -> None:
    with started(folder, "--parts", "0") as first, started(folder, "--parts", "1") as second:
        addresses = [first.wait_until_ready(), second.wait_until_ready()]
        owners = connected(folder, lambda: addresses)
        sampled(owners, 0)
        second.process.kill()
        begun = time.monotonic()
        with started(folder, "--parts", "1", popen=subprocess.Popen) as again:
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@BOTH_FRONTS
def test_it_ends_in_a_second_though_clients_are_connected(folder: Path, number: signal.Signals, scheme: str) -> None:
    """One waits, one does not read its answer, and one does not say who it is."""
    with started(folder, "--listen", f"{scheme}127.0.0.1:0") as owner:
        address = Address.parse(owner.wait_until_ready())
        idle, reads_not = (open_connection(address, SECRET.encode(), 5, 5) for _ in range(2))
        reads_not.send(MANY_ROWS)
        with socket.create_connection((address.host, address.port)):
            time.sleep(0.2)
            owner.process.send_signal(number)
            begun = time.monotonic()
            assert owner.process.wait(10) == 0
            assert time.monotonic() - begun < 4 * launch.PATIENCE  # within one on a machine that is idle
        # Of the stranger it may tell that it is gone.
        assert "Traceback" not in owner.told()
        for connection in (idle, reads_not):
            connection.close()


def test_connections_of_who_is_gone_are_closed_at_once(folder: Path) -> None:
    """Of clients that leave, or are lost amid an answer, and of strangers."""
    with started(folder) as owner:
        address = Address.parse(owner.wait_until_ready())
        owners = connected(folder, [owner.address])
        sampled(owners, 0)
        process = psutil.Process(owner.process.pid)
        before = process.num_fds()
        clients = [open_connection(address, SECRET.encode(), 5, 5) for _ in range(20)]
        for client in clients[:10]:
            client.send(MANY_ROWS)
        strangers = [socket.create_connection((address.host, address.port)) for _ in range(20)]
        assert process.num_fds() >= before + 20
        for each in (*clients, *strangers):
            each.close()
        deadline = time.monotonic() + 4 * launch.PATIENCE  # the limit of a client that does not read is a minute
        while process.num_fds() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process.num_fds() <= before
        sampled(owners, 1)
        owners.close()


@BOTH_FRONTS
def test_strangers_are_turned_away_though_the_log_is_full(folder: Path, scheme: str) -> None:
    with started(folder, "--listen", f"{scheme}127.0.0.1:0", log=Path("/dev/full")) as owner:
        address = Address.parse(owner.wait_until_ready())
        for _ in range(3):
            with pytest.raises(StrangerError):
                open_connection(address, b"another secret of theirs", 5, 5)
        owners = connected(folder, [owner.address])
        sampled(owners, 0)
        owners.close()
        owner.process.send_signal(signal.SIGTERM)
        assert owner.process.wait(10) == 0


def test_what_cannot_be_served_is_told_by_name(folder: Path) -> None:
    """A folder that is not yet copied whole, parts that are not there, an address that another owner has."""
    half = shutil.copytree(folder, folder.parent / "half", ignore=shutil.ignore_patterns("indices.bin"))
    with started(folder) as other:
        taken = other.wait_until_ready()
        for options, at, words in [
            ((), half, "indices.bin is missing"),
            (("--parts", "2"), folder, "there is no part 2"),
            (("--listen", taken), folder, f"nobody can listen at {taken}"),
        ]:
            with OwnerProcess(at, folder.parent / "secret", *options, popen=forkserver.Popen) as owner:
                told = owner.told()
                assert (owner.process.returncode, words in told, "Traceback" in told) == (2, True, False), told
        shutil.copytree(folder, half, dirs_exist_ok=True)
        with OwnerProcess(half, folder.parent / "secret", popen=forkserver.Popen) as owner:
            owners = connected(folder, [owner.wait_until_ready()])
            sampled(owners, 0)
            owners.close()


def test_a_folder_that_is_replaced_is_another_owners(folder: Path) -> None:
    """Who serves it goes on with what it has mapped, for those who have the same head; others are refused, as is an
    owner that begins with the new one."""
    with started(folder) as stays:
        addresses = [stays.wait_until_ready()]
        old = connected(folder, lambda: addresses, patience_s=1)
        sampled(old, 0)
        partition_graph(graph_data(seed=1), folder, 2, "random", hops=0, overwrite=True, progress=False)
        sampled(old, 1)
        new = connected(folder, [stays.address])
        with pytest.raises(PartitionMismatchError, match="has another partition"):
            new.gather("x", np.arange(3), np.empty((3, 20), np.uint8))
        with started(folder) as begins:
            addresses[:] = [begins.wait_until_ready()]
            stays.kill()
            with pytest.raises(OwnerLostError, match="has another partition"):
                sampled(old, 2)
        new.close()
        old.close()
