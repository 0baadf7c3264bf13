"""Random walks, and neighbourhoods of the nodes that walks visit most often.

Walks go along in-edges, from a node to one of its in-neighbours, against the direction of messages.

Shapes: N graph nodes, E edges, S seeds, W walks a node, T steps a walk, L hops.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import SamplerConfigError, SeedError
from .alias import AliasTable, check_table
from .checks import (
    as_flag,
    as_integer,
    as_integer_within,
    check_array,
    check_choice,
    check_csc_form,
    check_global_ids,
    check_kind,
)
from .dispatch import MAX_HOPS, DrawKey, SampleLayout, kernels
from .inputs import SamplerInput

MAX_VISITS: int = kernels.MAX_VISITS
MAX_WALK_BLOCKS: int = kernels.MAX_WALK_BLOCKS
_WORDS = 1 << 32


@dataclass(frozen=True)
class Walks:
    """The settings of random walks: ``num_walks`` from each node, of up to ``length`` steps.

    A walk ends at a node without in-neighbours, or with none of positive weight, and after any step with probability
    ``termination_prob``. A walk that goes on does so, with probability ``restart_prob``, from its start instead of the
    node it has reached. Both probabilities are rounded to multiples of 2**-32, so that integers decide. Raises
    SamplerConfigError for a number below 1, a probability outside [0, 1], or more steps than there are draws.
    """

    length: int
    num_walks: int = 1
    termination_prob: float = 0.0
    restart_prob: float = 0.0

    def __post_init__(self) -> None:
        for field, name in (("length", "the length of a walk"), ("num_walks", "num_walks")):
            value = as_integer(name, getattr(self, field))
            object.__setattr__(self, field, value)
            if value < 1:
                raise SamplerConfigError(f"{name} is {value}, but must be at least 1.")
        for field in ("termination_prob", "restart_prob"):
            object.__setattr__(self, field, _as_probability(field, getattr(self, field)))
        # Two steps share a Philox block of four words: one word chooses the neighbour, one decides what follows.
        if self.num_walks * ((self.length + 1) // 2) > MAX_WALK_BLOCKS:
            raise SamplerConfigError(
                f"{self.num_walks} walks of {self.length} steps a node are more than there are draws for: "
                f"num_walks * ceil(length / 2) must be at most {MAX_WALK_BLOCKS}. Walk in several calls, "
                "with another step in the key."
            )

    @property
    def end_below(self) -> int:
        """The threshold of ending a walk: after a step, a 32-bit word below it does."""
        return round(_WORDS * self.termination_prob)

    @property
    def restart_below(self) -> int:
        """A word below this, and not below :attr:`end_below`, lets the walk go on from its start."""
        return self.end_below + round((_WORDS - self.end_below) * self.restart_prob)


@dataclass(frozen=True)
class WalkRuns:
    """The runs by which walks between types leave nodes: at each step of a round those of one edge type.

    A walk goes round after round. The nodes of a type have consecutive ids, and a run each for every edge type that
    ends there, so that two numbers a step name the run of a node.
    """

    # uint32 or int64 [R + 1]: run r is indices[run_ptr[r]:run_ptr[r + 1]]. An array; or a device's, where one walks.
    run_ptr: Any
    first: tuple[int, ...]  # one a step: there a walk leaves node v by run first + v * stride
    stride: tuple[int, ...]  # one a step
    starts: range  # nodes that have such runs at the first step; each round but the last must end at one of them

    def native(self) -> Any:
        """Returns the object that kernels read."""
        return kernels.WalkRuns(self.run_ptr, list(self.first), list(self.stride))

    def check(self, walks: Walks, starts: np.ndarray, name: str) -> None:
        """Raises SeedError where a walk would start elsewhere, SamplerConfigError where one would end within a
        round."""
        if walks.length % len(self.first):
            raise SamplerConfigError(
                f"walks of {walks.length} steps end amid a round, which has {len(self.first)}: give a multiple of it."
            )
        check_type_of_starts(self.starts, starts, name)


def random_walk(
    indptr: np.ndarray,
    indices: np.ndarray,
    starts: np.ndarray,
    walks: Walks,
    key: DrawKey,
    *,
    runs: WalkRuns | None = None,
    table: AliasTable | None = None,
    names: np.ndarray | None = None,
) -> np.ndarray:
    """Walks from each start, int64 ``[S]``, distinct; a walk is a pure function of the graph, its start, its number and
    the key. Returns int64 ``[S * W, T + 1]``: row ``s * W + w`` is walk ``w`` of ``starts[s]``, the start first and -1
    after the end.

    At ``key.hop`` it walks as :func:`sample_walks` does in that hop. With ``runs``, a walk may end or restart only
    after a whole round; without, a round is one step along any in-edge. ``table``, by :func:`.build_alias` of this
    graph or of its runs, makes steps go by weight. ``names``, int64 ``[N]``, are the global ids of a part's nodes, by
    which they draw.

    Raises SeedError for a start out of range, of another type than the runs', or repeated; SamplerConfigError for a
    table that is visibly another graph's, more steps by weight than there are draws, or walks that end within a round.
    """
    check_csc_form(indptr, indices)
    check_kind("walks", walks, Walks)
    entries = walk_entries(table, indptr if runs is None else runs.run_ptr, indices, walks)
    check_kind("key", key, DrawKey)
    check_global_ids(names, indptr)
    check_starts(starts)
    if runs is not None:
        runs.check(walks, starts, "starts")
    shape = len(starts) * walks.num_walks, walks.length + 1
    try:
        traces = np.empty(shape, np.int64)
    except (MemoryError, ValueError):  # the latter, where NumPy cannot even count the bytes
        raise SamplerConfigError(
            f"{walks.num_walks} walks of {walks.length} steps from each of {len(starts)} starts are {math.prod(shape)} "
            f"nodes of 8 bytes, more than there is memory for: walk from fewer starts at a time."
        ) from None
    kernels.random_walk(
        indptr,
        indices,
        None if runs is None else runs.native(),
        entries,
        starts,
        walks.length,
        walks.num_walks,
        walks.end_below,
        walks.restart_below,
        key.seed,
        key.epoch,
        key.step,
        key.hop,
        names,
        traces.reshape(-1),
    )
    return traces


def sample_walks(
    inputs: SamplerInput,
    walks: Walks,
    *,
    num_hops: int,
    num_neighbors: int,
    include_self: bool = True,
    normalize: bool = False,
    expand: Literal["all", "new"] = "all",
    runs: WalkRuns | None = None,
    table: AliasTable | None = None,
) -> SampleLayout:
    """Samples the neighbourhood of the seeds into the arena: a pure function of everything but the workspace.

    The neighbours of a destination, ``num_neighbors`` at most, are the nodes that its walks visit most often: most
    visits first, and the lower global id first among equals; edge weights are visits, with ``normalize`` divided by
    their sum. ``nodes`` are in order of first occurrence, seeds first; destination ``j`` of every hop is ``nodes[j]``.
    With ``expand="new"`` the hops share one CSC, each hop a prefix of the next. ``runs`` and ``table`` are as in
    :func:`random_walk`; with ``runs``, only nodes at the end of a round are visited.

    Raises SeedError for a seed out of range, of another type than the runs', or repeated; SamplerConfigError for a
    number out of range, or a batch beyond int32 local ids; ArenaTooSmall, after which to sample again with
    ``needed_bytes``.

    Source: PinSage (KDD'18), section 3.2; GNNLab (EuroSys'22), section 7.1 for walks on any graph.
    """
    check_kind("inputs", inputs, SamplerInput)
    num_hops, num_neighbors = check_walk_hops(walks, num_hops, num_neighbors, inputs.key, runs)
    check_choice("expand", expand, ("all", "new"))
    if runs is not None:
        runs.check(walks, inputs.seeds, "seeds")
    return SampleLayout.of(
        kernels.sample_walks(
            inputs.native,
            None if runs is None else runs.native(),
            walk_entries(table, inputs.indptr if runs is None else runs.run_ptr, inputs.indices, walks),
            num_hops,
            num_neighbors,
            walks.num_walks,
            walks.length,
            walks.end_below,
            walks.restart_below,
            as_flag("include_self", include_self),
            as_flag("normalize", normalize),
            expand == "new",
        )
    )


def walk_entries(
    table: AliasTable | None, list_ptr: np.ndarray, indices: np.ndarray, walks: Walks
) -> np.ndarray | None:
    """Returns what kernels read of a table; raises SamplerConfigError where it is visibly another graph's, or where
    there are more steps by weight than draws."""
    if table is None:
        return None
    check_table(table, list_ptr, indices)
    check_weighted_walks(walks)
    return table.entries


def check_weighted_walks(walks: Walks) -> None:
    """Raises SamplerConfigError where there are more steps by weight than draws."""
    # A step by weight needs three words of a block, so that none is shared.
    if walks.num_walks * walks.length > MAX_WALK_BLOCKS:
        raise SamplerConfigError(
            f"{walks.num_walks} walks of {walks.length} steps a node are more than there are draws for by weight: "
            f"num_walks * length must be at most {MAX_WALK_BLOCKS}. Walk in several calls, with another step in the "
            "key."
        )


def check_starts(starts: np.ndarray) -> None:
    """Raises SeedError where starts of walks are no int64 array, or repeated."""
    check_array("starts", starts, (np.int64,), 1, SeedError)
    # Sorted here: unlike seeds, starts have no table in which a kernel would notice repeats.
    in_order = np.sort(starts)
    if len(repeated := in_order[1:][in_order[1:] == in_order[:-1]]):
        raise SeedError(
            f"starts holds node {repeated[0]} more than once, but equal starts make equal walks. "
            "For several walks from a node, ask for num_walks."
        )


def check_type_of_starts(allowed: range, starts: np.ndarray, name: str) -> None:
    """Raises SeedError where walks along a metapath would start at other nodes than it begins at."""
    outside = np.flatnonzero((starts < allowed.start) | (starts >= allowed.stop))
    if len(outside):
        raise SeedError(
            f"{name}[{outside[0]}] is {starts[outside[0]]}, but the first edge type of the metapath ends in nodes "
            f"{allowed.start} to {allowed.stop - 1} alone: give {name} of that node type."
        )


def check_walk_hops(
    walks: Walks, num_hops: int, num_neighbors: int, key: DrawKey, runs: WalkRuns | None = None
) -> tuple[int, int]:
    """Returns ``num_hops`` and ``num_neighbors`` as integers; raises SamplerConfigError where one is out of range, or
    walks may visit too many nodes."""
    check_kind("walks", walks, Walks)
    num_hops = as_integer_within("num_hops", num_hops, 0, MAX_HOPS - key.hop)
    num_neighbors = as_integer_within("num_neighbors", num_neighbors, 1, MAX_VISITS)
    check_visits(walks, 1 if runs is None else len(runs.first))
    return num_hops, num_neighbors


def check_visits(walks: Walks, steps_a_round: int = 1) -> None:
    """Raises SamplerConfigError where the walks of a node may visit more nodes than are counted."""
    num_visits = walks.num_walks * (walks.length // steps_a_round)
    if num_visits > MAX_VISITS:
        raise SamplerConfigError(
            f"{walks.num_walks} walks of {walks.length} steps visit up to {num_visits} nodes, but visits are "
            f"counted up to {MAX_VISITS}: use fewer or shorter walks."
        )


def _as_probability(name: str, value: Any) -> float:
    probability = float(value) if isinstance(value, numbers.Real) else -1.0
    if not 0 <= probability <= 1:  # not-a-number fails too
        raise SamplerConfigError(f"{name} is {value!r}, but must be a number in [0, 1].")
    return probability
