"""Arrays that take long to compute, kept in a file from one run to the next."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload.errors import StoreFormatError
from lightning_gnnload.storage.folders import staging_folder
from lightning_gnnload.storage.targets import check_creatable

_OF = "made_of"


def kept_arrays(
    path: Path, shapes: Mapping[str, tuple[str, int]], made_of: int, make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Returns the arrays of a file ``.npz``; where there is none, those of ``make``, which it writes there.

    Nothing is unpickled, and no array is read that is larger than it has to be. The file appears when it is complete,
    and only its owner can read it.

    Args:
        path: of the file; its folder is made.
        shapes: the dtype and length of each array, by name.
        made_of: a checksum of 32 bits of what the arrays were made of.
        make: computes the arrays.

    Raises:
        StoreFormatError: the file is none of these, or was made of something else; or nothing can be written there.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "parts.npz"
        >>> shapes = {"cluster": ("<i4", 3)}
        >>> kept_arrays(path, shapes, 7, lambda: {"cluster": np.array([0, 1, 0], np.int32)})["cluster"].tolist()
        [0, 1, 0]
        >>> kept_arrays(path, shapes, 7, dict)["cluster"].tolist()
        [0, 1, 0]
    """
    if path.exists():
        return _read(path, shapes, made_of)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_creatable(path)  # before hours of work
    arrays = {name: np.asarray(array, shapes[name][0]) for name, array in make().items()}
    with staging_folder(path) as staging:
        whole = staging / "arrays.npz"
        with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            columns: dict[str, Any] = {**arrays, _OF: np.array([made_of], "<u4")}
            np.savez(file, **columns)
        whole.replace(path)
    return arrays


def _read(path: Path, shapes: Mapping[str, tuple[str, int]], made_of: int) -> dict[str, np.ndarray]:
    remedy = "Give another folder or name, or move the file away to have it made anew."
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name, (dtype, length) in {_OF: ("<u4", 1), **shapes}.items():
                with archive.open(f"{name}.npy") as file:
                    if np.lib.format.read_magic(file) != (1, 0):
                        raise ValueError("an array of another version")
                    shape, _, written = np.lib.format.read_array_header_1_0(file)
                    if (shape, written) != ((length,), np.dtype(dtype)):
                        raise ValueError(f"{name} is {written} {list(shape)}, where {dtype} [{length}] is needed")
                    arrays[name] = np.frombuffer(file.read(length * written.itemsize), written).copy()
                    if len(arrays[name]) != length:
                        raise ValueError(f"{name} is cut off")
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        raise StoreFormatError(
            f"{path} is no file of {', '.join(shapes)} as this package writes them: {error}. Pickled files, such as "
            f"PyG's own, are not read, as they may run code. {remedy}"
        ) from error
    if int(arrays.pop(_OF)[0]) != made_of:
        raise StoreFormatError(f"{path} was made of another graph, or by other settings. {remedy}")
    return arrays
