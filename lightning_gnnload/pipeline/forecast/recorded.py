"""RecordedRun: the stages of mini-batches as a run's trace has them, to be simulated one after the other."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.cluster import BatchShares
from lightning_gnnload.pipeline.forecast.work import BatchWork, check_number

_FEWEST = 4  # mini-batches
_MOST_BYTES = 1 << 28
_MOST = 1e12
_REMEDY = "A PipelineMonitor(timeline=(20, 220)) writes trace.json."


@dataclass(frozen=True)
class RecordedRun:
    """What ``trace.json`` of a ``PipelineMonitor`` tells of a run.

    Attributes:
        work: of the mean mini-batch: the processor's time of drawing and gathering, and the time of a step. Waits for
            cores, disks or other machines are not in it.
        num_seeds: of a mini-batch.
        shares: of each mini-batch, in their order.
    """

    work: BatchWork
    num_seeds: int
    shares: tuple[BatchShares, ...]

    @classmethod
    def of(cls, trace: Any) -> RecordedRun:
        """Reads the events of a Chrome trace. Raises PlanError: they are none of a run, or too few."""
        events = trace.get("traceEvents") if isinstance(trace, Mapping) else None
        if not isinstance(events, list):
            raise PlanError(f"it has no traceEvents. {_REMEDY}")
        times = _times(events)
        needed = ("sample", "gather", "train", "num_seeds", "num_nodes", "core_ms")
        whole = [
            {stage: fmean(values) for stage, values in times[number].items()}
            for number in sorted(times)
            if all(name in times[number] for name in needed)
        ]
        if len(whole) < _FEWEST:
            raise PlanError(
                f"{len(whole)} mini-batches have all of {', '.join(needed)}; at least {_FEWEST} are needed. {_REMEDY}"
            )
        means = {name: fmean(batch[name] for batch in whole) for name in needed}
        made_ms = max(means["sample"] + means["gather"], 1e-9)
        core_ms = means["core_ms"]
        work = BatchWork(
            sample_ms=core_ms * means["sample"] / made_ms,
            gather_ms=core_ms * means["gather"] / made_ms,
            convert_ms=fmean(batch.get("convert", 0.0) for batch in whole),
            train_fixed_ms=means["train"],
        )
        shares = tuple(
            BatchShares(*(batch[name] / max(means[name], 1e-9) for name in ("num_nodes", "core_ms", "train")))
            for batch in whole
        )
        return cls(work, max(round(means["num_seeds"]), 1), shares)


def _times(events: list[Any]) -> dict[int, dict[str, list[float]]]:
    """By mini-batch: milliseconds of each of its stages, and what is said of it besides."""
    times: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if not isinstance(event, Mapping) or event.get("ph") != "X":
            continue
        about: Any = event.get("args")
        number = about.get("mini_batch") if isinstance(about, Mapping) else None
        if type(number) is not int:
            raise PlanError(f"an event of a stage names no mini_batch. {_REMEDY}")
        check_number("dur", event.get("dur"), _MOST)
        times[number][str(event.get("name"))].append(event["dur"] / 1e3)
        for name in ("num_seeds", "num_nodes", "core_ms"):
            if name in about:
                check_number(name, about[name], _MOST)
                times[number][name].append(about[name])
    return times


def read_trace(file: Path) -> RecordedRun:
    """Reads a trace's file.

    Raises:
        PlanError: it cannot be read, or is no trace of a run.
    """
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise PlanError(f"the trace {file} is larger than {_MOST_BYTES >> 20} MiB: record fewer mini-batches.")
        trace = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"the trace {file} cannot be read: {' '.join(str(error).split())}") from error
    try:
        return RecordedRun.of(trace)
    except PlanError as error:
        raise PlanError(f"the trace {file}: {error}") from None
