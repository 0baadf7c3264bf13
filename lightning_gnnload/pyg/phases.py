"""The loaders, rows and data of a data module's phases, which read PyG's arguments by PyG's rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch_geometric.loader as pyg

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.pyg.attributes import Attributes
from lightning_gnnload.pyg.inputs import check_links, check_tensors, checked_nodes
from lightning_gnnload.pyg.outputs import sampler_output
from lightning_gnnload.pyg.sampler import GnnloadSampler
from lightning_gnnload.pyg.threads import ThreadedLoader


class PhaseLoader(ThreadedLoader):
    """A loader that reads a phase's input by PyG's rules, for a data module that makes the mini-batches itself."""

    def _tell(self, text: str) -> None:
        pl.utilities.rank_zero.rank_zero_warn(text)  # as a data module does, in one rank

    def converted(self, attributes: Attributes | None, batch: MiniBatch) -> Any:
        """Makes PyG's mini-batch of one of ours, whose attributes kernels have gathered, where they can."""
        gathered = attributes if self._is_gathered() else None
        return self._filtered(sampler_output(batch, self._sampler), gathered, lambda columns: columns.rows_of(batch))


class PhaseNodeLoader(PhaseLoader, pyg.NodeLoader):
    """Reads the nodes of a phase."""

    def __init__(self, data: Any, node_sampler: GnnloadSampler, *, seed: int, **kwargs: Any) -> None:
        kwargs["input_nodes"] = checked_nodes(node_sampler.num_nodes, kwargs.get("input_nodes"))
        check_tensors(**{name: kwargs.get(name) for name in ("input_time", "input_id")})
        super().__init__(data, node_sampler, **self._honoured(kwargs, seed, isinstance(node_sampler, GnnloadSampler)))
        self._begin()

    @property
    def _sampler(self) -> Any:
        return self.node_sampler


class PhaseLinkLoader(PhaseLoader, pyg.LinkLoader):
    """Reads the links of a phase."""

    def __init__(self, data: Any, link_sampler: GnnloadSampler, *, seed: int, **kwargs: Any) -> None:
        check_links(data, kwargs.get("edge_label_index"))
        check_tensors(**{name: kwargs.get(name) for name in ("edge_label", "edge_label_time", "input_id")})
        super().__init__(data, link_sampler, **self._honoured(kwargs, seed, isinstance(link_sampler, GnnloadSampler)))
        self._begin()

    @property
    def _sampler(self) -> Any:
        return self.link_sampler


class ScriptsData(Dataset):
    """The data that a user's script has in every rank, as tables that kernels gather from.

    ``graph`` is None where nothing is sampled; ``edges`` is as :class:`.Attributes` has it; ``is_gathered`` says
    whether kernels gather attributes at all: then ``attributes`` has them, once loaded.
    """

    def __init__(self, data: Any, graph: Graph | None, *, edges: bool, is_gathered: bool) -> None:
        self.data, self.graph, self.edges, self.is_gathered = data, graph, edges, is_gathered
        self.attributes: Attributes | None = None
        self._loaded: list[Any] = []

    def prepare(self) -> None:
        """Does nothing: the script has the data in memory."""

    def load(self) -> GraphData:
        assert self.graph is not None, "the caller samples"
        if not self.is_gathered:
            return GraphData(self.graph)
        self._loaded = list(self._values())
        self.attributes = Attributes(self.data, self.graph, edges=self.edges)
        return self.attributes.tables

    @property
    def has_changed(self) -> bool:
        """Whether the script has set other attributes on its data since they were loaded."""
        if self.attributes is None:
            return False
        values = list(self._values())
        return len(values) != len(self._loaded) or any(a is not b for a, b in zip(values, self._loaded, strict=True))

    def _values(self) -> Iterator[Any]:
        return (value for store in self.data.stores for value in store.values())

    def __getstate__(self) -> dict[str, Any]:
        # Tables are views of the data, which travel along: whoever unpickles this makes them again.
        return {**self.__dict__, "attributes": None, "_loaded": []}
