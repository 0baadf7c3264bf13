"""The text of a draft: graph.yaml, with what was counted as comments, and other readings of the tables beside it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lightning_gnnload.ingest.draft.columns import (
    as_entry,
    entry_of,
    label_candidates,
    row_times,
    span,
    time_settings,
    time_split,
)
from lightning_gnnload.ingest.draft.look import ColumnProfile, TableProfile, words_of
from lightning_gnnload.ingest.draft.roles import ForeignKey, TableRole, roles_of
from lightning_gnnload.ingest.sql import listed, literal, quoted

_LIKELY = 3  # the score of a label that becomes a task by itself
_FEW = 100  # rows, of which none are set apart
_ID_WORDS = {"id", "uid", "uuid", "key", "code"}


class Draft:
    """Writes graph.yaml of tables that were looked at.

    Args:
        tables: as :func:`.look_at` found them.
        notes: sentences about what was left out before.
    """

    def __init__(self, tables: Sequence[TableProfile], notes: Iterable[str] = ()) -> None:
        self.notes = list(notes)
        self._empty = [table for table in tables if not table.num_rows]
        self._roles = roles_of(tables)
        self._id_types = self._with_id_types()
        self._nodes: dict[str, list[str]] = {}
        self._edges: dict[str, list[str]] = {}
        self._edge_tables: dict[str, TableProfile] = {}
        self._tasks: list[list[str]] = []
        self._others: list[str] = []  # tasks that might be
        self._made: dict[str, list[str]] = defaultdict(list)  # node types that are no tables, and the SQL of their ids
        self._made_whole: dict[str, bool] = {}
        for role in self._roles:
            self._add(role)
        self._add_made()
        if not self._tasks and self._edges:
            self._add_links()

    @property
    def has_edges(self) -> bool:
        """Whether it describes a graph that can be built."""
        return bool(self._edges)

    @property
    def has_task(self) -> bool:
        return bool(self._tasks)

    def text(self, header: Sequence[str]) -> str:
        """Returns the file's text, below comments."""
        lines = [f"# {line}".rstrip() for line in (*header, *self.notes)]
        lines += [f"# {_name(table)} has no rows, and is left out." for table in self._empty]
        lines += ["", "version: 1", "", "nodes:"]
        for section in self._nodes.values():
            lines += section
        lines += ["", "edges:" if self._edges else "edges: {}"]
        for section in self._edges.values():
            lines += section
        if not self._edges:
            lines += [
                "  # No column of these tables holds ids of another, so that there are no edges. One is written so:",
                "  # NAME: {from: FILE, src: TYPE.COLUMN, dst: TYPE.COLUMN, reverse: true}",
            ]
        lines += ["", "tasks:" if self._tasks else "# tasks:"]
        for section in self._tasks:
            lines += section
        lines += [f"  # {line}" for line in self._others]
        return "\n".join(lines) + "\n"

    # Tables.

    def _add(self, role: TableRole) -> None:
        match role.role:
            case "nodes":
                self._add_nodes(role)
            case "edges":
                self._add_edges(role)
            case "events":
                self._add_events(role)
            case "labels":
                self._add_labels(role)
            case _:
                self.notes.append(
                    f"{_name(role.table)} is left out: no column has another value in each row, as ids, and none holds "
                    "ids of another table."
                )

    def _add_nodes(self, role: TableRole) -> None:
        table = role.table
        from_, id_ = table.path, role.id
        summary = f"{table.num_rows:,} rows{_sampled(table)}."
        if role.id_sql is not None:
            id_ = _free("id", table)
            from_ = f"select *, {role.id_sql} as {id_} from {_sql_name(table)}"
            summary += " No single column has another value in each row: the id is made of several."
        ids = None if role.id is None else table.columns[role.id]
        comment = f"{'whole numbers' if ids and ids.is_whole else 'text'}, no value twice, none missing"
        settings: dict[str, Any] = {"from": from_, "id": id_, "id_type": self._id_types.get(table.name)}
        comments = {"id": comment}
        if role.has_duplicates:
            settings["on_duplicate"] = "first"
            comments |= {"id": "some ids come twice", "on_duplicate": "the later rows are left out"}
        if role.id_others:
            comments["id"] += f"; so has {', '.join(role.id_others)}"
        used = {str(role.id), *(key.column for key in role.keys)}
        since = row_times(table, since=True)
        if since is not None:
            used.add(since.name)
            settings |= time_settings(since)
            comments["time"] = f"{span(since)}: since when a node is there"
            comments["timezone"] = "a guess: the times have none"
        label = self._add_task(role, used)
        self._nodes[table.name] = [
            f"  # {_name(table)}: {summary}",
            *_mapping(table.name, as_entry(settings), comments),
            *self._x(table, used, label),
        ]
        self._tell_possible(self._nodes[table.name], role)
        for key in role.keys:
            name = self._edge_name(f"{table.name}_{'_'.join(w for w in words_of(key.column) if w not in _ID_WORDS)}")
            edge = {"from": from_, "src": f"{table.name}.{id_}", "dst": f"{key.table.name}.{key.column}"}
            self._edges[name] = self._edge_lines(name, table, edge, [key], None)

    def _add_events(self, role: TableRole) -> None:
        """Rows with one key become nodes, which are numbered."""
        table, key = role.table, role.keys[0]
        id_ = _free("row", table)
        from_ = f"select row_number() over () as {id_}, * from {_sql_name(table)}"
        when = row_times(table)
        used = {key.column} | ({when.name} if when else set())
        settings = {"from": from_, "id": id_} | (time_settings(when) if when else {})
        comments = {"id": "rows have no id of their own: their number"}
        if when:
            comments |= {"time": span(when), "timezone": "a guess: the times have none"}
        label = self._add_task(role, used)
        self._nodes[table.name] = [
            f"  # {_name(table)}: {table.num_rows:,} rows{_sampled(table)}, which have one key: events.",
            *_mapping(table.name, settings, comments),
            *self._x(table, used, label),
        ]
        name = self._edge_name(f"{table.name}_of")
        edge = {"from": from_, "src": f"{table.name}.{id_}", "dst": f"{key.table.name}.{key.column}"}
        self._edges[name] = self._edge_lines(name, table, edge, [key], when)

    def _add_labels(self, role: TableRole) -> None:
        table, key = role.table, role.keys[0]
        when = row_times(table)
        label = self._add_task(role, {key.column} | ({when.name} if when else set()))
        if label is None:
            self._add_events(role)
            return
        rest = [name for name in table.columns if name not in {key.column, label} and (not when or name != when.name)]
        if rest:
            self.notes.append(
                f"{_name(table)} has labels, and more columns, which are left out: {', '.join(rest)[:200]}. Join them "
                "to the nodes in SQL to make them features."
            )

    def _add_edges(self, role: TableRole) -> None:
        table, keys = role.table, role.keys
        end_columns = [(key.table.name, key.column) for key in keys[:2]]
        for column in role.orphans[: 2 - len(end_columns)]:
            end_columns.append((self._made_type(role, column), column))
        name = self._edge_name(table.name)
        edge = {"from": table.path, "src": ".".join(end_columns[0]), "dst": ".".join(end_columns[1])}
        when = row_times(table)
        used = {column for _, column in end_columns} | {key.column for key in keys} | ({when.name} if when else set())
        used |= {role.id} if role.id else set()
        lines = self._edge_lines(name, table, edge, keys[:2], when)
        lines += self._x(table, used, None)
        if role.id:
            lines.append(f"    # {role.id}: an id of the rows; where these are to be nodes, move the table there.")
        for key in keys[2:]:
            lines.append(
                f"    # {key.column} holds ids of {key.table.name}, too ({key.share:.1%}): other edges of this table "
                f"may lead there, dst: {key.table.name}.{key.column}"
            )
        self._tell_possible(lines, role)
        self._edges[name] = lines
        self._candidates(table, used, f"edge: {name}")

    def _edge_lines(
        self,
        name: str,
        table: TableProfile,
        edge: dict[str, Any],
        keys: Sequence[ForeignKey],
        when: ColumnProfile | None,
    ) -> list[str]:
        comments = {}
        self._edge_tables[name] = table
        for end_key in ("src", "dst"):
            key = next((key for key in keys if edge[end_key].partition(".")[2] == key.column), None)
            if key is not None:
                comments[end_key] = f"{key.share:.1%} of the values are ids of {key.table.name}"
                if key.further_tables:
                    comments[end_key] += f"; they may be of {', '.join(key.further_tables)} as well"
        settings = dict(edge)
        if when is not None:
            settings |= time_settings(when)
            comments |= {"time": span(when), "timezone": "a guess: the times have none"}
        settings["reverse"] = True
        comments["reverse"] = "edges lead back, too"
        missing = sum(max(key.num_missing, 0) for key in keys)
        if missing or any(key.share < 1 or key.num_missing < 0 for key in keys):
            settings["on_missing"] = "drop"
            comments["on_missing"] = f"{missing:,} ends are missing, or no id" if missing else "not all rows were read"
        return [f"  # {_name(table)}: {table.num_rows:,} rows{_sampled(table)}.", *_mapping(name, settings, comments)]

    def _tell_possible(self, lines: list[str], role: TableRole) -> None:
        for key in role.possible:
            lines.append(
                f"    # {key.column}: {key.share:.0%} of its values are ids of {key.table.name}, but its name does not "
                f"say so. If it is a key: src or dst: {key.table.name}.{key.column}"
            )

    def _made_type(self, role: TableRole, column: str) -> str:
        """Returns the name of the node type that a column's values are ids of, where no table has them."""
        table, pair = role.table, role.orphans
        words = [word for word in words_of(column) if word not in _ID_WORDS and not word.isdigit()]
        name = _type_name("_".join(words) or "node")
        if len(pair) == 2 and not set(words_of(pair[0])) & _ID_WORDS and _overlap(table, *pair):
            name = "node"
        elif len(pair) == 2 and words_of(column)[:1][0] in ("src", "dst", "source", "target", "from", "to"):
            name = "node" if _overlap(table, *pair) else name
        while name in {role.table.name for role in self._roles if role.role in ("nodes", "events")}:
            name += "_of_ids"
        sql = quoted(column)
        self._made[name].append(f"select {sql} as id from {_sql_name(table)} where {sql} is not null")
        self._made_whole[name] = table.columns[column].is_whole and self._made_whole.get(name, True)
        return name

    def _add_made(self) -> None:
        for name, selects in self._made.items():
            from_ = f"select distinct id from ({' union all '.join(selects)}) order by id"
            settings = {"from": from_, "id": "id", "id_type": "integer" if self._made_whole[name] else "text"}
            self._nodes[name] = [
                f"  # {name}: no table has these nodes; they are what columns of the edges name.",
                *_mapping(name, settings, {}),
                *(["    x: []  # nothing is known of them but their edges"]),
            ]

    def _x(self, table: TableProfile, used: set[str], label: str | None) -> list[str]:
        entries = [
            (column.name, entry_of(column, table)) for column in table.columns.values() if column.name not in used
        ]
        entries_of_x = [(name, entry) for name, entry in entries if entry.settings is not None and name != label]
        lines = ["    x:"] if entries_of_x else []
        lines += _aligned([(f"      - {_flow(entry.settings)}", entry.comment) for _, entry in entries_of_x])
        if label is not None:
            lines.append(f"      # {_flow(label)}: the label of a task below.")
        lines += [f"      # {_flow(name)}: {entry.comment}" for name, entry in entries if entry.settings is None]
        return lines

    # Tasks.

    def _add_task(self, role: TableRole, used: set[str]) -> str | None:
        """Adds the task of a table's likeliest label; returns that column."""
        table = role.table
        is_of_labels = role.role == "labels"
        labels = label_candidates(table, used, is_of_labels=is_of_labels)
        if not labels or labels[0].score < _LIKELY or role.id_sql is not None or role.role == "events":
            self._candidates(table, used, f"seed: {table.name}.{role.id}" if role.id else "")
            return None
        label = labels[0]
        key = role.keys[0] if is_of_labels else None
        settings: dict[str, Any] = {"seed": f"{table.name}.{role.id}"}
        comments = {"y": label.comment, "split": "by a hash of the ids: {val: DATE, test: DATE} needs a time"}
        when = None
        if key is not None:
            settings = {"from": table.path, "seed": f"{key.table.name}.{key.column}"}
            comments["seed"] = f"{key.share:.1%} of the values are ids of {key.table.name}"
            when = row_times(table)
        settings |= {"y": label.column.name} | ({"kind": label.label_type} if label.label_type else {})
        split: Any = _shares(table)
        if when is not None:
            settings |= time_settings(when)
            comments |= {"time": span(when), "timezone": "a guess: the times have none"}
            if dates := time_split(table, when):
                split, comments["split"] = dates, "the last fifth of the rows, and the last tenth"
        if key is not None and (key.num_missing or key.share < 1):
            settings["on_missing"] = "drop"
        settings["split"] = split
        name = _type_name(label.column.name)
        self._tasks.append(_mapping(name, settings, comments))
        self._candidates(table, used | {label.column.name}, f"seed: {table.name}.{role.id}" if role.id else "")
        return label.column.name

    def _candidates(self, table: TableProfile, used: set[str], end_columns: str) -> None:
        for label in label_candidates(table, used, is_of_labels=False)[:3]:
            if end_columns and label.score >= 1:
                label_type = f", kind: {label.label_type}" if label.label_type else ""
                name = _type_name(label.column.name)
                self._others.append(
                    f"{name}: {{{end_columns}, y: {_flow(label.column.name)}{label_type}, "
                    "split: {share: [0.8, 0.1, 0.1]}}"
                    f"  # {label.comment}"
                )

    def _add_links(self) -> None:
        """Without labels, links may be predicted: which node a node goes on to."""
        tables = {role.table.name: role for role in self._roles if role.role == "edges"}
        name = next((name for name in self._edges if name in tables), next(iter(self._edges)))
        role = tables.get(name)
        when = row_times(role.table) if role is not None else None
        split: Any = _shares(self._edge_tables[name])
        settings: dict[str, Any] = {"edge": name}
        comments = {"edge": "no column looks like a label: which links come next", "split": "by a hash of the ends"}
        if role is not None and when is not None and (dates := time_split(role.table, when)):
            settings |= time_settings(when)
            split, comments["split"] = dates, "the last fifth of the rows, and the last tenth"
        if role is not None and any(key.num_missing or key.share < 1 for key in role.keys):
            settings["on_missing"] = "drop"
        self._tasks.append(_mapping(f"{name}_links", settings | {"split": split}, comments))

    # Names and types.

    def _edge_name(self, name: str) -> str:
        name = _type_name(name)
        while name in self._edges:
            name += "_2"
        return name

    def _with_id_types(self) -> dict[str, str]:
        """Returns what ids are to be read as, where a table and those with its keys differ: CSV has no types."""
        types: dict[str, set[str]] = defaultdict(set)
        for role in self._roles:
            uses = [(role.table, role.id)] if role.id else []
            for table, column in uses:
                types[role.table.name].add(_id_form(table, column))
            for key in role.keys:
                types[key.table.name].add(_id_form(role.table, key.column))
        chosen = {}
        for name, forms in types.items():
            if len(forms) > 1:
                chosen[name] = "text" if "text" in forms or "csv text" in forms else "integer"
            if forms == {"text", "csv text"}:
                del chosen[name]
        return chosen


