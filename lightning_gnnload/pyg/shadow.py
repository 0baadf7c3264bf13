"""ShaDowKHopSampler: PyG's own, whose mini-batches our threads make."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import torch
import torch_geometric.loader as pyg
import torch_geometric.typing
from torch_geometric.data import Batch, Data
from torch_geometric.sampler import NodeSamplerInput

from lightning_gnnload import ops
from lightning_gnnload.adapters.columns import original_edge_ids
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GraphDataError, SamplerConfigError, SeedError
from lightning_gnnload.ops import (
    ARENA_ALIGNMENT,
    ArenaTooSmall,
    Draw,
    DrawKey,
    HopLayout,
    InducedEdges,
    SampleLayout,
)
from lightning_gnnload.pipeline.packing import aligned
from lightning_gnnload.pyg.attributes import Attributes
from lightning_gnnload.pyg.compat import NumNeighbors
from lightning_gnnload.pyg.inputs import check_structure
from lightning_gnnload.pyg.keywords import drawn_seed
from lightning_gnnload.pyg.outputs import metadata_of
from lightning_gnnload.pyg.sampler import GnnloadSampler
from lightning_gnnload.pyg.threads import ThreadedLoader
from lightning_gnnload.pyg.topology import refuse_partition
from lightning_gnnload.sample.base import Sampler, draw_here, thread_workspace

_STRUCTURE = ("edge_index", "adj_t", "num_nodes", "batch", "ptr")


class ShaDowKHopSampler(ThreadedLoader, pyg.ShaDowKHopSampler):
    """PyG's ``ShaDowKHopSampler`` without torch-sparse, and the same mini-batches in every run.

    Each root gets a subgraph of its own: the nodes within ``depth`` hops, ``num_neighbors`` drawn for each of them, and
    all edges between these. A mini-batch is a ``Batch`` of them with PyG's fields, in its order: ``ptr`` and ``batch``
    say which nodes are of which root, ascending within each; ``root_n_id`` where the roots are; edges are in ascending
    order of source and target; ``y`` has a row for each root; other attributes have one for each node or edge.

    What is otherwise, beside what :class:`.NeighborLoader` has otherwise:

    - A root's nodes are a pure function of (graph, settings, seed, epoch, root), whatever mini-batch it is in.
    - A node that is found twice draws once. With ``replace=True``, one of at most ``num_neighbors`` in-neighbours, of
      which PyG takes all, draws like any other. -1 takes all neighbours, where PyG takes none.
    - In a graph with as many nodes as edges, PyG takes rows of edges for rows of nodes. Here the attribute's name
      decides, by ``Data.is_node_attr`` and ``is_edge_attr``.

    Args:
        data: a ``Data`` with ``edge_index``; or, where torch-sparse is installed, with ``adj_t``.
        depth: number of hops.
        num_neighbors: drawn for each node at each hop.
        node_idx: the roots, ids or a mask; None for all nodes.
        replace: draw with replacement.
        seed: random seed; None: of ``generator``, or of torch's own, which ``torch.manual_seed`` decides.
        **kwargs: those of torch's DataLoader.

    Raises:
        LoaderConfigError: keywords that are none, or of DataLoader that mean nothing to threads; ``adj_t`` without
            torch-sparse.
        SeedError: roots that are no nodes.
        GraphDataError, GraphFormatError, SamplerConfigError: as :class:`.GnnloadSampler`.

    Source: Zeng et al., "Decoupling the Depth and Scope of Graph Neural Networks" (NeurIPS'21), section 3.

    Example:
        >>> data = Data(x=torch.arange(4.0)[:, None], edge_index=torch.tensor([[1, 2, 3, 0], [0, 0, 1, 2]]))
        >>> [batch] = ShaDowKHopSampler(data, 1, 5, node_idx=torch.tensor([1, 0]), batch_size=2, seed=7)
        >>> batch.x.view(-1).tolist(), batch.ptr.tolist(), batch.root_n_id.tolist()
        ([1.0, 3.0, 0.0, 1.0, 2.0], [0, 2, 5], [0, 2])
        >>> batch.edge_index.tolist()
        [[1, 2, 3, 4], [0, 4, 2, 2]]
    """

    def __init__(
        self,
        data: Data,
        depth: int,
        num_neighbors: int,
        node_idx: Any = None,
        replace: bool = False,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_partition("ShaDowKHopSampler", data)
        if not isinstance(data, Data):
            raise GraphDataError(
                f"ShaDowKHopSampler takes a Data, not a {type(data).__name__}. NeighborLoader(..., disjoint=True, "
                "subgraph_type='induced') gives the subgraph around each seed of a graph with types."
            )
        self.is_sparse_tensor = data.get("edge_index") is None and data.get("adj_t") is not None
        if self.is_sparse_tensor:
            check_structure(data)
        depth, num_neighbors = ops.as_integer("depth", depth), ops.as_integer("num_neighbors", num_neighbors)
        if depth < 0:
            raise SamplerConfigError(f"depth is {depth}, but must be 0 or more: the number of hops around each root.")
        # PyG's class copies the data as well: a script may set attributes on the loader's.
        self.data = copy(data)
        self.depth, self.num_neighbors, self.replace = depth, num_neighbors, replace
        seed = drawn_seed(seed, None, kwargs)
        self._graph_sampler = GnnloadSampler(
            data, NumNeighbors([num_neighbors] * depth), "induced", replace, disjoint=True, seed=seed
        )
        self.node_idx = _roots(node_idx, self._graph_sampler.graph.num_nodes)
        self.input_data = NodeSamplerInput(self.node_idx, self.node_idx)
        roots: Any = self.node_idx.tolist()
        if kwargs.get("dataset") == roots:
            del kwargs["dataset"]  # Lightning makes a loader anew of its attributes
        # Not the constructor of PyG's class, which needs torch-sparse: ours draws without.
        torch.utils.data.DataLoader.__init__(self, roots, collate_fn=self.__collate__, **self._honoured(kwargs, seed))
        self._begin()

    def __collate__(self, n_id: Any) -> Batch:
        """Returns the mini-batch of these roots, as this epoch draws it."""
        graph, key = self._graph_sampler.graph, DrawKey(self.seed, self.epoch, 0)
        roots = torch.as_tensor(n_id).view(-1)
        seeds = self._graph_sampler.seed_batch(NodeSamplerInput(roots, roots), key)
        arena, layout = draw_here(self._scopes(), graph, seeds.draw)
        batch = MiniBatch.view(arena, layout, len(roots)).clone()
        batch.seed_columns = seeds.columns
        return self._batch_of(_Columns(self.data, graph, edges=True), batch)

    @property
    def _attributes_class(self) -> type[_Columns]:  # type: ignore[override]
        return _Columns

    @property
    def _sampler(self) -> GnnloadSampler:
        return self._graph_sampler

    def _scopes(self) -> _Scopes:
        return _Scopes(self._graph_sampler.inner(), by_source=not self.is_sparse_tensor)

    def _made_of(self, requests: Iterator[BatchRequest]) -> Iterator[Any]:
        attributes = _Columns(self.data, self._graph_sampler.graph, edges=True)
        threads = self._threads(attributes.tables, self._scopes(), partial(self._batch_of, attributes))
        return threads.made(requests)

    def _batch_of(self, attributes: _Columns, batch: MiniBatch) -> Batch:
        """Returns the Batch of what :class:`_Scopes` laid out."""
        assert batch.rows is not None
        [block], rows = batch.blocks, batch.rows.long()
        edge = original_edge_ids(block.edge_ids, self._graph_sampler.graph)  # type: ignore[arg-type]
        result = Batch(batch=rows, ptr=torch.searchsorted(rows, torch.arange(batch.num_seeds + 1)))
        roots = metadata_of(batch.seed_columns)[0]
        result.root_n_id = (batch.nodes == roots[rows]).nonzero().view(-1)
        if self.is_sparse_tensor:
            value = self.data.adj_t.storage.value()
            result.adj_t = torch_geometric.typing.SparseTensor(
                rowptr=block.indptr.long(),
                col=block.indices.long(),
                value=None if value is None else value[edge],
                sparse_sizes=(batch.num_nodes, batch.num_nodes),
                is_sorted=True,
                trust_data=True,
            )
        else:
            result.edge_index = torch.stack([block.edge_dst(), block.indices.long()])
        gathered = attributes.rows_of(batch)
        by_name = {attribute.name: attribute for attribute in attributes.by_type[None]}
        for name, value in attributes.data:
            if name in _STRUCTURE:
                continue
            if name == "y" and attributes.is_by_node(value):
                result[name] = value[roots]
            elif (attribute := by_name.get(name)) is None:
                result[name] = value
            elif attribute.rebuild is None and attribute.tables[0] in gathered:
                result[name] = gathered[attribute.tables[0]]
            else:
                result[name] = value[edge if attribute.by_edge else batch.nodes]
        return result


class _Columns(Attributes):
    """Attributes by PyG's rule for ShaDow: tensors whose first dimension is as long as there are nodes, or edges."""

    def rows_in(self, store: Any, name: str, value: Any) -> tuple[bool, int] | None:
        by_node = self.is_by_node(value)
        by_edge = isinstance(value, torch.Tensor) and value.ndim > 0 and len(value) == self.data.num_edges
        if (name == "y" and by_node) or name in _STRUCTURE or not (by_node or by_edge):
            return None
        if by_node and by_edge:
            return not store.is_node_attr(name), 0
        return by_edge, 0

    def is_by_node(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.ndim > 0 and len(value) == self.data.num_nodes


class _Scopes(Sampler):
    """Draws the scope of each seed apart, and lays out the subgraphs that they induce, one after the other.

    Nodes of a seed ascend; the seed is one of them. There is one hop, of all edges; by source, its ``indptr`` counts
    the edges out of each node, and ``indices`` are their targets, ascending.
    """

    expand = "new"
    num_layers = 1
    columns = ("edge_ids",)

    def __init__(self, scope: Sampler, *, by_source: bool) -> None:
        self._scope, self._by_source, self.edge_ids = scope, by_source, True

    def draw(self, graph: Graph, draw: Draw, memory: np.ndarray) -> SampleLayout:
        arena, layout = draw_here(self._scope, graph, draw, aside=True)
        scope = MiniBatch.view(arena, layout, len(draw.seeds))
        assert scope.rows is not None, "seeds always have queries, as none share their nodes"
        nodes, rows = scope.nodes.numpy(), scope.rows.numpy()
        order = np.lexsort((nodes, rows))
        nodes, rows = nodes[order], rows[order]
        ptr = np.searchsorted(rows, np.arange(len(draw.seeds) + 1))
        workspace = thread_workspace(graph.num_nodes)
        edges = ops.induced_edges(graph.indptr, graph.indices, nodes, ptr, workspace=workspace)
        return _lay_out(memory, nodes, rows, _by_source(edges) if self._by_source else edges)


def _by_source(edges: InducedEdges) -> InducedEdges:
    num_nodes = len(edges.indptr) - 1
    targets = np.repeat(np.arange(num_nodes, dtype=np.int32), np.diff(edges.indptr))
    indptr, indices, order = ops.coo_to_csc(targets, edges.indices, num_nodes, keep_order=True)
    return InducedEdges(indptr.astype(np.int32), indices, edges.edge_ids[order])


def _lay_out(arena: np.ndarray, nodes: np.ndarray, rows: np.ndarray, edges: InducedEdges) -> SampleLayout:
    """Writes a mini-batch into the arena; raises ArenaTooSmall."""
    # As kernels lay out a mini-batch: nodes and queries from the beginning on, hops at the end, a gap between them.
    queries_offset = aligned(nodes.nbytes)
    begin = queries_offset + aligned(rows.nbytes)
    sizes = [aligned(part.nbytes) for part in edges]
    end = arena.nbytes // ARENA_ALIGNMENT * ARENA_ALIGNMENT - sum(sizes)
    if begin > end:
        raise ArenaTooSmall(begin + sum(sizes))
    offsets = [end, end + sizes[0], end + sizes[0] + sizes[1]]
    for offset, array in ((0, nodes), (queries_offset, rows), *zip(offsets, edges, strict=True)):
        arena[offset : offset + array.nbytes] = array.view(np.uint8)
    hop = HopLayout(len(nodes), len(nodes), len(edges.indices), *offsets)
    return SampleLayout(len(nodes), (hop,), begin, end, queries_offset)


def _roots(node_idx: Any, num_nodes: int) -> torch.Tensor:
    """Returns the roots' ids, int64; raises SeedError for what is neither ids nor a mask of the nodes."""
    if node_idx is None:
        return torch.arange(num_nodes)
    roots = torch.as_tensor(node_idx).cpu()
    is_mask = roots.dtype == torch.bool
    if roots.ndim != 1 or roots.is_floating_point() or roots.is_complex() or (is_mask and len(roots) != num_nodes):
        raise SeedError(f"node_idx is {roots.dtype} {list(roots.shape)}, but must be ids [S], or a mask [{num_nodes}].")
    return roots.nonzero().view(-1) if is_mask else roots.long()
