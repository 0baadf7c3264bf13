"""The timeline figure: a row for each thread that loads or trains, a bar for each thing it did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_gnnload.plugin.monitor.trace import Span, role_of, rows_of

COLORS = {
    "sample": "#4477aa",
    "gather": "#66ccee",
    "convert": "#228833",
    "wait": "#ee6677",
    "train": "#ccbb44",
    "forward": "#e2d57f",
    "backward": "#ccbb44",
    "optimizer": "#9c8f2c",
    "validate": "#aa3377",
    "other": "#bbbbbb",
}
"""Of the stages, in all figures."""
_WIDTH_IN = 12.0
_DIGIT_SHARE = 0.007  # of the axis, that a digit of a mini-batch's number takes


def draw_timeline(spans: Sequence[Span], world_size: int, file: Path) -> None:
    """Draws the spans of one machine to a PNG.

    Args:
        spans: at least one.
        world_size: number of trainers; ranks from there on are samplers.
        file: where to.
    """
    # Drawn on a canvas of its own, so that a user's pyplot state and backend stay as they are.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    window = [span for span in spans if span.rank < world_size and span.stage in ("wait", "train")] or spans
    start_s, end_s = min(span.begin_s for span in window), max(span.end_s for span in window)
    width_ms = max((end_s - start_s) * 1e3, 1e-6)
    rows = rows_of(spans)
    figure = Figure(figsize=(_WIDTH_IN, 1.7 + 0.5 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    # What is drawn later lies on top: a step's parts on the step, sampling in the trainer's own loop on its wait.
    drawn: dict[str, Any] = {}
    for span in sorted(spans, key=lambda span: (span.begin_s, -span.end_s)):
        begin_ms, end_ms = (span.begin_s - start_s) * 1e3, (span.end_s - start_s) * 1e3
        row, color = rows.index((span.rank, span.thread)), COLORS[span.stage]
        # An edge keeps work that is shorter than a pixel in sight; waits that short are none.
        edge = 0.5 if span.stage in ("sample", "gather", "convert") else 0
        bar = axes.barh(row, end_ms - begin_ms, 0.62, begin_ms, color=color, edgecolor=color, linewidth=edge)
        drawn.setdefault(span.stage, bar)
    for number, row, begin_ms, end_ms, next_ms in _labels(spans, rows, start_s, end_s):
        room = _DIGIT_SHARE * width_ms * (len(str(number)) + 1)
        if end_ms - begin_ms > room:
            axes.text((begin_ms + end_ms) / 2, row, str(number), ha="center", va="center", fontsize=8)
        elif next_ms - end_ms > room:  # beside a bar that is too narrow for it
            axes.text(end_ms + room / 5, row, str(number), ha="left", va="center", fontsize=8, color="#555555")
    axes.set_xlim(0, width_ms)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), _row_names(rows, spans, world_size))
    numbers = [span.number for span in window]
    axes.set_xlabel("milliseconds; the numbers are mini-batches")
    axes.set_title(f"Training on mini-batches {min(numbers)} to {max(numbers)}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    stages = [stage for stage in COLORS if stage in drawn and not (stage == "train" and "forward" in drawn)]
    figure.legend(
        [drawn[stage] for stage in stages], stages, loc="outside lower center", ncols=len(stages), frameon=False
    )
    figure.savefig(file, dpi=130)


def _labels(
    spans: Sequence[Span], rows: Sequence[tuple[int, str]], start_s: float, end_s: float
) -> list[tuple[int, int, float, float, float]]:
    """(mini-batch, row, begin, end, begin of the row's next bar) in milliseconds, for each bar that gets a number: one
    for the making of a mini-batch, and one for the training on it."""
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
    """ "trainer 0", and where a rank has several threads, "sampler 1, thread 0"."""
    loops = {(span.rank, span.thread) for span in spans if span.stage in ("wait", "train")}
    names = []
    for rank, thread in rows:
        name = f"{role_of(rank, world_size)} {rank}"
        threads = [each for each in rows if each[0] == rank and each not in loops]
        if (rank, thread) not in loops and (len(threads) > 1 or rank < world_size):
            name += f", thread {threads.index((rank, thread))}"
        names.append(name)
    return names
