"""Owner actors: the owners of a partition, which Ray places on storage machines, and starts again when they are lost.

Rows and lists go over the owners' own connections. Ray tells where they listen, and takes the secret to them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.train.collective import broadcast_from_rank_zero
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lightning_gnnload.errors import LaunchError, RoleConfigError
from lightning_gnnload.host.machines import STORAGE
from lightning_gnnload.owners.batches import BatchOwner
from lightning_gnnload.owners.tcp import TcpFront
from lightning_gnnload.storage.partitions import load_partition

_ANSWER_S = 5.0


@dataclass(frozen=True)
class OwnerActors:
    """The owners of one partition's folder, alike in all ranks. ``handles`` are Ray's, of one actor an owner."""

    folder: Path
    handles: Sequence[Any]
    secret: str = field(repr=False)

    @classmethod
    def start(cls, folder: Path, num_owners: int, timeout_s: float) -> OwnerActors:
        """Starts them in rank 0, whose end is theirs; every rank of Ray Train calls this.

        Owner ``i`` of ``n`` has the parts ``i``, ``i + n`` and so on; owners beyond the number of parts have copies,
        and any of a part's owners may answer. The folder lies under the same path on each machine of an owner.

        Raises:
            RoleConfigError: too few machines have the resource ``storage``.
            LaunchError: owners did not start in time, or failed.
        """
        started = None
        if ray.train.get_context().get_world_rank() == 0:
            started = cls(folder, *_start(folder, num_owners, timeout_s))
        return broadcast_from_rank_zero(started)

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

    def __init__(self, folder: Path, num_owners: int, index: int, secret: str, is_alone: bool) -> None:
        partition = load_partition(folder)
        first = index % partition.num_parts
        parts = range(first, partition.num_parts, num_owners)
        host = "127.0.0.1" if is_alone else ray.util.get_node_ip_address()
        self._front = TcpFront(BatchOwner(partition, parts, secret.encode()), host, 0, secret.encode())

    def address(self) -> str:
        return str(self._front.address)


def _start(folder: Path, num_owners: int, timeout_s: float) -> tuple[list[Any], str]:
    secret = secrets.token_urlsafe(32)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    is_alone = len({node["NodeManagerAddress"] for node in nodes}) == 1
    options = _options(nodes, num_owners, timeout_s)
    actor: Any = ray.remote(num_cpus=0, max_restarts=-1)(_OwnerActor)
    handles: list[Any] = [
        actor.options(**options[index]).remote(folder, num_owners, index, secret, is_alone)
        for index in range(num_owners)
    ]
    try:
        ray.get([handle.address.remote() for handle in handles], timeout=timeout_s)
    except RayError as error:
        for handle in handles:
            ray.kill(handle)
        raise LaunchError(
            f"the owners of {folder} did not start within {timeout_s:.0f} s, or failed. Each machine that may have one "
            f"needs the folder under this path: give the machines that do Ray's resource {STORAGE!r}, as "
            f"ray start --resources='{{\"{STORAGE}\": 1}}'. Raise connect_timeout_s where they are only slow. ({error})"
        ) from error
    return handles, secret


def _options(nodes: Sequence[dict[str, Any]], num_owners: int, timeout_s: float) -> list[dict[str, Any]]:
    """Ray's options for each owner's place: one a machine that has the resource, or spread over all machines."""
    storing = [node for node in nodes if node["Resources"].get(STORAGE, 0) >= 1]
    if not storing:
        return [{"scheduling_strategy": "SPREAD"}] * num_owners
    if len(storing) < num_owners:
        raise RoleConfigError(
            f"owners={num_owners}, but {len(storing)} machines of this cluster have the resource {STORAGE!r}, each for "
            f"one owner. Use fewer owners, or start Ray on more machines by ray start --resources="
            f"'{{\"{STORAGE}\": 1}}'."
        )
    group = placement_group([{STORAGE: 1}] * num_owners, strategy="STRICT_SPREAD")
    if not group.wait(timeout_s):
        raise LaunchError(f"{STORAGE!r} is in use on the machines for {num_owners} owners: does another run have it?")
    return [
        {
            "resources": {STORAGE: 1},
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        }
        for index in range(num_owners)
    ]
