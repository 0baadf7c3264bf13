"""GraphFolder: a graph folder of this package as a data set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.errors import DatasetError
from lightning_gnnload.storage.graphs import load_graph_data
from lightning_gnnload.storage.manifest import MANIFEST
from lightning_gnnload.storage.open_folder import OpenFolder

_MAKERS = "`gnnload build` makes one of tables, save_graph_data(data, folder) one of a GraphData"
# Files of other folders that users have at hand.
_FOREIGN = {
    "metadata.yaml": "It looks like one of GraphBolt's, which GraphBolt(folder) reads.",
    "meta.yaml": "It looks like one of DGL's CSV files, which DGLCSV(folder) reads.",
    "graph.yaml": "Its graph.yaml says what to build: gnnload build graph.yaml.",
}


@dataclass(frozen=True)
class GraphFolder(Dataset):
    """A folder that ``gnnload build``, :func:`.save_graph_data` or a data set wrote. A path stands for it wherever data
    are asked for.

    Args:
        folder: of the graph.
        task: whose splits to take, of a folder with several tasks.
        features: where features are gathered from, as :func:`.load_graph_data` has it.
        tables: the tables of nodes to take, likewise; None: all.

    Raises:
        DatasetError: when it is prepared or loaded: there is no such folder, or it holds no graph.
        StoreFormatError: when it is loaded: it is broken, or of a newer version.
        GraphDataError: when it is loaded: there is no such task, or no such table.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, save_graph_data
        >>> save_graph_data(GraphData(Graph.from_coo([0, 1], [1, 0])), "pair")
        >>> GraphFolder("pair").load().graph.num_nodes
        2
    """

    folder: str | os.PathLike[str]
    task: str | None = None
    features: Literal["mapped", "disk"] = "mapped"
    tables: Sequence[str] | None = None

    def prepare(self) -> None:
        """Makes nothing: it looks whether the folder is there, and one of a graph."""
        folder = Path(self.folder)
        if not folder.is_dir():
            problem = "is a file, not a folder of a graph" if folder.exists() else "is no folder"
            # A path may be meant as the name of a data set: Debian, misspelled, is a path of nothing.
            near = get_close_matches(str(self.folder), subclass_names(Dataset), 1)
            meant = f" The data set {near[0]} has a similar name." if near else ""
            if "." in folder.name:
                meant = " If a class is meant, it cannot be imported from here."
            raise DatasetError(f"{folder} {problem}. Give the folder of a graph: {_MAKERS}.{meant}")
        if not (folder / MANIFEST).exists():
            hints = [hint for name, hint in _FOREIGN.items() if (folder / name).exists()]
            raise DatasetError(
                f"{folder} is not a graph folder: it has no {MANIFEST}. {''.join(hints[:1]) or f'{_MAKERS}.'}"
            )
        with OpenFolder(folder) as opened:
            if "partition" in opened.manifest["attributes"]:
                raise DatasetError(
                    f"{folder} is a partition, which holds a graph in parts. Give the graph that it was made of, and "
                    f'the parts by partition="{folder}" (--data.partition {folder}).'
                )
            if "indptr" not in opened.manifest["arrays"]:
                raise DatasetError(
                    f"{folder} holds features alone, as save_features wrote them, and no graph: {_MAKERS}."
                )

    def load(self) -> GraphData:
        self.prepare()
        return load_graph_data(self.folder, task=self.task, features=self.features, tables=self.tables)


def subclass_names(cls: type) -> set[str]:
    """Returns the names of a class and of all that are derived from it."""
    return {cls.__name__}.union(*map(subclass_names, cls.__subclasses__()))
