"""Rendezvous: where the ranks of a job meet, and how the trainers' process group forms.

No port opens beyond this machine without need: torch's own store listens on every interface, whatever address it is
given, and gloo on the one that the host's name stands for. Where all ranks are on one machine, both are told to stay
on the loopback interface.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import torch.distributed

LOOPBACK = "127.0.0.1"
_stores: dict[tuple[str, int], torch.distributed.Store] = {}
"""By address and port: a later Trainer of a script meets where the first one did, as the port is taken."""


def meet(address: str, port: int, *, is_host: bool, is_local: bool, timeout: timedelta) -> torch.distributed.Store:
    """A store that all ranks of the job share.

    Args:
        address: of the rank that keeps the store, and ``port`` likewise.
        is_host: this is that rank. torchrun brings a store of its own, which is used instead.
        is_local: all ranks are on this machine, and were started by Lightning.
        timeout: for the store to appear.
    """
    if is_local:
        address = LOOPBACK
    if (address, port) not in _stores:
        is_host = is_host and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        listener: dict[str, Any] = {}
        if is_host and is_local:
            listener = {"master_listen_fd": _loopback_listener(port)}
        _stores[address, port] = torch.distributed.TCPStore(
            address, port, None, is_host, timeout, wait_for_workers=False, **listener
        )
    return _stores[address, port]


def form_group(
    backend: str,
    *,
    address: str,
    port: int,
    rank: int,
    world_size: int,
    timeout: timedelta | None,
    is_local: bool,
    store: torch.distributed.Store | None = None,
) -> None:
    """Forms the default process group of the trainers.

    Args:
        backend: ``"gloo"`` or ``"nccl"``.
        address: of rank 0, and ``port`` likewise.
        rank: this trainer, of ``world_size``.
        timeout: of its collectives; None for torch's own.
        is_local: all ranks are on this machine, and were started by Lightning. Else the environment decides, as
            ever: torchrun brings a store of its own, and several machines need their network.
        store: where all ranks have met already, if they have.
    """
    limit: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    if is_local:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # gloo takes it from here only
        if store is None or world_size == 1:
            store = _local_store(port, rank, world_size, limit)
    if store is not None:
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, **limit)
    else:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, str(port)
        torch.distributed.init_process_group(backend, rank=rank, world_size=world_size, **limit)


def _local_store(port: int, rank: int, world_size: int, limit: dict[str, Any]) -> torch.distributed.Store:
    if world_size == 1:
        return torch.distributed.HashStore()
    listener: dict[str, Any] = {}
    if rank == 0:
        listener = {"master_listen_fd": _loopback_listener(port)}
    return torch.distributed.TCPStore(
        LOOPBACK, port, world_size, rank == 0, wait_for_workers=False, **listener, **limit
    )


def _loopback_listener(port: int) -> int:
    """A listening socket's descriptor, which the store closes."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((LOOPBACK, port))
    bound.listen()
    return bound.detach()
