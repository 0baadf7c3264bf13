"""Dataset: a light description of where a GraphData comes from."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path

from lightning_gnnload.data.graphdata import GraphData


class Dataset(ABC):
    """Names a data set without loading it, so that configurations and processes stay light.

    :meth:`prepare` runs once a machine and may download, convert and write; :meth:`load` runs in every rank and
    maps what ``prepare`` wrote, so that a machine holds one copy whatever the number of ranks.

    Example:
        >>> from lightning_gnnload import Graph, GraphData
        >>> class Ring(Dataset):
        ...     def prepare(self):
        ...         pass
        ...     def load(self):
        ...         return GraphData(Graph.from_coo([0, 1, 2], [1, 2, 0]))
        >>> Ring().load().graph.num_edges
        3
    """

    @abstractmethod
    def prepare(self) -> None:
        """Makes the data set ready on this machine. Does nothing when it is. Shows progress when it takes long."""

    @abstractmethod
    def load(self) -> GraphData:
        """Maps the prepared data set into memory.

        Raises:
            DatasetError: it was not prepared.
        """


def default_root() -> Path:
    """Returns the folder of data sets if no root is given: ``lightning_gnnload`` in the user's cache folder.

    ``$XDG_CACHE_HOME`` counts where it is an absolute path, as its specification asks; else ``~/.cache``.
    Nothing is created here; :meth:`Dataset.prepare` creates it for its owner alone.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "lightning_gnnload"
