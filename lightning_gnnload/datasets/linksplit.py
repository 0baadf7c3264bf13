"""LinkSplit: another data set whose edges are the task; some are taken out of the graph, to be found again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.datasets.random_edges import Purpose, fractions, stream
from lightning_gnnload.errors import DatasetError


@dataclass(frozen=True)
class LinkSplit(Dataset):
    """Makes link prediction of a data set with one type of nodes: its edges are the seeds, labels are left out.

    A random share of the pairs of nodes that have edges is held out for validation and for testing: none of their
    edges is in the graph, in either direction. The others are edges of the graph in both directions, and those that
    were given are the seeds to train on, whose rows say which edge they are (``edge_ids``). Edge types and weights are
    left out.

    Args:
        dataset: whose edges, features and tables are taken.
        val: the share of pairs to validate on.
        test: likewise, to test on.
        seed: 0 to 2**64 - 1, of the draw.

    Raises:
        DatasetError: shares that leave no pair, or what is no data set.

    Example:
        >>> from lightning_gnnload import Debian
        >>> LinkSplit(Debian(edge_types=["Depends"], both_directions=False), val=0.02, test=0.05).test
        0.05
    """

    dataset: Dataset
    val: float = 0.05
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.dataset, Dataset):
            raise DatasetError(f"LinkSplit: dataset is a {type(self.dataset).__name__}; give one such as Debian().")
        if not (self.val >= 0 and self.test >= 0 and self.val + self.test < 1):
            raise DatasetError(
                f"LinkSplit: val={self.val} and test={self.test} are shares of the edges; give two of 0 or more that "
                "leave some to train on."
            )

    def prepare(self) -> None:
        self.dataset.prepare()

    def load(self) -> GraphData:
        """Maps the other data set, and builds a graph of the edges that are left, in this process's own memory.

        Raises:
            DatasetError: the other data set was not prepared, or has types of nodes.
        """
        data = self.dataset.load()
        if data.graph.types is not None:
            raise DatasetError(f"LinkSplit: {self.dataset!r} has types of nodes; one type alone can be split.")
        src, dst = data.graph.indices, np.repeat(np.arange(data.num_nodes), data.graph.in_degrees)
        train, val, test = self._split(src, dst, data.num_nodes)
        forward = src[train], dst[train]
        both = np.concatenate(forward), np.concatenate(forward[::-1])
        link_data = GraphData(
            Graph.from_coo(*both, num_nodes=data.num_nodes, keep_order=True),
            data.x,
            train=SeedTable(src=src[train], dst=dst[train], edge_ids=np.arange(len(train))),
            val=SeedTable(src=src[val], dst=dst[val]),
            test=SeedTable(src=src[test], dst=dst[test]),
            tables=data.tables,
        )
        link_data.folder, link_data.folder_fingerprint = data.folder, data.folder_fingerprint
        return link_data

    def _split(self, src: np.ndarray, dst: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns which edges train, validate and test, int64 each; those between the same nodes go together."""
        name = np.minimum(src, dst).astype(np.int64) * num_nodes + np.maximum(src, dst)
        pairs, pair = np.unique(name, return_inverse=True)
        fraction = fractions(stream(self.seed, Purpose.SPLITS).random_raw(len(pairs)))[pair]
        bounds = np.searchsorted([self.test, self.test + self.val], fraction, side="right")
        test, val, train = (np.flatnonzero(bounds == number) for number in range(3))
        return train, val, test
