"""Rendezvous: how the ranks of all machines meet, with as few open ports, on as few interfaces, as possible.

torch's own store listens on every interface, whatever its address, and gloo on the interface of the host's name. Here,
ranks of one machine meet in memory that no other user can open; stores of several machines listen at the main address
alone, and gloo on the interface that leads there, or on loopback.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import struct
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed
from torch.distributed import DistError, PrefixStore, Store, TCPStore

from lightning_gnnload.errors import LaunchError, PeerError, RoleConfigError, TrainerDiedError
from lightning_gnnload.host.heartbeat import Patience
from lightning_gnnload.host.socket_owners import guarded_group
from lightning_gnnload.host.tcp import is_loopback
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.plugin import handover
from lightning_gnnload.plugin.compat import environments
from lightning_gnnload.plugin.job import Job, RolePlan

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


_stores: dict[tuple[str, int], Store] = {}
"""The stores by address and port: a later Trainer of a script takes the first one's, whose port is in use."""


def launch_store(job: Job, timeout: timedelta | None, patience: Patience | None = None) -> Store:
    """Opens one launch's part of the job's store.

    ``timeout`` limits the wait for the rank that hosts the store, and for each key; None is torch's own. ``patience``
    replaces it for that rank: TrainerDiedError if it runs out.
    """
    address, port = job.environment.main_address, job.environment.main_port
    is_local = job.roles.num_nodes == 1 or is_loopback(address)
    # Before any process group: gloo reads the variable when it makes one.
    _choose_interface(address, port, is_local)
    launch_info = handover.current()
    if launch_info is not None and job.roles.num_nodes == 1:
        store = launch_info.store()
        if timeout is not None:
            store.set_timeout(timeout)
    else:
        is_host = job.node_rank == 0 and job.local_rank == 0
        store = meet(address, port, is_host=is_host, is_local=is_local, timeout=timeout, patience=patience)
    # A later launch finds the same store, and must not find this one's keys.
    return PrefixStore(f"gnnload/{job.session}", store)


def meet(
    address: str,
    port: int,
    *,
    is_host: bool,
    is_local: bool,
    timeout: timedelta | None,
    patience: Patience | None = None,
) -> Store:
    """Opens the job's store, once for the life of the process."""
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    # torchrun's agent hosts its own store, at the address in the environment.
    if is_local and not is_agents:
        address = LOOPBACK
    if (address, port) not in _stores:
        options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        if is_host and not is_agents:
            options |= {"is_master": True, "master_listen_fd": _listen(address, port, is_local)}
        elif patience is not None:
            _await_host(address, port, patience)
        _stores[address, port] = TCPStore(address, port, wait_for_workers=False, **options)
    return _stores[address, port]


def _await_host(address: str, port: int, patience: Patience) -> None:
    while True:
        with suppress(OSError):
            socket.create_connection((address, port), NOTICE_S).close()
            return
        if patience.is_over():
            raise TrainerDiedError(
                f"rank 0 did not open the job's store at {address}:{port} in time: {patience}. See its own output; if "
                f"it is only slow to start, raise FactoredStrategy(connect_timeout_s=...)."
            )
        time.sleep(_POLL_S)


def check_machines(store: Store, node_rank: int, roles: RolePlan) -> None:
    """Compares the machines that train. Raises RoleConfigError, in every trainer: they have other numbers of ranks."""
    store.set(f"roles/{node_rank}", layout(roles))
    layouts = [store.get(f"roles/{node}").decode() for node in range(roles.num_training_nodes)]
    if len(set(layouts)) > 1:
        raise RoleConfigError(
            f"the machines of this job differ: {'; '.join(f'node {i} has {text}' for i, text in enumerate(layouts))}. "
            f"FactoredStrategy needs as many devices and samplers on each: start the same command on all."
        )


def layout(roles: RolePlan) -> str:
    """What must be alike on all machines of a job, in words."""
    num_trainers = roles.world_size // roles.num_training_nodes
    words = f"{num_trainers} trainers and {roles.num_samplers} samplers"
    return f"{words} beside {roles.sampler_nodes} machines that sample" if roles.sampler_nodes else words


def form_group(backend: str, store: Store, *, rank: int, world_size: int, timeout: timedelta | None) -> None:
    """Forms the trainers' default process group. Raises StrangerError: a process of another user has connected to
    it."""
    limit: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    with guarded_group(world_size, backend):
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, **limit)


def leave_group() -> None:
    """Destroys the default process group in this process, if there is one."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _choose_interface(address: str, port: int, is_local: bool) -> None:
    """Tells gloo the interface by the environment, its only way; a value of the user's stays."""
    interface = "lo" if is_local else _interface_towards(address, port)
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def _listen(address: str, port: int, is_local: bool) -> int:
    """Opens a listening socket at ``address``, or at all addresses if that is none of this machine's own."""
    family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    everywhere = ("", port)
    if not is_local and is_loopback(str(where[0])):
        where = everywhere  # Debian has a host's own name mean 127.0.1.1, where no other machine gets
    bound = socket.socket(family, socket.SOCK_STREAM)
    # For a job that follows another one at once: the port's old connections linger for a minute.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(where)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        bound.bind(everywhere)  # behind address translation
    bound.listen()
    return bound.detach()  # the store closes it


