"""SQL of descriptions: a connection that reads some files and changes none, and queries that are one SELECT."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_gnnload.errors import GraphSpecError, MissingExtraError, TableError
from lightning_gnnload.ingest.spec import BuildSpec

if TYPE_CHECKING:
    import duckdb

EVERYWHERE = (Path("/"),)
FETCH_FIRST = "download it first: nothing is fetched while a graph is built."
_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
# Functions that give tables: those that read files, whose paths come first, and _TABLES. DuckDB has more, which follow
# addresses in memory, change settings, or run what is hidden in a text.
_READERS = {"read_csv", "read_csv_auto", "read_parquet", "parquet_scan", "read_text", "read_blob", "glob"}
_READERS |= {
    f"read_{form}{auto}" for form in ("json", "ndjson", "json_objects", "ndjson_objects") for auto in ("", "_auto")
}
_TABLES = {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
_REFUSED = {"getenv", "write_log", "nextval"}
# What may stand before the first word: spaces and comments.
_BLANK = r"(?:\s|--[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*"


def open_database(
    build: BuildSpec,
    scratch: Path,
    home: Path,
    *,
    files: Sequence[str] = (),
    reads: Sequence[Path] = EVERYWHERE,
    share: float = 1.0,
) -> duckdb.DuckDBPyConnection:
    """Opens a database in memory that reads ``files`` and what lies below ``home`` and ``reads``, loads no extension,
    and keeps these settings. Beyond ``share`` of the build's memory it goes to ``scratch``. Raises GraphSpecError where
    it cannot start with so many threads."""
    try:
        import duckdb
        import pyarrow as _  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "duckdb", "tables", "Building a graph from tables", error) from error
    # DuckDB compares paths as they are spelled: a folder that is a link has two spellings.
    folders = {str(path) for folder in (home, *reads) for path in (folder.absolute(), folder.resolve())}
    paths = {path for file in files for path in (whole_path(file), os.path.realpath(file)) if "\0" not in file}
    try:
        con = duckdb.connect(
            config={
                "memory_limit": f"{int(build.memory_bytes * share)}B",
                "threads": build.num_threads,
                "temp_directory": str(scratch),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,  # names in SQL are no variables of this program
            }
        )
        # External access goes off last but one: until then the folders that stay allowed can still be named.
        con.execute(
            f"set timezone = 'UTC'; set allowed_directories = {listed(folders)}; set allowed_paths = {listed(paths)}; "
            "set enable_external_access = false; set lock_configuration = true"
        )
    except (duckdb.Error, RuntimeError) as error:
        raise GraphSpecError(
            f"build: DuckDB cannot start with {build.num_threads} threads and {build.memory}: {one_line(error)}. "
            "Say fewer threads, or another memory."
        ) from error
    return con


def quoted(name: str) -> str:
    """Returns the SQL of a column's name."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Returns the SQL of a text."""
    return "'" + text.replace("'", "''") + "'"


def listed(texts: Any) -> str:
    """Returns the SQL of a list of texts."""
    return f"[{', '.join(map(literal, texts))}]"


def one_line(error: BaseException) -> str:
    """Returns the first line of what an error says."""
    return (str(error).strip().splitlines() or [repr(error)])[0].rstrip(".")


def is_query(table: Any) -> bool:
    """Returns whether a table is what an SQL query gives."""
    return (
        isinstance(table, str)
        and re.match(rf"{_BLANK}(select|with|from)\b(?!(\.\w+)+$)", table, re.IGNORECASE) is not None
    )


def matching_files(path: str, home: Path) -> list[str]:
    """Returns the files that a path or a glob names, ascending; a path names one, whether it is there or not."""
    full = os.path.join(home, os.path.expanduser(path))
    return sorted(glob.glob(full, recursive=True)) if glob.has_magic(full) and not os.path.lexists(full) else [full]


def whole_path(file: str) -> str:
    """Returns a file's whole path, without any .. and links on the way."""
    folder, name = os.path.split(file)
    return os.path.join(os.path.realpath(folder), name)


