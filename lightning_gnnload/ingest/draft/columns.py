"""What a column of a draft becomes: an entry of ``x``, or a comment that says why it is none; times; labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from lightning_gnnload.ingest.draft.look import ColumnProfile, TableProfile, listed_shares, words_of
from lightning_gnnload.ingest.source import is_list, is_text
from lightning_gnnload.ingest.sql import quoted

_FEW_ROWS = 1000  # below, categories of a few rows count
_FEW_VALUES = 20  # whole numbers of so many different values are rather codes
_MOST_CATEGORIES = 1000
_MOST_CLASSES = 100
_VECTOR = re.compile(r"(FLOAT|DOUBLE|DECIMAL\([\d,]*\)|U?(TINY|SMALL|BIG)?INT(EGER)?)\[\d*\]")
_LEAST_PRESENT = 20  # rows with a value, of which some train
LABEL_WORDS = {"label", "target", "y", "class", "churn", "churned", "topic", "field", "category", "fraud", "outcome"}
LABEL_WORDS |= {"converted", "left", "spam", "default"}
_SINCE = {"created", "create", "registered", "register", "joined", "join", "signup", "since", "published", "publish"}
_SINCE |= {"date", "time", "timestamp", "at", "added", "opened", "founded"}


@dataclass
class Entry:
    """A line of ``x``, and what is said beside it; without ``settings`` the column is left out."""

    settings: Any
    comment: str


def entry_of(column: ColumnProfile, table: TableProfile) -> Entry:
    """Says what a column becomes."""
    name, missing = column.name, table.num_seen - column.num_present
    lack = f", {missing:,} missing" if missing else ""
    values = f"{column.num_values:,} values"
    if not column.num_present:
        return Entry(None, "no values")
    if column.num_values == 1 and not missing:
        return Entry(None, f"always {column.common[0][0] if column.common else 'the same'}")
    if column.num_present < min(_LEAST_PRESENT, 0.2 * table.num_seen):
        return Entry(None, f"a value in {column.num_present:,} of {table.num_seen:,} rows alone")
    if column.is_time:
        settings = {"column": name, "as": "time"} | time_settings(column, key=None)
        return Entry(settings, f"{span(column)}{lack}")
    if is_list(column.type):
        return _of_list(column)
    if column.is_number:
        if column.num_unfit:
            return Entry(None, f"{column.num_unfit:,} values are not finite, or beyond float32: make these null in SQL")
        return Entry(name, f"number, {column.low:.6g} to {column.high:.6g}{lack}")
    if column.is_whole:
        if column.num_values <= _FEW_VALUES:
            shares = listed_shares(column.common)
            return Entry(_category(column, table), f"{values}: {shares}{lack}; a quantity would be as: number")
        if set(words_of(name)) & {"id", "uid", "key", "code", "zip", "no"}:
            return Entry(None, f"whole numbers, {values}: an id or a code by its name; as: category, if it is one")
        return Entry({"column": name, "as": "number"}, f"whole numbers, {column.low:,} to {column.high:,}{lack}")
    if column.type == "BOOLEAN" or (is_text(column.type) and column.type != "UUID"):
        return _of_text(column, table, f"{values}{lack}")
    return Entry(None, f"{column.type}, which is no feature by itself")


def _of_list(column: ColumnProfile) -> Entry:
    low, high = column.widths
    if (
        low == high
        and low
        and re.fullmatch(r"(FLOAT|DOUBLE|DECIMAL\([\d,]*\)|U?(TINY|SMALL|BIG)?INT(EGER)?)\[\d*\]", column.type)
    ):
        return Entry(column.name, f"vector of {low:,} numbers")
    return Entry(None, f"lists ({column.type}) of {low:,} to {high:,} entries; vectors are numbers, and all as long")


def _of_text(column: ColumnProfile, table: TableProfile, values: str) -> Entry:
    is_free = column.num_values > _MOST_CATEGORIES or (
        column.num_values > 0.5 * column.num_present and column.num_present > 2 * _LEAST_PRESENT
    )
    if not is_free:
        return Entry(_category(column, table), f"{values}: {listed_shares(column.common)}")
    length = f"{column.mean_length:.0f} characters in the mean"
    return Entry(None, f"text, {values}, {length}; as: text_length, or as: category with min_count")


def _category(column: ColumnProfile, table: TableProfile) -> dict[str, Any]:
    return {"column": column.name, "as": "category"} | ({"min_count": 1} if table.num_seen < _FEW_ROWS else {})


# Times.


def time_settings(column: ColumnProfile, key: str | None = "time") -> dict[str, Any]:
    """Returns how a column of times is read, as graph.yaml says it."""
    settings: dict[str, Any] = {} if key is None else {key: column.name}
    if column.time_unit is not None:
        return settings | {"time_unit": column.time_unit}
    return settings if column.has_zone else settings | {"timezone": "UTC"}


def row_times(table: TableProfile, *, since: bool = False) -> ColumnProfile | None:
    """Returns the column that says when a row was; ``since``: when a node began, by its name."""
    times = [column for column in table.columns.values() if column.is_time]
    times.sort(key=lambda column: not set(words_of(column.name)) & _SINCE)
    if since:
        times = [column for column in times if set(words_of(column.name)) & _SINCE]
    return times[0] if times else None


def span(column: ColumnProfile) -> str:
    """Returns from when to when times are, for comments."""
    if column.time_unit is None:
        return f"times, {str(column.low)[:19]} to {str(column.high)[:19]}" if column.low is not None else "times"
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.time_unit]
    low, high = (datetime.fromtimestamp(value / factor, timezone.utc) for value in (column.low, column.high))
    return f"times in {column.time_unit}, {low:%Y-%m-%d} to {high:%Y-%m-%d}"


def time_split(table: TableProfile, column: ColumnProfile) -> dict[str, str] | None:
    """Returns the dates from which the last fifth and the last tenth of the rows are; None where times hardly
    differ."""
    reading = table.source.time(column.name, column.time_unit, time_settings(column).get("timezone"))
    low, val, test, high = table.source.ask(
        f"min({reading.sql}), quantile_disc({reading.sql}, 0.8), quantile_disc({reading.sql}, 0.9), max({reading.sql})"
    )[0]
    if None in (low, val, test, high):
        return None
    for step_us, form in ((86_400_000_000, "%Y-%m-%d"), (1_000_000, "%Y-%m-%d %H:%M:%S")):
        begins = [value // step_us * step_us for value in (val, test)]
        if low < begins[0] < begins[1] <= high:
            epoch = datetime(1970, 1, 1)
            first, second = ((epoch + timedelta(microseconds=value)).strftime(form) for value in begins)
            return {"val": first, "test": second}
    return None


# Labels.


@dataclass
class Label:
    """A column that may be what is to be predicted."""

    column: ColumnProfile
    score: int
    label_type: str | None  # which has to be said
    comment: str


def label_candidates(table: TableProfile, used: set[str], *, is_of_labels: bool) -> list[Label]:
    """Lists the columns that look like labels, the likeliest first."""
    labels = []
    for column in table.columns.values():
        if column.name in used or column.is_time or is_list(column.type) or not column.num_present or column.num_unfit:
            continue
        missing = table.num_seen - column.num_present
        is_class = 2 <= column.num_values <= _MOST_CLASSES and column.type != "UUID"
        score = 3 if set(words_of(column.name)) & LABEL_WORDS or column.name.lower().startswith(("is_", "has_")) else 0
        if is_class:
            score += 1 + bool(0 < missing < 0.9 * table.num_seen)
        if is_of_labels:
            score += 3
        if not (is_class or ((column.is_number or column.is_whole) and score >= 3 and column.num_values > 1)):
            continue
        label_type = None
        if column.is_number or (column.is_whole and not is_class):
            sql = quoted(column.name)
            whole = is_class and not table.ask("count(*)", f"where {sql} != floor({sql})")[0][0]
            label_type = "class" if whole else "number"
        figures = (
            listed_shares(column.common)
            if is_class and label_type != "number"
            else f"{column.low:.6g} to {column.high:.6g}"
        )
        comment = f"{figures}{f'; {missing:,} rows without' if missing else ''}"
        labels.append(Label(column, score, label_type, comment))
    return sorted(labels, key=lambda label: -label.score)


def as_entry(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings without those that are None."""
    return {key: value for key, value in settings.items() if value is not None}
