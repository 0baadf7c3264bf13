"""Owners as processes: killed, frozen, started again; mini-batches stay as they are."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import NeighborSampler, load_partition, partition_graph
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from tests.unit.owners.serving import SECRET, OwnerProcess, graph_data
from tests.unit.toy import content

SAMPLER = NeighborSampler([4, 3], edge_ids=True)
ANSWERS_AGAIN_S = 10.0
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


def test_a_frozen_owner_is_found_by_the_deadline(folder: Path) -> None:
    with started(folder) as first, started(folder) as second:
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
def test_it_ends_in_a_second_though_clients_are_connected(folder: Path, number: signal.Signals) -> None:
    with started(folder) as owner:
        owners = connected(folder, [owner.wait_until_ready()])
        sampled(owners, 0)
        owner.process.send_signal(number)
        begun = time.monotonic()
        assert owner.process.wait(10) == 0
        assert time.monotonic() - begun < 3
        assert owner.process.stderr is not None
        assert owner.process.stderr.read() == b""
        owners.close()


def own(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """An owner that is to fail at once."""
    return subprocess.run(
        [sys.executable, "-m", "lightning_gnnload.plugin.commands.cli", "own", str(folder), *options],
        env={**os.environ, "XDG_CONFIG_HOME": str(folder.parent), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def deep(folder: Path) -> Path:
    partition_graph(DATA, folder.parent / "deep", 2, "random", hops=1, progress=False)
    return folder.parent / "deep"


def open_secret(folder: Path) -> list[str]:
    (folder.parent / "open").write_text(SECRET)
    (folder.parent / "open").chmod(0o644)
    return ["--secret-file", str(folder.parent / "open")]


@pytest.mark.parametrize(
    ("place", "options", "words"),
    [
        (lambda folder: folder.parent, lambda folder: [], "is not a partition"),
        (deep, lambda folder: [], "have no owners, as each is sampled by itself"),
        (lambda folder: folder, lambda folder: ["--parts", "2"], "there is no part 2"),
        (lambda folder: folder, lambda folder: ["--listen", "0.0.0.0:0"], "other machines can reach 0.0.0.0:0"),
        (lambda folder: folder, open_secret, "so that others may read the secret. chmod 600"),
    ],
    ids=["no partition", "self-reliant", "no part", "no secret", "open secret"],
)
def test_why_an_owner_cannot_start(
    folder: Path, place: Callable[[Path], Path], options: Callable[[Path], list[str]], words: str
) -> None:
    ended = own(place(folder), *options(folder))
    assert ended.returncode == 2
    assert words in ended.stderr.replace("\n", " ")
    assert SECRET not in ended.stderr


def test_a_port_that_is_taken_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = own(folder, "--listen", address)
    assert ended.returncode == 2
    assert f"nobody can listen at {address}" in ended.stderr
    # The first owner of a machine makes a secret, which only its user can read.
    made = folder.parent / "lightning_gnnload" / "secret"
    assert f"the secret is {made}" in ended.stderr
    assert made.stat().st_mode & 0o777 == 0o600
    assert made.read_text().strip() not in ended.stderr
