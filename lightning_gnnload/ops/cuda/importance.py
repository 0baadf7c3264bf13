"""DeviceTree: items and their importances on a device, to draw from.

Shapes: C items, n draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from ..dispatch import DrawKey
from .batch import THREADS, DeviceBatch
from .device import Device
from .topology import Topology

# A lane of the warp that searches looks at each.
_CHILDREN = 32


@dataclass(frozen=True)
class DrawnItems:
    """The items that a layer-wise draw has chosen.

    Attributes:
        items: int64 ``[n]``; negative: none, since the budget takes all, or since there are none.
        importances: int64 ``[n]``, of each.
        factors: float64 ``[n]``, of each draw.
    """

    items: torch.Tensor
    importances: torch.Tensor
    factors: torch.Tensor

    @property
    def budget(self) -> int:
        """The number of draws, n."""
        return len(self.items)


class DeviceTree:
    """A tree of importance sums on a device, which a warp searches (``kernels/importance_tree/wide_tree.h``); of one
    thread.

    Args:
        device: where it lies; 8.3 bytes an item.
        num_items: C.

    Attributes:
        importances: int64 ``[C]``, zero at first; whoever changes them calls :meth:`sum_up`.
        entries: int64, all sums, of which the first ``num_entries`` are of items.
        num_positive: int64 ``[1]``: of items of positive importance.
        most_positive: likewise, as far as the host knows.

    Raises:
        DeviceMemoryError: the device has no room for it.
    """

    def __init__(self, device: Device, num_items: int) -> None:
        self._device = device
        self._sizes = [_whole_groups(num_items)]
        while self._sizes[-1] > _CHILDREN:
            self._sizes.append(_whole_groups(self._sizes[-1] // _CHILDREN))
        self.entries = device.zeros(sum(self._sizes), torch.int64)
        self.importances = self.entries[:num_items]
        self.num_entries = self._sizes[0]
        self.num_positive = device.zeros(1, torch.int64)
        self.most_positive = num_items

    @classmethod
    def of(cls, device: Device, topology: Topology) -> DeviceTree:
        """Builds the tree of all nodes of a graph, by importance to all of it, as
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
        """Computes all sums from the importances; to be called once."""
        levels = list(self.entries.split(self._sizes))
        # The top level's own sum goes nowhere: it is there to count the items of a tree of one level.
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

    def draw(self, batch: DeviceBatch, key: DrawKey, budget: int, replace: bool) -> DrawnItems:
        """Draws items in proportion to their importance; without replacement, the tree loses them.

        Args:
            batch: whose first node names the draws.
            key: decides them.
            budget: n.
        """
        items, importances = (self._device.empty(budget, torch.int64) for _ in range(2))
        drawn = DrawnItems(items, importances, self._device.empty(budget, torch.float64))
        batch.launch(
            "importance_tree",
            "draw_items",
            # Without replacement a draw needs all before it, so one warp makes them in turn.
            blocks=self._blocks(budget * _CHILDREN) if replace else 1,
            threads=THREADS if replace else _CHILDREN,
            key=key,
            names=batch.topology.names,
            tree=self,
            replace=int(replace),
            drawn=drawn,
        )
        return drawn

    def put_back(self, batch: DeviceBatch, drawn: DrawnItems) -> None:
        """Puts back what :meth:`draw` took."""
        batch.launch("importance_tree", "put_back", blocks=self._blocks(drawn.budget), tree=self, drawn=drawn)

    def _blocks(self, count: int) -> int:
        return max(min(-(-count // THREADS), 8 * self._device.num_processors), 1)


def _whole_groups(count: int) -> int:
    return max(-(-count // _CHILDREN), 1) * _CHILDREN
