"""A file that is written in pieces is the one that is written in turn, and has the same checksums."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload.storage import folders, pieces
from lightning_gnnload.storage.folders import ArrayWriter
from lightning_gnnload.storage.pieces import PieceWriter, joined_entry, reserve


@pytest.mark.parametrize("stretch_bytes", [1, 7, 24, 64, 1000])
@pytest.mark.parametrize("num_rows", [0, 1, 8, 31])
def test_pieces_join_to_what_one_writer_writes(
    stretch_bytes: int, num_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (folders, pieces):
        monkeypatch.setattr(module, "STRETCH_BYTES", stretch_bytes)
    rng = np.random.default_rng(num_rows)
    rows = rng.integers(0, 2**31, (num_rows, 3)).astype(np.int32)
    for name in ("whole", "pieces"):
        (tmp_path / name).mkdir()
    with ArrayWriter(tmp_path / "whole", "x", np.int32, (3,)) as writer:
        writer.append(rows)
        wanted = writer.entry()
    reserve(tmp_path / "pieces", "x", rows.nbytes)
    bounds = [0, *np.sort(rng.integers(0, num_rows + 1, 4)).tolist(), num_rows]
    written = []
    for begin, end in reversed(list(pairwise(bounds))):  # whoever is first
        with PieceWriter(tmp_path / "pieces", "x", np.int32, (3,), first=begin) as piece:
            middle = (begin + end) // 2
            piece.append(rows[begin:middle])
            piece.append(rows[middle:end])
            written.append(piece.finish())
    entry = joined_entry(
        tmp_path / "pieces", "x", np.int32, rows.shape, [one for of in reversed(written) for one in of]
    )
    assert entry == wanted
    assert (tmp_path / "pieces" / "x.bin").read_bytes() == rows.tobytes()
