"""Window: the packed rows of some consecutive steps, as a folder that is written whole or not at all.

``rows.bin`` has, of each mini-batch and each table, the rows that memory does not keep, by ascending number, from a
page's begin on, with zeros up to a page's end; ``window.json`` says how many, and has checksums of these pages and of
the rows' numbers. Mini-batches are in the order of their times: step by step, and in each step by rank. There is no
index: who reads knows which rows are there, so that nothing in the file decides where memory is written.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.host.direct import PAGE, DirectFile, whole_pages
from lightning_gnnload.storage.manifest import check_checksum, with_checksum
from lightning_gnnload.storage.open_folder import OpenFolder

FORMAT, VERSION = "lightning_gnnload.window", 3
_MANIFEST, _ROWS = "window.json", "rows.bin"
_MOST_BYTES = 1 << 28  # of a manifest, which anyone may have written
_MOST_ROWS, _MOST_STEPS = 1 << 48, 1 << 31


@dataclass(frozen=True)
class Timeline:
    """The order of a run's mini-batches over all epochs, cut into windows: a first one, and others of equal length.

    Attributes:
        num_steps: of an epoch, that the run takes.
        ranks: those of the trainers whose mini-batches are packed here, of ``num_ranks``.
        window: steps of one.
        first: steps of the first one, which a run waits for.
        end: steps that there are, or come again in turn; None: without an end.
        comes_again: they come again in turn.

    Example:
        >>> timeline = Timeline(num_steps=10, ranks=(0,), num_ranks=1, window=6, first=2, end=20)
        >>> [timeline.span(number) for number in range(5)]
        [range(0, 2), range(2, 8), range(8, 14), range(14, 20), range(20, 20)]
        >>> [timeline.number_of(step) for step in (0, 1, 2, 7, 8)]
        [0, 0, 1, 1, 2]
    """

    num_steps: int
    ranks: tuple[int, ...]
    num_ranks: int
    window: int
    first: int
    end: int | None = None
    comes_again: bool = False

    def step_of(self, request: BatchRequest) -> int | None:
        """Returns the number of its step, counted from the first epoch's first; None: it is no step of these."""
        if request.rank not in self.ranks or request.num_ranks != self.num_ranks or request.step >= self.num_steps:
            return None
        step = request.epoch * self.num_steps + request.step
        if self.end is None or step < self.end:
            return step
        return step % self.end if self.comes_again else None

    def number_of(self, step: int) -> int:
        """Returns the number of the window that has a step."""
        return max(step - self.first, -1) // self.window + 1

    def span(self, window: int) -> range:
        """Returns the steps of a window; none behind the last one."""
        end = self.first + window * self.window
        begin = end - self.window if window else 0
        return range(*(step if self.end is None else min(step, self.end) for step in (begin, end)))

    def following(self, window: int) -> int | None:
        """Returns the window that comes next; None where there is none."""
        if self.span(window + 1):
            return window + 1
        return 0 if self.comes_again and window > 0 else None

    def requests(self, steps: range) -> list[BatchRequest]:
        """Returns the mini-batches of these steps, in the order of a window's file."""
        return [
            BatchRequest(*divmod(step, self.num_steps), rank, self.num_ranks) for step in steps for rank in self.ranks
        ]

    def time_of(self, request: BatchRequest) -> int:
        """Returns the number of one of its mini-batches, counted from the first step's first."""
        step = self.step_of(request)
        assert step is not None
        return step * len(self.ranks) + self.ranks.index(request.rank)


class Extent(NamedTuple):
    """Where the packed rows of one table and mini-batch lie in a window's file."""

    offset: int
    num_rows: int
    row_bytes: int
    checksum: int  # of all its pages
    ids_checksum: int  # of the rows' numbers, int64

    @property
    def size(self) -> int:
        return self.num_rows * self.row_bytes


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Mixes the bits of uint64 numbers, distinct ones to distinct ones: the end of SplitMix64 (Steele et al., 2014)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