def _id_form(table: TableProfile, column: str) -> str:
    form = "integer" if table.columns[column].is_whole else "text"
    return f"csv {form}" if table.source.is_csv else form


def _overlap(table: TableProfile, first: str, second: str) -> bool:
    """Returns whether some values of two columns are the same."""
    if table.columns[first].is_whole != table.columns[second].is_whole:
        return False
    there = f"select {quoted(second)} from {table.sample} where {quoted(second)} is not null"
    return bool(table.ask("1", f"where {quoted(first)} in ({there}) limit 1"))


def _shares(table: TableProfile) -> dict[str, list[float]]:
    return {"share": [0.8, 0.1, 0.1] if table.num_rows >= _FEW else [1.0, 0.0, 0.0]}


# Text.


def _mapping(name: str, settings: dict[str, Any], comments: dict[str, str]) -> list[str]:
    pairs = [(f"    {key}: {_flow(value)}", comments.get(key, "")) for key, value in settings.items()]
    return [f"  {name}:", *_aligned(pairs)]


def _aligned(pairs: Sequence[tuple[str, str]]) -> list[str]:
    width = min(max((len(line) for line, _ in pairs), default=0), 60)
    return [f"{line:<{width}}  # {_plain(comment)}" if comment else line for line, comment in pairs]


