"""Packs the windows of some epochs ahead of a run."""

from __future__ import annotations

import fcntl
import time
from dataclasses import dataclass, replace

from lightning_gnnload.cache.packed.folder import PackingFolder
from lightning_gnnload.cache.packed.open import Run, check_tables, decide, filled_tables, packer_for
from lightning_gnnload.cache.packed.pack import NoRoomError
from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.cache.packed.window import open_window, remove_window, window_path
from lightning_gnnload.errors import FeatureFileError, PackingConfigError, StoreFormatError, warn
from lightning_gnnload.host.memory import in_units
from lightning_gnnload.storage.targets import folder_lock


@dataclass(frozen=True)
class PackedAhead:
    """What was packed: how many windows are new, how many there are for the epochs, and the bytes and seconds of the
    new ones."""

    folder: str
    num_new: int
    num_windows: int
    num_bytes: int
    seconds: float

    def __str__(self) -> str:
        rate = f", {in_units(int(self.num_bytes / self.seconds))}/s" if self.num_new else ""
        return (
            f"{self.folder}: {self.num_windows} windows, {self.num_new} of them new: {in_units(self.num_bytes)} in "
            f"{self.seconds:.1f} s{rate}"
        )


def pack_ahead(packing: Packing, run: Run, epochs: range) -> PackedAhead:
    """Packs the mini-batches of ``epochs``, but for the windows that are there already. They stay until their folder is
    removed, and a run reads them instead of packing its own.

    Raises:
        PackingConfigError: settings that cannot work, or not enough room for all of these windows.
        PackingMismatchError: the folder has mini-batches of another run.
        FeatureFileError: a table cannot be read, or the folder not be written to.
    """
    if packing.cycle is not None and epochs.stop > packing.cycle:
        raise PackingConfigError(
            f"epochs {epochs.start}:{epochs.stop} are to be packed, but with cycle={packing.cycle} epochs come again "
            f"from epoch {packing.cycle} on. Give epochs up to {packing.cycle}."
        )
    check_tables(packing, run.tables)
    # Whether it pays is decided by who asks for it.
    packing, run = replace(packing, always=True), replace(run, lasting_epochs=len(epochs))
    folder = PackingFolder(str(packing.folder))
    began = time.monotonic()
    try:
        with folder.deciding() as is_alone:
            layout, decided = decide(packing, run, folder, is_alone)
        if layout.way != "packed":
            advice = " Pack fewer epochs, or give Packing(room=...) or another folder." if layout.hot_share < 1 else ""
            raise PackingConfigError(f"{layout.reason}.{advice}")
        packer = packer_for(packing, run, folder, layout, decided, filled_tables(run, packing, decided, None, None))
        # The last window goes on into the next epoch, as that of a longer run does.
        if packing.cycle is None:
            packer.timeline = replace(packer.timeline, end=None)
        timeline = packer.timeline
        first, last = epochs.start * timeline.num_steps, epochs.stop * timeline.num_steps - 1
        windows = range(timeline.number_of(first), timeline.number_of(last) + 1)
        row_bytes = [table.packed_bytes for table in packer.tables]
        num_new = num_bytes = 0
        for number in windows:
            # Waits for a job that packs this window.
            with folder_lock(folder.windows, fcntl.LOCK_EX):
                path, steps = window_path(folder.windows, number), timeline.span(number)
                try:
                    window = open_window(path, packer.key, steps, row_bytes, len(timeline.ranks))
                except StoreFormatError as error:
                    warn(f"{error} It is packed anew.")
                    window = None
                if window is not None and window.stays:
                    window.file.close()
                    continue
                remove_window(path)
                num_bytes += packer.pack(number, num_threads=None, progress=run.progress)
                num_new += 1
        return PackedAhead(str(packing.folder), num_new, len(windows), num_bytes, time.monotonic() - began)
    except NoRoomError as error:
        raise FeatureFileError(f"{packing.folder} has no room for another window: {error}.") from error
    finally:
        folder.close()
