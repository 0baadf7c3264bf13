"""How two nodes of a job are told of each other: options of ``launch.start``, for each node."""

from __future__ import annotations

import socket
from typing import Any


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def by_lightning(node: int, port: str, address: str = "127.0.0.1") -> dict[str, Any]:
    return {"environment": {"MASTER_ADDR": address, "MASTER_PORT": port, "NODE_RANK": str(node)}}


def by_static_agents(node: int, port: str) -> dict[str, Any]:
    meet = ["--master-addr=127.0.0.1", f"--master-port={port}", f"--node-rank={node}"]
    return {"how": "torchrun", "agent": ["--nnodes=2", *meet]}


def by_meeting_agents(node: int, port: str) -> dict[str, Any]:
    meet = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=nodes"]
    return {"how": "torchrun", "agent": ["--nnodes=2", *meet]}
