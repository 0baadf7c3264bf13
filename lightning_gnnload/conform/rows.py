"""The properties of single mini-batches whose rows have times, or nodes of their own.

The first line of a property's docstring says what holds, the rest what to look at where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from lightning_gnnload.conform.case import Case, along_paths, excerpt, expect
from lightning_gnnload.conform.draw import drawn_edges
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.clock import Clock, length_of
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.sample.base import Sampler


def rows_do_not_mix(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """where rows have nodes of their own, or those of one time, MiniBatch.rows says whose each is, and edges join these

    Seed i is of row i; with sharing="time", of the query of its time. A node that two rows find is there twice.
    """
    sharing, rows = case.rows_for(sampler).sharing, batch.rows
    if sharing == "plain":
        return
    is_sound = rows is not None and rows.dtype == torch.int32 and rows.shape == batch.nodes.shape
    expect(is_sound, f"rows int32 [{batch.num_nodes}]", "none" if rows is None else f"{rows.dtype} {list(rows.shape)}")
    assert rows is not None
    expected = np.arange(len(case.seeds))
    if sharing == "time" and case.times is not None:
        expected = np.unique(case.times, return_inverse=True)[1]
    seed_rows = rows[: len(expected)]
    expect(np.array_equal(seed_rows.numpy(), expected), f"rows = {excerpt(expected)} of the seeds", excerpt(seed_rows))
    for number, block in enumerate(batch.blocks):
        endpoints = rows[block.indices.long()], rows[block.edge_dst()]
        mixed = (endpoints[0] != endpoints[1]).nonzero()[:1].flatten().tolist()
        actual = "".join(f"one from row {endpoints[0][at]} to row {endpoints[1][at]}" for at in mixed)
        expect(not mixed, f"edges of blocks[{number}] within a row", actual)


def nothing_is_later(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """no edge or node is later than its seed's time (along paths, than the edge before), nor older than the window

    Draw from those codes of Graph.edge_time that lie in [Queries.since, Queries.until) of the row. Edges are told
    by edge_ids; without, the earliest between two nodes counts.
    """
    if case.times is None or not len(case.seeds) or batch.rows is None:
        return
    settings: Any = sampler
    graph, rows = case.graph, batch.rows.numpy()
    root, until = _root_times(case, batch), np.empty(0)
    for block, edges, until in _with_bounds(sampler, case, batch):
        dst, src = block.edge_dst().numpy(), block.indices.numpy()
        is_late = _is_late(settings)
        _expect_none(case, batch, block, edges.is_timed & is_late(edges.time, until[dst]), f"{settings.before} ", until)
        if graph.node_time is not None:
            _expect_none(case, batch, block, is_late(graph.node_time[batch.nodes[src].numpy()], until[dst]), "", until)
        if settings.window is not None:
            is_old = edges.is_timed & (edges.time < root[dst] - length_of(settings.window))
            _expect_none(case, batch, block, is_old, f"since {settings.window} before ", root)
    if along_paths(sampler, case) and len(until):
        assert graph.clock is not None
        codes = graph.clock.until(until, settings.before)
        times = np.unique(np.stack([rows, batch.nodes.numpy(), codes]), axis=1, return_counts=True)[1]
        expect((times == 1).all(), "each node once for a row and a time", f"one of them {times.max(initial=0)} times")


def the_newest_are_taken(sampler: Sampler, case: Case, batch: MiniBatch) -> None:
    """with pick="last", a destination has the newest of those edges of a type that it may have

    Runs lie in the order of their times. Checked where the block has edge_ids.
    """
    if getattr(sampler, "pick", "uniform") != "last" or case.times is None or not len(case.seeds):
        return
    settings: Any = sampler
    for block, edges, until in _with_bounds(sampler, case, batch):
        if block.edge_ids is None:
            continue
        ids, dst = block.edge_ids.numpy(), block.edge_dst().numpy()
        # Whatever follows an edge that was drawn, in its run and early enough, was drawn as well.
        after = np.minimum(ids + 1, case.graph.num_edges - 1)
        is_there = (after > ids) & (_runs_of(case.graph, after) == _runs_of(case.graph, ids)) & edges.is_timed
        late = _is_late(settings)(edges_at(case.graph, after).time, until[dst])
        draws = set(zip(dst.tolist(), ids.tolist(), strict=True))
        for at in np.flatnonzero(is_there & ~late):
            newer = int(dst[at]), int(after[at])
            expect(
                newer in draws,
                f"edge {newer[1]}, the newer one",
                f"edge {ids[at]} of node {batch.nodes[dst[at]]}",
            )


def edges_of_row(batch: MiniBatch, row: int) -> list[np.ndarray]:
    """Returns the edges of a row's nodes, node ids ``[2, E]`` by block: destinations, and sources."""
    assert batch.rows is not None
    return [
        np.stack(drawn_edges(batch, block))[:, (batch.rows[block.edge_dst()] == row).numpy()] for block in batch.blocks
    ]


