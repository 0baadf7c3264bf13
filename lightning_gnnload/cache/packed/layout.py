"""Layout: how packed mini-batches share the memory and the disk that they may take, and which way is the fastest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lightning_gnnload.cache.packed.rates import Rates
from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.errors import PackingConfigError
from lightning_gnnload.host.direct import whole_pages
from lightning_gnnload.host.memory import in_units

Way = Literal["packed", "scanned", "direct"]
_WRITTEN = 4
"""Packed rows of a window, in tables: reading the table once is then a ninth of the bytes that a window moves."""
_A_WRITE = 64 << 10
"""Bytes that a disk reads in order in the time in which a write begins, processor time included: some 60 us. The longer
a window, the fewer the passes over the table, and the smaller the pieces that are written."""
_LEAST_PIECE = 16 << 10  # of a mini-batch, that is written at once
_MOST_CHUNK, _LEAST_CHUNK = 32 << 20, 64 << 10
_LEAST_BUFFER = 64 << 10
_SHARES = 513  # of the rows that memory may keep, that are tried


@dataclass(frozen=True)
class Sizes:
    """What a run's mini-batches need: sampled from some of them.

    Attributes:
        stores: the tables, by name.
        hotness: of each table's rows; None: nobody knows, so that memory keeps none.
        mean_rows, most_rows: distinct rows of a mini-batch, by table.
        num_ranks: whose mini-batches are packed on this machine.
        num_gathering: threads of all ranks of the machine that gather at once.
        num_processes: that gather.
        num_steps: that there are at all; None: without an end.
        packed_bytes: of a row, by table.
    """

    stores: Mapping[str, FeatureStore]
    hotness: Mapping[str, np.ndarray | None]
    mean_rows: Mapping[str, float]
    most_rows: Mapping[str, int]
    num_ranks: int
    num_gathering: int
    num_processes: int
    num_steps: int | None
    packed_bytes: Mapping[str, int]

    @property
    def table_bytes(self) -> int:
        return sum(store.shape[0] * store.row_bytes for store in self.stores.values())


@dataclass(frozen=True)
class Layout:
    """The memory and the disk that packing takes.

    Attributes:
        way: ``"packed"``; ``"scanned"``, where the disk has no room; ``"direct"``, where both would take longer.
        without_room: the faster one of the others, for a disk that is full later.
        window: steps of one.
        first: steps of the first one, which the run waits for.
        hot_share: of each table's rows, that memory keeps.
        chunk_bytes: of one of two chunks of a table.
        staging_bytes: of what is to be written next.
        reader_bytes: of a rank's buffers.
        group_bytes: of a rank's group, if the disk has no room.
        reason: in words, with figures.
    """

    way: Way
    without_room: Way
    window: int
    first: int
    hot_share: float
    chunk_bytes: int
    staging_bytes: int
    reader_bytes: int
    group_bytes: int
    reason: str


class _Share:
    """What it means that memory keeps this share of the rows."""

    def __init__(self, sizes: Sizes, share: float, sorted_hotness: Mapping[str, np.ndarray]) -> None:
        self.share = share
        self.hot_bytes = self.cold_rows = self.cold_bytes = self.most_bytes = 0.0
        for name, store in sizes.stores.items():
            cold = 1.0
            self.hot_bytes += 4 * store.shape[0]  # where each row is
            if name in sorted_hotness:
                visits = sorted_hotness[name]
                count = int(share * store.shape[0])
                self.hot_bytes += count * store.row_bytes
                total = float(visits[-1]) if len(visits) else 0.0
                cold = 1 - float(visits[count - 1]) / total if count and total else 1.0
            self.cold_rows += cold * sizes.mean_rows[name] * sizes.num_ranks
            self.cold_bytes += cold * sizes.mean_rows[name] * sizes.num_ranks * sizes.packed_bytes[name]
            self.most_bytes += cold * sizes.most_rows[name] * sizes.packed_bytes[name]
        self.has_all = share == 1 and not self.cold_rows


def lay_out(
    sizes: Sizes,
    memory: int,
    room: int,
    *,
    window: int | None,
    whole: int | None,
    rates: Rates,
    always: bool = False,
    hot_share: float | None = None,
) -> Layout:
    """Shares ``memory`` and ``room``, in bytes, out.

    ``window``: steps of one, if the user says so. ``whole``: steps that must lie on the disk together; None: two
    windows. ``always``: pack, where there is room, whether it pays or not. ``hot_share``: of the rows that memory
    keeps, if that was decided before.

    Raises PackingConfigError: the memory does not suffice for the buffers.
    """
    visits = {
        name: np.cumsum(np.sort(hotness)[::-1], dtype=np.float64)
        for name, hotness in sizes.hotness.items()
        if hotness is not None
    }
    chunk = chunk_bytes_of(memory)
    staging = memory // 6
    for_ids = memory // 12  # 4 bytes of each cold row that a window has, and some of what is being sampled
    shares = [hot_share] if hot_share is not None else np.linspace(1, 0, _SHARES).tolist() if visits else [0.0]
    num_stretches = sizes.num_gathering + sizes.num_processes  # one for each thread that gathers, and one ahead a rank

    def largest(packs: bool) -> tuple[_Share, float]:
        """Returns the largest share that leaves room for the buffers, and the bytes of stretches."""
        for share in shares:
            candidate = _Share(sizes, share, visits)
            # Parts of stretches where memory is short: there hot rows save more than it does to read one at once.
            reader = max(min(candidate.most_bytes * num_stretches, memory / 6), _LEAST_BUFFER * num_stretches)
            buffers = 2 * chunk + (reader + staging + for_ids if packs and not candidate.has_all else 0)
            if candidate.hot_bytes + buffers <= memory:
                return candidate, reader
        raise PackingConfigError(
            f"memory={in_units(memory)} is too little to pack: {in_units(int(candidate.hot_bytes))} are for rows that "
            f"stay, and where they are, and {in_units(int(buffers))} for buffers. Give more memory, or fewer threads."
        )

    chosen, reader = largest(packs=True)
    steps, first = _windows(sizes, chosen, room, staging, for_ids, whole)
    if window is not None:  # whatever lies on the disk together, so that all who give it agree
        steps = first = window
    per_process = int((memory - chosen.hot_bytes - 2 * chunk) / sizes.num_processes)
    way, without_room, reason = _choose(sizes, chosen, steps, room, per_process, whole, rates, always)
    if way == "direct":  # what would be for buffers is for rows
        chosen, _ = largest(packs=False)
    reader_bytes = int(reader / sizes.num_processes)
    return Layout(way, without_room, steps, first, chosen.share, chunk, staging, reader_bytes, per_process, reason)


def chunk_bytes_of(memory: int) -> int:
    """Returns the bytes of one of two chunks of a table, of so much memory in all."""
    return min(max(memory // 24, _LEAST_CHUNK), _MOST_CHUNK)


def _windows(sizes: Sizes, share: _Share, room: int, staging: int, for_ids: int, whole: int | None) -> tuple[int, int]:
    """Returns the steps of windows that are worth it, and that there is room for, and those of the first one."""
    cold_bytes, cold_rows = max(share.cold_bytes, 1), max(share.cold_rows, 1)
    most_row = max(sizes.packed_bytes.values(), default=0)
    limits = [
        _WRITTEN * sizes.table_bytes / cold_bytes,
        # A pass over the table takes as long as it takes to begin the writes.
        math.sqrt(sizes.table_bytes * staging / (_A_WRITE * cold_bytes * sizes.num_ranks)),
        staging / max(_LEAST_PIECE, 2 * whole_pages(most_row)) / sizes.num_ranks,
        for_ids / 4 / cold_rows,
        room / 2 / cold_bytes if whole is None else float(whole),
    ]
    longest = max(int(min(limits)), 1)
    # Its rows are as many as the table has, so that a run waits little longer than for one pass over the table.
    first = min(longest, max(int(sizes.table_bytes / cold_bytes), 1))
    if (num_steps := sizes.num_steps) is None:
        return longest, first
    if first == longest or num_steps < 2 * first:
        # Of about the same length, as a window of a few steps is as dear as any.
        first = longest = -(-num_steps // -(-num_steps // longest))
    elif (rest := num_steps - first) > 0:
        longest = -(-rest // -(-rest // longest))
    return longest, min(first, num_steps)


def _choose(
    sizes: Sizes,
    share: _Share,
    steps: int,
    room: int,
    group_bytes: int,
    whole: int | None,
    rates: Rates,
    always: bool,
) -> tuple[Way, Way, str]:
    """Returns the fastest way, the faster one without room, and why."""
    if share.has_all:
        return "direct", "direct", "memory keeps all rows"
    steps = min(steps, sizes.num_steps or steps)
    packed = steps * share.cold_bytes
    on_disk = packed * 2 if whole is None else max(packed, whole * share.cold_bytes)
    if sizes.num_steps is not None and whole is None:
        on_disk = min(on_disk, sizes.num_steps * share.cold_bytes)
    packed_ms = rates.packed_s(sizes.table_bytes, packed) / steps * 1e3
    direct_ms = rates.direct_s(share.cold_rows) * 1e3
    scans_a_step = min(share.cold_bytes / max(min(group_bytes, sizes.table_bytes), 1), 1.0)
    scanned_ms = rates.scanned_s(sizes.table_bytes, scans_a_step) * 1e3
    without_room: Way = "scanned" if scanned_ms <= direct_ms else "direct"
    times = (
        f"a step's rows take {packed_ms:.0f} ms packed, {direct_ms:.0f} ms at random, {scanned_ms:.0f} ms by scans of "
        f"groups ({rates})"
    )
    if on_disk > room:
        needed = f"the disk has room for {in_units(room)}, but packing needs {in_units(int(on_disk))}"
        return without_room, without_room, f"{needed}; {times}"
    if packed_ms > direct_ms and not always:
        return "direct", without_room, times
    figures = (
        f"windows of {steps} steps, {in_units(int(packed))} each; memory keeps {share.share:.0%} of the rows; a step "
        f"reads {in_units(int(share.cold_bytes))}"
    )
    return "packed", without_room, f"{figures}; {times}"


def sampled_sizes(rows: Sequence[Mapping[str, np.ndarray]]) -> tuple[dict[str, float], dict[str, int]]:
    """Returns the mean and the largest number of rows that some mini-batches have, by table."""
    names = rows[0]
    counts = {name: [len(batch[name]) for batch in rows] for name in names}
    return {name: float(np.mean(count)) for name, count in counts.items()}, {
        name: max(count) for name, count in counts.items()
    }
