"""What a build says of the seeds of its tasks: whether edges lead to them, and whether they see any at their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from lightning_gnnload.data.derived import typed_lists_of, whole_lists_of
from lightning_gnnload.data.sanity import visibility_issue
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.visibility import MOST_ROWS, VisibleEdges, spaced_rows
from lightning_gnnload.ingest.ids import NumberedNodes
from lightning_gnnload.ingest.lists import WrittenGraph
from lightning_gnnload.ingest.report import Report
from lightning_gnnload.ingest.spec import TaskSpec
from lightning_gnnload.ingest.tasks import ReadTask
from lightning_gnnload.ops import NO_TIME


def describe_seeds(
    report: Report,
    name: str,
    spec: TaskSpec,
    read: ReadTask,
    graph: WrittenGraph,
    nodes: Mapping[str, NumberedNodes],
    mapped: Callable[[str], np.ndarray],
) -> None:
    """Reports how many seeds of a task have no in-neighbours, or see none at their times, and notes what to do.
    ``mapped`` maps an array of the graph by its name."""
    tables = [table for table in read.task.splits.values() if len(table)]
    if not tables:
        return
    rows, types, clock = spaced_rows(np.concatenate([table.ends for table in tables])), graph.types, graph.clock
    first = [0 if types is None else types.range_of(end.node_type).start for end in spec.ends]
    seeds, indptr = rows + np.array(first), mapped("indptr")
    alone = int((indptr[seeds + 1] == indptr[seeds]).all(1).sum())
    report.add("tasks", name, {"without_in_neighbours": alone})
    if 2 * alone > len(rows):
        sampled = "" if len(rows) < MOST_ROWS else " that were looked at"
        names = " and ".join(dict.fromkeys(end.node_type for end in spec.ends))
        report.note(
            f"task {name}: {alone:,} of {len(rows):,} seeds{sampled} ({names}) have no in-neighbours, so that "
            "models see their own features alone. An edge carries features from src to dst. Where edges lead away from "
            "seeds, say reverse: true at their table."
        )
    if clock is None:
        return
    times = _times_of(spec, tables, nodes, rows)
    if (times == NO_TIME).any():
        report.note(
            f"task {name}: its rows have no time, though the graph has, and {int((times == NO_TIME).sum()):,} of "
            f"{len(rows):,} of their nodes have none either. fit needs one: say time: COLUMN at the task, or before: "
            "null at the sampler, which ignores all times."
        )
        return
    edge_time = mapped("edge_time")
    if types is None:
        lists = whole_lists_of(indptr, edge_time, clock)
    else:
        lists = typed_lists_of(types, mapped("run_ptr"), edge_time, clock)
    edges = VisibleEdges.of(lists, clock, seeds, times, use_node_times=spec.time is None)
    report.add("tasks", name, {"too_early": edges.num_blind})
    remedy = "say time: COLUMN at the task; or before: null at the sampler, which ignores all times"
    issue = visibility_issue(edges, f"task {name}: its seeds", remedy)
    if issue is not None and (issue.is_suspicious or edges.use_node_times):
        report.note(issue.text)


def _times_of(
    spec: TaskSpec, tables: list[SeedTable], nodes: Mapping[str, NumberedNodes], rows: np.ndarray
) -> np.ndarray:
    """Returns the times of rows, or of their nodes where they have none of their own; NO_TIME for none."""
    if spec.time is not None:
        return spaced_rows(np.concatenate([table.time for table in tables if table.time is not None]))
    node_time = None if spec.seed is None else nodes[spec.ends[0].node_type].time
    return np.full(len(rows), NO_TIME) if node_time is None else node_time[rows[:, 0]]
