"""SanityLog: tells, once, what is odd about the data of a run."""

from __future__ import annotations

from typing import Any

from lightning_gnnload.cache.shared import is_mapped_file
from lightning_gnnload.data.features import MemoryFeatureStore
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.sanity import SanityIssue, sanity_issues, visibility_issue
from lightning_gnnload.plugin.compat import converts_input, pl
from lightning_gnnload.sample.workload import Workload


class SanityLog:
    """Logs the findings of the sanity checks, in one rank: those about the data once, those about a phase's seeds once
    for each phase.

    Args:
        owner: the class of the data module, to begin each line with.
        remedy: what to do where seeds have the times of their nodes.
    """

    def __init__(self, owner: str, remedy: str) -> None:
        self._owner, self._remedy = owner, remedy
        self._has_logged = dict.fromkeys(("train", "val", "test", "predict"), False)

    def log(self, phase: str, data: GraphData, workload: Workload, trainer: pl.Trainer | None) -> None:
        """Logs what has not been logged yet, when the phase's loader is made."""
        rank_zero: Any = pl.utilities.rank_zero
        if self._has_logged[phase] or rank_zero.rank_zero_only.rank:
            return
        issues = [] if any(self._has_logged.values()) else _issues_of_data(data, trainer)
        self._has_logged[phase] = True
        if (oddities := workload.seen()) is not None:
            task = "" if data.task is None else f" of task {data.task!r}"
            issue = visibility_issue(oddities, f"the seeds to {phase} on{task}", self._remedy)
            issues += [] if issue is None else [issue]
        for oddity in issues:
            log = rank_zero.rank_zero_warn if oddity.is_suspicious else rank_zero.rank_zero_info
            log(f"{self._owner}: {oddity.text}")


def _issues_of_data(data: GraphData, trainer: pl.Trainer | None) -> list[SanityIssue]:
    mapped = isinstance(data.x, MemoryFeatureStore) and is_mapped_file(data.x.rows)
    # Where input is converted, its width does not matter.
    precision = getattr(trainer, "precision_plugin", None)
    return sanity_issues(data, mapped=mapped, double=precision is None or converts_input(precision))
