"""Trace: who did what, and when, during a few steps; as a file for Perfetto and chrome://tracing.

Times are of ``time.monotonic``, which the processes of one machine share and those of two do not. So each machine has
its own trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lightning_gnnload.drawing import SMALL, new_figure, save_figure, tidy
from lightning_gnnload.pipeline.stats import Delivery

MOST_AHEAD = 256
"""At most so many mini-batches after the window are searched for what samplers did during it."""


class Span(NamedTuple):
    """The time that one thread spent on one stage of one mini-batch."""

    stage: str  # a key of :data:`COLORS`
    rank: int  # global
    thread: str
    begin_s: float  # by ``time.monotonic``
    end_s: float
    number: int  # of the mini-batch, counted in this fit from 0
    # What its maker knows of the mini-batch, on the span of ``sample`` alone; ``core_ms``: the processor's, to make it.
    num_seeds: int = 0
    num_nodes: int = 0
    core_ms: float = 0.0


def delivery_spans(delivery: Delivery, *, number: int, rank: int, thread: str) -> list[Span]:
    """The spans by which a mini-batch came to trainer ``rank``, whose loop runs in ``thread``."""
    maker = delivery.made_by, delivery.thread
    converter = (rank, thread) if delivery.trainer_converts else maker
    spans = [
        Span(
            "sample",
            *maker,
            delivery.began_s,
            delivery.sampled_s,
            number,
            delivery.num_seeds,
            delivery.num_nodes,
            delivery.cpu_ms,
        ),
        Span("gather", *maker, delivery.sampled_s, delivery.made_s, number),
        Span("wait", rank, thread, delivery.asked_s, delivery.taken_s, number),
    ]
    if delivery.convert_ms > 1e-3 * _SHORTEST_US:
        spans.append(Span("convert", *converter, *delivery.convert_s, number))
    return spans


class TraceWindow:
    """Collects what one trainer's threads did for the mini-batches ``[first, last)`` of a fit.

    Samplers work ahead: what they do during the window is for mini-batches that are delivered after it. So it takes
    these too, until one comes that was begun after the window.
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
        """Adds the spans of mini-batch ``number``; called in order of numbers."""
        spans = list(spans)
        if number < self.last:
            self.spans += spans
            if number == self.last - 1:
                self._end_s = max((span.end_s for span in spans), default=0.0)
            return
        # What samplers made in the window for later mini-batches belongs to it; what trainers did then does not.
        making = [span for span in spans if span.stage in ("sample", "gather", "convert")]
        self.spans += [span for span in making if span.begin_s < self._end_s]
        self._is_open = number < self.last + MOST_AHEAD and any(span.begin_s < self._end_s for span in making)


def to_chrome(spans: Sequence[Span], world_size: int) -> dict[str, Any]:
    """The Chrome trace of one machine's spans: a process is a rank, times are microseconds from the first span. Ranks
    from ``world_size`` on are samplers.

    Source: "Trace Event Format", complete events (``ph`` X) and metadata (``ph`` M).
    """
    start_s = min((span.begin_s for span in spans), default=0.0)
    events: list[dict[str, Any]] = []
    tids: dict[tuple[int, str], int] = {}
    for rank, thread in timeline_rows(spans):
        # Threads are numbered within their rank, as the format has it: a number is shown below its process.
        tid = sum(numbered == rank for numbered, _ in tids)
        tids[rank, thread] = tid
        if tid == 0:
            events.append(_metadata("process_name", rank, 0, name=f"{role_of(rank, world_size)} rank {rank}"))
            events.append(_metadata("process_sort_index", rank, 0, sort_index=rank))
        events.append(_metadata("thread_name", rank, tid, name=thread))
    # Longest first where two begin together, so that what contains comes before what it contains.
    for span in sorted(spans, key=lambda span: (span.begin_s, -span.end_s)):
        # Ends are rounded, not lengths: spans that touch must not overlap.
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
                "args": {"mini_batch": span.number} | _about(span),
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _about(span: Span) -> dict[str, float]:
    if not span.num_seeds:
        return {}
    return {"num_seeds": span.num_seeds, "num_nodes": span.num_nodes, "core_ms": span.core_ms}


def timeline_rows(spans: Iterable[Span]) -> list[tuple[int, str]]:
    """The (rank, thread) pairs that did something: by rank, a trainer's own loop first, then by name."""
    loops = {(span.rank, span.thread) for span in spans if span.stage in ("wait", "train")}
    return sorted({(span.rank, span.thread) for span in spans}, key=lambda row: (row[0], row not in loops, row[1]))


def role_of(rank: int, world_size: int) -> str:
    """Says whether a rank trains or samples."""
    return "trainer" if rank < world_size else "sampler"


def write_part(spans: Iterable[Span], folder: Path, rank: int) -> None:
    """Writes one trainer's spans, for :func:`join_parts`."""
    folder.mkdir(parents=True, exist_ok=True)
    _part(folder, rank).write_text(json.dumps(list(spans)))


def join_parts(folder: Path, ranks: Iterable[int]) -> list[Span]:
    """Reads the spans of all trainers of a machine, and removes their parts."""
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


def _metadata(event: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"name": event, "ph": "M", "pid": pid, "tid": tid, "args": args}


COLORS = {
    "sample": "#4477aa",
    "gather": "#66ccee",
    "convert": "#228833",
    "start": "#f7b6be",
    "wait": "#ee6677",
    "train": "#ccbb44",
    "forward": "#e2d57f",
    "backward": "#ccbb44",
    "optimizer": "#9c8f2c",
    "validate": "#aa3377",
    "other": "#bbbbbb",
}
"""The colours of the stages, in all figures."""
_DIGIT_SHARE = 0.012  # of the axis, that a digit of a mini-batch's number takes