def address_towards(address: str, port: int) -> str:
    """Returns this machine's own address on the way to another one, or to itself; by that, others reach it. Raises
    LaunchError: there is no way."""
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)  # sends nothing: the kernel looks up the route
            return str(probe.getsockname()[0])
    except OSError as error:
        raise LaunchError(
            f"no way leads to MASTER_ADDR={address} from here: {error}. Set it to an address of the first machine."
        ) from error


def _interface_towards(address: str, port: int) -> str | None:
    """Finds the interface that leads to another machine; None where that is unclear, or for an IPv6 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, port))  # sends nothing: the kernel looks up the route
            address_here = probe.getsockname()[0]
            # The address is this machine's own: it does not say by which interface the others come.
            if is_loopback(address_here):
                return None
            for _, name in socket.if_nameindex():
                try:
                    answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                except OSError:
                    continue  # it has no address
                if socket.inet_ntoa(answer[20:24]) == address_here:
                    return name
        except OSError:
            pass
    return None


_SEVERAL = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")


def check_environment(environment: environments.ClusterEnvironment, roles: RolePlan) -> None:
    """Checks the launch. Raises LaunchError: it did not start what the Trainer's ``devices`` and ``num_nodes`` say."""
    if isinstance(environment, environments.TorchElasticEnvironment):
        _check_torchrun(roles)
    elif isinstance(environment, environments.SLURMEnvironment):
        _check_slurm(roles)
    elif isinstance(environment, environments.LightningEnvironment) and roles.num_nodes > 1:
        _check_several(roles.num_nodes)


def _check_torchrun(roles: RolePlan) -> None:
    for variable, option, name, needed in (
        ("LOCAL_WORLD_SIZE", "--nproc-per-node", "devices", roles.num_devices),
        ("GROUP_WORLD_SIZE", "--nnodes", "num_nodes", roles.num_nodes),
    ):
        started = int(os.environ.get(variable, needed))
        if started != needed:
            raise LaunchError(
                f"torchrun was started with {option}={started}, but the Trainer has {name}={needed}: the two must be "
                f"equal, on every machine. devices counts trainers and samplers."
            )


def _check_slurm(roles: RolePlan) -> None:
    # Of the step that srun started, where there is one; else of the whole allocation. "2(x3),1" is 2, 2, 2 and 1.
    layout = os.environ.get("SLURM_STEP_TASKS_PER_NODE") or os.environ.get("SLURM_TASKS_PER_NODE")
    if layout is not None:
        counts = {int(count) for count in re.findall(r"(?:^|,)(\d+)", layout)}
        if counts != {roles.num_devices}:
            raise LaunchError(
                f"SLURM starts {layout} tasks on its nodes, but the Trainer has devices={roles.num_devices}: each node "
                f"needs as many tasks, as devices counts trainers and samplers. "
                f"Use sbatch or srun --ntasks-per-node={roles.num_devices}."
            )


def _check_several(num_nodes: int) -> None:
    missing = [name for name in _SEVERAL if name not in os.environ]
    if "GROUP_RANK" in os.environ and "NODE_RANK" in missing:
        missing.remove("NODE_RANK")  # Lightning takes either
    if missing:
        raise LaunchError(
            f"num_nodes={num_nodes}, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set. On each "
            f"machine, set MASTER_ADDR to the address of the first, MASTER_PORT to a free port there, and NODE_RANK to "
            f"0, 1, ...; then start the same script on all. Or start it by torchrun or SLURM, which set them."
        )
    node_rank = int(os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", 0)))
    if not 0 <= node_rank < num_nodes:
        raise LaunchError(f"NODE_RANK={node_rank}, but num_nodes={num_nodes}: from 0 to {num_nodes - 1} is needed.")


NOTICE_S = 2.0
"""Within so long, the sampler of a rank that ends has posted why."""
_KEY = "failure"
_POLL_S = 0.1


class FailureStore:
    """Passes failures between machines, through the job's store. Does nothing on a single machine."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def post(self, failure: Failure) -> None:
        with suppress(DistError):  # the one who keeps the store is gone, which the others will see for themselves
            if (store := self._store()) is not None:
                # Later failures are mostly consequences of the first.
                store.compare_set(_KEY, "", json.dumps(failure.to_json()))

    def find(self, timeout_s: float = 0.0) -> PeerError | None:
        """Finds why a collective failed, if any rank posts it within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        try:
            if (store := self._store()) is None:
                return None
            while not store.check([_KEY]):
                if time.monotonic() > deadline:
                    return None
                time.sleep(_POLL_S)
            return Failure.from_message(json.loads(store.get(_KEY))).error()
        except DistError as error:
            text = f"Nobody answers where rank 0, or its launcher, kept the job's store: {error}"
            return Failure("trainer", 0, True, "train", text).error()

    def _store(self) -> Store | None:
        if self._job.roles.num_nodes == 1:
            return None
        # Samplers come here for the first time, maybe after the store's end: they must not wait for it, as torch's
        # client would, for seconds beyond its timeout.
        environment = self._job.environment
        try:
            socket.create_connection((environment.main_address, environment.main_port), NOTICE_S).close()
        except OSError as error:
            raise DistError(str(error)) from error
        return launch_store(self._job, timedelta(seconds=NOTICE_S))
