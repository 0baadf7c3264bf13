"""Vocabularies: the values that several columns of categories share, and with them one table of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from lightning_gnnload.ingest.source import Source
from lightning_gnnload.ingest.spec import ColumnSpec


class SharedColumn(NamedTuple):
    """A column of a vocabulary: its table, the rows that train, int64 ``[n]`` or None for all, and its settings."""

    source: Source
    rows: np.ndarray | None
    spec: ColumnSpec


def fit_vocabulary(columns: Sequence[SharedColumn]) -> tuple[str, ...]:
    """Returns the values of all columns together that are in enough of their training rows, the most frequent first."""
    spec = columns[0].spec  # all have the same settings
    with ExitStack() as stack:
        tables: dict[int, str] = {}  # of each source once, though several of its columns may share
        parts = []
        for source, rows, column in columns:
            if id(source) not in tables:
                tables[id(source)] = stack.enter_context(source.only(rows))
            value = f"{source.column(column.column)}::varchar as value"
            parts.append(source.select(value, table=tables[id(source)]))
        first = columns[0].source
        rows_of_values = first.ask(
            "value",
            f"where value is not null group by value having count(*) >= {spec.min_count} "
            f"order by count(*) desc, value limit {spec.max_values}",
            table=f"({' union all '.join(f'({part})' for part in parts)})",
        )
    return tuple(str(row[0]) for row in rows_of_values)
