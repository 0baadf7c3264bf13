"""The peers: which of them are here, in which Python, and which builds they are."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

_PROBE_S = 120


@dataclass(frozen=True)
class Peer:
    """A library that samples neighbours.

    Attributes:
        family: its name in tables and goals.
        worker: the module of this folder that runs it.
        needs: what has to be importable.
        packages: what its build consists of.
    """

    family: str
    worker: str
    needs: str
    packages: tuple[str, ...]


PEERS = (
    Peer("DGL", "peer_dgl", "dgl", ("dgl", "torch")),
    Peer("GraphBolt", "peer_graphbolt", "dgl.graphbolt", ("dgl", "torch")),
    Peer("pyg-lib", "peer_pyg", "pyg_lib", ("pyg-lib", "torch-geometric", "torch")),
    Peer("torch-sparse", "peer_pyg", "torch_sparse", ("torch-sparse", "torch-geometric", "torch")),
)


@dataclass(frozen=True)
class Found:
    """What was found of a peer.

    Attributes:
        python: the interpreter that was asked.
        build: versions and wheels; None where it is not there.
        missing: why not.
    """

    peer: Peer
    python: str
    build: str | None = None
    missing: str | None = None

    def __str__(self) -> str:
        return f"{self.peer.family}: {self.build}" if self.build else f"{self.peer.family}: not here ({self.missing})"


def find(pythons: dict[str, str]) -> list[Found]:
    """Asks for every peer; ``pythons`` names the interpreter of a worker where it is not this one."""
    return [find_peer(peer, pythons.get(peer.worker, sys.executable)) for peer in PEERS]


def find_peer(peer: Peer, python: str) -> Found:
    """Asks one interpreter for a peer."""
    command = [python, "-m", "tests.benchmarks.probe", peer.needs, *peer.packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S)
        reply = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return Found(peer, python, missing=f"{python} gave no answer: {error}")
    return Found(peer, python, **reply)
