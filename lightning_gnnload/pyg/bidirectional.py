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

NO_EDGE = 2**31 - 2**63
"""The number of an edge that the graph does not have: negative, and no place in any attribute, so that indexing by it
is an error, as an int32 too; -1 would be the last edge."""


class _Edges(NamedTuple):
    """Edges of one type.

    Attributes:
        row: their sources' places among the mini-batch's nodes of that type, int64 ``[E]``.
        col: likewise of their targets.
        number: what the user calls them, int64 ``[E]``.
    """

    row: np.ndarray
    col: np.ndarray
    number: np.ndarray


def with_ways_back(
    drawn: SamplerOutput | HeteroSamplerOutput, there: SamplerOutput | HeteroSamplerOutput, *, keep_drawn: bool
) -> SamplerOutput | HeteroSamplerOutput:
    """Returns what was drawn, with the edges added that lead back where what was drawn does not.

    The way back of the i-th edge ``u -> v`` of the graph, by the users' numbers, is its i-th edge ``v -> u``, or the
    last where there are fewer; where there is none, it is one without number, :data:`NO_EDGE`. Edges are in the order
    of their targets and, of each target, of their sources, as PyG has them.

    Args:
        drawn: what was drawn.
        there: all edges of the graph between the same nodes, as far as they may be seen.
        keep_drawn: as PyG's ``keep_orig_edges``: the ends of what was drawn, and its counts, are kept.
    """
    if isinstance(drawn, SamplerOutput):
        assert isinstance(there, SamplerOutput)
        of_drawn, of_there = _edges(drawn), _edges(there)
        row, col, number = map(torch.from_numpy, _both_ways(of_drawn, of_drawn, of_there, of_there))
        made = replace(drawn, row=row, col=col, edge=number)
    else:
        assert isinstance(there, HeteroSamplerOutput)
        made = replace(drawn, row={**drawn.row}, col={**drawn.col}, edge={**drawn.edge})
        for kind, back in reverse_types(tuple(drawn.row)).items():
            if back is not None:
                found = _both_ways(*(_edges(each, of) for each in (drawn, there) for of in (kind, back)))
                made.row[kind], made.col[kind], made.edge[kind] = map(torch.from_numpy, found)
    if keep_drawn:
        made.orig_row, made.orig_col = drawn.row, drawn.col
    else:
        made.num_sampled_nodes = made.num_sampled_edges = None
    return made


@cache
def reverse_types(edge_types: tuple[EdgeType, ...]) -> dict[EdgeType, EdgeType | None]:
    """Returns the type of each type's ways back by PyG's rule: that of the same name with ``rev_``, else the type
    itself where both ends are of one type, else the only type that leads back; None where there is none.

    Of types without one, a warning says so, once.
    """
    found = {kind: _reverse_of(kind, edge_types) for kind in edge_types}
    alone = [str(kind) for kind, back in found.items() if back is None]
    if alone:
        warn(
            f"subgraph_type='bidirectional': there is no reverse type of {', '.join(alone)}, whose edges stay as they "
            "were drawn. A reverse type has the ends exchanged and the name with 'rev_', as "
            "torch_geometric.transforms.ToUndirected() adds it, or is the only one between these."
        )
    return found


def _reverse_of(kind: EdgeType, edge_types: tuple[EdgeType, ...]) -> EdgeType | None:
    src, name, dst = kind
    is_reverse = name.startswith("rev_")
    named = (dst, name.removeprefix("rev_") if is_reverse else f"rev_{name}", src)
    if named in edge_types:
        return named
    if is_reverse:
        return None
    if src == dst:
        return kind
    back = [each for each in edge_types if each[::2] == (dst, src)]
    return back[0] if len(back) == 1 else None


def _edges(output: SamplerOutput | HeteroSamplerOutput, kind: EdgeType | None = None) -> _Edges:
    columns = (output.row, output.col, output.edge)
    return _Edges(*((column if kind is None else column[kind]).numpy() for column in columns))


def _both_ways(drawn: _Edges, drawn_back: _Edges, there: _Edges, there_back: _Edges) -> _Edges:
    """Returns the edges of a type that were drawn, and those by which it leads back from what was drawn of another.

    Args:
        drawn: of this type.
        drawn_back: of the other one, which may be the same.
        there: all that there are of this type.
        there_back: likewise of the other one.
    """
    width = 1 + max(int(each.max(initial=0)) for each in (there.col, there_back.row))
    pairs, there = _by_pair(there.row * width + there.col, there)
    pairs_back, there_back = _by_pair(there_back.col * width + there_back.row, there_back)
    first, end = np.searchsorted(pairs, pairs_back), np.searchsorted(pairs, pairs_back, side="right")
    place = np.arange(len(pairs_back)) - np.searchsorted(pairs_back, pairs_back)
    asked, has_way = _are_drawn(there_back, drawn_back), end > first
    ways = np.unique(np.minimum(first + place, end - 1)[asked & has_way])
    ways = ways[~_are_drawn(there, drawn)[ways]]
    lone = np.flatnonzero(asked & ~has_way)
    lone = lone[np.unique(pairs_back[lone], return_index=True)[1]]
    row = np.concatenate([drawn.row, there.row[ways], there_back.col[lone]])
    col = np.concatenate([drawn.col, there.col[ways], there_back.row[lone]])
    number = np.concatenate([drawn.number, there.number[ways], np.full(len(lone), NO_EDGE)])
    order = np.lexsort((row, col))
    return _Edges(row[order], col[order], number[order])


def _by_pair(pairs: np.ndarray, edges: _Edges) -> tuple[np.ndarray, _Edges]:
    """Returns edges in the order of what names their ends and, of the same ends, of their numbers."""
    order = np.lexsort((edges.number, pairs))
    return pairs[order], _Edges(*(column[order] for column in edges))


def _are_drawn(edges: _Edges, drawn: _Edges) -> np.ndarray:
    """Returns which edges are among the drawn ones, bool ``[E]``: rows that share no nodes may have an edge each, which
    its target tells apart."""
    _, names = np.unique(np.concatenate([edges.number, drawn.number]), return_inverse=True)
    names = names + np.concatenate([edges.col, drawn.col]) * len(names)
    return np.isin(names[: len(edges.number)], names[len(edges.number) :])
