"""SizedModule: what a data module's data are like, known before a Trainer sets it up."""

from __future__ import annotations

from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.types import EdgeType


class SizedModule:
    """A data module that tells the sizes that models are made with at once.

    Data that are not loaded yet are, by whoever asks first, and prepared before where nobody has done so. Ranks may ask
    at the same time.
    """

    def known_data(self) -> GraphData:
        """Returns the graph data, loaded now if they are not."""
        raise NotImplementedError

    @property
    def num_features(self) -> int | dict[str, int]:
        """Numbers in a row of x; in a graph with types by node type, of those types that have features."""
        data = self.known_data()
        if data.graph.types is None:
            return data.num_features
        tables = {name: data.tables_of(name) for name in data.graph.types.node_types}
        return {name: each["x"].store.row_shape[-1] for name, each in tables.items() if "x" in each}

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
