"""PeerAccess: the ranks whose devices read each other's memory, and so can share a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.ops.cuda.launch.runtime import Runtime


class PeerAccess:
    """Records which ranks' devices read each other's memory, the same record in all ranks of a machine. All are linked
    at first, and links only get fewer; ``reasons`` has a line for each that is gone.

    Source: GPUs that are linked to each other: DSP (PPoPP'23), sections 2 and 3.1, also of Quiver's and DGL's groups.
    """

    def __init__(self, count: int) -> None:
        self.reasons: list[str] = []
        self._linked = np.ones((count, count), bool)

    @classmethod
    def probe(cls, peers: PeerGroup, runtime: Runtime) -> PeerAccess:
        """Asks CUDA which ranks' devices read each other's memory. Two that no process sees both count as linked, as
        only opening memory can tell. Raises CacheShareError where a rank failed or is gone."""
        devices = [number for number in range(runtime.num_devices()) if number != runtime.device]
        refused = [runtime.identity(number) for number in devices if not runtime.can_access(number)]
        reports = [
            value.fields for value in peers.all_gather({"device": runtime.identity(runtime.device), "refused": refused})
        ]
        links = cls(len(reports))
        links.remove(
            [
                {
                    str(peer): "their GPUs have no peer access"
                    for peer, report in enumerate(reports)
                    if report["device"] in fields["refused"]  # UUIDs: processes number devices differently
                }
                for fields in reports
            ]
        )
        return links

    def remove(self, unread: Sequence[Mapping[str, str]]) -> bool:
        """Removes the links over which ranks could not read, given for each rank the others and the reasons; returns
        whether there were any."""
        before = len(self.reasons)
        for rank, peers in enumerate(unread):
            for peer, reason in peers.items():
                if self._linked[rank, int(peer)]:
                    # Both directions, as every rank of a group reads every other's shard.
                    self._linked[rank, int(peer)] = self._linked[int(peer), rank] = False
                    self.reasons.append(f"ranks {rank} and {peer}: {reason}")
        return len(self.reasons) > before

    def groups(self) -> list[list[int]]:
        """Puts each rank into one group of ranks that are all linked, the largest group first. No group has more ranks
        than a location can name shards.

        Example:
            >>> links = PeerAccess(4)
            >>> links.remove([{"1": "no link", "3": "no link"}, {"2": "no link", "3": "no link"}, {}, {}])
            True
            >>> links.groups()
            [[0, 2], [1], [3]]
        """
        groups, remaining = [], list(range(len(self._linked)))
        while remaining:
            group = self._largest([], remaining)
            groups.append(group)
            remaining = [rank for rank in remaining if rank not in group]
        return groups

    def _largest(self, group: list[int], candidates: Sequence[int]) -> list[int]:
        """Finds the largest group that begins with ``group``; of several, the one of the first ranks."""
        # A maximum clique by branch and bound: exponential, but a machine has few devices.
        best = group
        for position, rank in enumerate(candidates):
            if min(len(group) + len(candidates) - position, ops.MAX_SHARDS) <= len(best):
                break
            further = [peer for peer in candidates[position + 1 :] if self._linked[rank, peer]]
            larger = self._largest([*group, rank], further)
            if len(larger) > len(best):
                best = larger
        return best
