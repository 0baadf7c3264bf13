"""DeviceTree: items and their importances on a device, to draw from.

Shapes: C items, n draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from ..launch.device import Device
from .batch import THREADS, DeviceBatch
from .topology import Topology
from .varying import HopKey

# One for each lane of the warp that searches.
_CHILDREN = 32


@dataclass(frozen=True)
class DrawnItems:
    """The items that a layer-wise draw has chosen."""

    items: torch.Tensor  # int64 [n]; negative: none, as the budget takes all or there are none
    importances: torch.Tensor  # int64 [n], of each
    factors: torch.Tensor  # float64 [n], of each draw

    @property
    def budget(self) -> int:
        """The number of draws, n."""
        return len(self.items)


class DeviceTree:
    """A tree of the importance sums of C items on a device, which a warp searches
    (``kernels/importance_tree/wide_tree.h``); for one thread; 8.3 bytes an item. Raises DeviceMemoryError where the
    device has no room for it."""

    def __init__(self, device: Device, num_items: int) -> None:
        self._device = device
        self._sizes = [_whole_groups(num_items)]
        while self._sizes[-1] > _CHILDREN:
            self._sizes.append(_whole_groups(self._sizes[-1] // _CHILDREN))
        self.entries = device.zeros(sum(self._sizes), torch.int64)  # the sums of all levels, the items first
        self.importances = self.entries[:num_items]  # whoever changes them calls sum_up()
        self.num_entries = self._sizes[0]
        self.num_positive = device.zeros(1, torch.int64)  # items of positive importance
        self.most_positive = num_items  # the same, as far as the host knows

    @classmethod
    def of(cls, device: Device, topology: Topology) -> DeviceTree:
        """Builds the tree of a graph's nodes by importance to all of it, as
        :func:`lightning_gnnload.ops.importance_tree` does on the CPU. Reads all lists, and the host waits."""
        tree = cls(device, topology.num_nodes)
        device.launch(
            "importance_tree",
            "weigh_nodes",
            (topology.index_type,),
            blocks=tree._blocks(topology.num_nodes * _CHILDREN),
            threads=THREADS,
            graph=topology,
            num_nodes=topology.num_nodes,
            importances=tree.importances,
        )
        tree.sum_up()
        tree.most_positive = int(device.read(tree.num_positive)[0])
        return tree

    def sum_up(self) -> None:
        """Computes all sums from the importances, once."""
        levels = list(self.entries.split(self._sizes))
        # The sum above the top level is not used: it makes the kernel count the items of a tree of one level.
        levels.append(self._device.empty(1, torch.int64))
        for number, (below, sums) in enumerate(pairwise(levels)):
            self._device.launch(
                "importance_tree",
                "sum_level",
                blocks=self._blocks(len(sums) * _CHILDREN),
                threads=THREADS,
                below=below,
                num_below=len(below),
                sums=sums,
                num_sums=len(sums),
                num_positive=self.num_positive if number == 0 else None,
            )

    def draw(self, batch: DeviceBatch, key: HopKey, budget: int, replace: bool) -> DrawnItems:
        """Draws ``budget`` items in proportion to their importance, by the key and the batch's first node; without
        replacement, the tree loses them."""
        items, importances = (self._device.empty(budget, torch.int64) for _ in range(2))
        draws = DrawnItems(items, importances, self._device.empty(budget, torch.float64))
        batch.launch(
            "importance_tree",
            "draw_items",
            # Without replacement a draw depends on all before it, so one warp makes them in turn.
            blocks=self._blocks(budget * _CHILDREN) if replace else 1,
            threads=THREADS if replace else _CHILDREN,
            key=key,
            names=batch.topology.names,
            tree=self,
            replace=int(replace),
            drawn=draws,
        )
        return draws

    def put_back(self, batch: DeviceBatch, items: DrawnItems) -> None:
        """Puts back what :meth:`draw` took."""
        batch.launch("importance_tree", "put_back", blocks=self._blocks(items.budget), tree=self, drawn=items)

    def _blocks(self, count: int) -> int:
        return max(min(-(-count // THREADS), 8 * self._device.num_processors), 1)


def _whole_groups(count: int) -> int:
    return max(-(-count // _CHILDREN), 1) * _CHILDREN
