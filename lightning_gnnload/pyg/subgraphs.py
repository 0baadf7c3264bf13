"""Mini-batches that are subgraphs of a Data: made by threads, with all edges among some nodes, and all attributes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GraphDataError, SeedError
from lightning_gnnload.host.threads import Threads, set_up_first
from lightning_gnnload.pyg.attributes import Attributes, describe_omitted
from lightning_gnnload.pyg.epochs import EpochRows
from lightning_gnnload.pyg.outputs import NEW_MEMORY
from lightning_gnnload.pyg.topology import refuse_partition
from lightning_gnnload.sample.base import thread_workspace


class SubgraphLoader(EpochRows):
    """Makes each mini-batch of its own rows and key alone, in threads."""

    def _in_threads(self, make: Callable[[BatchRequest], Any], requests: Iterator[BatchRequest]) -> Iterator[Any]:
        """Yields what ``make`` returns for these requests, in their order."""
        if self.num_workers == 0:
            yield from map(make, requests)
            return
        ahead: deque[Future[Any]] = deque()
        call = set_up_first(make, self.worker_init_fn)
        threads = Threads(self.num_workers, "gnnload-subgraph")
        try:
            for request in requests:
                ahead.append(threads.submit(call, request))
                if len(ahead) > self.num_workers * (self.prefetch_factor or 1):
                    yield threads.result(ahead.popleft())
            while ahead:
                yield threads.result(ahead.popleft())
        finally:
            threads.shutdown(cancel_futures=True)

    def _ready(self, batch: Any) -> Any:
        """Returns a mini-batch in page-locked memory, where that was asked for and there is a GPU."""
        return batch.pin_memory() if self._is_pinned else batch


class InducedLoader(SubgraphLoader):
    """Makes mini-batches of all edges among some nodes; ``subgraphs`` is None where PyG cuts them out."""

    data: Any
    subgraphs: InducedSubgraphs | None

    def _attributes(self) -> Attributes | None:
        """Returns the attributes of the data as they are now."""
        return None if self.subgraphs is None else Attributes(self.data, self.subgraphs.graph, edges=True)

    def _check_rows(self) -> None:
        self._attributes()  # refuses what has no rows
        if (omitted := describe_omitted(self.data, None, links=False)) is not None:
            self._tell(omitted)


def check_data(name: str, data: Any) -> None:
    """Raises GraphDataError for what is no Data with an ``edge_index`` on the CPU whose ends are nodes."""
    refuse_partition(name, data)
    if not isinstance(data, Data):
        raise GraphDataError(
            f"{name} takes a Data, not a {type(data).__name__}. Give data.to_homogeneous(), or take NeighborLoader or "
            "HGTLoader, which sample graphs with types."
        )
    edge_index = data.get("edge_index")
    if edge_index is None:
        raise GraphDataError(f"{name}: the data have no edge_index. Of adj_t, torch.stack(data.adj_t.t().coo()[:2]).")
    if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.is_cuda or edge_index.dtype is not torch.long:
        raise GraphDataError(
            f"{name}: edge_index must be int64 [2, E] on the CPU, but is {edge_index.dtype} {list(edge_index.shape)} "
            f"on {edge_index.device}. data.cpu() moves it."
        )
    num_nodes = data.num_nodes
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise GraphDataError(
            f"{name}: edge_index spans [{int(edge_index.min())}, {int(edge_index.max())}], but there are {num_nodes} "
            "nodes, from 0. Set data.num_nodes, or mend the edges."
        )


class InducedSubgraphs:
    """Cuts the subgraphs that nodes induce out of a Data.

    Attributes:
        graph: lists the out-neighbours of each node, ascending, of equal ones in the order of ``edge_index``.
        order: the column of ``edge_index`` that each of these edges is, int64 ``[E]``.
    """

    def __init__(self, data: Data) -> None:
        src, dst = data.edge_index.contiguous().numpy()
        num_nodes = int(data.num_nodes)
        *_, by_dst = ops.coo_to_csc(src, dst, num_nodes, keep_order=True)
        assert by_dst is not None
        indptr, indices, order = ops.coo_to_csc(dst[by_dst], src[by_dst], num_nodes, keep_order=True)
        self.graph, self.order = Graph.from_csc(indptr, indices), by_dst[order]

    def edges_among(self, nodes: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
        """Returns all edges between distinct nodes, int64 ``[V]``: their ends, as places in ``nodes``, int64 ``[2,
        M]``, by source and target, and their places in ``graph.indices``, int64 ``[M]``."""
        graph = self.graph
        edges = ops.induced_edges(graph.indptr, graph.indices, nodes, workspace=thread_workspace(graph.num_nodes))
        sources = np.repeat(np.arange(len(nodes)), np.diff(edges.indptr))
        return torch.from_numpy(np.stack([sources, edges.indices.astype(np.int64)])), edges.edge_ids


def filled(attributes: Attributes, nodes: torch.Tensor, edges: torch.Tensor, edge_index: torch.Tensor) -> Data:
    """Returns a Data of these edges, with the attributes of its nodes and edges, by their ids, and of the graph."""
    data = type(attributes.data)()
    data.edge_index = edge_index
    if "num_nodes" in attributes.data or all(attribute.by_edge for attribute in attributes.by_type[None]):
        data.num_nodes = len(nodes)
    rows = attributes.gathered(SimpleNamespace(node=nodes, edge=edges), NEW_MEMORY, NEW_MEMORY)
    by_name = {attribute.name: attribute for attribute in attributes.by_type[None]}
    for name, value in attributes.data:
        if (attribute := by_name.get(name)) is not None:
            data[name] = attribute.of(rows, edges if attribute.by_edge else nodes)
        elif name not in ("edge_index", "adj_t", "num_nodes"):
            data[name] = value
    return data


def check_distinct(name: str, rows: torch.Tensor) -> None:
    """Raises SeedError for a row that a mini-batch has twice."""
    values, counts = rows.unique(return_counts=True)
    if len(values) < len(rows):
        raise SeedError(
            f"{name} {int(values[counts > 1][0])} is in a mini-batch twice, but a subgraph has each node once. Give a "
            "sampler that draws without replacement."
        )
