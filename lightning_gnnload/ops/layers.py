"""Layer-wise sampling: each hop draws for all its destinations together, within a budget.

Shapes: N graph nodes, E edges, S seeds, L hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..errors import GraphFormatError, SamplerConfigError
from .checks import (
    as_flag,
    as_integer,
    as_integer_within,
    as_list,
    check_array,
    check_choice,
    check_csc_form,
    check_kind,
)
from .dispatch import MAX_NODES, SampleLayout, check_hops, kernels
from .inputs import SamplerInput

LayerMethod = Literal["ladies", "fastgcn", "dsp"]
LAYER_METHODS = ("ladies", "fastgcn", "dsp")  # in the order of kernels/sample_layers/sample_layers.h
MAX_BUDGET: int = kernels.MAX_BUDGET
WHOLE_LAYER = -1


def sample_layers(
    inputs: SamplerInput,
    budgets: Sequence[int],
    method: LayerMethod,
    *,
    importance_tree: np.ndarray | None = None,
    replace: bool = False,
    normalize: bool = False,
    keep_known: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
    num_drawn: int = 0,
    weights: np.ndarray | None = None,
    draws: tuple[np.ndarray, np.ndarray] | None = None,
) -> SampleLayout:
    """Samples the neighbourhood of the seeds into the arena: a pure function of everything but the workspace.

    ``nodes`` are in order of first occurrence, seeds first; destination ``j`` of every hop is ``nodes[j]``. A
    destination's edges are in adjacency order and carry weights: :class:`.LayerSampler` says what they estimate,
    kernels/sample_layers/sample_layers.h how items are drawn.

    ``budgets`` are nodes, with ``"dsp"`` edges, drawn at each hop, nearest first; -1 takes all. ``"fastgcn"`` needs
    :func:`importance_tree`. What is drawn twice counts twice in the weights; ``normalize`` makes those of a destination
    add up to 1; ``keep_known``, not with ``"dsp"``, keeps all edges from nodes that the batch has anyway. The first
    ``num_drawn`` seeds are known already, and no destinations of the first hop, so that one hop of a longer batch can
    be drawn by itself. ``weights``, float32 or float64 ``[E]``, are those by which edges count and are drawn.
    ``draws``, with ``"fastgcn"``, are nodes and factors that :func:`.draw_nodes` has drawn, int64 and float64 ``[n]``,
    which each hop then takes; it draws none, and needs no tree.

    Raises SeedError for a seed out of range or repeated; SamplerConfigError for settings that do not work, or a batch
    beyond int32 local ids; GraphFormatError for weights that do not fit, or one met that is negative, infinite or not a
    number; ArenaTooSmall, after which to sample again with ``needed_bytes``.
    """
    check_kind("inputs", inputs, SamplerInput)
    check_weights(weights, inputs.indices)
    budgets = check_budgets(budgets)
    check_hops("budgets", len(budgets), inputs.key)
    check_choice("method", method, LAYER_METHODS)
    check_choice("expand", expand, ("all", "new"))
    keep_known = as_flag("keep_known", keep_known)
    if keep_known and method == "dsp":
        raise SamplerConfigError('keep_known does not go with method="dsp", which draws edges and not nodes.')
    num_drawn = as_integer("num_drawn", num_drawn)
    if not 0 <= num_drawn <= len(inputs.seeds):
        raise SamplerConfigError(f"num_drawn is {num_drawn}, but there are {len(inputs.seeds)} seeds.")
    if draws is not None:
        _check_draws(draws, method, len(inputs.indptr) - 1)
    elif method == "fastgcn":
        check_array("importance_tree", importance_tree, (np.int64,), 1, SamplerConfigError)
        if importance_tree is not None and importance_tree.shape != inputs.indptr.shape:
            raise SamplerConfigError(
                f"importance_tree has {len(importance_tree)} entries, but a graph of {len(inputs.indptr) - 1} nodes "
                f"needs {len(inputs.indptr)}: give the one that importance_tree() makes of this graph."
            )
    return SampleLayout.of(
        kernels.sample_layers(
            inputs.native,
            budgets,
            LAYER_METHODS.index(method),
            importance_tree if method == "fastgcn" and draws is None else None,
            as_flag("replace", replace),
            as_flag("normalize", normalize),
            keep_known,
            expand == "new",
            as_flag("edge_ids", edge_ids),
            num_drawn,
            weights,
            *((None, None) if draws is None else draws),
        )
    )


def importance_tree(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Builds FastGCN's distribution of nodes, their importance to the whole graph, as a Fenwick tree, int64 ``[N +
    1]``, read-only: entry 0 counts the nodes of positive importance; entry ``i`` is the sum over nodes ``i - (i & -i)``
    to ``i - 1``.

    A node's importance is the squared norm of its column in the row-normalised adjacency, in integer units of at most
    2**-14: each edge into a node of in-degree ``d`` adds ``1 / d**2``, and at least one unit; with ``weights``, float32
    or float64 ``[E]``, an edge of weight ``w``, of ``W`` together, adds ``(w / W)**2``, or nothing for a weight of
    zero. Raises GraphFormatError for weights that do not fit, or one that is negative, infinite or not a number.

    Source: FastGCN (ICLR'18), equation 6.

    Example:
        >>> tree = importance_tree(np.array([0, 2, 3, 3]), np.array([1, 2, 2]))
        >>> tree[0].item(), (tree[1:] / tree[2]).tolist()  # the importances are 0, 1/4 and 5/4
        (2, [0.0, 1.0, 5.0])
    """
    check_csc_form(indptr, indices)
    check_weights(weights, indices)
    entries = np.empty(len(indptr), np.int64)
    kernels.importance_tree(indptr, indices, weights, entries)
    return _as_tree(entries)


