"""What sums that were made beforehand may count, so that they tell no more than a sampler would draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gnnload.data.aggregates import Aggregate
from lightning_gnnload.data.clock import Before, Clock
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.metapaths import numbers_of
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.sample.seeds.rows import SeedKind
from lightning_gnnload.storage.aggregates import check_fresh

_LEAVE_OUT = "leave the table out: data.only_tables([...]), GraphFolder(folder, tables=[...])"


def check_aggregates(data: GraphData, seed_kind: SeedKind, sampler: Any, seeds: str) -> None:
    """Checks that the tables of :func:`.preaggregate` are of the data at hand, and count only edges that the seeds of a
    phase may see by its sampler's settings.

    Args:
        data: with the tables.
        seed_kind: the seeds.
        sampler: draws the other hops.
        seeds: what they are, for the error's text: ``"the seeds to train on"``.

    Raises:
        StaleTableError: a table is of another graph, or of other rows.
        GraphDataError: a table counts edges later than a seed, or edges that ``before=``, ``window=``, ``order=`` or
            ``exclude=`` leave out; where times are ignored, it leaves some out.
    """
    tables = {name: aggregate for name, aggregate in data.aggregates.items() if name in data.tables}
    span = seed_kind.span_of_times() if any(aggregate.as_of is not None for aggregate in tables.values()) else None
    for name, aggregate in tables.items():
        check_fresh(data, name)
        if "exclusion" in seed_kind.needs and not seed_kind.is_timed:
            raise GraphDataError(
                f"table {name!r} is the {aggregate}, over all edges: also over those that {seeds} ask for, which "
                f"exclude= leaves out of sampling. {_LEAVE_OUT.capitalize()}; or give exclude=None, if none of these "
                "links is an edge of the graph."
            )
        is_timed = seed_kind.is_timed and _is_timed(data, aggregate)
        is_deep = sampler.num_layers > 0 or aggregate.hop > 1
        if is_timed and is_deep and getattr(sampler, "order", "root") == "path":
            raise GraphDataError(
                f"{_counts(data, name)} for every node, but with order='path' those count that are no later than the "
                f"edge by which a node was found. Give order='root', or {_LEAVE_OUT}."
            )
        check_times(data, name, span if seed_kind.is_timed else None, sampler, seeds)


def check_times(data: GraphData, name: str, span: tuple[Any, Any] | None, sampler: Any, seeds: str) -> None:
    """Checks the edges that a table counts against the times of seeds, as :func:`check_aggregates` does.

    ``span`` are the earliest and the latest of these times; None: times are ignored. ``sampler`` has ``before`` and
    ``window``, or is None.
    """
    aggregate, clock = data.aggregates[name], data.graph.clock
    if clock is None or not _is_timed(data, aggregate):
        return
    before: Before = getattr(sampler, "before", "<=")
    window = getattr(sampler, "window", None)
    counted = _code(clock, aggregate.as_of, "<=")
    counted_edges = _counts(data, name)
    if span is None:
        last = clock.span[1]
        if counted < _code(clock, last, "<="):
            raise GraphDataError(
                f"{counted_edges}, but with before=None times are ignored, and edges up to {shown(clock, last)} are "
                f"drawn. Make it as of then, as_of={shown(clock, last)!r}; or give before='<='."
            )
        return
    if counted > _code(clock, span[0], before):
        strictly = f" and take edges before their time alone, as before={before!r} says" if before == "<" else ""
        raise GraphDataError(
            f"{counted_edges}, but {seeds} are of {shown(clock, span[0])} and later{strictly}: it tells of what came "
            "after them. Make it as of a time before all seeds: preaggregate(data, as_of=...), --as-of."
        )
    _, since = clock.eligible(_times(span[1]), before, window)
    if since is not None and since[0] > 0:
        raise GraphDataError(
            f"{counted_edges} of any age, but with window={window!r} edges count that are no older than that at the "
            f"time of {seeds}, up to {shown(clock, span[1])}. Give no window=, or {_LEAVE_OUT}."
        )


def _counts(data: GraphData, name: str) -> str:
    return f"table {name!r} counts edges up to {shown(data.graph.clock, data.aggregates[name].as_of)}"


def shown(clock: Clock | None, time: Any) -> Any:
    """Returns a time as its user wrote it: of a graph with dates, a date."""
    if clock is None or not clock.has_dates:
        return time
    text = str(np.datetime64(int(time), "ns"))
    return text.removesuffix("T00:00:00.000000000").removesuffix(".000000000")


def _is_timed(data: GraphData, aggregate: Aggregate) -> bool:
    """Whether any of the edges that it counts have times."""
    clock, types = data.graph.clock, data.graph.types
    if clock is None or aggregate.as_of is None:
        return False
    if types is None:
        return bool(clock.timed[0])
    numbers = {number for step in aggregate.metapath for number in numbers_of(types, step)}
    return any(clock.timed[number] for number in numbers)


def _code(clock: Clock, time: Any, before: Before) -> int:
    return int(clock.until(_times(time), before)[0])


def _times(time: Any) -> np.ndarray:
    return np.array([time], np.float64 if isinstance(time, float) else np.int64)
