"""Packing: the settings of packed mini-batches."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lightning_gnnload.errors import PackingConfigError
from lightning_gnnload.settings import check_one_of, check_whole_number, num_bytes_of


@dataclass(frozen=True)
class Packing:
    """Settings of packed mini-batches: rows of a table on disk are read in order, and written batch by batch before
    they are needed.

    A window of coming mini-batches is sampled, the table is read once from its begin to its end, and each mini-batch's
    rows are written one after the other. So training reads long stretches of a file where it would read rows at random.
    The next window is packed while one trains. Rows that many mini-batches need stay in memory. No mini-batch changes.

    Args:
        folder: for the packed rows, on a fast disk. It is made where there is none.
        window: steps that one pass over the table serves; None: by ``room`` and ``memory``, so that passes take no
            longer than writing does, and packed rows are four times the table at most. A first window that is shorter
            lets training begin.
        memory: that all ranks of the machine take for it: rows that stay, and buffers. Bytes, or text such as
            ``"4GB"``; None: a quarter of what is free.
        room: likewise, of the disk, for two windows or all epochs of a ``cycle``; None: half of what is free.
        dtype: ``"float16"`` packs rows in half precision, so that values differ by rounding; None: as they are.
        cycle: epochs that are packed once and then come again, draws and order alike; None: every epoch is drawn anew.
        always: pack where there is room, whether it pays on this disk or not.

    Raises:
        PackingConfigError: a value that is none of these.

    Source: the order of AGNES (VLDB'25) and Ginex (VLDB'22), section 4: storage is read by what coming mini-batches
    need; here once a window, and in order.

    Example:
        >>> Packing("packed", memory="2GB", room=5 * 10**9).memory_bytes
        2000000000
    """

    folder: str | Path
    window: int | None = None
    memory: int | str | None = None
    room: int | str | None = None
    dtype: Literal["float16"] | None = None
    cycle: int | None = None
    always: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.folder, os.PathLike):
            object.__setattr__(self, "folder", os.fspath(self.folder))
        if not isinstance(self.folder, str) or not self.folder or "\0" in self.folder:
            raise PackingConfigError(f"folder={self.folder!r}: the path of a folder for packed rows is needed.")
        for name in ("window", "cycle"):
            if (value := getattr(self, name)) is not None:
                check_whole_number(name, value, PackingConfigError, most=2**31 - 1)
        if self.dtype is not None:
            check_one_of("dtype", self.dtype, ["float16"], PackingConfigError, alternative=", or None")
        if type(self.always) is not bool:
            raise PackingConfigError(f"always={self.always!r}: true or false is needed.")
        # Read here, so that a mistake shows where it was made.
        _ = self.memory_bytes, self.room_bytes

    @property
    def memory_bytes(self) -> int | None:
        """``memory`` in bytes."""
        return None if self.memory is None else num_bytes_of("memory", self.memory, PackingConfigError)

    @property
    def room_bytes(self) -> int | None:
        """``room`` in bytes."""
        return None if self.room is None else num_bytes_of("room", self.room, PackingConfigError)
