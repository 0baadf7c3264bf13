"""GraphFolder: a folder of this package's own as a data set, so that configurations can name it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lightning_gnnload.data.datasets.base import Dataset
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.storage.graphs import load_graph_data


@dataclass(frozen=True)
class GraphFolder(Dataset):
    """Provides the graph in a folder that ``gnnload build`` or :func:`.save_graph_data` wrote.

    Args:
        folder: its path.
        task: whose splits to take, of a folder with several; where it has one alone, that is taken.
        features: ``"mapped"`` or ``"disk"``, as :func:`.load_graph_data` has it.

    Raises:
        StoreFormatError: when loaded: the folder is missing, or is none.

    Example:
        >>> GraphFolder("shop", task="churn").task
        'churn'
    """

    folder: str | Path
    task: str | None = None
    features: Literal["mapped", "disk"] = "mapped"

    def prepare(self) -> None:
        """Does nothing: the folder is there, or :meth:`load` says that it is not."""

    def load(self) -> GraphData:
        return load_graph_data(self.folder, task=self.task, features=self.features)
