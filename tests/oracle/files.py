"""Oracle of the ops that read rows of files."""

from __future__ import annotations

import numpy as np


def read_rows(content: bytes, offset: int, row_bytes: int, ids: np.ndarray) -> np.ndarray:
    """Rows uint8 ``[B, row_bytes]`` of a file that holds ``content``."""
    rows = [content[offset + i * row_bytes : offset + (i + 1) * row_bytes] for i in map(int, ids)]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), row_bytes)


def planned_reads(offset: int, row_bytes: int, unit: int, most_bytes: int, ids: np.ndarray) -> list[tuple[int, int]]:
    """``(begin, end)`` of the reads for these rows, in bytes of the file.

    Row by row in the order of the file: whole units, joined to the read before where they touch or overlap and
    the two together have no more than ``most_bytes``.
    """
    reads: list[tuple[int, int]] = []
    for i in sorted(map(int, ids)):
        begin = (offset + i * row_bytes) // unit * unit
        end = -(-(offset + (i + 1) * row_bytes) // unit) * unit
        if reads and begin <= reads[-1][1] and end - reads[-1][0] <= most_bytes:
            reads[-1] = (reads[-1][0], end)
        else:
            reads.append((begin, end))
    return reads