def checked_query(con: duckdb.DuckDBPyConnection, text: str, home: Path, where: str) -> str:
    """Returns a query whose paths count from ``home``, if all that it does is to read; raises TableError where it is no
    single SELECT, uses a function that does more, or takes a path from elsewhere than a text. It is what DuckDB's own
    parser makes of it that is looked at, not the text."""
    import duckdb

    try:
        [(tree,)] = con.execute("select json_serialize_sql(?)", [text]).fetchall()
        parsed = json.loads(tree)
    except (duckdb.Error, ValueError, RecursionError) as error:
        raise TableError(f"{where}: from: the SQL cannot be read: {one_line(error)}.") from error
    # What is no SELECT is an error of another type here, which is refused below.
    if parsed["error"] and parsed.get("error_type") == "parser":
        raise TableError(f"{where}: from: the SQL cannot be read. DuckDB says: {parsed['error_message']}.")
    parts = list(_parts(parsed)) if not parsed["error"] else []
    statements = {part["type"] for part in parts if str(part.get("type")).endswith("_NODE")}
    if parsed["error"] or len(parsed["statements"]) != 1 or not statements <= _NODES:
        raise TableError(
            f"{where}: from: the SQL does more than one SELECT: {text!r:.100}. A description may read tables, and "
            "change nothing: write one statement that begins with select, with or from. A pivot is one if it names its "
            "values: pivot ... on COLUMN in (...)."
        )
    paths = list(_paths(parts, where))
    _check_paths(con, [path for _, path in paths], home, where)
    return _with_whole_paths(text, paths, home, where)


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yields all mappings of a tree."""
    waiting = [tree]  # no recursion: a query may nest deeper than Python's stack
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _paths(parts: Sequence[dict[str, Any]], where: str) -> Iterator[tuple[int, str]]:
    """Yields each path of a query with its position, in bytes; raises TableError for functions that are refused."""
    named = {entry["key"] for part in parts for entry in part.get("map", ()) if "key" in entry}
    if like_path := next((name for name in sorted(named) if re.search(r"[./]", name)), None):
        raise TableError(
            f"{where}: from: the SQL has with {like_path!r:.100}, which may be a file as well. Name it without . and /."
        )
    for part in parts:
        if (table := _table_name(part)) and re.search(r"[./]", table):
            yield part["query_location"], table
        name = str(part.get("function_name", "")).lower()
        if name in _REFUSED:
            raise TableError(f"{where}: from: the SQL calls {name}(), which a description may not.")
        if part.get("type") == "TABLE_FUNCTION":
            yield from _function_paths(part["function"], where)


def _table_name(part: dict[str, Any]) -> str:
    """Returns the whole name of a table, empty of other parts: DuckDB takes n.parquet, without quotes, for a table of a
    schema first, and then for a file."""
    names = [part.get(key) or "" for key in ("catalog_name", "schema_name", "table_name")]
    return ".".join(filter(None, names)) if part.get("type") == "BASE_TABLE" else ""


def _function_paths(function: dict[str, Any], where: str) -> Iterator[tuple[int, str]]:
    name = str(function["function_name"]).lower()
    if name in _READERS:
        yield from _first_argument(function, where)
    elif name not in _TABLES:
        raise TableError(
            f"{where}: from: the SQL takes a table from {name}(), which a description may not. It may from: "
            f"{', '.join(sorted(_READERS | _TABLES))}."
        )


def _first_argument(function: dict[str, Any], where: str) -> Iterator[tuple[int, str]]:
    arguments = _arguments(function)
    items = arguments[:1]
    if items and items[0].get("function_name") == "list_value":
        items = _arguments(items[0])
    for item in items:
        value = item.get("literal", {}).get("text") if "literal" in item else item.get("value", {}).get("value")
        if item.get("type") != "VALUE_CONSTANT" or not isinstance(value, str):
            raise TableError(
                f"{where}: from: the path of {function['function_name']}() has to be a text in quotes, or a list of "
                "such, so that one can see what is read."
            )
        yield item["query_location"], value


def _arguments(function: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the arguments of a function, as DuckDB 2 has them, or 1."""
    return [argument["expression"] for argument in function.get("arguments", ())] or list(function.get("children", ()))


def _check_paths(con: duckdb.DuckDBPyConnection, paths: Sequence[str], home: Path, where: str) -> None:
    """Raises TableError: a path leads out of the folders that may be read, as by a link. DuckDB looks, too, but 1.4 not
    at links."""
    [(folders,)] = con.execute("select current_setting('allowed_directories')").fetchall()
    for path in paths:
        if "://" in path or path.startswith("file:"):
            raise TableError(f"{where}: from: {path!r:.100} is not on this machine; {FETCH_FIRST}")
        for file in matching_files(path, home):
            real = os.path.realpath(file)
            if not any(Path(real).is_relative_to(folder) for folder in folders):
                raise TableError(
                    f"{where}: from: the SQL reads {path!r:.200}, which is {real}, but it may read what lies in the "
                    f"folder of the description, {home.absolute()}, and below it alone. Put the file there, name it by "
                    "from: PATH instead of SQL, or allow its folder: gnnload build --read FOLDER."
                )


def _with_whole_paths(text: str, paths: Sequence[tuple[int, str]], home: Path, where: str) -> str:
    """Replaces paths that count from ``home`` by whole ones: DuckDB's own search begins elsewhere."""
    raw = text.encode()
    # From the end, so that earlier positions stay right.
    for at, path in sorted(paths, reverse=True):
        quote = raw[at : at + 1]
        spelled = quote + path.encode().replace(quote, quote * 2) + quote
        if re.fullmatch(r"\w+(\.\w+)+", path) and raw.startswith(path.encode(), at):  # n.parquet, without quotes
            quote, spelled = b"'", path.encode()
        if quote not in (b"'", b'"') or raw[at : at + len(spelled)] != spelled:
            raise TableError(f"{where}: from: write the path {path!r:.100} in the SQL as a text in single quotes.")
        whole = os.path.join(home.absolute(), os.path.expanduser(path)).encode().replace(quote, quote * 2)
        raw = raw[:at] + quote + whole + quote + raw[at + len(spelled) :]
    return raw.decode()
