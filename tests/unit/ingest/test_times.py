"""The clock of times that no memory holds is that of the same times in memory."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from lightning_gnnload.data.clock import Clock
from lightning_gnnload.host.pages import mapped_bytes
from lightning_gnnload.ingest.times import TimeSpan, codes_of, merge_times
from lightning_gnnload.ops import NO_TIME

TIMED = np.ones(1, np.bool_)
ENDS = np.array([-(2**63) + 1, 2**63 - 1])
TIMES = {
    "nanoseconds": lambda rng: rng.integers(5, 10**9, 400),
    "seconds": lambda rng: 10**9 * rng.integers(-(10**9), 10**9, 400) + 7,
    "mixed units": lambda rng: np.concatenate(
        [6 * 10**12 * rng.integers(0, 99, 300), 10**13 * rng.integers(0, 9, 100)]
    ),
    "ranked": lambda rng: rng.integers(-(2**60), 2**60, 400),
    "all of 64 bits": lambda rng: np.concatenate([rng.integers(-(2**62), 2**62, 398), ENDS]),
    "one": lambda rng: np.full(400, 2**40),
    "two far apart": lambda rng: rng.choice(ENDS // 2, 400),
}


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("seed", range(4))
def test_spans_of_pieces_make_the_clock_of_all(kind, seed):
    rng = np.random.default_rng(seed)
    times = TIMES[kind](rng)
    wanted = Clock.of([times], TIMED, has_dates=True)
    with_gaps = np.where(rng.random(400) < 0.2, NO_TIME, times)
    held = with_gaps[with_gaps != NO_TIME]
    pieces = np.split(with_gaps, [0, 1, 150, 151])
    span = TimeSpan()
    for piece in pieces:  # as threads do: each knows the unit of those before
        span |= TimeSpan.of(piece, span.unit)
    assert span == reduce(lambda one, other: other | one, map(TimeSpan.of, pieces), TimeSpan())
    clock = span.clock(TIMED, lambda: np.unique(held))
    assert clock.to_json() == Clock.of([held], TIMED, has_dates=True).to_json()
    full = TimeSpan.of(times).clock(TIMED, lambda: np.unique(times))
    assert full.to_json() == wanted.to_json()
    np.testing.assert_array_equal(codes_of(times, full), wanted.codes(times))


def test_no_times_make_a_clock_too():
    clock = TimeSpan.of(np.full(3, NO_TIME)).clock(TIMED, lambda: np.empty(0, np.int64))
    assert clock.to_json() == Clock.of([], TIMED, has_dates=True).to_json()
    assert codes_of(np.full(3, NO_TIME), clock).tolist() == [0, 0, 0]


@pytest.mark.parametrize("most", [1, 1000, 100_000])
def test_times_are_merged_stretch_by_stretch(most, tmp_path):
    rng = np.random.default_rng(most)
    for folder in ("scratch", "made"):
        (tmp_path / folder).mkdir()
    sizes = (0, 5000, 1, 7000, 3000)
    chunks = [rng.choice([rng.integers(-(2**40), 2**40), NO_TIME, 5, 6], size) for size in sizes]
    chunks += [rng.integers(-50_000, 50_000, size) for size in sizes]
    file, entry = merge_times(iter(chunks), tmp_path / "scratch", tmp_path / "made", "clock_ranked", most)
    wanted = np.unique(np.concatenate(chunks))
    np.testing.assert_array_equal(mapped_bytes(file).view(np.int64), wanted[wanted != NO_TIME])
    assert entry["shape"] == [len(wanted) - 1]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_no_times_are_merged_to_none(tmp_path):
    _, entry = merge_times(iter([np.full(3, NO_TIME)]), tmp_path, tmp_path, "clock_ranked", 10)
    assert entry["shape"] == [0]
