"""Rendezvous: where the ranks of all machines meet, with as few ports open, on as few interfaces, as can be.

torch's own store listens on every interface, whatever address it is given, and gloo on the one that the host's name
stands for. Here the store listens at the main address alone, and gloo on the interface that leads there: both on
loopback, where all ranks are on one machine.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from datetime import timedelta
from typing import Any

import torch.distributed
from torch.distributed import PrefixStore, Store, TCPStore

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.plugin.compat import environments
from lightning_gnnload.plugin.strategy.roles import RolePlan

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


_stores: dict[tuple[str, int], Store] = {}
"""By address and port: a later Trainer of a script meets where the first one did, as the port is taken."""


def launch_store(
    environment: environments.ClusterEnvironment,
    *,
    num_nodes: int,
    is_host: bool,
    session: int,
    timeout: timedelta | None,
) -> Store:
    """The part of the job's store that belongs to one launch.

    Args:
        environment: knows the main address and port.
        num_nodes: machines of the job.
        is_host: this rank keeps the store, unless torchrun's agent does.
        session: counts launches, alike in every rank.
        timeout: how long to wait for the one who keeps it, and for each key; None for torch's own.
    """
    address, port = environment.main_address, environment.main_port
    is_local = num_nodes == 1 or is_loopback(address)
    _choose_interface(address, port, is_local)
    store = meet(address, port, is_host=is_host, is_local=is_local, timeout=timeout)
    return PrefixStore(f"gnnload/{session}", store)


def meet(address: str, port: int, *, is_host: bool, is_local: bool, timeout: timedelta | None) -> Store:
    """The job's store, one for the life of the process."""
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if is_local and not is_agents:
        address = LOOPBACK
    if (address, port) not in _stores:
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        if is_host and not is_agents:
            options |= {"is_master": True, "master_listen_fd": _listen(address, port, is_local)}
        _stores[address, port] = TCPStore(address, port, wait_for_workers=False, **options)
    return _stores[address, port]


def open_local_store() -> tuple[Store, int]:
    """A store for some ranks of this machine, which lives here, and its port."""
    listening = _listen(LOOPBACK, 0, is_local=True)
    with socket.socket(fileno=os.dup(listening)) as bound:
        port = bound.getsockname()[1]
    return TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listening), port


def join_local_store(port: int) -> Store:
    """The store that another rank of this machine has opened."""
    return TCPStore(LOOPBACK, port, is_master=False, wait_for_workers=False)


def is_loopback(address: str) -> bool:
    """Whether it means this machine to every machine. A host's own name may mean loopback there, and only there."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check_alike(store: Store, node_rank: int, roles: RolePlan) -> None:
    """Raises RoleConfigError, in every trainer: the machines of this job have other numbers of ranks."""
    store.set(f"roles/{node_rank}", f"{roles.num_trainers} trainers and {roles.num_samplers} samplers")
    found = [store.get(f"roles/{node}").decode() for node in range(roles.num_nodes)]
    if len(set(found)) > 1:
        raise RoleConfigError(
            f"the machines of this job differ: {'; '.join(f'node {i} has {text}' for i, text in enumerate(found))}. "
            f"FactoredStrategy needs as many devices and samplers on each: start the same command on all."
        )


def form_group(backend: str, store: Store, *, rank: int, world_size: int, timeout: timedelta | None) -> None:
    """Forms the default process group of the trainers.

    Args:
        backend: ``"gloo"`` or ``"nccl"``.
        store: this launch's own.
        rank: this trainer, of ``world_size``.
        timeout: of its collectives; None for torch's own.
    """
    limit: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, **limit)


def leave_group() -> None:
    """The default process group ends in this process, if there is one."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _choose_interface(address: str, port: int, is_local: bool) -> None:
    """Tells gloo, which takes it from the environment only; what the user has set there stays."""
    interface = "lo" if is_local else _interface_towards(address, port)
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def _listen(address: str, port: int, is_local: bool) -> int:
    """A listening socket at ``address``; everywhere, where this machine does not know it by that address."""
    family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    everywhere = ("", port)
    if not is_local and is_loopback(str(where[0])):
        where = everywhere  # Debian has a host's own name mean 127.0.1.1, where no other machine gets
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(where)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        bound.bind(everywhere)  # behind address translation
    bound.listen()
    return bound.detach()  # the store closes it


def _interface_towards(address: str, port: int) -> str | None:
    """The interface that leads to another machine; None where that is unclear, or the address is of version 6."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, port))  # sends nothing: the kernel looks up the route
            own = probe.getsockname()[0]
            if is_loopback(own):
                return None
            for _, name in socket.if_nameindex():
                try:
                    answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                except OSError:
                    continue  # it has no address
                if socket.inet_ntoa(answer[20:24]) == own:
                    return name
        except OSError:
            pass
    return None
