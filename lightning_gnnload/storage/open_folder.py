"""OpenFolder: a folder of arrays, of which one version is read even if another process replaces it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from lightning_gnnload.errors import FeatureFileError, StoreFormatError
from lightning_gnnload.storage.manifest import MANIFEST, array_of_entry, parse_manifest, part_folder

Read = TypeVar("Read")
_MAX_BYTES = 1 << 24  # of a manifest, which is read whole, and which anyone may have written
_MOST_TRIES = 1000  # of reading a folder, each after another process has replaced it meanwhile


class OpenFolder:
    """An open folder of arrays: all files that it opens are of one version, even if the folder is replaced.

    Files of a replaced version are removed: those that are mapped or open stay readable, and opening others is an
    error. ``folder`` is a path, or a name ``within`` another open folder.

    Raises StoreFormatError: there is no such folder.
    """

    def __init__(self, folder: str | os.PathLike[str], within: OpenFolder | None = None) -> None:
        self.path: Path = Path(folder) if within is None else within.path / folder
        self._fd = -1
        try:
            self._fd = os.open(
                folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=None if within is None else within._fd
            )
        except (FileNotFoundError, NotADirectoryError):
            raise _no_manifest(self.path) from None
        except (OSError, ValueError) as error:
            raise StoreFormatError(f"{self.path} cannot be read: {error}.") from error

    def close(self) -> None:
        """Closes the folder, but not files that are open or mapped. Safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def again(self) -> OpenFolder:
        """Returns a second object of the same version, to be closed on its own."""
        duplicate = object.__new__(OpenFolder)
        duplicate.path, duplicate._fd = self.path, os.dup(self._fd)
        return duplicate

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def is_replaced(self) -> bool:
        """Whether its path now belongs to another folder, or to none."""
        try:
            return not os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except OSError:
            return True

    def names(self) -> dict[str, int]:
        """Returns the mode of each file in the folder, as of ``os.stat``, without following links."""
        with os.scandir(self._fd) as entries:
            return {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in entries}

    @cached_property
    def manifest_bytes(self) -> bytes:
        """The content of the manifest. Raises StoreFormatError: it is missing or cannot be read."""
        path = self.path / MANIFEST
        try:
            with open(self.open_file(MANIFEST), "rb") as file:
                size_bytes = os.fstat(file.fileno()).st_size
                if size_bytes > _MAX_BYTES:
                    raise ValueError(f"it has {size_bytes} bytes, more than any manifest of ours")
                return file.read()
        except FileNotFoundError:
            raise _no_manifest(self.path) from None
        except StoreFormatError:
            raise  # it is a ValueError, too, and says more
        except (OSError, ValueError) as error:
            raise StoreFormatError(f"{path} cannot be read: {error}. Prepare the data set again.") from error

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest, of sound form. Raises StoreFormatError: it is missing, foreign, newer or broken."""
        return parse_manifest(self.path / MANIFEST, self.manifest_bytes)

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal digits that are alike for folders of equal content, wherever and whenever these were written."""
        # Of the manifest with its checksums, but without settings of a data set and timings of a partition's report.
        content = dict(self.manifest)
        described = content.pop("attributes").get("partition")
        if isinstance(described, dict):
            content["partition"] = {key: value for key, value in described.items() if key != "report"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @cached_property
    def arrays(self) -> dict[str, StoredArray]:
        """The arrays by name."""
        return {name: self.array(name) for name in self.manifest["arrays"]}

    def array(self, name: str) -> StoredArray:
        """Returns one of :attr:`arrays`, without checking the others. Raises StoreFormatError."""
        array = StoredArray(self, name, *array_of_entry(self.path / MANIFEST, name, self.manifest["arrays"][name]))
        found_bytes = None
        try:
            _, found_bytes = self._find(array.file_name)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreFormatError(f"{array.file} cannot be read: {error}. Prepare the data set again.") from error
        if found_bytes != array.size_bytes:
            problem = "is missing" if found_bytes is None else f"has {found_bytes} bytes"
            dtype = str(array.dtype).removeprefix("torch.")
            raise StoreFormatError(
                f"{array.file} {problem}, but the manifest says {array.size_bytes} ({dtype} {array.shape}): the folder "
                f"is broken, perhaps by an interrupted copy. Prepare it again."
            )
        return array

    @property
    def parts(self) -> dict[str, Any]:
        """The folder names of a partition's parts that are on this machine, with the CRC-32 of their manifests; empty
        for other folders."""
        described = self.manifest["attributes"].get("partition")
        checksums = described.get("parts") if isinstance(described, dict) else None
        parts = {
            part_folder(n): checksum for n, checksum in enumerate(checksums if isinstance(checksums, list) else ())
        }
        # Parts with rows of their own may each lie on a machine of its own.
        is_spread = isinstance(described, dict) and "rows" in described
        return {name: checksum for name, checksum in parts.items() if not is_spread or name in self.parts_here}

    @cached_property
    def parts_here(self) -> frozenset[str]:
        """The names of the folders in this one, as of when they were first asked for."""
        with os.scandir(self._fd) as entries:
            return frozenset(entry.name for entry in entries if entry.is_dir())

    def open_file(self, name: str, flags: int = 0) -> int:
        """Opens a file of this folder for reading.

        Raises:
            FileNotFoundError: there is no such file; a pipe or a device, whose reading may not end, counts as none.
            StoreFormatError: it is a link out of the folder, by which any file of the user could be read.
            OSError: it cannot be opened.
        """
        name, _ = self._find(name)
        # O_NOFOLLOW, as _find has resolved a link; O_NONBLOCK, as opening a pipe that has come since would wait.
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=self._fd)

    def link(self, name: str, path: Path) -> None:
        """Gives a file of this folder a second name. Raises OSError: it is elsewhere, or files have one name."""
        os.link(name, path, src_dir_fd=self._fd, follow_symlinks=False)

    def _find(self, name: str) -> tuple[str, int]:
        """Returns the name of a file, after following a link, and its size."""
        try:
            status = os.stat(name, dir_fd=self._fd)
        except ValueError as error:  # no name that a file can have
            raise FileNotFoundError(str(error)) from None
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(f"{self.path / name} is no file")
        if stat.S_ISLNK(os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode):
            target = (self.path / name).resolve()
            if target.parent != self.path.resolve():
                raise StoreFormatError(
                    f"{self.path / name} is a link out of its folder, to {target}. Copy that file in its place."
                )
            name = target.name
        return name, status.st_size


