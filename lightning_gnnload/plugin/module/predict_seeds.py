"""What a data module predicts for: rows of a split, nodes by their ids or types, and as of which time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightning_gnnload.data.arrays import as_ids, check_each_once
from lightning_gnnload.data.by_type import flat_seeds, flat_split, refuse_tables
from lightning_gnnload.data.graphdata import PHASES, PREDICT, GraphData
from lightning_gnnload.data.moment import moment_of, moment_text
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import LoaderConfigError, SeedError
from lightning_gnnload.plugin.compat import pl


def predict_seeds(predict: Any, as_of: Any, data: GraphData, *, heeds_times: bool) -> np.ndarray | SeedTable:
    """Returns what ``predict=`` and ``as_of=`` of :class:`.GraphDataModule` name: ids in the graph, or rows.
    ``heeds_times`` says that both the graph has times, and the sampler heeds them.

    Raises:
        LoaderConfigError: ``predict`` names no seeds.
        GraphDataError: of its ids one is no node, or comes twice.
        SeedError: ``as_of`` is no time of the graph; or it is missing, where rows have times and nodes are predicted.
    """
    is_explicit = as_of is not None
    as_of = moment_of(as_of, data.graph.clock, data.time_form) if is_explicit else data.as_of
    seeds = _seeds(predict, as_of, data)
    if predict is None and as_of is None and heeds_times and isinstance(seeds, np.ndarray):
        _check_times(data)
    keeps_times = not is_explicit and isinstance(seeds, SeedTable) and seeds.time is not None
    return seeds if as_of is None or keeps_times else _at(as_of, seeds, data, all_there=_names_all(predict))


def _check_times(data: GraphData) -> None:
    """Raises SeedError: rows have times of their own, so that nodes without one are no such question."""
    times = [table.time.max() for table in data.seed_tables.values() if table.time is not None and len(table)]
    if times:
        raise SeedError(
            "there are no rows to predict, and for which time all nodes are to be predicted is not known: the rows of "
            f"the data have times of their own, up to {moment_text(max(times).item(), data.graph.clock)}. Give as_of= "
            "(--as-of DATE), rows without a label, or predict= with the name of a split."
        )


def _names_all(predict: Any) -> bool:
    """Whether nodes are named as all of a type, so that those of later times are not meant."""
    return predict is None or (isinstance(predict, str) and predict not in PHASES)


def _seeds(predict: Any, as_of: int | float | None, data: GraphData) -> np.ndarray | SeedTable:
    if isinstance(table := flat_seeds(predict), SeedTable):
        return table
    types = data.graph.types
    if predict is None:
        return _default_seeds(as_of, data)
    if isinstance(predict, str):
        if predict == "all":
            return np.arange(data.num_nodes)
        if predict in PHASES:
            return data.table(predict) or data.split(predict)
        if types is not None and predict in types.node_types:
            return np.array(types.range_of(predict))
        choices = (*PHASES, *(() if types is None else types.node_types))
        raise LoaderConfigError(
            f"predict={predict!r} is not known; give node ids, 'all', or one of {', '.join(choices)}."
        )
    refuse_tables("predict", predict)
    if isinstance(predict, Mapping):
        ids = flat_split("predict", predict, types)
    else:
        ids = as_ids(predict, name="predict ids", num_nodes=data.num_nodes)
    if as_of is None:  # rows of a time may name a node twice
        check_each_once(ids, name="predict")
    return ids


def _default_seeds(as_of: int | float | None, data: GraphData) -> np.ndarray | SeedTable:
    """Returns the rows to predict; all nodes of the seeds' types where there are none, or where they have times of
    their own and another is asked for."""
    table, ids = data.table(PREDICT), data.split(PREDICT)
    has_own_times = table is not None and table.kind == "nodes" and table.time is not None
    if len(ids) and not (as_of is not None and has_own_times):
        return ids if table is None else table
    types = data.graph.types
    if types is None:
        return np.arange(data.num_nodes)
    names = types.node_types if len(types.node_types) == 1 else seed_types_of(data)
    if not names and data.tasks and data.task is None:
        return np.empty(0, np.int64)  # for which there is another error: no task is chosen yet
    if not names:
        raise LoaderConfigError(
            "what is to be predicted is not known, as the data have no seeds: give GraphDataModule predict= (--data."
            f"predict) a node type, of {', '.join(types.node_types)}, or 'all'."
        )
    return np.concatenate([np.array(types.range_of(name)) for name in names])


def seed_types_of(data: GraphData) -> list[str]:
    """Returns the node types that the seeds of data with types have, of links those of their sources."""
    types, names = data.graph.types, set[str]()
    assert types is not None
    for split in PHASES:
        table = data.table(split)
        if table is not None and table.node_type is not None:
            names.add(table.node_type)  # also where there are no rows yet
        elif table is not None and table.kind == "links":
            edge_types = [types.edge_types[types.edge_type_number(name)] for name in table.rows_by_type]
            names |= {src for src, _, _ in edge_types}
        else:
            names |= {types.node_types[number] for number in np.unique(types.number_of(data.split(split)))}
    return sorted(names, key=types.node_types.index)


def _at(as_of: int | float, seeds: np.ndarray | SeedTable, data: GraphData, *, all_there: bool) -> SeedTable:
    """Returns seeds as rows of one time."""
    form = data.time_form
    if isinstance(seeds, SeedTable):
        times = np.full(len(seeds), as_of)
        return SeedTable(**seeds.arguments() | {"time": times, "time_form": seeds.time_form or form})
    node_time = data.graph.node_time
    if all_there and node_time is not None:
        is_there = node_time[seeds] <= as_of  # a node without a time is there from the beginning
        if num_later := int((~is_there).sum()):
            pl.utilities.rank_zero.rank_zero_info(
                f"{num_later} of {len(seeds)} nodes are there only after the time that is predicted for, and left out."
            )
        seeds = seeds[is_there]
    return SeedTable(seeds, time=np.full(len(seeds), as_of), time_form=form)