_WEIGHTS = _mixed(np.arange(PAGE // 4, dtype=np.uint64)) | np.uint64(1)


def page_sums(pages: np.ndarray) -> np.ndarray:
    """Adds up the 32-bit words of each page, times odd numbers that differ by place, modulo 2**64: uint8 ``[n * PAGE]``
    to uint64 ``[n]``. It notices every change of one word, and every swap of two; of other changes, those of order
    among them, all but one in 2**32 or fewer. zlib's CRC takes twice the time."""
    # The words have half the bits of the sum: flips of their top bits, which are the signs of numbers, do not cancel.
    return np.einsum("nw,w->n", pages.view(np.uint32).reshape(-1, PAGE // 4), _WEIGHTS)


def checksum_of_pages(sums: np.ndarray, first: int = 0) -> int:
    """Makes a checksum of the sums of pages ``first``, ``first + 1`` ... that notices pages in another order. Those of
    parts add up, modulo 2**64.

    Example:
        >>> sums = np.array([7, 2, 5], np.uint64)
        >>> parts = checksum_of_pages(sums[:1]) + checksum_of_pages(sums[1:], first=1)
        >>> checksum_of_pages(sums) == parts % 2**64
        True
        >>> checksum_of_pages(sums) == checksum_of_pages(sums[::-1])
        False
    """
    page_numbers = _mixed(np.arange(first, first + len(sums), dtype=np.uint64))
    return int(_mixed(sums ^ page_numbers).sum(dtype=np.uint64))


def extents(
    counts: Sequence[Sequence[int]],
    row_bytes: Sequence[int],
    checksums: Sequence[Sequence[int]] | None = None,
    ids_checksums: Sequence[Sequence[int]] | None = None,
) -> tuple[list[list[Extent]], int]:
    """Places the rows of each mini-batch and table one after the other; also returns where they end."""
    offset, placed = 0, []
    for number, batch in enumerate(counts):
        stretch = []
        for table, count in enumerate(batch):
            sums = [0 if lists is None else lists[number][table] for lists in (checksums, ids_checksums)]
            stretch.append(Extent(offset, count, row_bytes[table], *sums))
            offset += whole_pages(count * row_bytes[table])
        placed.append(stretch)
    return placed, offset


class Window:
    """A window that was packed, open for reading. Its file stays readable when another process removes it."""

    def __init__(self, steps: range, stretches: list[list[Extent]], file: DirectFile, *, stays: bool) -> None:
        self.steps = steps
        self.stretches = stretches
        self.file = file
        self.stays = stays
        """Whether it was packed ahead of the run, and is not removed after use."""
        self.fresh: set[int] = set()
        """The mini-batches that this process has packed just now and not read since: their checksums are not compared,
        as the disk has had no time to forget."""


def window_path(folder: Path, number: int) -> Path:
    """Names the folder of a window."""
    return folder / f"window-{number:08d}"


def rows_path(staging: Path) -> Path:
    """Names the file of rows in a window's folder."""
    return staging / _ROWS


def window_numbers(folder: Path) -> list[int]:
    """Lists the windows in a folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # the last job has removed it
        return []
    return sorted(int(name[7:]) for name in names if re.fullmatch(r"window-[0-9]{8,}", name))


def write_window_manifest(
    staging: Path,
    key: str,
    steps: range,
    row_bytes: Sequence[int],
    counts: Sequence[Sequence[int]],
    checksums: Sequence[Sequence[int]],
    ids_checksums: Sequence[Sequence[int]],
    *,
    stays: bool,
) -> None:
    """Writes what ``rows.bin`` in this folder has, through to the disk. ``key`` names the run that it is of."""
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "key": key,
        "first": steps.start,
        "stop": steps.stop,
        "row_bytes": list(row_bytes),
        "counts": [list(batch) for batch in counts],
        "sums": [list(batch) for batch in checksums],
        "ids_crc32": [list(batch) for batch in ids_checksums],
        "stays": stays,
    }
    with open(staging / _MANIFEST, "w") as file:
        json.dump(with_checksum(manifest), file)
        file.flush()
        os.fsync(file.fileno())


def open_window(path: Path, key: str, steps: range, row_bytes: Sequence[int], num_ranks: int) -> Window | None:
    """Opens a window that has these steps, and maybe more behind them; None where there is none.

    Raises StoreFormatError: it is damaged, ends before, or is of another run.
    """
    try:
        folder = OpenFolder(path)
    except StoreFormatError:
        if not os.path.lexists(path):
            return None
        if not os.path.isdir(path):
            raise StoreFormatError(f"{path} is no folder of a window.") from None
        if not os.access(path, os.R_OK | os.X_OK):
            raise
        return None  # it has come since
    with folder:
        try:
            with open(folder.open_file(_MANIFEST), "rb") as file:
                content = file.read(_MOST_BYTES + 1)
            manifest: Any = json.loads(content) if len(content) <= _MOST_BYTES else None
            rows = DirectFile(lambda flags: folder.open_file(_ROWS, flags), f"{path}/{_ROWS}")
        except FileNotFoundError as error:
            if folder.is_replaced:  # removed since, as it was of no use any more
                return None
            raise StoreFormatError(f"{path} is no whole window: {error}.") from error
        except (OSError, ValueError, RecursionError) as error:
            raise StoreFormatError(f"{path} cannot be read: {error}.") from error
        try:
            steps = _steps_of(path, manifest, key, steps, row_bytes)
            stretches, end, stays = _checked(path, manifest, len(steps) * num_ranks, row_bytes)
            if (size := os.fstat(rows.fd).st_size) != end:
                raise StoreFormatError(f"{path}/{_ROWS} has {size} bytes, but {end} were written.")
        except BaseException:
            rows.close()
            raise
        return Window(steps, stretches, rows, stays=stays)


def remove_window(path: Path) -> None:
    """Removes a window; those who have it open read on. What has other files as well stays as it is."""
    try:
        with OpenFolder(path) as folder:
            modes = folder.names()
        if path.is_symlink() or modes.keys() - {_MANIFEST, _ROWS} or any(map(stat.S_ISDIR, modes.values())):
            return
    except (StoreFormatError, OSError):  # there is none, or a file of that name
        return
    # Moved first, so that nobody takes what is being removed for a damaged window; a killed process leaves what
    # clear_leftovers() removes.
    aside = path.parent / f".{path.name}-{secrets.token_hex(8)}.partial"
    with suppress(OSError):
        os.rename(path, aside)
        shutil.rmtree(aside, ignore_errors=True)


def stays(path: Path) -> bool:
    """Returns whether a window says that it was packed ahead of a run; False for what is none."""
    try:
        with OpenFolder(path) as folder, open(folder.open_file(_MANIFEST), "rb") as file:
            return bool(json.loads(file.read(_MOST_BYTES))["stays"])
    except (StoreFormatError, OSError, ValueError, RecursionError, TypeError, KeyError):
        return False


def _steps_of(path: Path, manifest: Any, key: str, steps: range, row_bytes: Sequence[int]) -> range:
    """Returns the steps that a window has."""
    if not isinstance(manifest, dict) or (manifest.get("format"), manifest.get("version")) != (FORMAT, VERSION):
        raise StoreFormatError(f"{path}/{_MANIFEST} does not say format {FORMAT!r}, version {VERSION}.")
    check_checksum(path / _MANIFEST, manifest)
    expected = {"key": key, "first": steps.start, "row_bytes": list(row_bytes)}
    if differing := [name for name, value in expected.items() if manifest.get(name) != value]:
        raise StoreFormatError(f"{path} was packed for another run: its {', '.join(differing)} differ.")
    stop = manifest.get("stop")
    if type(stop) is not int or not steps.stop <= stop <= steps.start + _MOST_STEPS:
        raise StoreFormatError(f"{path} was packed for a run of fewer steps: it ends at step {stop}, not {steps.stop}.")
    return range(steps.start, stop)


def _checked(
    path: Path, manifest: dict[str, Any], num_batches: int, row_bytes: Sequence[int]
) -> tuple[list[list[Extent]], int, bool]:
    lists = []
    for name, most in (("counts", _MOST_ROWS), ("sums", 1 << 64), ("ids_crc32", 1 << 32)):
        values = np.array(manifest.get(name) or np.empty((0, len(row_bytes))), dtype=object)
        is_sound = values.shape == (num_batches, len(row_bytes))
        if not is_sound or not all(type(value) is int and 0 <= value < most for value in values.flat):
            raise StoreFormatError(f"{path}/{_MANIFEST}: {name!r} are not {num_batches} x {len(row_bytes)} counts.")
        lists.append(values.tolist())
    if type(manifest.get("stays")) is not bool:
        raise StoreFormatError(f"{path}/{_MANIFEST}: 'stays' is neither true nor false.")
    return *extents(lists[0], row_bytes, *lists[1:]), manifest["stays"]
