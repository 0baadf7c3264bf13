"""CsvWriter: writes groups of rows as lines of a CSV file, compressed or not."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np


class CsvWriter:
    """Writes a line of names, and a line a row: dates as ISO 8601 has them, with their offset where there is a zone.

    Several numbers a row become columns ``NAME_0``, ``NAME_1`` and so on.

    Args:
        file: to write to, which is closed at the end.
        compressed: by gzip, alike in each run.
        zone: of dates, which are passed in UTC; None: they have none.
    """

    def __init__(self, file: IO[bytes], *, compressed: bool, zone: str | None) -> None:
        self._file, self._zone = file, zone
        # Without name and time of the file, so that equal rows are equal bytes.
        self._bytes: Any = gzip.GzipFile("", "wb", 6, file, mtime=0) if compressed else file
        self._text = io.TextIOWrapper(self._bytes, encoding="utf-8", errors="surrogateescape", newline="")
        self._lines = csv.writer(self._text)
        self._has_names = False

    def write(self, columns: Mapping[str, np.ndarray]) -> None:
        """Writes a group of rows, whose columns are those of the groups before."""
        flat: dict[str, np.ndarray] = {}
        for name, rows in columns.items():
            if rows.ndim == 1:
                flat[name] = rows
            else:
                parts = rows.reshape(len(rows), math.prod(rows.shape[1:])).T
                flat |= {f"{name}_{number}": part for number, part in enumerate(parts)}
        if not self._has_names:
            self._lines.writerow(flat)
            self._has_names = True
        self._lines.writerows(zip(*map(self._texts, flat.values()), strict=True))

    def close(self) -> None:
        """Writes what is buffered; may be called again."""
        try:
            self._text.close()  # and with it what it writes to, but for the file below gzip
        finally:
            self._file.close()

    def _texts(self, rows: np.ndarray) -> list[Any]:
        if rows.dtype.kind == "M":
            return [text.replace("NaT", "") for text in self._dates(rows)]
        # NumPy's text of a float is the shortest that reads back as the same.
        return list(rows) if rows.dtype == object else rows.astype(str).tolist()

    def _dates(self, rows: np.ndarray) -> list[str]:
        is_day = np.datetime_data(rows.dtype)[0] == "D"
        if self._zone is None or is_day:
            return np.datetime_as_string(rows).tolist()
        from datetime import timezone
        from zoneinfo import ZoneInfo

        zone = ZoneInfo(self._zone)
        dates = rows.astype("datetime64[us]").tolist()
        return ["NaT" if d is None else d.replace(tzinfo=timezone.utc).astimezone(zone).isoformat() for d in dates]


def csv_suffix(path: Path) -> str | None:
    """Returns ``".csv"`` or ``".csv.gz"`` where a path ends so."""
    return next((suffix for suffix in (".csv.gz", ".csv") if path.name.endswith(suffix)), None)
