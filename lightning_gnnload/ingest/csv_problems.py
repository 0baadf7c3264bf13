"""What is wrong with a file of CSV, in our words."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

_SEPARATORS = ",;\t|"
_MOST_LINES = 1 << 16  # DuckDB guesses by fewer


def csv_problem(message: str) -> str:
    """Returns what is wrong with a line of CSV, of DuckDB's page about it; empty where it is about something else."""
    if sniffed := re.search(r'Error when sniffing file "(.*)"', message):
        return _mixed_ends(sniffed[1]) or (
            f"{sniffed[1]} does not look like CSV: a line of column names is needed first, then lines with as many "
            'fields. Read what is otherwise by SQL: from: "select * from read_csv(...)".'
        )
    line = re.search(r"CSV Error on Line: (\d+)", message)
    if not line:
        return ""
    file = re.search(r"^\s*file = (.*)$", message, re.MULTILINE)
    where = f"line {line[1]} of {file[1] if file else 'the CSV file'}"
    if column := re.search(r'Error when converting column "(.*)"\. (.*)', message):
        type_ = re.search(r"is being converted as type (\S+)", message)
        return (
            f"{where}: column {column[1]!r} was taken for {type_[1] if type_ else 'another type'} by its first rows, "
            f'but {column[2].rstrip(".")}. Correct it, or say the type: from: "select * from '
            f"read_csv('{file[1] if file else '...'}', types={{'{column[1]}': 'VARCHAR'}})\"."
        )
    if counts := re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message):
        return f"{where} has {counts[2]} fields, but there are {counts[1]} columns. Is a field with commas in quotes?"
    after = message[line.end() :].strip().splitlines()
    reason = next((text for text in after if text and not text.startswith("Original Line")), "it is no CSV")
    return f"{where} cannot be read: {reason.rstrip('.')}. Correct it."


def uneven(files: Sequence[str], column: str) -> str:
    """Returns what is wrong with CSV that reads as one column, though its name has separators: a line has fewer fields,
    as the last one of a file that was cut. Empty where nothing is."""
    separator = max(_SEPARATORS, key=column.count)
    for file in files:
        lines = csv.reader(_lines(file), delimiter=separator)
        try:
            num_fields = len(next(lines, []))
            for fields in lines if num_fields > 1 else ():
                if fields and len(fields) != num_fields:
                    line = separator.join(fields)
                    return (
                        f"{file}: line {lines.line_num} has {len(fields)} of {num_fields} fields, {line!r:.80}. Was "
                        "the file cut in mid-row? Complete that line, or take it out."
                    )
        except (OSError, EOFError, ValueError, csv.Error):
            continue  # which DuckDB read, or has told
    return ""


def _mixed_ends(file: str) -> str:
    """Returns which line ends otherwise than the first, as one that was appended to a file of Windows; empty where none
    does."""
    with suppress(OSError, EOFError):
        first = None
        for number, line in enumerate(_lines(file, newline=""), 1):
            end = line[len(line.rstrip("\r\n")) :]
            first = first or end
            if end not in ("", first):
                return (
                    f"{file}: line {number} ends by {end!r}, those before it by {first!r}. Let all lines end alike, as "
                    "by dos2unix."
                )
    return ""


def _lines(file: str, newline: str | None = None) -> Iterator[str]:
    with gzip.open(file, "rt", newline=newline) if file.endswith(".gz") else open(file, newline=newline) as opened:
        yield from islice(opened, _MOST_LINES)
