"""Scale: how much is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """How much is done.

    Attributes:
        num_turns: turns of each contender, besides one for warming up.
        loader_turns: the same of whole loaders, whose turns take longer.
        sampled_batches: mini-batches a turn where each is timed.
        loaded_batches: mini-batches a turn that stream from a loader.
        gather_rows: rows of the feature table.
        gather_ids: rows gathered at a time.
        gather_repeats: gathers a turn.
        every_setting: peers also with all cores and with malloc on 2 MB pages; both kinds of pages for tables.
    """

    num_turns: int = 5
    loader_turns: int = 3
    sampled_batches: int = 8
    loaded_batches: int = 15
    gather_rows: int = 2_400_000
    gather_ids: int = 300_000
    gather_repeats: int = 5
    every_setting: bool = True


QUICK = Scale(
    num_turns=2,
    loader_turns=2,
    loaded_batches=12,
    gather_rows=1 << 18,
    gather_ids=30_000,
    gather_repeats=3,
    every_setting=False,
)
