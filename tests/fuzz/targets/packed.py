"""Folders of packed mini-batches: damaged in their files and manifests, then read."""

from __future__ import annotations

import functools
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import torch

from lightning_gnnload import MemoryFeatureStore
from lightning_gnnload.cache.packed.folder import Decided, PackingFolder
from lightning_gnnload.cache.packed.pack import PackedTable, Packer
from lightning_gnnload.cache.packed.store import rows_from
from lightning_gnnload.cache.packed.stretch import StretchReader
from lightning_gnnload.cache.packed.window import Timeline, open_window, window_path
from lightning_gnnload.data.plan import BatchRequest
from tests.fuzz.damage import damage_file
from tests.fuzz.targets.stored_graphs import edit

_ROWS = torch.arange(60 * 25.0).view(60, 25)
_HOT = np.arange(0, 60, 5)
_KEY = {"seed": 1}
_TIMELINE = Timeline(num_steps=3, ranks=(0,), num_ranks=1, window=3, first=2, end=5)


def read(random: Random, folder: Path) -> None:
    """What is read is what was packed, whatever the files say."""
    packed = PackingFolder(str(_damaged(random, folder)))
    decided = packed.read(_KEY, [len(_ROWS)])
    assert decided is None or decided.hot[0].tolist() == _HOT.tolist()
    for number in range(2):
        steps = _TIMELINE.span(number)
        window = open_window(window_path(packed.windows, number), "key", steps, [100], 1)
        if window is None:
            continue
        with closing(window.file), closing(StretchReader(random.choice([1, 1 << 16]), 1)) as reader:
            for batch, request in enumerate(_TIMELINE.requests(steps)):
                ids = np.setdiff1d(_rows_of(request)["x"], _HOT)
                out = np.zeros((len(ids), 100), np.uint8)
                reads = rows_from(reader.take(window, batch), 0, None, ids, np.arange(len(ids)), out)
                assert reads is None or np.array_equal(out.view(np.float32), _ROWS[ids])


def _rows_of(request: BatchRequest) -> dict[str, np.ndarray]:
    return {"x": np.arange(request.step, len(_ROWS), 2)}


def _damaged(random: Random, folder: Path) -> Path:
    """A folder of packed mini-batches with up to three things wrong."""
    place, outside = folder / "packed", folder / "outside.bin"
    for name, content in _sound_files().items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    outside.write_bytes(_sound_files()["hot-0.bin"])
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        files = sorted(path for path in place.rglob("*") if not path.is_dir())
        file = random.choice(files or [outside])
        if file.suffix == ".json" and file.is_file() and random.random() < 0.5:
            edit(random, file)
        else:
            damage_file(random, file, outside)
    return place


@functools.cache
def _sound_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as parent:
        packed = PackingFolder(f"{parent}/packed")
        packed.write(_KEY, Decided(_TIMELINE.window, _TIMELINE.first, _TIMELINE.num_steps, 0.2, (_HOT,)))
        location = np.full(len(_ROWS), -1, np.int32)
        location[_HOT] = np.arange(len(_HOT))
        table = PackedTable("x", MemoryFeatureStore(_ROWS), location)
        packer = Packer(
            packed.windows, "key", (table,), _rows_of, _TIMELINE, chunk_bytes=4096, staging_bytes=1 << 16, stays=True
        )
        for number in range(2):
            packer.pack(number)
        return {
            str(file.relative_to(packed.path)): file.read_bytes() for file in packed.path.rglob("*.*") if file.is_file()
        }