def _plain(comment: str) -> str:
    return re.sub(r"[^ -~\u00a1-\ud7ff]", "?", comment)


def _flow(value: Any) -> str:
    """Returns a value as YAML that fits anywhere in a line."""
    import yaml

    written = yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=1 << 30, sort_keys=False)
    return str(written).strip()[1:-1]


def _name(table: TableProfile) -> str:
    return table.path if isinstance(table.path, str) else f"{table.path[0]} and {len(table.path) - 1} more"


def _sampled(table: TableProfile) -> str:
    return f", of which the first {table.num_seen:,} were read" if table.num_seen < table.num_rows else ""


def _sql_name(table: TableProfile) -> str:
    if isinstance(table.path, str):
        return literal(table.path)
    reader = "read_csv" if table.source.is_csv else "read_parquet"
    return f"{reader}({listed(table.path)})"


def _free(name: str, table: TableProfile) -> str:
    while name in table.columns:
        name += "_"
    return name


def _type_name(name: str) -> str:
    """Returns a name that types and tasks may have, near this one."""
    plain = re.sub(r"_+", "_", re.sub(r"[^\w-]+", "_", name)).strip("_") or "table"
    return plain if re.match(r"[^\W\d]", plain) else f"t_{plain}"


def type_of_file(path: Path) -> str:
    """Returns the name of a table by that of its file."""
    return _type_name(re.sub(r"(\.(csv|tsv|parquet|pq|feather|arrow|ipc))?(\.(gz|zst))?$", "", path.name.lower()))
