"""``subgraph_type="bidirectional"``: the edges that were drawn, and the ways back.

PyG merges edges of the same ends, and gives an edge that it adds the number of the one that was drawn. Here an edge has
its own number, or none.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from lightning_gnnload.errors import warn

EdgeType = tuple[str, str, str]

# The number of an edge that the graph does not have. Indexing an attribute by it is an error, as an int32 too, where it
# is -2**31; -1 would be the last edge.
NO_EDGE = 2**31 - 2**63


class _EdgeList(NamedTuple):
    """Edges of one type: positions of their sources and targets among the mini-batch's nodes of that type, and the
    numbers that the user's graph has for them, int64 ``[E]`` each."""

    row: np.ndarray
    col: np.ndarray
    number: np.ndarray


def with_ways_back(
    sampled: SamplerOutput | HeteroSamplerOutput, induced: SamplerOutput | HeteroSamplerOutput, *, keep_drawn: bool
) -> SamplerOutput | HeteroSamplerOutput:
    """Returns what was drawn, with the edges added that lead back where what was drawn does not.

    The way back of the i-th edge ``u -> v`` of the graph, by the users' numbers, is its i-th edge ``v -> u``, or the
    last where there are fewer; where there is none, it is one without number, :data:`NO_EDGE`. Edges are in the order
    of their targets and, of each target, of their sources, as PyG has them.

    ``induced`` has all edges of the graph between the same nodes, of times that may be seen. With ``keep_drawn``, PyG's
    ``keep_orig_edges``, the edges that were drawn and their counts are there, too.
    """
    if isinstance(sampled, SamplerOutput):
        assert isinstance(induced, SamplerOutput)
        edges, induced_edges = _edges(sampled), _edges(induced)
        row, col, number = map(torch.from_numpy, _both_ways(edges, edges, induced_edges, induced_edges))
        output = replace(sampled, row=row, col=col, edge=number)
    else:
        assert isinstance(induced, HeteroSamplerOutput)
        output = replace(sampled, row={**sampled.row}, col={**sampled.col}, edge={**sampled.edge})
        for edge_type, back in reverse_types(tuple(sampled.row)).items():
            if back is not None:
                merged = _both_ways(*(_edges(part, name) for part in (sampled, induced) for name in (edge_type, back)))
                output.row[edge_type], output.col[edge_type], output.edge[edge_type] = map(torch.from_numpy, merged)
    if keep_drawn:
        output.orig_row, output.orig_col = sampled.row, sampled.col
    else:
        output.num_sampled_nodes = output.num_sampled_edges = None
    return output


@cache
def reverse_types(edge_types: tuple[EdgeType, ...]) -> dict[EdgeType, EdgeType | None]:
    """Returns the type of each type's ways back by PyG's rule, None where there is none, of which a warning says so,
    once.

    That is the type of the same name with ``rev_``, else the type itself where both endpoints are of one type, else the
    only type that leads back.
    """
    back_types = {edge_type: _reverse_of(edge_type, edge_types) for edge_type in edge_types}
    alone = [str(edge_type) for edge_type, back in back_types.items() if back is None]
    if alone:
        warn(
            f"subgraph_type='bidirectional': there is no reverse type of {', '.join(alone)}, whose edges stay as they "
            "were drawn. A reverse type has the ends exchanged and the name with 'rev_', as "
            "torch_geometric.transforms.ToUndirected() adds it, or is the only one between these."
        )
    return back_types


def _reverse_of(edge_type: EdgeType, edge_types: tuple[EdgeType, ...]) -> EdgeType | None:
    src, name, dst = edge_type
    is_reverse = name.startswith("rev_")
    named = (dst, name.removeprefix("rev_") if is_reverse else f"rev_{name}", src)
    if named in edge_types:
        return named
    if is_reverse:
        return None
    if src == dst:
        return edge_type
    back = [candidate for candidate in edge_types if candidate[::2] == (dst, src)]
    return back[0] if len(back) == 1 else None


def _edges(output: SamplerOutput | HeteroSamplerOutput, edge_type: EdgeType | None = None) -> _EdgeList:
    columns = (output.row, output.col, output.edge)
    return _EdgeList(*((column if edge_type is None else column[edge_type]).numpy() for column in columns))


def _both_ways(sampled: _EdgeList, sampled_back: _EdgeList, induced: _EdgeList, induced_back: _EdgeList) -> _EdgeList:
    """Returns the edges of a type that were drawn, and those by which it leads back from what was drawn of another
    type.

    ``sampled`` and ``induced`` are the drawn edges and all edges of this type, ``sampled_back`` and ``induced_back``
    those of the other one, which may be the same.
    """
    width = 1 + max(int(column.max(initial=0)) for column in (induced.col, induced_back.row))
    pairs, induced = _by_pair(induced.row * width + induced.col, induced)
    pairs_back, induced_back = _by_pair(induced_back.col * width + induced_back.row, induced_back)
    first, end = np.searchsorted(pairs, pairs_back), np.searchsorted(pairs, pairs_back, side="right")
    occurrence = np.arange(len(pairs_back)) - np.searchsorted(pairs_back, pairs_back)
    is_sampled, has_way = _are_sampled(induced_back, sampled_back), end > first
    # Of the i-th edge between two nodes the i-th edge back, or the last one, which several then share.
    ways = np.unique(np.minimum(first + occurrence, end - 1)[is_sampled & has_way])
    ways = ways[~_are_sampled(induced, sampled)[ways]]
    # Edges without a way back get one added for each pair of nodes, however many edges the pair has.
    lone = np.flatnonzero(is_sampled & ~has_way)
    lone = lone[np.unique(pairs_back[lone], return_index=True)[1]]
    row = np.concatenate([sampled.row, induced.row[ways], induced_back.col[lone]])
    col = np.concatenate([sampled.col, induced.col[ways], induced_back.row[lone]])
    number = np.concatenate([sampled.number, induced.number[ways], np.full(len(lone), NO_EDGE)])
    order = np.lexsort((row, col))
    return _EdgeList(row[order], col[order], number[order])


def _by_pair(pairs: np.ndarray, edges: _EdgeList) -> tuple[np.ndarray, _EdgeList]:
    """Returns edges in the order of what names their ends and, of the same ends, of their numbers."""
    order = np.lexsort((edges.number, pairs))
    return pairs[order], _EdgeList(*(column[order] for column in edges))


def _are_sampled(edges: _EdgeList, sampled: _EdgeList) -> np.ndarray:
    """Returns which edges are among the drawn ones, bool ``[E]``."""
    _, names = np.unique(np.concatenate([edges.number, sampled.number]), return_inverse=True)
    # Rows that share no nodes may have the same edge each: its target tells these apart.
    names = names + np.concatenate([edges.col, sampled.col]) * len(names)
    return np.isin(names[: len(edges.number)], names[len(edges.number) :])
