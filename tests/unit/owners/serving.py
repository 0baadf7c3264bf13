"""Graphs whose parts have owners: in this process, or as processes of their own that can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload import Graph, GraphData
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.owners.batch_owner import BatchOwner
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.tcp import TcpFront

SECRET = "known to tests alone"


def graph_data(num_nodes: int = 60, num_edges: int = 400, *, width: int = 5, seed: int = 0) -> GraphData:
    """Hubs, loops, repeated edges and nodes without lists; row ``v`` of x begins by ``v``."""
    rng = np.random.default_rng(seed)
    graph = Graph.from_coo(
        rng.integers(0, num_nodes, num_edges),
        (num_nodes * rng.random(num_edges) ** 2).astype(np.int64),
        num_nodes=num_nodes,
        edge_weight=rng.random(num_edges).astype(np.float32),
        edge_type=rng.integers(0, 3, num_edges),
    )
    x = torch.arange(num_nodes).unsqueeze(1) + torch.arange(width) / 8
    return GraphData(graph, x, torch.arange(num_nodes) % 7, np.arange(num_nodes)[::2].copy())


@contextmanager
def served(
    partition: Partition, parts: Sequence[Sequence[int]] | None = None, **settings: Any
) -> Iterator[tuple[Owners, list[TcpFront]]]:
    """A client, and the fronts of an owner for each of ``parts`` in this process."""
    with ExitStack() as stack:
        parts = [[part] for part in range(partition.num_parts)] if parts is None else parts
        fronts = [
            stack.enter_context(TcpFront(BatchOwner(partition, own, SECRET.encode()), "127.0.0.1", 0, SECRET.encode()))
            for own in parts
        ]
        owners = Owners.connect(partition, [str(front.address) for front in fronts], secret=SECRET, **settings)
        stack.callback(owners.close)
        yield owners, fronts


class OwnerProcess:
    """``gnnload own`` as a process; it is killed in the end, whatever state it is in.

    Args:
        popen: starts it: by default as a user does, ``forkserver.Popen`` within a fraction of a second.
        log: what it tells goes there; None: :meth:`told` reads it.
    """

    def __init__(
        self,
        folder: Path,
        secret_file: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
        log: Path | None = None,
    ) -> None:
        command = [sys.executable, "-m", "lightning_gnnload.plugin.commands.cli", "own", str(folder), "--json"]
        with log.open("ab") if log else nullcontext(subprocess.PIPE) as stderr:
            self.process = popen(
                [*command, "--secret-file", str(secret_file), *options],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
            )
        self.address = ""

    def wait_until_ready(self) -> str:
        """Returns its address."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.told()
        self.address = json.loads(line)["address"]
        return self.address

    def told(self) -> str:
        """Returns what it told, once it has ended."""
        self.process.wait(60)
        return self.process.stderr.read().decode() if self.process.stderr else ""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in filter(None, (self.process.stdout, self.process.stderr)):
            pipe.close()

    def __enter__(self) -> OwnerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
