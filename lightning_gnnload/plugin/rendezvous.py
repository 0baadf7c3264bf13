"""Rendezvous: how the trainers' process group forms, with no port open beyond this machine.

torch's own store listens on every interface, whatever address it is given, and gloo on the one that the host's name
stands for. Where all ranks are on one machine, both are told to stay on the loopback interface.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import torch.distributed

LOOPBACK = "127.0.0.1"


def form_group(
    backend: str, *, address: str, port: int, rank: int, world_size: int, timeout: timedelta | None, is_local: bool
) -> None:
    """Forms the default process group of the trainers.

    Args:
        backend: ``"gloo"`` or ``"nccl"``.
        address: of rank 0, and ``port`` likewise.
        rank: this trainer, of ``world_size``.
        timeout: of its collectives; None for torch's own.
        is_local: all ranks are on this machine, and were started by Lightning. Else the environment decides, as
            ever: torchrun brings a store of its own, and several machines need their network.
    """
    limit: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    if is_local:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # gloo takes it from here only
        store = _local_store(port, rank, world_size, limit)
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, **limit)
    else:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, str(port)
        torch.distributed.init_process_group(backend, rank=rank, world_size=world_size, **limit)


def _local_store(port: int, rank: int, world_size: int, limit: dict[str, Any]) -> torch.distributed.Store:
    if world_size == 1:
        return torch.distributed.HashStore()
    listener: dict[str, Any] = {}
    if rank == 0:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, port))
        bound.listen()
        listener = {"master_listen_fd": bound.detach()}  # the store closes it
    return torch.distributed.TCPStore(
        LOOPBACK, port, world_size, rank == 0, wait_for_workers=False, **listener, **limit
    )