@dataclass(frozen=True)
class StoredArray:
    """An array as the manifest lists it: its file, dtype, shape and checksums."""

    folder: OpenFolder
    name: str
    file_name: str
    dtype: torch.dtype
    shape: list[int]
    checksums: tuple[int, ...]

    @property
    def file(self) -> Path:
        return self.folder.path / self.file_name

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def open(self, flags: int = 0) -> int:
        """Opens its file, while the folder is open."""
        return self.folder.open_file(self.file_name, flags)


def read_folder(folder: str | os.PathLike[str], read: Callable[[OpenFolder], Read]) -> Read:
    """Returns what ``read`` makes of a folder; where that fails because the folder was replaced, reads the new one."""
    for _ in range(_MOST_TRIES):
        with OpenFolder(folder) as opened:
            try:
                return read(opened)
            except (StoreFormatError, FeatureFileError):
                if not opened.is_replaced:
                    raise
    raise StoreFormatError(
        f"{folder} was replaced {_MOST_TRIES} times while it was read. Load it when it is written no more."
    )


_PREFIXES = {"column", "edge", "ids", "seeds", "table", "task"}
"""Words in names of arrays that say what they are part of."""


def broken_folder(folder: OpenFolder, error: Exception, remedy: str = "Prepare it again.") -> StoreFormatError:
    """Returns the error of a folder whose arrays are not what they must be: what ``error`` says, and the files of the
    arrays that it names."""
    text, files = str(error), []
    words = set(re.findall(r"\w+", text))  # who checks arrays knows their names, but no files
    for name, array in folder.arrays.items():
        parts = set(re.findall(r"\w+", name))
        if (parts - _PREFIXES or parts) <= words:
            files.append(f"{array.file_name} ({str(array.dtype).removeprefix('torch.')} {array.shape})")
    read = f" That was read from {', '.join(files)}." if files else ""
    return StoreFormatError(f"{folder.path} is broken: {text}{read} {remedy}")


def _no_manifest(folder: Path) -> StoreFormatError:
    return StoreFormatError(
        f"{folder} is not a graph folder: it has no {MANIFEST}. "
        f"Write one with save_graph_data, or of features alone with save_features, or prepare the data set."
    )
