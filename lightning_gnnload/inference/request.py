"""What an inference was asked for: the rows of which nodes, and up to which time edges count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import as_ids
from lightning_gnnload.data.graphdata import PHASES, GraphData
from lightning_gnnload.data.moment import moment_of
from lightning_gnnload.errors import InferenceError
from lightning_gnnload.inference.neighborhoods import InLists
from lightning_gnnload.inference.stages import Stages

NodesByType = Mapping[str, np.ndarray | None]
"""Ids of nodes within their type, by type (``""`` in a graph without); None for all of a type."""


def lists_of_sampler(sampler: Any) -> dict[str, Any]:
    """Returns a sampler's settings of which edges count at a time."""
    return {name: getattr(sampler, name) for name in ("before", "window") if getattr(sampler, name, None) is not None}


def time_of(data: GraphData, sampler: Any, time: Any) -> Any:
    """Returns the time up to which edges count; None where there are no times, or the sampler ignores them."""
    clock = data.graph.clock
    if clock is None or (sampler is not None and getattr(sampler, "before", None) is None):
        return None
    if time is not None:
        # Numbers are those of the user's times, or, where these are dates, nanoseconds.
        is_plain = isinstance(time, int | float | np.number) and not (data.time_form and data.time_form.is_number)
        return time if is_plain else moment_of(time, clock, data.time_form)
    if data.as_of is not None:
        return data.as_of
    # What happens after the latest seed is not known yet when predictions are made.
    latest = [table.time.max() for table in data.seed_tables.values() if table.time is not None and len(table)]
    return max(latest) if latest else clock.last if clock.ranked is None else clock.ranked[-1]


def requested_nodes(nodes: Any, data: GraphData, stages: Stages, lists: InLists) -> NodesByType:
    """Returns the nodes that ``nodes=`` of :func:`.infer` means; ids that are no nodes raise GraphDataError."""
    types = data.graph.types
    is_name = isinstance(nodes, str) and nodes not in PHASES
    if types is None:
        return {"": None if is_name and nodes == "all" else _ids(nodes, data)}
    if is_name and nodes == "all":
        return dict.fromkeys(_output_types(data, stages, lists))
    if is_name:
        types.node_type_number(nodes)  # refuses a name that is no type
        return {nodes: None}
    if isinstance(nodes, Mapping):
        spans = {name: types.range_of(name) for name in nodes}
        return {
            name: None if isinstance(ids, str) else as_ids(ids, name=f"nodes of {name!r}", num_nodes=len(spans[name]))
            for name, ids in nodes.items()
        }
    ids = _ids(nodes, data)
    numbers = types.number_of(ids)
    return {types.node_types[t]: ids[numbers == t] - types.first_node[t] for t in np.unique(numbers)}


def _ids(nodes: Any, data: GraphData) -> np.ndarray:
    is_split = isinstance(nodes, str) and nodes in PHASES
    return data.split(nodes) if is_split else as_ids(nodes, name="nodes", num_nodes=data.num_nodes)


def _output_types(data: GraphData, stages: Stages, lists: InLists) -> list[str]:
    """Returns the types that the model's output has rows for: those of a dict, or those of the seeds."""
    types = data.graph.types
    assert types is not None
    seeds = np.concatenate([data.split(name) for name in PHASES])
    named = [types.node_types[number] for number in np.unique(types.number_of(seeds))]
    # Tables say their type also where they have no rows, as those of a task that asks about all nodes.
    named = named or [table.node_type for table in data.seed_tables.values() if table.node_type is not None]
    if len(named) != 1:
        first = types.first_node[:-1][np.array(types.num_nodes) > 0]
        batch = lists.hops(first, stages.batches.num_layers)
        assert batch is not None
        with torch.no_grad():
            output = stages.run(stages.batches.whole(batch))
        if isinstance(output, dict):
            return list(output)
    if not named:
        raise InferenceError(
            f"the model gives one tensor, and as the data have no seeds, nothing says of which of the types "
            f"{', '.join(types.node_types)} its rows are. Name it: nodes='TYPE'."
        )
    return named
