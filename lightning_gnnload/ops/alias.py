"""Alias tables, by which in-neighbours are drawn by weight in constant time.

Shapes: N graph nodes, E edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import GraphFormatError, SamplerConfigError
from .checks import check_array, check_kind
from .dispatch import kernels

# Stands in the first entry of a list without positive weight, so that kernels need to look at no other.
NO_NEIGHBOR = np.uint64(kernels.NO_NEIGHBOR)


@dataclass(frozen=True)
class AliasTable:
    """The alias tables by which nodes draw neighbours in proportion to weight, in integers alone.

    A node of in-degree ``d`` deals out ``d * 2**32`` shares, ``2**32`` in each of ``d`` slots. Entry ``e`` of
    ``entries``, uint64 ``[E]``, gives its first ``threshold`` shares, the low 32 bits, to edge ``e``, and the rest to
    the edge ``alias``, the high 32 bits, counted from the node's first edge. So a uniform slot and a uniform 32-bit
    number draw each edge exactly in proportion to its shares.

    ``indptr`` is the graph's, int64 ``[N + 1]``; or its ``run_ptr``, int64 or uint32, where each run is a list by
    itself.
    """

    indptr: np.ndarray
    entries: np.ndarray

    @cached_property
    def zero_nodes(self) -> np.ndarray:
        """int64: the nodes that have in-neighbours, but none of positive weight."""
        # Without empty lists, whose first entry would be the next node's.
        nodes = np.flatnonzero(np.diff(self.indptr))
        return nodes[self.entries[self.indptr[nodes]] == NO_NEIGHBOR]


def build_alias(indptr: np.ndarray, weights: np.ndarray) -> AliasTable:
    """Builds the alias table of a graph that passed :func:`.check_csc`, of ``weights`` float32 or float64 ``[E]``.

    Weights become whole shares by exact integer arithmetic: at least one for a positive weight, none for zero, equal
    ones for equal weights. A probability is within ``2**-32 + d * 2**-62`` of the weight's part of the sum. Raises
    GraphFormatError for a weight that is negative, infinite or not a number, and for another dtype or number of
    weights.

    Source: Walker, "An efficient method for generating discrete random variables with general distributions",
    TOMS 3(3), 1977; the sweep of Hübschle-Schneider and Sanders, "Parallel weighted random sampling" (ESA'19),
    section 4.1.

    Example:
        >>> table = build_alias(np.array([0, 2, 3]), np.array([1.0, 3.0, 0.0]))
        >>> threshold, alias = int(table.entries[0]) % 2**32, int(table.entries[0]) >> 32
        >>> round(threshold / 2**32, 6), alias  # half of one slot in two, so that edge 0 is drawn in a quarter
        (0.5, 1)
        >>> table.zero_nodes.tolist()
        [1]
    """
    check_array("indptr", indptr, (np.int64,), 1, GraphFormatError)
    check_array("edge_weight", weights, (np.float32, np.float64), 1, GraphFormatError)
    num_edges = indptr[-1] if len(indptr) else 0
    if len(indptr) == 0 or len(weights) != num_edges:
        raise GraphFormatError(f"edge_weight has {len(weights)} entries, but the graph has {num_edges} edges.")
    # Not zeroed: the kernel writes every entry, or raises.
    entries = np.empty(len(weights), np.uint64)
    kernels.build_alias(indptr, weights, entries)
    return AliasTable(indptr, entries)


def check_table(table: AliasTable, indptr: np.ndarray, indices: np.ndarray) -> None:
    """Raises SamplerConfigError if this is no table, or visibly one of another graph."""
    check_kind("table", table, AliasTable)
    # Lengths alone: this runs for every batch, and comparing contents would read the whole graph.
    if len(table.entries) != len(indices) or len(table.indptr) != len(indptr):
        raise SamplerConfigError(
            f"the alias table is of {len(table.indptr) - 1} nodes and {len(table.entries)} edges, but the graph has "
            f"{len(indptr) - 1} and {len(indices)}: build this graph's."
        )
