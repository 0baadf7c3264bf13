"""PartitionFolder: a partition as a data set, for trainers that have no graph."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.errors import DatasetError
from lightning_gnnload.storage.manifest import MANIFEST
from lightning_gnnload.storage.open_folder import OpenFolder
from lightning_gnnload.storage.partitions import StoredPartition, load_partition


@dataclass
class PartitionFolder(Dataset):
    """The data of a partition whose lists and rows lie with their owners. A :class:`.Partition`, or the path of its
    folder, stands for it wherever data are asked for.

    The folder need not have its parts: the head is enough, which is all files beside them.

    Args:
        partition: that was loaded, or its folder.

    Raises:
        DatasetError: when it is loaded: a partition that was made in memory.
        PartitionError: likewise, one whose parts hold hops of their seeds.
        StoreFormatError: likewise, a folder that is missing or broken.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, partition_graph
        >>> data = GraphData(Graph.from_coo([1, 3], [0, 2]), train=[0, 2])
        >>> _ = partition_graph(data, "owned", 2, "random", hops=0, progress=False)
        >>> PartitionFolder("owned").load()
        GraphData(RemoteGraph(num_nodes=4, num_edges=2), num_features=0, train=2, val=0, test=0)
    """

    partition: Partition | Path | str

    def prepare(self) -> None:
        """Makes nothing: the partition was made before."""

    def open(self) -> StoredPartition:
        """Maps the partition, once."""
        if not isinstance(self.partition, Partition):
            self.partition = load_partition(self.partition)
        if not isinstance(self.partition, StoredPartition):
            raise DatasetError(
                f"{self.partition!r} was made in memory, where owners have no folder of it. Give what partition_graph "
                "returns, or load_partition(folder)."
            )
        return self.partition

    def load(self) -> GraphData:
        return self.open().graph_data


def holds_rows(folder: str | os.PathLike[str]) -> bool:
    """Tells whether a path is the folder of a partition whose rows lie with their owners, and so is data in itself."""
    if not os.path.exists(os.path.join(folder, MANIFEST)):
        return False
    with OpenFolder(folder) as opened:
        described = opened.manifest["attributes"].get("partition")
    return isinstance(described, dict) and "rows" in described
