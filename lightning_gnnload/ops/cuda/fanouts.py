"""What pickers of so many neighbours a node have in common, whether they draw uniformly or by weight."""

from __future__ import annotations

import torch

from ..dispatch import ALL_NEIGHBORS
from .batch import THREADS, DeviceBatch
from .hop import HopInMaking

_MOST_TABLE_BYTES = 64 << 20


class FanoutPicker:
    """A fanout a hop; see :class:`.Picker`.

    Args:
        fanouts: nearest hop first; -1 takes all.
        replace: draw with replacement.
        edge_ids: also write these.
    """

    edge_weights = False

    def __init__(self, fanouts: list[int], replace: bool, edge_ids: bool) -> None:
        self.fanouts, self.replace, self.edge_ids = fanouts, replace, edge_ids

    def most_edges(self, hop: HopInMaking) -> int | None:
        fanout = self.fanouts[hop.index]
        return None if fanout == ALL_NEIGHBORS else hop.most_dst * fanout


def lanes_for(fanout: int) -> int:
    """How many lanes of a warp serve a destination."""
    return next((lanes for lanes in (8, 16) if 0 < fanout <= lanes), 32)


def pick_table(batch: DeviceBatch, fanout: int, lanes: int, blocks: int) -> tuple[int, torch.Tensor, int]:
    """Scratch in which each group of lanes notes what it has picked, and no more blocks than there is scratch for.

    Returns:
        blocks, the table, and how much of it is a group's: a power of two, more than twice the fanout.
    """
    size = 1 << (2 * fanout).bit_length()
    groups_a_block = THREADS // lanes
    blocks = max(min(blocks, _MOST_TABLE_BYTES // (4 * size * groups_a_block)), 1)
    return blocks, batch.device.empty(blocks * groups_a_block * size, torch.int32), size
