"""RandomNodeLoader: PyG's own, whose mini-batches our threads make."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch_geometric.loader as pyg
from torch_geometric.data import HeteroData

from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from lightning_gnnload.ops.checks import as_integer
from lightning_gnnload.pyg.attributes import Attributes, repeated
from lightning_gnnload.pyg.epochs import Origins
from lightning_gnnload.pyg.keywords import drawn_seed
from lightning_gnnload.pyg.subgraphs import InducedLoader, InducedSubgraphs, check_data, check_distinct, filled


class RandomNodeLoader(InducedLoader, pyg.RandomNodeLoader):
    """PyG's ``RandomNodeLoader``, and the same mini-batches in every run: all nodes in ``num_parts`` mini-batches, each
    with all edges among its nodes.

    With ``shuffle=True`` nodes are shuffled, as a pure function of (seed, epoch). Fields of mini-batches are PyG's, in
    its order. Threads, epochs and resuming are those of :class:`.NeighborLoader`. Of a ``HeteroData``, PyG's own
    functions cut the subgraphs, in these threads.

    Args:
        data: a ``Data`` with ``edge_index``, or a ``HeteroData``.
        num_parts: mini-batches in an epoch.
        seed: random seed of the order; None: of ``generator``, or of torch's own, which ``torch.manual_seed`` decides.
        **kwargs: those of torch's DataLoader, but ``batch_size``.

    Raises:
        GraphDataError: no such data.
        LoaderConfigError: ``num_parts`` below 1; keywords that are none, or of DataLoader that mean nothing to threads.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.arange(4.0), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
        >>> [(batch.x.tolist(), batch.edge_index.tolist()) for batch in RandomNodeLoader(data, num_parts=2)]
        [([0.0, 1.0], [[0], [1]]), ([2.0, 3.0], [[0], [1]])]
    """

    def __init__(self, data: Any, num_parts: int, *, seed: int | None = None, **kwargs: Any) -> None:
        is_typed = isinstance(data, HeteroData)
        if not is_typed:
            check_data("RandomNodeLoader", data)
        if as_integer("num_parts", num_parts, LoaderConfigError) < 1:
            raise LoaderConfigError(f"num_parts is {num_parts}, but must be at least 1: mini-batches in an epoch.")
        num_nodes = int(data.num_nodes)
        if num_nodes == 0:
            raise GraphDataError("RandomNodeLoader: the graph has no nodes.")
        batch_size = math.ceil(num_nodes / num_parts)
        if kwargs.pop("batch_size", batch_size) != batch_size:  # Lightning makes a loader anew of its attributes
            raise LoaderConfigError(
                f"RandomNodeLoader has no batch_size=: num_parts={num_parts} cuts {num_nodes} nodes into "
                f"mini-batches of {batch_size}."
            )
        seed = drawn_seed(seed, None, kwargs)
        super().__init__(data, num_parts, **self._honoured(kwargs, seed))
        self.subgraphs = None if is_typed else InducedSubgraphs(data)
        self._begin()

    def collate_fn(self, index: Any) -> Any:
        """Returns the subgraph of some nodes, by their ids."""
        return self._collated(self._attributes(), torch.as_tensor(index).long())

    def _collated(self, attributes: Attributes | None, nodes: torch.Tensor) -> Any:
        check_distinct("node", nodes)
        if self.subgraphs is None or attributes is None:
            nodes_by_type = {
                name: nodes[(nodes >= begin) & (nodes < end)] - begin for name, (begin, end) in self.node_dict.items()
            }
            return repeated(self.data).subgraph(nodes_by_type)
        edge_index, edges = self.subgraphs.edges_among(nodes.numpy())
        ids, by_id = torch.from_numpy(self.subgraphs.order[edges]).sort()
        return filled(attributes, nodes, ids, edge_index[:, by_id])

    def _made_of(self, requests: Iterator[BatchRequest]) -> Iterator[Any]:
        collated = partial(self._collated, self._attributes())
        return self._in_threads(lambda request: self._ready(collated(torch.as_tensor(request.rows).long())), requests)

    def _origins(self) -> Origins:
        return Origins("", f"{checksum_of([self.edge_index]):08x}", "nodes", {"num_parts": self.num_parts})
