"""The properties of every single mini-batch, whatever the algorithm.

The first line of a property's docstring says what holds, the rest what to look at where it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lightning_gnnload.conform.case import Case, along_paths, excerpt, expect
from lightning_gnnload.conform.draw import drawn_edges
from lightning_gnnload.conform.rows import ROW_PROPERTIES
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.slab import EDGE_COLUMNS
from lightning_gnnload.data.typed_parts import edge_types
from lightning_gnnload.ops import MAX_EDGE_TYPES
from lightning_gnnload.sample.base import Sampler


def samples(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """sample gives a mini-batch of any graph and any seeds

    No seeds, one node, nodes without neighbours, loops, repeated edges and read-only arrays are ordinary input.
    """
    expect(isinstance(batch, MiniBatch), "a MiniBatch", type(batch).__name__)


def seeds_first(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """nodes begins with the seeds, in their order

    Models read the seeds' outputs there.
    """
    expect(batch.num_seeds == len(case.seeds), f"num_seeds = {len(case.seeds)}", str(batch.num_seeds))
    is_equal = np.array_equal(batch.seeds.numpy(), case.seeds)
    expect(is_equal, f"nodes = {excerpt(case.seeds)}, and others after", excerpt(batch.nodes))


def nodes_are_distinct(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """nodes are distinct node ids of the graph, int64; where rows have nodes of their own, distinct within a row

    Relabel a neighbour that is known already; ArenaBuilder does.
    """
    nodes = batch.nodes
    expect(nodes.dtype == torch.int64, "nodes of dtype torch.int64", str(nodes.dtype))
    outside = nodes[(nodes < 0) | (nodes >= case.graph.num_nodes)]
    expect(not len(outside), f"node ids in [0, {case.graph.num_nodes})", excerpt(outside))
    if along_paths(sampler, case):
        return  # a row finds a node once for each time; nothing_is_later checks it
    pairs = nodes if batch.rows is None else torch.stack([nodes, batch.rows], dim=1)
    values, times = pairs.unique(dim=0, return_counts=True)
    expect(len(values) == len(nodes), "each node once", f"{excerpt(values[times > 1])} more than once")


def one_block_a_layer(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """there are num_layers blocks

    num_layers is what a model of that depth is checked against.
    """
    expect(len(batch.blocks) == sampler.num_layers, f"{sampler.num_layers} blocks", f"{len(batch.blocks)} blocks")


def blocks_chain(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """a block's sources are the destinations of the block outside it, from the seeds out to all nodes

    Blocks come outermost hop first; destinations are a prefix of the sources, so that counts never fall outwards.
    """
    inner = batch.num_seeds
    for number, block in reversed(list(enumerate(batch.blocks))):
        expect(block.num_dst == inner, f"blocks[{number}].num_dst = {inner}", str(block.num_dst))
        expect(block.num_src >= inner, f"blocks[{number}].num_src of at least num_dst = {inner}", str(block.num_src))
        inner = block.num_src
    expect(inner == batch.num_nodes, f"{inner} nodes, the outermost block's num_src", str(batch.num_nodes))


def indptr_rises(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """indptr is int32 [num_dst + 1] and rises from 0 to the number of edges

    One more entry than destinations; a destination without edges repeats its neighbour's entry.
    """
    for number, block in enumerate(batch.blocks):
        name, indptr = f"blocks[{number}].indptr", block.indptr
        expect(indptr.dtype == torch.int32, f"{name} of dtype torch.int32", str(indptr.dtype))
        expect(len(indptr) == block.num_dst + 1, f"{name} of {block.num_dst + 1} entries", f"{len(indptr)} entries")
        first, last = int(indptr[0]), int(indptr[-1])
        bounds = f"{name} from 0 to {block.num_edges}"
        expect((first, last) == (0, block.num_edges), bounds, f"from {first} to {last}")
        expect(not (indptr.diff() < 0).any(), f"{name} that never falls", excerpt(indptr))


def local_ids_in_range(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """indices are int32 local ids in [0, num_src)

    They are positions in nodes, not node ids; whatever indexes features with them trusts the range.
    """
    for number, block in enumerate(batch.blocks):
        indices = block.indices
        expect(indices.dtype == torch.int32, f"blocks[{number}].indices of dtype torch.int32", str(indices.dtype))
        outside = indices[(indices < 0) | (indices >= block.num_src)]
        expect(not len(outside), f"blocks[{number}].indices in [0, {block.num_src})", excerpt(outside))


def edges_exist(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """every edge of a block is an edge of the graph

    Destination d is nodes[d]: where destinations are in another order, their edges are those of other nodes.
    """
    if case.promise.edges_exist:
        graph_codes = np.unique(_graph_codes(case))
        for number, block in enumerate(batch.blocks):
            codes = _block_codes(case, batch, block)
            strange = codes[~np.isin(codes, graph_codes)]
            expect(
                not len(strange), f"blocks[{number}] of edges of the graph", f"{_edge(case, strange)}, which is none"
            )


def edges_are_distinct(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """no edge of the graph is twice in a block

    Draw without replacement, or promise distinct_edges=False.
    """
    if not case.promise.distinct_edges:
        return
    graph_codes, available = np.unique(_graph_codes(case), return_counts=True)
    for number, block in enumerate(batch.blocks):
        # A graph's node may be several of the batch, of a row each.
        by_dst = np.stack([_block_codes(case, batch, block), block.edge_dst().numpy()])
        (codes, _), times = np.unique(by_dst, axis=1, return_counts=True)
        at = np.minimum(np.searchsorted(graph_codes, codes), max(len(graph_codes) - 1, 0))
        # An edge that is none in the graph is another property's business.
        allowed = np.where(graph_codes[at] == codes, available[at], 1) if len(graph_codes) else np.ones_like(times)
        over = np.flatnonzero(times > allowed)
        actual = f"{_edge(case, codes[over])} {times[over[:1]]} times" if len(over) else ""
        expect(not len(over), f"blocks[{number}] with each of the graph's edges at most once", actual)


def counts_are_kept(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """no destination has more edges than promised; in a graph with types, of any edge type

    max_in_degree lists the nearest hop first, blocks the outermost.
    """
    if (promised := case.promise.max_in_degree) is None:
        return
    expect(len(promised) == len(batch.blocks), f"{len(promised)} blocks, as max_in_degree has", str(len(batch.blocks)))
    for number, (most, block) in enumerate(zip(reversed(promised), batch.blocks, strict=True)):
        dst = block.edge_dst().numpy()
        types = 0 if case.graph.types is None else edge_types(block, case.graph)
        largest = int(np.unique(dst * MAX_EDGE_TYPES + types, return_counts=True)[1].max(initial=0))
        expect(most < 0 or largest <= most, f"at most {most} edges a destination in blocks[{number}]", str(largest))


def edge_ids_point_at_edges(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """edge_ids, where a block has them, are the positions of its edges in Graph.indices

    Position indptr[v] + i of destination node v, whose source is indices[indptr[v] + i].
    """
    graph = case.graph
    for number, block in enumerate(batch.blocks):
        if block.edge_ids is None or not case.promise.edges_exist:
            continue
        name, ids = f"blocks[{number}].edge_ids", block.edge_ids.numpy()
        expect(block.edge_ids.dtype == torch.int64, f"{name} of dtype torch.int64", str(block.edge_ids.dtype))
        expect(len(ids) == block.num_edges, f"{name}, one an edge: {block.num_edges}", str(len(ids)))
        outside = ids[(ids < 0) | (ids >= graph.num_edges)]
        expect(not len(outside), f"{name} in [0, {graph.num_edges})", excerpt(outside))
        owners = np.searchsorted(graph.indptr, ids, side="right") - 1
        wrong = np.flatnonzero(owners * graph.num_nodes + graph.indices[ids] != _block_codes(case, batch, block))
        actual = f"{excerpt(ids[wrong])}, which are other edges"
        expect(not len(wrong), f"{name} of the block's own edges", actual)
        if case.promise.distinct_edges:
            by_dst = np.unique(np.stack([ids, block.edge_dst().numpy()]), axis=1)
            expect(by_dst.shape[1] == len(ids), f"each of {name} once", excerpt(ids))


def weights_are_finite(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """edge_weight, where a block has it, is float32, one an edge, finite and not negative

    A model multiplies messages by it.
    """
    for number, block in enumerate(batch.blocks):
        if (weight := block.edge_weight) is not None:
            name = f"blocks[{number}].edge_weight"
            expect(weight.dtype == torch.float32, f"{name} of dtype torch.float32", str(weight.dtype))
            expect(weight.shape == (block.num_edges,), f"{name} of shape [{block.num_edges}]", str(list(weight.shape)))
            bad = weight[~(weight.isfinite() & (weight >= 0))]
            expect(not len(bad), f"{name} finite and not negative", excerpt(bad))


def types_are_those_of_the_graph(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """edge_type, where a block has it, is the type of each edge in the graph

    Checked where the block has edge_ids.
    """
    for number, block in enumerate(batch.blocks):
        if block.edge_type is not None and block.edge_ids is not None:
            ids, graph = block.edge_ids.numpy(), case.graph
            if graph.types is None and graph.edge_type is None:
                continue
            expected = graph.edge_types_of(ids)
            is_equal = np.array_equal(block.edge_type.numpy(), expected)
            expect(is_equal, f"blocks[{number}].edge_type = {excerpt(expected)}", excerpt(block.edge_type))


def columns_are_declared(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """blocks hold the columns that the sampler declares, where it does; in a graph with types, edge_type or not

    What moves mini-batches to devices, or between ranks, goes by Sampler.columns.
    """
    if sampler.columns is not None:
        free = {"edge_type"} if case.graph.types is not None or case.graph.edge_type is not None else set()
        declared = sorted(set(sampler.columns) - free)
        for number, block in enumerate(batch.blocks):
            names = {column.name for column in EDGE_COLUMNS if getattr(block, column.name) is not None}
            present = sorted(names - free)
            expect(present == declared, f"blocks[{number}] with {declared}", str(present))


BatchProperty = Callable[[Sampler, Case, MiniBatch], None]
BATCH_PROPERTIES: tuple[BatchProperty, ...] = (
    # Each may rely on those before it.
    samples,
    seeds_first,
    nodes_are_distinct,
    one_block_a_layer,
    blocks_chain,
    indptr_rises,
    local_ids_in_range,
    edges_exist,
    edges_are_distinct,
    counts_are_kept,
    edge_ids_point_at_edges,
    weights_are_finite,
    types_are_those_of_the_graph,
    columns_are_declared,
    *ROW_PROPERTIES,
)


def _graph_codes(case: Case) -> np.ndarray:
    """Numbers the edges of the graph by their ends."""
    graph = case.graph
    return np.repeat(np.arange(graph.num_nodes), graph.in_degrees) * graph.num_nodes + graph.indices


def _block_codes(case: Case, batch: MiniBatch, block: Block) -> np.ndarray:
    """Numbers the edges of a block as :func:`_graph_codes` does."""
    edges = drawn_edges(batch, block)
    return edges.dst * case.graph.num_nodes + edges.src


def _edge(case: Case, codes: np.ndarray) -> Any:
    return f"{codes[0] % case.graph.num_nodes} -> {codes[0] // case.graph.num_nodes}" if len(codes) else ""
