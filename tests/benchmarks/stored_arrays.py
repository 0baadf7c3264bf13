"""A prepared graph folder as NumPy arrays, for peers whose Python does not have this package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def stored_arrays(folder: str) -> dict[str, np.ndarray]:
    """Every array of the folder, mapped: ``indptr``, ``indices``, ``x``, ``y``, ``train``, ...

    Writable as far as the process can see (copy on write), since torch asks for that; nobody writes.
    """
    path = Path(folder)
    entries = json.loads((path / "manifest.json").read_text())["arrays"]
    return {
        name: np.memmap(path / entry["file"], entry["dtype"], "c", shape=tuple(entry["shape"]))
        for name, entry in entries.items()
    }
