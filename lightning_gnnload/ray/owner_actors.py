"""Owner actors: the owners of a partition, which Ray places on storage machines, and starts again when they are lost.

Rows and lists go over the owners' own connections. Ray tells where they listen, and takes the secret to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.train.collective import broadcast_from_rank_zero
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lightning_gnnload.errors import LaunchError
from lightning_gnnload.host.machines import STORAGE
from lightning_gnnload.owners.batch_owner import BatchOwner
from lightning_gnnload.owners.tcp import TcpFront
from lightning_gnnload.ray.compat import train_context
from lightning_gnnload.storage.partitions import StoredPartition, load_partition

_SHARE = 0.001  # of it, which an owner takes: on what machines are left, owners of lost ones find room
_ANSWER_S = 5.0


@dataclass(frozen=True)
class OwnerActors:
    """The owners of one partition's folder, alike in all ranks. ``handles`` are Ray's, of one actor an owner."""

    folder: Path
    handles: Sequence[Any]

    @classmethod
    def start(cls, partition: StoredPartition, num_owners: int, secret: str, timeout_s: float) -> OwnerActors:
        """Starts them in rank 0, whose end is theirs; every rank of Ray Train calls this.

        An owner has all parts that lie on its machine; but where all do, owner ``i`` of ``n`` has the parts ``i``,
        ``i + n`` and so on, and owners beyond the number of parts have copies. Any of a part's owners may answer. The
        folder lies under the same path on each machine of an owner.

        Raises:
            LaunchError: owners did not start in time, failed, or have not all parts between them.
        """
        handles = None
        if train_context().get_world_rank() == 0:
            handles = _start(partition, num_owners, secret, timeout_s)
        return cls(partition.folder, broadcast_from_rank_zero(handles))

    def addresses(self) -> list[str]:
        """Asks where the owners listen now: one that was started again has another port. Those that do not answer are
        left out."""
        pending = [handle.address.remote() for handle in self.handles]
        answered, _ = ray.wait(pending, num_returns=len(pending), timeout=_ANSWER_S)
        addresses = []
        for answer in answered:
            try:
                addresses.append(ray.get(answer))
            except RayActorError:  # it is gone, or about to come back
                continue
        return addresses


class _OwnerActor:
    """An owner that serves from its start on; Ray runs it in a process of its own."""

    def __init__(self, folder: Path, num_owners: int, index: int, secret: str) -> None:
        partition = load_partition(folder)
        self._parts = parts_of(partition, num_owners, index)
        owner = BatchOwner(partition, self._parts, secret.encode())
        is_alone = len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}) == 1
        self._front = TcpFront(owner, "127.0.0.1" if is_alone else ray.util.get_node_ip_address(), 0, secret.encode())

    def address(self) -> str:
        return str(self._front.address)

    def parts(self) -> list[int]:
        return self._parts


def parts_of(partition: StoredPartition, num_owners: int, index: int) -> list[int]:
    """Returns the parts that an owner has: a share, where all lie on its machine; else whatever does."""
    here = partition.parts_here
    if len(here) < partition.num_parts:
        return here
    return [*range(index % partition.num_parts, partition.num_parts, num_owners)]


def _start(partition: StoredPartition, num_owners: int, secret: str, timeout_s: float) -> list[Any]:
    folder = partition.folder
    actor: Any = ray.remote(num_cpus=0, max_restarts=-1)(_OwnerActor)
    handles: list[Any] = [
        actor.options(**options).remote(folder, num_owners, index, secret)
        for index, options in enumerate(places(ray.nodes(), num_owners))
    ]
    give = f"Give the machines that have it Ray's resource {STORAGE!r}, as ray start --resources='{{\"{STORAGE}\": 1}}'"
    try:
        theirs = ray.get([handle.parts.remote() for handle in handles], timeout=timeout_s)
        if missing := set(range(partition.num_parts)).difference(*theirs):
            raise LaunchError(
                f"{num_owners} owners of {folder} started, but none has the parts {sorted(missing)}, which are not on "
                f"their machines. Copy them there, or use more owners. {give}."
            )
    except (RayError, LaunchError) as error:
        for handle in handles:
            ray.kill(handle)
        if isinstance(error, LaunchError):
            raise
        raise LaunchError(
            f"the owners of {folder} did not start within {timeout_s:.0f} s, or failed. Each machine that may have one "
            f"needs the folder under this path. {give}. Raise connect_timeout_s where they are only slow. ({error})"
        ) from error
    return handles


def places(nodes: Sequence[dict[str, Any]], num_owners: int) -> list[dict[str, Any]]:
    """Returns Ray's options for each owner's place: the machines that have the resource in turn, or all, where none
    has it. An owner whose machine is lost may be on any other of these."""
    alive = sorted((node for node in nodes if node["Alive"]), key=lambda node: node["NodeManagerAddress"])
    storing = [node for node in alive if node["Resources"].get(STORAGE, 0) > 0]
    return [
        {
            "resources": {STORAGE: _SHARE} if storing else {},
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=True),
        }
        for index in range(num_owners)
        for node in [(storing or alive)[index % len(storing or alive)]]
    ]
