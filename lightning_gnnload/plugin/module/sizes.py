"""SizedModule: a data module's sizes, which models are made with before a Trainer sets it up."""

from __future__ import annotations

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.types import EdgeType


class SizedModule:
    """A data module whose sizes can be read at once: the first who reads one prepares and loads the data. Ranks may do
    so at the same time."""

    def known_data(self) -> GraphData:
        """The graph data, loaded now if they are not."""
        raise NotImplementedError

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
