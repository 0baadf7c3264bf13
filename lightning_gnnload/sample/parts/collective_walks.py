"""Random walks over lists that lie with several ranks: a walk's next step is taken by who owns the node it stands on.

Who asks for walks keeps them: where each began, its number, and the nodes it has reached. A step draws in the name of
its walk's start, so that any rank takes it as the one with the whole graph would.

Shapes: D nodes that walks start from, W walks a node, T steps a walk, M walks that have not ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.data.arrays import as_ids
from lightning_gnnload.ops import DrawKey, Walks
from lightning_gnnload.sample.base import Paradigm
from lightning_gnnload.sample.build import check_seeds
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.group.messages import narrow
from lightning_gnnload.sample.metapath import check_metapath, metapath_steps, starts_of, walk_length
from lightning_gnnload.sample.parts.hops import pull_lists, weight_columns
from lightning_gnnload.sample.parts.lists import FATE_BITS, take_steps

Step = Callable[[np.ndarray, np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
"""Takes a step of many walks: ``(places, names of starts, numbers, t) -> (nodes, fates)``, nodes by their new ids."""


def collective_random_walk(
    colleagues: SamplingGroup,
    starts: Any,
    length: int | None = None,
    *,
    metapath: Sequence[Any] | None = None,
    num_walks: int = 1,
    termination_prob: float = 0.0,
    restart_prob: float = 0.0,
    weighted: bool = True,
    seed: int = 0,
    epoch: int = 0,
    step: int = 0,
    paradigm: Paradigm = "push",
) -> torch.Tensor:
    """Takes the walks of :func:`.random_walk` step by step over the parts of a graph.

    Args:
        colleagues: the ranks that hold the parts; others need not ask for walks at the same time.
        starts: distinct node ids of the whole graph ``[D]``: tensor, array or list.
        paradigm: ``"push"`` sends each walk to the list where it goes on; ``"pull"`` fetches the list, to compare.

    All other arguments, and the result, are those of :func:`.random_walk`.

    Raises:
        SeedError, SamplerConfigError: as :func:`.random_walk`.
        ExchangeError: another rank cannot answer.

    Example:
        >>> from lightning_gnnload import Graph, GraphData, NeighborSampler, open_colleagues, partition_graph
        >>> from lightning_gnnload.sample.group.exchange import ThreadExchange
        >>> ring = GraphData(Graph.from_coo(range(8), [1, 2, 3, 4, 5, 6, 7, 0]), train=range(8))
        >>> partition = partition_graph(ring, "parts", 1, hops=0, progress=False)
        >>> [exchange] = ThreadExchange.connect(1)  # of two ranks, each has its own
        >>> with open_colleagues(partition, exchange) as colleagues:
        ...     collective_random_walk(colleagues, [0], 2).tolist()
        [[0, 7, 6]]

    Source: DSP (PPoPP'23), section 4.2.
    """
    walks, steps = walks_along(
        colleagues, Walks(walk_length(length, metapath), num_walks, termination_prob, restart_prob), metapath
    )
    ids = as_ids(starts, name="starts")
    check_seeds(ids, colleagues.partition.num_nodes)
    new_ids, key = np.asarray(colleagues.partition.new_ids)[ids], DrawKey(seed, epoch, step)
    traces = walk_together(colleagues, new_ids, walks, key, paradigm, weighted=weighted, steps=steps, name="starts")
    return torch.from_numpy(traces)


def walks_along(
    group: SamplingGroup, rounds: Walks, metapath: Sequence[Any] | None, *, returns: bool = False
) -> tuple[Walks, list[int] | None]:
    """Returns walks of so many rounds, by steps, and the numbers of the edge types that those of a round go along; None
    where a round is a step along any edge. SamplerConfigError: as :func:`.metapath_steps` has it."""
    if metapath is None:
        return rounds, None
    types = group.owned.graph.types
    _, steps = metapath_steps(types, check_metapath(metapath), returns=returns or rounds.length > 1)
    return replace(rounds, length=rounds.length * len(steps)), steps


def walk_together(
    group: SamplingGroup,
    starts: np.ndarray,
    walks: Walks,
    key: DrawKey,
    paradigm: Paradigm,
    *,
    weighted: bool,
    steps: Sequence[int] | None = None,
    name: str = "seeds",
) -> np.ndarray:
    """Walks from ``starts``, which are new ids, in rounds along edges of the types ``steps``, or along any; returns
    int64 ``[D * W, T + 1]`` by ids of the whole graph, -1 after the end. SeedError: metapaths begin elsewhere."""
    take_step = (_pushed if paradigm == "push" else _pulled)(group, walks, key, weighted, steps)
    types = group.owned.graph.types
    if steps is not None and types is not None:
        ops.check_type_of_starts(starts_of(types, steps), np.asarray(group.partition.node_ids)[starts], name)
    node_ids = np.asarray(group.partition.node_ids)
    begun = np.repeat(starts, walks.num_walks)
    names = node_ids[begun]
    numbers = np.tile(np.arange(walks.num_walks), len(starts))
    traces = np.full((len(begun), walks.length + 1), -1, np.int64)
    traces[:, 0] = names
    going, rows = np.arange(len(begun)), begun
    for t in range(walks.length):
        # Ranks need not ask equally often, so this one stops when its own walks have ended.
        if not len(going):
            break
        nodes, fates = take_step(rows, names[going], numbers[going], t)
        moved = fates != ops.STUCK
        traces[going[moved], t + 1] = node_ids[nodes[moved]]
        goes_on = fates < ops.ENDS
        # A walk that restarts has reached its node, which stays in the trace, but leaves from its start.
        rows = np.where(fates == ops.RESTARTS, begun[going], nodes)[goes_on]
        going = going[goes_on]
    return traces


def _settings(walks: Walks, key: DrawKey, weighted: bool, steps: Sequence[int] | None, t: int) -> dict[str, Any]:
    """Returns what a step is taken by, as JSON values."""
    edge_type = None if steps is None else steps[t % len(steps)]
    if steps is not None and (t + 1) % len(steps):
        walks = replace(walks, termination_prob=0.0, restart_prob=0.0)  # which are a whole round's
    return {"walks": astuple(walks), "key": astuple(key), "weighted": weighted, "edge_type": edge_type, "t": t}


def _pushed(group: SamplingGroup, walks: Walks, key: DrawKey, weighted: bool, steps: Sequence[int] | None) -> Step:
    num_steps = group.partition.num_nodes << FATE_BITS  # that there can be

    def take_step(nodes: np.ndarray, names: np.ndarray, numbers: np.ndarray, t: int) -> tuple[np.ndarray, np.ndarray]:
        columns = {
            "names": narrow(names, group.partition.num_nodes),
            "numbers": narrow(numbers, walks.num_walks),
        }
        arrivals = np.empty(len(nodes), np.int64)
        for answer in group.ask("step", nodes, _settings(walks, key, weighted, steps, t), columns):
            arrivals[answer.positions] = answer.numbers("steps", num_steps, len(answer.positions))
        return arrivals >> FATE_BITS, arrivals & (1 << FATE_BITS) - 1

    return take_step


def _pulled(group: SamplingGroup, walks: Walks, key: DrawKey, weighted: bool, steps: Sequence[int] | None) -> Step:
    columns = weight_columns(group, weighted) + ([] if steps is None else ["edge_type"])

    def take_step(
        positions: np.ndarray, names: np.ndarray, numbers: np.ndarray, t: int
    ) -> tuple[np.ndarray, np.ndarray]:
        # Walks that stand on one node share its list, which is sent once.
        stood_on, row = np.unique(positions, return_inverse=True)
        graph, new_ids = pull_lists(group, stood_on, columns)
        nodes, fates = take_steps(graph, row, names, numbers, _settings(walks, key, weighted, steps, t))
        return new_ids[nodes], fates

    return take_step
