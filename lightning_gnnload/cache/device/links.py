"""Links: the ranks whose devices read each other's memory, and so hold a cache together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.ops.cuda.runtime import Runtime


class Links:
    """Records which ranks' devices read each other's memory; all ranks of a machine have the same record. Links only
    ever get fewer.

    Args:
        count: ranks, each linked to all at first.

    Attributes:
        reasons: why some do not, a line each.

    Source: GPUs that are linked to each other: DSP (PPoPP'23), sections 2 and 3.1, also of Quiver's and DGL's groups.
    """

    def __init__(self, count: int) -> None:
        self.reasons: list[str] = []
        self._linked = np.ones((count, count), bool)

    @classmethod
    def probe(cls, peers: PeerGroup, runtime: Runtime) -> Links:
        """Asks CUDA which ranks' devices read each other's memory. Two that no process sees both may still be
        linked, which only opening memory tells: they count as linked here.

        Raises:
            CacheShareError: a rank failed, or is gone.
        """
        others = [number for number in range(runtime.num_devices()) if number != runtime.device]
        refused = [runtime.identity(number) for number in others if not runtime.can_access(number)]
        said = [
            each.fields for each in peers.all_gather({"device": runtime.identity(runtime.device), "refused": refused})
        ]
        links = cls(len(said))
        links.remove(
            [
                {
                    str(peer): "their GPUs have no peer access"
                    for peer, other in enumerate(said)
                    if other["device"] in fields["refused"]
                }
                for fields in said
            ]
        )
        return links

    def remove(self, unread: Sequence[Mapping[str, str]]) -> bool:
        """Takes note of what each rank could not read.

        Args:
            unread: of each rank: the ranks whose memory it cannot read, and why.

        Returns:
            Whether there was anything.
        """
        before = len(self.reasons)
        for rank, peers in enumerate(unread):
            for peer, reason in peers.items():
                if self._linked[rank, int(peer)]:
                    # Both ways, as every rank of a group reads every other's shard.
                    self._linked[rank, int(peer)] = self._linked[int(peer), rank] = False
                    self.reasons.append(f"ranks {rank} and {peer}: {reason}")
        return len(self.reasons) > before

    def groups(self) -> list[list[int]]:
        """Puts each rank into one group of ranks that are all linked, the largest group first. No group has more ranks
        than a location can name shards.

        Example:
            >>> links = Links(4)
            >>> links.remove([{"1": "no link", "3": "no link"}, {"2": "no link", "3": "no link"}, {}, {}])
            True
            >>> links.groups()
            [[0, 2], [1], [3]]
        """
        groups, left = [], list(range(len(self._linked)))
        while left:
            group = self._largest([], left)
            groups.append(group)
            left = [rank for rank in left if rank not in group]
        return groups

    def _largest(self, group: list[int], candidates: Sequence[int]) -> list[int]:
        """Finds the largest group that begins with ``group``; of several, the one of the first ranks."""
        # A maximum clique by branch and bound: exponential, but a machine has few devices.
        best = group
        for position, rank in enumerate(candidates):
            if min(len(group) + len(candidates) - position, ops.MAX_SHARDS) <= len(best):
                break
            further = [other for other in candidates[position + 1 :] if self._linked[rank, other]]
            found = self._largest([*group, rank], further)
            if len(found) > len(best):
                best = found
        return best