def _root_times(case: Case, batch: MiniBatch) -> np.ndarray:
    """Returns the time of each node's row, ``[V]``."""
    assert batch.rows is not None
    assert case.times is not None
    rows = batch.rows.numpy()
    time = np.empty(int(rows.max()) + 1, case.times.dtype)
    time[rows[: len(case.seeds)]] = case.times
    return time[rows]


def _with_bounds(sampler: Sampler, case: Case, batch: MiniBatch) -> Iterator[tuple[Block, EdgesAt, np.ndarray]]:
    """Yields each block, nearest hop first, its edges' times, and until when each node asks for edges, ``[V]``: along
    paths that is found out block by block."""
    until, num_known = _root_times(case, batch), len(case.seeds)
    for block in reversed(batch.blocks):
        edges = _block_edges_at(case, batch, block)
        if along_paths(sampler, case):
            dst, src = block.edge_dst().numpy(), block.indices.numpy()
            fresh = src >= num_known
            until[src[fresh]] = np.where(edges.is_timed, edges.time, until[dst])[fresh]
            num_known = block.num_src
        yield block, edges, until


def _is_late(sampler: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Returns the comparison of times with bounds that finds what the sampler's ``before`` leaves out."""
    return np.greater if sampler.before == "<=" else np.greater_equal


def _runs_of(graph: Graph, edges: np.ndarray) -> np.ndarray:
    """Returns the number of the list, by node and type, that each edge lies in."""
    return np.searchsorted(graph.typed_lists.run_ptr, edges.astype(graph.typed_lists.run_ptr.dtype), side="right")


class EdgesAt(NamedTuple):
    """Holds when each edge begins to be there, ``[E]``, and whether it has a time at all, bool ``[E]``."""

    time: np.ndarray
    is_timed: np.ndarray


def _block_edges_at(case: Case, batch: MiniBatch, block: Block) -> EdgesAt:
    graph = case.graph
    if block.edge_ids is not None:
        return edges_at(graph, block.edge_ids.numpy())
    time, is_timed = edges_at(graph, np.arange(graph.num_edges))
    codes = np.repeat(np.arange(graph.num_nodes), graph.in_degrees) * graph.num_nodes + graph.indices
    order = np.lexsort((time, is_timed, codes))
    pairs, first = np.unique(codes[order], return_index=True)
    edges = drawn_edges(batch, block)
    positions = order[first[np.searchsorted(pairs, edges.dst * graph.num_nodes + edges.src)]]
    return EdgesAt(time[positions], is_timed[positions])


def edges_at(graph: Graph, edges: np.ndarray) -> EdgesAt:
    """Returns when edges, by their positions in ``indices``, begin to be there, in a graph with times."""
    assert graph.clock is not None
    assert graph.edge_time is not None
    types = np.zeros(len(edges), np.int64) if graph.types is None else graph.edge_types_of(edges)
    return EdgesAt(time_of_codes(graph.clock, graph.edge_time[edges]), graph.clock.timed[types])


def time_of_codes(clock: Clock, codes: np.ndarray) -> np.ndarray:
    """Returns the times, int64 or float64, that these codes stand for."""
    if clock.ranked is None:
        return clock.first + codes.astype(np.int64) * clock.unit
    return clock.ranked[codes]


def _expect_none(case: Case, batch: MiniBatch, block: Block, is_bad: np.ndarray, than: str, bounds: np.ndarray) -> None:
    """Raises PropertyViolation at the first edge that is bad; ``bounds`` are those of each node."""
    for at in np.flatnonzero(is_bad)[:1]:
        edges, bound = drawn_edges(batch, block), bounds[int(block.edge_dst()[at])]
        subject = "edges" if than else "nodes that are there at"
        time = _block_edges_at(case, batch, block).time[at] if than else case.graph.node_time[edges.src[at]]  # type: ignore
        expect(False, f"{subject} {than}{bound}", f"{edges.src[at]} -> {edges.dst[at]} of {time}")


ROW_PROPERTIES = (rows_do_not_mix, nothing_is_later, the_newest_are_taken)
