"""Environments for the peers, since no one holds them all: made once and kept; where pip has none, the reason is told.

DGL 1.1.3 lies in this repository's own environment. GraphBolt came with dgl 2, whose last release for everybody imports
with torch 2.2.1 at the latest; PyG samples by pyg-lib, which its authors serve from an index of their own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.peers import Found, Peer, find_peer


@dataclass(frozen=True)
class Environment:
    """What is installed for a peer.

    Attributes:
        needs: the peer's name in ``PEERS``.
        packages: for pip, in this order; each line is an installation of its own.
        advice: what to do where pip has no such package.
    """

    needs: str
    packages: tuple[tuple[str, ...], ...]
    advice: str


ENVIRONMENTS = (
    Environment(
        "GraphBolt",
        # Without what dgl would bring along: a torchdata of 2024 is what its GraphBolt imports.
        (
            ("torch==2.2.1", "numpy<2"),
            ("dgl==2.1.0", "torchdata==0.7.1", "pydantic", "pandas<3", "pyyaml", "scipy", "psutil"),
        ),
        "dgl 2.1.0 has builds for Python 3.8 to 3.12: make compare PYTHON=python3.11",
    ),
    Environment(
        "pyg-lib",
        # First what may be missing, before gigabytes of torch come.
        (("pyg-lib",), ("torch", "numpy"), ("torch-geometric", "psutil")),
        "PyPI has no pyg-lib: name the page of PyG's builds for your torch in PIP_FIND_LINKS, or build it from source "
        "and give its interpreter by --pyg-python",
    ),
)


def made(folder: Path, peers: dict[str, Peer], report: Callable[[str], None]) -> dict[str, Found]:
    """Makes what is missing in ``folder``; returns what was found of each peer, by its name."""
    outcome = {}
    for environment in ENVIRONMENTS:
        home = folder / environment.needs.lower()
        python = home / "bin" / "python"
        problem = ""
        if not (home / "complete").exists():
            report(f"{environment.needs}: making {home}, which takes minutes")
            problem = _make(environment, home)
        peer = peers[environment.needs]
        if problem:
            outcome[environment.needs] = Found(peer, str(python), missing=f"{problem}. {environment.advice}")
        else:
            (home / "complete").touch()
            outcome[environment.needs] = find_peer(peer, str(python))
    return outcome


def _make(environment: Environment, home: Path) -> str:
    """Returns why it could not be made; an empty text where it was."""
    python = str(home / "bin" / "python")
    commands = [(sys.executable, "-m", "venv", "--clear", str(home))]
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    commands += [(*pip, *packages) for packages in environment.packages]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr[-300:]]
            return f"pip could not install {' '.join(command[len(pip) :])}: {lines[-1].strip()}"
    return ""
