"""Where a GraphDataModule has its data from: graphs of other libraries, data sets; and their sizes for models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lightning_gnnload.adapters.formats import FORMATS
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.errors import DatasetError, LoaderConfigError

Made = TypeVar("Made")


class ModuleSources:
    """The class methods of :class:`.GraphDataModule` that take graphs of other libraries."""

    @classmethod
    def from_ogb(cls: Callable[..., Made], name: str, root: str | None = None, **settings: Any) -> Made:
        """Makes a module over an OGB node-property data set, read from ``root`` or downloaded to it.

        Args:
            name: OGB's, such as ``"ogbn-arxiv"``.
            root: folder of OGB's data sets; None is this package's.
            **settings: this class's.
        """
        from lightning_gnnload.datasets.ogb import OGB

        return cls(OGB(name, root), **settings)

    @classmethod
    def from_dgl(cls: Callable[..., Made], graph: Any, **settings: Any) -> Made:
        """Makes a module over a DGL graph, with types or without, and all columns of its ``ndata`` and ``edata``, in
        DGL's format by default.

        Args:
            graph: splits are its masks ``ndata["train_mask"]`` and so on, unless ids are given.
            **settings: this class's, and those of :meth:`.GraphData.from_dgl`.
        """
        return _over(cls, "dgl", graph, settings)

    @classmethod
    def from_pyg(cls: Callable[..., Made], data: Any, **settings: Any) -> Made:
        """Makes a module over a PyG ``Data`` or ``HeteroData``, with all its attributes, in PyG's format by default.

        Args:
            data: splits are its masks ``train_mask`` and so on, unless ids are given.
            **settings: this class's, and those of :meth:`.GraphData.from_pyg`.

        Example:
            >>> import torch
            >>> from torch_geometric.data import Data
            >>> from lightning_gnnload import GraphDataModule, NeighborSampler
            >>> data = Data(x=torch.ones(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
            >>> sampler = NeighborSampler([2, 2])
            >>> module = GraphDataModule.from_pyg(data, sampler=sampler, train=[0, 1], batch_size=2)
            >>> module.num_features, next(iter(module.train_dataloader())).batch_size
            (4, 2)
        """
        return _over(cls, "pyg", data, settings)


def _over(make: Callable[..., Made], batch_format: str, graph: Any, settings: dict[str, Any]) -> Made:
    settings = {"batch_format": batch_format, **settings}
    data, template = FORMATS[batch_format].read(graph, settings)  # takes the reader's settings out
    module: Any = make(data, **settings)
    module.template = template
    return module


class ModuleData:
    """The data of :class:`.GraphDataModule`, which are in memory, or come from a data set when they are loaded.

    Sizes can be read at once: the first who reads one prepares and loads the data. Ranks may do so at the same time.
    """

    _dataset: Dataset | None
    _data: GraphData | None

    @property
    def data(self) -> GraphData:
        """The graph data, as :attr:`graph_data`; of a subclass over another library's data, these."""
        return self.graph_data

    @property
    def graph_data(self) -> GraphData:
        """What mini-batches are made of. Raises LoaderConfigError: before ``setup``, where the data set is a
        descriptor."""
        if self._data is None:
            raise LoaderConfigError(
                "the data set is not loaded yet: call prepare_data() and setup(), or let the Trainer do so."
            )
        return self._data

    @property
    def dataset(self) -> Dataset | None:
        """What the data are loaded from; None of data that were in memory."""
        return self._dataset

    def known_data(self) -> GraphData:
        """As :attr:`graph_data`, of data that are loaded now where they are not, and prepared before where need be."""
        if self._data is None and self._dataset is not None:
            try:
                self._data = self._as_carried(self._dataset.load())
            except DatasetError:
                self._dataset.prepare()
                self._data = self._as_carried(self._dataset.load())
        return self.graph_data

    def _as_carried(self, data: GraphData) -> GraphData:
        """The data with all that mini-batches carry."""
        return data

    @property
    def num_features(self) -> int | dict[str, int]:
        """Numbers in a row of x; in a graph with types by node type, of those types that have features."""
        data = self.known_data()
        if data.graph.types is None:
            return data.num_features
        tables = {name: data.tables_of(name) for name in data.graph.types.node_types}
        return {name: columns["x"].store.row_shape[-1] for name, columns in tables.items() if "x" in columns}

    @property
    def num_classes(self) -> int:
        """Label classes. Raises GraphDataError: labels are none, or numbers."""
        return self.known_data().num_classes

    @property
    def node_types(self) -> tuple[str, ...]:
        """Names of the node types; empty for a graph without types."""
        types = self.known_data().graph.types
        return () if types is None else types.node_types

    @property
    def edge_types(self) -> tuple[EdgeType, ...]:
        """Triples that name the edge types, likewise."""
        types = self.known_data().graph.types
        return () if types is None else types.edge_types
