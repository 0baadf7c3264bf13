"""What a build says of the seeds of its tasks: whether edges lead to them, and whether they see any at their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from lightning_gnnload.data.derived import typed_lists_of, whole_lists_of
from lightning_gnnload.data.sanity import seen_issue
from lightning_gnnload.data.seen import MOST_ROWS, SeenEdges, looked_at
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

    Args:
        report: to add to.
        name: of the task.
        spec: as graph.yaml has it.
        read: its rows.
        graph: that was written.
        nodes: by their types.
        mapped: maps an array of the graph by its name.
    """
    tables = [table for table in read.task.splits.values() if len(table)]
    if not tables:
        return
    ends, types, clock = looked_at(np.concatenate([table.ends for table in tables])), graph.types, graph.clock
    first = [0 if types is None else types.range_of(end.node_type).start for end in spec.ends]
    of_graph, indptr = ends + np.array(first), mapped("indptr")
    alone = int((indptr[of_graph + 1] == indptr[of_graph]).all(1).sum())
    report.add("tasks", name, {"without_in_neighbours": alone})
    if 2 * alone > len(ends):
        of_many = "" if len(ends) < MOST_ROWS else " that were looked at"
        of_types = " and ".join(dict.fromkeys(end.node_type for end in spec.ends))
        report.note(
            f"task {name}: {alone:,} of {len(ends):,} seeds{of_many} ({of_types}) have no in-neighbours, so that "
            "models see their own features alone. An edge carries features from src to dst. Where edges lead away from "
            "seeds, say reverse: true at their table."
        )
    if clock is None:
        return
    if spec.time is not None:
        times = looked_at(np.concatenate([table.time for table in tables if table.time is not None]))
    else:
        of_nodes = None if spec.is_links else nodes[spec.ends[0].node_type].time
        times = np.full(len(ends), NO_TIME) if of_nodes is None else of_nodes[ends[:, 0]]
    if (times == NO_TIME).any():
        report.note(
            f"task {name}: its rows have no time, though the graph has, and {int((times == NO_TIME).sum()):,} of "
            f"{len(ends):,} of their nodes have none either. fit needs one: say time: COLUMN at the task, or before: "
            "null at the sampler, which ignores all times."
        )
        return
    edge_time = mapped("edge_time")
    if types is None:
        lists = whole_lists_of(indptr, edge_time, clock)
    else:
        lists = typed_lists_of(types, mapped("run_ptr"), edge_time, clock)
    seen = SeenEdges.of(lists, clock, of_graph, times, are_own=spec.time is None)
    report.add("tasks", name, {"too_early": seen.num_blind})
    remedy = "say time: COLUMN at the task; or before: null at the sampler, which ignores all times"
    issue = seen_issue(seen, f"task {name}: its seeds", remedy)
    if issue is not None and (issue.is_suspicious or seen.are_own):
        report.note(issue.text)
