"""PackingFolder: the folder of packed mini-batches, which run it is of, and which rows memory keeps beside it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.cache.packed.window import remove_window, stays, window_numbers, window_path
from lightning_gnnload.errors import FeatureFileError, PackingConfigError, PackingMismatchError, StoreFormatError, warn
from lightning_gnnload.storage.folders import clear_leftovers
from lightning_gnnload.storage.manifest import check_checksum, with_checksum
from lightning_gnnload.storage.open_folder import OpenFolder
from lightning_gnnload.storage.targets import check_creatable, folder_lock

FORMAT, VERSION = "lightning_gnnload.packing", 2
_MANIFEST, _WINDOWS = "packing.json", "windows"
_HOT = re.compile(r"hot-[0-9]+\.bin")
_UNFINISHED = re.compile(r"\.((hot-[0-9]+\.bin|packing\.json|rate)-[0-9]+|window-[0-9]{8,}-[0-9a-f]{16}\.partial)")
_MOST_BYTES = 1 << 24
_MOST_STEPS = 1 << 31


@dataclass(frozen=True)
class Decided:
    """What a folder's windows have in common: steps of one and of the first one, steps of an epoch, the share of rows
    that memory keeps, and these rows of each table, ascending, int64."""

    window: int
    first: int
    num_steps: int
    hot_share: float
    hot: tuple[np.ndarray, ...]


class PackingFolder:
    """A folder of packed mini-batches of one run, which any number of jobs may use at once.

    Raises PackingConfigError: it cannot be made, or its file system has no locks.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._locks = ExitStack()
        try:
            check_creatable(self.path)
            # Looked at twice, as a job may begin or end meanwhile.
            if all(self.path.exists() and self._is_strange() for _ in range(2)):
                raise PackingConfigError(
                    f"{self.path} has files that are no packed mini-batches. Give Packing a folder of its own, or "
                    f"remove that one if it was, and has lost its {_MANIFEST}."
                )
            self.windows.mkdir(mode=0o700, parents=True, exist_ok=True)
        except StoreFormatError as error:
            raise PackingConfigError(f"{error} Packing needs a folder that it can write to.") from error
        except OSError as error:
            raise PackingConfigError(f"{self.path} cannot be made: {error}. Give Packing another folder.") from error

    @property
    def windows(self) -> Path:
        """The folder of the windows, whose lock whoever packs holds."""
        return self.path / _WINDOWS

    @contextmanager
    def deciding(self) -> Iterator[bool]:
        """Yields whether no other job uses the folder, so that this one may decide what its windows are like; where
        another one does, waits until it has decided. From the end of the block on this job uses it, until
        :meth:`close`."""
        with folder_lock(self.path, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_alone:
            if is_alone:
                yield True
        self.join()
        if not is_alone:
            yield False

    def join(self) -> None:
        """Says that this process uses the folder."""
        if not self._locks.enter_context(folder_lock(self.path, fcntl.LOCK_SH)):
            raise PackingConfigError(
                f"{self.path} lies in a file system without locks (flock). Give Packing a folder on a local disk."
            )

    def close(self) -> None:
        """Says that this process uses the folder no more. The last one removes it, but for windows that are to stay."""
        self._locks.close()
        with folder_lock(self.path, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_alone:
            if not is_alone:
                return
            for number in window_numbers(self.windows):
                if not stays(path := window_path(self.windows, number)):
                    remove_window(path)
            if not window_numbers(self.windows):
                self.clear()
                with suppress(OSError):  # something else is there
                    self.windows.rmdir()
                    self.path.rmdir()

    def clear(self) -> None:
        """Removes all windows, and what killed processes have left."""
        for number in window_numbers(self.windows):
            remove_window(window_path(self.windows, number))
        self.clear_leftovers()
        # The manifest, which says that the files beside it are ours, goes last, and comes first.
        hot = [path for path in self.path.glob("hot-*.bin") if _HOT.fullmatch(path.name)]
        for path in (*hot, self.path / _MANIFEST):
            with suppress(OSError):
                path.unlink()

    def clear_leftovers(self) -> None:
        """Removes what killed processes have left of windows."""
        for path in self.windows.glob(".window-*.partial"):
            clear_leftovers(self.windows / path.name[1:].rpartition("-")[0])

    def has_lasting_windows(self) -> bool:
        """Whether there are windows that were packed ahead of a run."""
        return any(stays(window_path(self.windows, number)) for number in window_numbers(self.windows))

    def write(self, key: Mapping[str, Any], decided: Decided) -> None:
        """Writes what was decided, through to the disk."""
        contents = [np.ascontiguousarray(ids, np.int64).tobytes() for ids in decided.hot]
        try:
            manifest = {
                "format": FORMAT,
                "version": VERSION,
                "key": dict(key),
                "window": decided.window,
                "first": decided.first,
                "num_steps": decided.num_steps,
                "hot_share": float(decided.hot_share),
                "hot": [{"count": len(content) // 8, "crc32": zlib.crc32(content)} for content in contents],
            }
            self._write(_MANIFEST, json.dumps(with_checksum(manifest), indent=1).encode())
            for number, content in enumerate(contents):
                self._write(f"hot-{number}.bin", content)
        except OSError as error:
            raise FeatureFileError(
                f"{self.path} cannot be written to: {error}. Give Packing another folder."
            ) from error

    def read(self, key: Mapping[str, Any], num_rows: list[int]) -> Decided | None:
        """Reads what was decided; None where that is nothing. ``num_rows`` are those of each table.

        Raises PackingMismatchError: for another run. StoreFormatError: the folder is damaged.
        """
        with OpenFolder(self.path) as folder:
            try:
                manifest = self._json(folder)
            except FileNotFoundError:
                return None
            check_checksum(self.path / _MANIFEST, manifest)
            there, here = manifest.get("key"), json.loads(json.dumps(key))
            if there != here:
                raise self._mismatch(there if isinstance(there, dict) else {}, here)
            lengths: list[Any] = [manifest.get(name) for name in ("window", "first", "num_steps")]
            share, entries = manifest.get("hot_share"), manifest.get("hot")
            if not isinstance(entries, list) or len(entries) != len(num_rows):
                raise StoreFormatError(f"{self.path}/{_MANIFEST} is damaged: it does not list {len(num_rows)} tables.")
            is_sound = all(type(length) is int and 1 <= length < _MOST_STEPS for length in lengths)
            if not is_sound or type(share) is not float or not 0 <= share <= 1:
                raise StoreFormatError(f"{self.path}/{_MANIFEST} is damaged: its steps or its share of rows are none.")
            hot = tuple(
                self._hot(folder, f"hot-{number}.bin", entry, count)
                for number, (entry, count) in enumerate(zip(entries, num_rows, strict=True))
            )
            return Decided(lengths[0], lengths[1], lengths[2], share, hot)

    def _hot(self, folder: OpenFolder, name: str, entry: Any, num_rows: int) -> np.ndarray:
        try:
            with open(folder.open_file(name), "rb") as file:
                content = file.read(8 * num_rows + 1)
        except OSError as error:
            raise StoreFormatError(f"{self.path}/{name} cannot be read: {error}.") from error
        if not isinstance(entry, dict) or zlib.crc32(content) != entry.get("crc32") or len(content) % 8:
            raise StoreFormatError(f"{self.path}/{name} is damaged, by its checksum.")
        ids = np.frombuffer(content, np.int64)
        # They index memory, and anyone may have written the file.
        is_sound = len(ids) == entry.get("count") and (ids[1:] > ids[:-1]).all()
        if not is_sound or (len(ids) and not 0 <= ids[0] <= ids[-1] < num_rows):
            raise StoreFormatError(f"{self.path}/{name} does not list rows of its table.")
        return ids

    def _json(self, folder: OpenFolder) -> dict[str, Any]:
        with open(folder.open_file(_MANIFEST), "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        try:
            manifest = json.loads(content) if len(content) <= _MOST_BYTES else None
        except (ValueError, RecursionError) as error:
            raise StoreFormatError(f"{self.path}/{_MANIFEST} cannot be read: {error}.") from error
        if not isinstance(manifest, dict) or (manifest.get("format"), manifest.get("version")) != (FORMAT, VERSION):
            raise StoreFormatError(f"{self.path}/{_MANIFEST} does not say format {FORMAT!r}, version {VERSION}.")
        return manifest

    def _mismatch(self, there: dict[str, Any], here: dict[str, Any]) -> PackingMismatchError:
        differing = [
            f"{name}: {_short(there.get(name))} there, {_short(here.get(name))} here"
            for name in sorted(there.keys() | here.keys())
            if there.get(name) != here.get(name)
        ]
        return PackingMismatchError(
            f"{self.path} has mini-batches that were packed for another run ({'; '.join(differing)}). Give Packing "
            "another folder, or remove that one."
        )

    def _write(self, name: str, content: bytes) -> None:
        aside = self.path / f".{name}-{os.getpid()}"
        with open(aside, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(aside, self.path / name)

    def _is_strange(self) -> bool:
        """Whether something else is in the folder than what this class writes."""
        try:
            windows = os.listdir(self.windows) if self.windows.is_dir() else []
            names = set(os.listdir(self.path)) - {_WINDOWS}
            if _MANIFEST in names:
                with OpenFolder(self.path) as folder, open(folder.open_file(_MANIFEST), "rb") as file:
                    if FORMAT.encode() in file.read(_MOST_BYTES):
                        names -= {_MANIFEST, *filter(_HOT.fullmatch, names)}
                        windows = []  # of which remove_window() leaves alone what is not ours
        except FileNotFoundError:  # removed meanwhile
            return True
        # Other programs' files may have the names of ours, so that without our manifest only unfinished files pass.
        return not all(map(_UNFINISHED.fullmatch, [*names, *windows]))


def decided_for(
    folder: PackingFolder,
    key: Mapping[str, Any],
    num_rows: list[int],
    num_steps: int,
    is_alone: bool,
    decide: Callable[[], Decided],
) -> Decided:
    """Reads what a folder's windows have in common, or decides it for epochs of so many steps.

    Raises PackingMismatchError: windows that are to stay, or that another job uses, are of another run.
    """
    try:
        decided = folder.read(key, num_rows)
    except (PackingMismatchError, StoreFormatError) as error:
        # What a run that was killed has left for itself is of no use to another.
        if not is_alone or (isinstance(error, PackingMismatchError) and folder.has_lasting_windows()):
            raise
        if isinstance(error, StoreFormatError):
            warn(f"{error} All of {folder.path} is packed anew.")
        decided = None
    if decided is not None:
        has_all = decided.num_steps >= num_steps  # else a run that took fewer was killed
        if has_all or not is_alone or folder.has_lasting_windows():
            return decided
    if not is_alone:
        raise PackingMismatchError(f"{folder.path} is in use by another job, which has not written what it is for.")
    folder.clear()
    decided = decide()
    folder.write(key, decided)
    return decided


def key_digest(key: Mapping[str, Any]) -> str:
    """Returns hexadecimal digits that are alike for equal keys alone."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