def importances(
    indptr: np.ndarray, indices: np.ndarray, num_graph_nodes: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """Sums what the lists of a part add to each node's importance to the whole graph, int64 ``[N]``, in the units of a
    graph of ``num_graph_nodes``: the sums of all parts make :func:`tree_of` what :func:`importance_tree` makes of the
    whole. Other arguments and errors are those of it; SamplerConfigError for a number of nodes that cannot be.
    """
    check_csc_form(indptr, indices)
    check_weights(weights, indices)
    num_graph_nodes = as_integer_within("num_graph_nodes", num_graph_nodes, 1, MAX_NODES - 1)
    sums = np.empty(len(indptr) - 1, np.int64)
    kernels.importances(indptr, indices, weights, num_graph_nodes, sums)
    return sums


def tree_of(importances: np.ndarray) -> np.ndarray:
    """Builds the tree of nodes' importances, int64 ``[N]``, as :func:`importance_tree` has it: int64 ``[N + 1]``.

    Example:
        >>> indptr, indices = np.array([0, 2, 3, 3]), np.array([1, 2, 2])
        >>> tree_of(importances(indptr, indices, 3)).tolist() == importance_tree(indptr, indices).tolist()
        True
    """
    check_array("importances", importances, (np.int64,), 1, SamplerConfigError)
    entries = np.append(np.int64(0), importances)
    kernels.build_tree(entries)
    return _as_tree(entries)


def _as_tree(entries: np.ndarray) -> np.ndarray:
    # Shared by all threads and batches of a sampler: one that wrote to it would skew all later draws.
    entries.flags.writeable = False
    return entries


def _check_draws(draws: tuple[np.ndarray, np.ndarray], method: str, num_nodes: int) -> None:
    nodes, factors = draws
    check_array("drawn nodes", nodes, (np.int64,), 1, SamplerConfigError)
    check_array("drawn factors", factors, (np.float64,), 1, SamplerConfigError, count=len(nodes))
    if method != "fastgcn" or (len(nodes) and not (nodes.min() >= 0 and nodes.max() < num_nodes)):
        raise SamplerConfigError(
            f"drawn nodes must lie in [0, {num_nodes}), and go with method='fastgcn', not {method!r}."
        )


def check_weights(weights: np.ndarray | None, indices: np.ndarray) -> None:
    """Raises GraphFormatError where weights are not one float an edge."""
    if weights is None:
        return
    check_array("weights", weights, (np.float32, np.float64), 1, GraphFormatError)
    if len(weights) != len(indices):
        raise GraphFormatError(f"weights has {len(weights)} entries, but the graph has {len(indices)} edges.")


def check_budgets(budgets: Sequence[int]) -> list[int]:
    """Returns budgets as plain integers; raises SamplerConfigError where one is no budget."""
    budgets = [as_integer(f"budgets[{hop}]", budget) for hop, budget in enumerate(as_list("budgets", budgets))]
    for hop, budget in enumerate(budgets):
        if budget != WHOLE_LAYER and not 1 <= budget <= MAX_BUDGET:
            raise SamplerConfigError(
                f"budgets[{hop}] is {budget}, but must lie in [1, {MAX_BUDGET}], or be -1 for all."
            )
    return budgets
