"""The trace is one that Perfetto reads, and says what was done when."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload.plugin.monitor.trace import (
    Span,
    TraceWindow,
    delivery_spans,
    draw_timeline,
    join_parts,
    timeline_rows,
    to_chrome,
    write_part,
)
from tests.unit.plugin.monitor.deliveries import delivery

NESTING_US = 1e-3  # a nanosecond, to which moments are rounded


def check_chrome(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Checks a trace against the format, and that events of a thread nest; gives its complete events."""
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    named: dict[str, set[Any]] = defaultdict(set)
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        assert {"name", "ph", "pid", "tid", "args"} <= event.keys()
        assert type(event["pid"]) is type(event["tid"]) is int
        if event["ph"] == "M":
            where = event["pid"] if event["name"] == "process_name" else (event["pid"], event["tid"])
            named[event["name"]].add(where)
            continue
        assert event["ph"] == "X"
        assert event["ts"] >= 0 <= event["dur"]
        threads[event["pid"], event["tid"]].append(event)
    assert named["process_name"] == {pid for pid, _ in threads}
    assert named["thread_name"] == set(threads)
    for events in threads.values():
        assert all(a["ts"] <= b["ts"] for a, b in pairwise(events)), "not in order of time"
        around: list[float] = []  # ends of the events that contain the next one
        for event in events:
            end = event["ts"] + event["dur"]
            while around and around[-1] <= event["ts"] + NESTING_US:
                around.pop()
            assert not around or end <= around[-1] + NESTING_US, f"{event} overlaps what it is not part of"
            around.append(end)
    return [event for events in threads.values() for event in events]


def steps(num: int, rank: int = 0) -> list[list[Span]]:
    """A trainer's steps of 50 ms, whose mini-batches are made three steps ahead by threads that take turns."""
    made = []
    for number in range(num):
        asked = 100 + number * 0.05
        taken = asked + 0.002
        thread = f"gnnload-sample_{number % 2}"
        came = delivery(
            began=asked - 0.15, asked=asked, taken=taken, convert=(taken, taken + 0.003), made_by=2, thread=thread
        )
        spans = delivery_spans(came, number=number, rank=rank, thread="MainThread")
        cuts = (taken + 0.003, taken + 0.02, taken + 0.04, taken + 0.045)
        spans.append(Span("train", rank, "MainThread", cuts[0], cuts[-1], number))
        for stage, begin, end in zip(("forward", "backward", "optimizer"), cuts, cuts[1:], strict=False):
            spans.append(Span(stage, rank, "MainThread", begin, end, number))
        made.append(spans)
    return made


def collected(first: int, last: int, num: int = 40) -> TraceWindow:
    window = TraceWindow(first, last)
    for number, spans in enumerate(steps(num)):
        if window.wants(number):
            window.add(number, spans)
    return window


def test_events_are_valid_and_nest() -> None:
    events = check_chrome(to_chrome(collected(5, 10).spans, world_size=2))
    assert {event["name"] for event in events} == {
        *("sample", "gather", "wait", "convert", "train", "forward", "backward", "optimizer")
    }
    assert min(event["ts"] for event in events) == 0
    # 50 ms steps: in microseconds, not in milliseconds or seconds.
    assert [event["dur"] for event in events if event["name"] == "train"] == pytest.approx([42_000] * 5)
    assert {event["cat"] for event in events if event["pid"] == 2} == {"sampler"}
    assert {event["cat"] for event in events if event["pid"] == 0} == {"trainer"}


def test_overlaps_are_found() -> None:
    spans = [Span("train", 0, "a", 1.0, 2.0, 0), Span("wait", 0, "a", 1.5, 2.5, 1)]
    with pytest.raises(AssertionError, match="overlaps"):
        check_chrome(to_chrome(spans, 1))


def test_sampling_in_the_trainers_own_loop_is_part_of_its_wait() -> None:
    came = delivery(began=10.001, asked=10.0, taken=10.02, made_by=0, thread="MainThread", convert=(10.017, 10.019))
    spans = delivery_spans(came, number=0, rank=0, thread="MainThread")
    events = check_chrome(to_chrome(spans, 1))
    assert [event["name"] for event in events] == ["wait", "sample", "gather", "convert"]
    assert timeline_rows(spans) == [(0, "MainThread")]


def test_a_window_has_what_samplers_did_in_it_for_later_batches() -> None:
    window = collected(10, 15)
    trained = {span.number for span in window.spans if span.rank == 0}
    assert trained == {10, 11, 12, 13, 14}
    # Made 150 ms, three steps, ahead: 15, 16 and 17 are begun before the window ends.
    assert {span.number for span in window.spans if span.stage == "sample"} == set(range(10, 18))
    assert not window.wants(20)


def test_a_window_gives_up_in_the_end() -> None:
    window = TraceWindow(0, 1)
    endless = Span("sample", 1, "t", 0.0, 1.0, 0)
    number = 0
    while window.wants(number):
        window.add(number, [endless])
        number += 1
        assert number < 1000
    assert number > 10


def test_parts_of_all_trainers_are_joined(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    parts = [[span for spans in steps(3, rank) for span in spans] for rank in range(2)]
    for rank, part in enumerate(parts):
        write_part(part, folder, rank)
    assert join_parts(folder, range(2)) == parts[0] + parts[1]
    assert not list(folder.iterdir())


def test_rows_are_ordered_by_rank_with_a_trainers_own_loop_first() -> None:
    spans = [Span("sample", 0, "a-worker", 0, 1, 0), Span("gather", 1, "b", 0, 1, 0), Span("wait", 0, "main", 0, 1, 0)]
    assert timeline_rows(spans) == [(0, "main"), (0, "a-worker"), (1, "b")]


def test_a_figure_is_drawn(tmp_path: Path) -> None:
    from matplotlib.image import imread

    sizes = []
    for name, spans in (("one", collected(0, 1).spans[:1]), ("many", collected(5, 17).spans)):
        draw_timeline(spans, 2, tmp_path / f"{name}.png")
        picture = imread(tmp_path / f"{name}.png")
        assert len({tuple(pixel) for pixel in picture[::3, ::3].reshape(-1, picture.shape[-1]).tolist()}) > 2
        sizes.append(picture.shape[0])
    assert sizes[1] > sizes[0]  # a row for each thread
