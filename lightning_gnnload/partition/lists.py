"""In-neighbour lists of some nodes, one after the other, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

CHUNK_EDGES = 1 << 20  # a few megabytes at a time


def list_degrees(indptr: np.ndarray, nodes: np.ndarray, has_list: np.ndarray) -> np.ndarray:
    """Returns the length of each node's list, int64 ``[n]``; 0 where it is not kept."""
    return np.where(has_list, indptr[nodes + 1] - indptr[nodes], 0)


def edge_chunks(
    indptr: np.ndarray, nodes: np.ndarray, degrees: np.ndarray, chunk_edges: int = CHUNK_EDGES
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the edges of some nodes' lists, one list after the other, at most ``chunk_edges`` at once: of each edge
    its position in the graph's ``indices``, and the position in ``nodes`` of whose list it is of, both int64.
    ``degrees`` int64 ``[n]`` say how many edges of each list are wanted, from its first on."""
    list_ends = np.cumsum(degrees)
    shift = indptr[nodes] - (list_ends - degrees)  # from an edge's number among these to its place in the graph
    for begin in range(0, int(list_ends[-1]) if len(list_ends) else 0, chunk_edges):
        end = min(begin + chunk_edges, int(list_ends[-1]))
        first, last = np.searchsorted(list_ends, [begin, end - 1], side="right")
        counts = np.diff(np.clip(list_ends[first : last + 1], begin, end), prepend=begin)
        lists = np.repeat(np.arange(first, last + 1), counts)
        yield np.arange(begin, end) + shift[lists], lists