def draw_timeline(spans: Sequence[Span], world_size: int, file: Path) -> None:
    """Draws the spans of one machine, at least one, to a PNG. Ranks from ``world_size`` on are samplers."""
    window = [span for span in spans if span.rank < world_size and span.stage in ("wait", "train")] or spans
    start_s, end_s = min(span.begin_s for span in window), max(span.end_s for span in window)
    width_ms = max((end_s - start_s) * 1e3, 1e-6)
    rows = timeline_rows(spans)
    note = "Numbers are mini-batches. Later ones are made while the trainers train."
    figure = new_figure(_timeline_title(window, width_ms, world_size), 1.8 + 0.45 * len(rows), note)
    axes = figure.subplots()
    bars = _draw_bars(axes, spans, rows, start_s)
    _draw_numbers(axes, _labels(spans, rows, start_s, end_s), width_ms)
    axes.set_xlim(0, width_ms)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), _row_names(rows, spans, world_size))
    axes.set_xlabel("milliseconds")
    tidy(axes, grid="x")
    axes.tick_params(axis="y", length=0)
    # "train" is drawn below its parts, whose colours it shares.
    stages = [stage for stage in COLORS if stage in bars and not (stage == "train" and "forward" in bars)]
    legend: dict[str, Any] = {
        "loc": "lower left",
        "bbox_to_anchor": (0, 1),
        "fontsize": SMALL,
        "columnspacing": 1,
        "handlelength": 1,
    }
    axes.legend([bars[stage] for stage in stages], stages, ncols=len(stages), frameon=False, **legend)
    save_figure(figure, file)


def _timeline_title(window: Sequence[Span], width_ms: float, world_size: int) -> str:
    numbers = [span.number for span in window]
    waited_ms = sum(1e3 * (span.end_s - span.begin_s) for span in window if span.stage == "wait") / max(world_size, 1)
    when = f"Mini-batches {min(numbers)} to {max(numbers)} took {width_ms:,.0f} ms"
    return f"{when}, of which a trainer waited {waited_ms:,.0f} ms"


def _draw_bars(axes: Any, spans: Sequence[Span], rows: list[tuple[int, str]], start_s: float) -> dict[str, Any]:
    """Draws the spans; returns a bar of each stage."""
    bars: dict[str, Any] = {}
    # What is drawn later lies on top: a step's parts on the step, sampling in the trainer's own loop on its wait.
    for span in sorted(spans, key=lambda span: (span.begin_s, -span.end_s)):
        begin_ms, end_ms = (span.begin_s - start_s) * 1e3, (span.end_s - start_s) * 1e3
        row, color = rows.index((span.rank, span.thread)), COLORS[span.stage]
        # An edge keeps work that is shorter than a pixel in sight; waits that short are none.
        edge = 0.5 if span.stage in ("sample", "gather", "convert") else 0
        bar = axes.barh(row, end_ms - begin_ms, 0.62, begin_ms, color=color, edgecolor=color, linewidth=edge)
        bars.setdefault(span.stage, bar)
    return bars


def _draw_numbers(axes: Any, labels: Iterable[tuple[int, int, float, float, float]], width_ms: float) -> None:
    for number, row, begin_ms, end_ms, next_ms in labels:
        room = _DIGIT_SHARE * width_ms * (len(str(number)) + 1)
        if end_ms - begin_ms > room:
            axes.text((begin_ms + end_ms) / 2, row, str(number), ha="center", va="center", fontsize=8)
        elif next_ms - end_ms > room:  # beside a bar that is too narrow for it
            axes.text(end_ms + room / 5, row, str(number), ha="left", va="center", fontsize=8, color="#555555")


def _labels(
    spans: Sequence[Span], rows: Sequence[tuple[int, str]], start_s: float, end_s: float
) -> list[tuple[int, int, float, float, float]]:
    """(mini-batch, row, begin, end, begin of the row's next bar), in milliseconds, of each bar that gets a number."""
    extents: dict[tuple[int, int, bool], tuple[float, float]] = {}
    for span in spans:
        if span.stage in ("sample", "gather", "train") and span.end_s > start_s and span.begin_s < end_s:
            key = rows.index((span.rank, span.thread)), span.number, span.stage == "train"
            begin, end = extents.get(key, (span.begin_s, span.end_s))
            extents[key] = min(begin, span.begin_s), max(end, span.end_s)
    labels = []
    for (row, number, _), (begin, end) in extents.items():
        later = [span.begin_s for span in spans if rows[row] == (span.rank, span.thread) and span.begin_s >= end]
        moments = max(begin, start_s), min(end, end_s), min([*later, end_s])
        labels.append((number, row, *((moment - start_s) * 1e3 for moment in moments)))
    return labels  # type: ignore[return-value]


def _row_names(rows: Sequence[tuple[int, str]], spans: Sequence[Span], world_size: int) -> list[str]:
    """Names the rows: "trainer 0", and where a rank has several threads, "sampler 1, thread 0"."""
    loops = {(span.rank, span.thread) for span in spans if span.stage in ("wait", "train")}
    names = []
    for rank, thread in rows:
        name = f"{role_of(rank, world_size)} {rank}"
        threads = [other_row for other_row in rows if other_row[0] == rank and other_row not in loops]
        if (rank, thread) not in loops and (len(threads) > 1 or rank < world_size):
            name += f", thread {threads.index((rank, thread))}"
        names.append(name)
    return names
