"""LinkedMemory: memory on the devices of all ranks of a machine, which those that are linked read of each other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from lightning_gnnload.cache.device.memory_use import shrinking
from lightning_gnnload.cache.device.peer_access import PeerAccess
from lightning_gnnload.cache.device.shards import PrivateMemory, Shards
from lightning_gnnload.cache.peers import PeerGroup, PeerValue
from lightning_gnnload.errors import CudaCallError, DeviceMemoryError, DeviceShareError
from lightning_gnnload.host.memory import in_units
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.runtime import NO_MEMORY, Runtime
from lightning_gnnload.ops.cuda.launch.shared_memory import ExportedMemory, MemoryHandle, OpenedMemory


class LinkedMemory:
    """Takes memory on each rank's device, and opens that of the ranks whose devices are linked to this one's.

    Every step is collective: all ranks take it, in the same order, as each depends on all ranks' answers. Without
    ``peers`` the rank is alone. ``label`` says in messages what the memory is.

    Attributes:
        access: which ranks' devices read each other's memory, as far as is known.
        shards: the memory of this rank's group, by the ranks of :attr:`group`; the caller closes it.
    """

    def __init__(self, device: Device, peers: PeerGroup | None, runtime: Runtime, label: str) -> None:
        self.shards = Shards()
        self.rank = 0 if peers is None else peers.membership.index
        self.count = 1 if peers is None else peers.membership.count
        self.access = PeerAccess(self.count)
        self._device, self._peers, self._runtime, self._label = device, peers, runtime, label
        self._unshared = ""

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def group(self) -> list[int]:
        """The ranks whose devices all read each other's memory, this one among them."""
        return next(group for group in self.access.groups() if self.rank in group)

    def probe(self) -> None:
        """Asks CUDA which devices are linked. Raises CacheShareError where a rank failed or is gone."""
        if self._peers is not None:
            self.access = PeerAccess.probe(self._peers, self._runtime)

    def take(self, num_bytes: int) -> int:
        """Takes memory, and opens that of the group's others. Returns how many bytes this rank got: where some rank's
        device refuses, all try with a fifth less, three times at most. Raises DeviceMemoryError where it still
        refuses, CacheShareError where a rank failed or is gone."""
        # Each turn but the last loses a link, so the loop ends.
        while True:
            num_bytes = shrinking(
                self._allocate, num_bytes, close=lambda _: self.shards.close(), all_have=self._all_have
            )
            if self._open():
                return num_bytes
            self.shards.close()
            self.shards = Shards()

    def _allocate(self, num_bytes: int) -> int:
        """Takes memory, which others can open where the group has any. Raises DeviceMemoryError."""
        self.shards = Shards(memory=self._shared(num_bytes) if len(self.group) > 1 else None)
        # Private where CUDA cannot share: _open() tells the others, and this rank becomes its own group.
        if self.shards.memory is None:
            self.shards.memory = PrivateMemory(self._device, num_bytes)
        return num_bytes

    def _shared(self, num_bytes: int) -> ExportedMemory | None:
        """Allocates memory that other ranks can open; None where CUDA cannot share memory here. Raises
        DeviceMemoryError."""
        assert self._peers is not None, "a rank alone shares with nobody"
        try:
            label = f"{self._label} of rank {self.rank} of {self._peers.membership.name!r}"
            return ExportedMemory(self._runtime, num_bytes, label)
        except CudaCallError as failure:
            if failure.name == NO_MEMORY:
                raise DeviceMemoryError(
                    f"{in_units(num_bytes)} on the device of rank {self.rank}, which has "
                    f"{in_units(self._runtime.free_bytes())} free: {failure}"
                ) from failure
            self._unshared = str(failure)
            return None

    def _all_have(self, succeeded: bool) -> bool:
        if self._peers is None:
            return succeeded
        return all(value.fields["has"] for value in self._peers.all_gather({"has": succeeded}))

    def _open(self) -> bool:
        """Opens the memory of the group's other ranks. Returns whether all ranks could; otherwise links were
        removed."""
        memory, group = self.shards.memory, self.group
        assert memory is not None, "memory comes first"
        self.shards.own_shard = group.index(self.rank)
        self.shards.addresses = [memory.address] * len(group)
        if self._peers is None:
            return True
        if isinstance(memory, ExportedMemory):
            values = self._peers.all_gather({"memory_handle": memory.memory_handle.values}, memory.fd)
        else:
            values = self._peers.all_gather({"unshared": self._unshared})
        unread = self._open_others(group, values)
        # Collective over all groups, so that every rank's record of links stays the same.
        return not self.access.remove([value.fields["unread"] for value in self._peers.all_gather({"unread": unread})])

    def _open_others(self, group: Sequence[int], values: Sequence[PeerValue]) -> dict[str, str]:
        """Opens the memory of the other ranks of a group. Returns the ranks whose memory cannot be read, and why."""
        fds = [value.fd for value in values]
        unread = {}
        try:
            for position, peer in enumerate(group):
                if peer == self.rank:
                    continue
                try:
                    self.shards.addresses[position] = self._open_memory(values[peer].fields, fds, peer)
                except DeviceShareError as error:
                    unread[str(peer)] = str(error)
        finally:
            for fd in fds:
                if fd >= 0:
                    os.close(fd)
        return unread

    def _open_memory(self, fields: dict[str, Any], fds: list[int], peer: int) -> int:
        """Opens another rank's memory and returns its address. Raises DeviceShareError."""
        if "memory_handle" not in fields:
            raise DeviceShareError(f"rank {peer} cannot share its device's memory. {fields.get('unshared')}")
        memory_handle = MemoryHandle.from_values(fields["memory_handle"])
        fd, fds[peer] = fds[peer], -1  # OpenedMemory closes it, so the caller must not
        self.shards.opened.append(OpenedMemory(self._runtime, memory_handle, fd))
        return self.shards.opened[-1].address
