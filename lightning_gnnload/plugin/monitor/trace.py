"""Trace: who did what, and when, during a few steps; as a file for Perfetto and chrome://tracing.

Moments are of ``time.monotonic``, which the processes of one machine share and those of two do not. So there is one
trace for each machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lightning_gnnload.pipeline.stats import Delivery

MOST_AHEAD = 256
"""After the window, so many mini-batches are looked at for what samplers did during it."""


class Span(NamedTuple):
    """What one thread did for one mini-batch.

    Attributes:
        stage: ``"sample"``, ``"gather"``, ``"convert"``, ``"wait"``, ``"train"``, or a part of ``"train"``:
            ``"forward"``, ``"backward"``, ``"optimizer"``; or ``"validate"``.
        rank: global rank.
        thread: its name.
        begin_s: by ``time.monotonic``.
        end_s: likewise.
        number: of the mini-batch, counted in this fit from 0.
    """

    stage: str
    rank: int
    thread: str
    begin_s: float
    end_s: float
    number: int


def spans_of(delivery: Delivery, *, number: int, rank: int, thread: str) -> list[Span]:
    """How a mini-batch came to trainer ``rank``, whose loop runs in ``thread``."""
    maker = delivery.made_by, delivery.thread
    converter = (rank, thread) if delivery.trainer_converts else maker
    spans = [
        Span("sample", *maker, delivery.began_s, delivery.sampled_s, number),
        Span("gather", *maker, delivery.sampled_s, delivery.made_s, number),
        Span("wait", rank, thread, delivery.asked_s, delivery.taken_s, number),
    ]
    if delivery.convert_ms > 1e-3 * _SHORTEST_US:
        spans.append(Span("convert", *converter, *delivery.convert_s, number))
    return spans


class TraceWindow:
    """Collects the spans of one trainer for mini-batches ``[first, last)`` of a fit.

    Samplers work ahead: what they do during the window is for mini-batches that are delivered after it. So these are
    looked at too, until one comes that was begun after the window.
    """

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.spans: list[Span] = []
        self._end_s = float("inf")
        self._is_open = True

    def wants(self, number: int) -> bool:
        """Whether the window is still interested, at mini-batch ``number``."""
        return self._is_open and number >= self.first

    def add(self, number: int, spans: Iterable[Span]) -> None:
        """The spans of mini-batch ``number``, in order of numbers."""
        spans = list(spans)
        if number < self.last:
            self.spans += spans
            if number == self.last - 1:
                self._end_s = max((span.end_s for span in spans), default=0.0)
            return
        made = [span for span in spans if span.stage in ("sample", "gather", "convert")]
        self.spans += [span for span in made if span.begin_s < self._end_s]
        self._is_open = number < self.last + MOST_AHEAD and any(span.begin_s < self._end_s for span in made)


def to_chrome(spans: Sequence[Span], world_size: int) -> dict[str, Any]:
    """The Chrome trace of some spans: a process is a rank, times are microseconds from the first span.

    Args:
        spans: of one machine.
        world_size: number of trainers; ranks from there on are samplers.

    Source: "Trace Event Format", complete events (``ph`` X) and metadata (``ph`` M).
    """
    start_s = min((span.begin_s for span in spans), default=0.0)
    events: list[dict[str, Any]] = []
    tids: dict[tuple[int, str], int] = {}
    for rank, thread in rows_of(spans):
        tid = sum(known == rank for known, _ in tids)
        tids[rank, thread] = tid
        if tid == 0:
            events.append(_metadata("process_name", rank, 0, name=f"{role_of(rank, world_size)} rank {rank}"))
            events.append(_metadata("process_sort_index", rank, 0, sort_index=rank))
        events.append(_metadata("thread_name", rank, tid, name=thread))
    # Longest first where two begin together, so that what contains comes before what it contains.
    for span in sorted(spans, key=lambda span: (span.begin_s, -span.end_s)):
        begin_ns, end_ns = (round((moment - start_s) * 1e9) for moment in (span.begin_s, span.end_s))
        events.append(
            {
                "name": span.stage,
                "cat": role_of(span.rank, world_size),
                "ph": "X",
                "ts": begin_ns / 1e3,
                "dur": (end_ns - begin_ns) / 1e3,
                "pid": span.rank,
                "tid": tids[span.rank, span.thread],
                "args": {"mini_batch": span.number},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def rows_of(spans: Iterable[Span]) -> list[tuple[int, str]]:
    """The (rank, thread) pairs that did something: by rank, a trainer's own loop first, then by name."""
    loops = {(span.rank, span.thread) for span in spans if span.stage in ("wait", "train")}
    return sorted({(span.rank, span.thread) for span in spans}, key=lambda row: (row[0], row not in loops, row[1]))


def role_of(rank: int, world_size: int) -> str:
    return "trainer" if rank < world_size else "sampler"


def write_part(spans: Iterable[Span], folder: Path, rank: int) -> None:
    """One trainer's spans, for :func:`join_parts`."""
    folder.mkdir(parents=True, exist_ok=True)
    _part(folder, rank).write_text(json.dumps(list(spans)))


def join_parts(folder: Path, ranks: Iterable[int]) -> list[Span]:
    """The spans of all trainers of a machine, whose parts are then gone."""
    spans = []
    for rank in ranks:
        part = _part(folder, rank)
        spans += [Span(*fields) for fields in json.loads(part.read_text())]
        part.unlink()
    return spans


_SHORTEST_US = 20.0
"""Conversions shorter than this are none: ``batch_format="blocks"`` hands the mini-batch on as it is."""


def _part(folder: Path, rank: int) -> Path:
    return folder / f"trace-part-{rank}.json"


def _metadata(kind: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}
