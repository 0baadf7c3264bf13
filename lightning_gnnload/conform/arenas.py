"""The properties of a sampler's use of memory: mini-batches of unknown size go into reusable arenas."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from lightning_gnnload.conform.case import Case, PropertyViolation, expect, expect_same, on
from lightning_gnnload.conform.purity import SamplerProperty
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.slab import Header
from lightning_gnnload.ops import ARENA_ALIGNMENT, ArenaTooSmall, SampleLayout
from lightning_gnnload.sample.base import Sampler

_GUARD, _GUARD_BYTES = 0xA5, 64
_MAX_SIZES = 50  # arenas tried a case


def arenas_of_any_size(sampler: Sampler, cases: Sequence[Case]) -> None:
    """an arena that is too small raises ArenaTooSmall, needs more than it has, and a larger one gives the batch

    Nothing is written outside the arena. needed_bytes leads a caller who grows to it on to a size that fits.
    """
    for case in cases:
        with on(case):
            expected, enough = case.sample(sampler), _grown(sampler, case)
            # Sizes in steps of the alignment, which is the finest that callers choose; of large batches fewer are
            # tried.
            step = max(enough // _MAX_SIZES // ARENA_ALIGNMENT, 1) * ARENA_ALIGNMENT
            fits = False
            for num_bytes in range(0, enough + 2 * step, step):
                whole, arena = _guarded_memory(num_bytes)
                try:
                    layout = case.draw_into(sampler, arena)
                except ArenaTooSmall as small:
                    needed = small.needed_bytes
                    expect(needed > num_bytes, f"needed_bytes above the arena's {num_bytes}", str(needed))
                    expect(not fits, f"a batch, as in a smaller arena than {num_bytes} bytes", "ArenaTooSmall")
                else:
                    fits = True
                    batch = MiniBatch.view(arena, layout, len(case.seeds), epoch=case.key.epoch, step=case.key.step)
                    expect_same(expected, batch, f"in an arena of {num_bytes} bytes")
                guards = np.concatenate([whole[:_GUARD_BYTES], whole[-_GUARD_BYTES:]])
                expect(
                    (guards == _GUARD).all(), f"nothing written outside an arena of {num_bytes} bytes", "changed bytes"
                )


def layout_is_sound(sampler: Sampler, cases: Sequence[Case]) -> None:
    """the parts of an arena, and its free part, do not overlap, and start at multiples of their item size

    Features are gathered into the free part, which starts and ends at multiples of 64 bytes.
    """
    for case in cases:
        with on(case):
            # With some room to spare, so that there is a free part to look at.
            _, arena = _guarded_memory(_grown(sampler, case) + 4 * ARENA_ALIGNMENT)
            layout = case.draw_into(sampler, arena)
            parts = sorted(_parts(layout))
            for (begin, end, name), (after, _, next_name) in pairwise(parts):
                expect(
                    end <= after, f"{name} to end before {next_name} begins", f"bytes {begin} to {end}, and {after} on"
                )
            for begin, end, name in parts:
                item = ARENA_ALIGNMENT if name == "the free part" else 8 if name in ("nodes", "edge_ids") else 4
                expect(begin % item == 0, f"{name} at a multiple of {item} bytes", f"at byte {begin}")
                expect(end <= arena.nbytes, f"{name} within {arena.nbytes} bytes", f"to byte {end}")
            expect(layout.free_end % ARENA_ALIGNMENT == 0, "free_end at a multiple of 64 bytes", str(layout.free_end))


ARENA_PROPERTIES: tuple[SamplerProperty, ...] = (arenas_of_any_size, layout_is_sound)


def _parts(layout: SampleLayout) -> set[tuple[int, int, str]]:
    """Lists ``(begin, end, name)``; hops may share their arrays, each a prefix of the next: the longest counts."""
    header, _ = Header.place(layout, 0, 0, 0)
    longest = {layout.free_begin: (layout.free_end, "the free part")}
    for (begin, end), column in zip(header.extents(), header.schema.columns, strict=True):
        if end > begin:
            longest[begin] = max(longest.get(begin, (0, "")), (end, column.field))
    return {(begin, end, name) for begin, (end, name) in longest.items()}


def _grown(sampler: Sampler, case: Case) -> int:
    """Returns an arena size that fits, found as callers find it."""
    num_bytes = 0
    for _ in range(64):
        try:
            case.draw_into(sampler, _guarded_memory(num_bytes)[1])
        except ArenaTooSmall as small:
            # Grows even where needed_bytes does not, which arenas_of_any_size tells of.
            num_bytes = max(small.needed_bytes, num_bytes + ARENA_ALIGNMENT)
        else:
            return num_bytes
    raise PropertyViolation(
        "a batch once the arena has grown to needed_bytes", f"ArenaTooSmall still at {num_bytes} bytes"
    )


def _guarded_memory(num_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Allocates aligned memory between two guards: returns the whole, and the arena in it."""
    raw = np.full(num_bytes + 2 * _GUARD_BYTES + ARENA_ALIGNMENT, _GUARD, np.uint8)
    begin = -raw.ctypes.data % ARENA_ALIGNMENT
    whole = raw[begin : begin + num_bytes + 2 * _GUARD_BYTES]
    return whole, whole[_GUARD_BYTES : _GUARD_BYTES + num_bytes]
