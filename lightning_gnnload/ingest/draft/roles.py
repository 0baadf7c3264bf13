"""Which column of a table is its id, which ones hold ids of other tables, and what each table is thereby."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lightning_gnnload.ingest.draft.columns import LABEL_WORDS
from lightning_gnnload.ingest.draft.look import ColumnProfile, TableProfile, words_of
from lightning_gnnload.ingest.sql import quoted

_KEYS = 10_000  # different keys that are looked for among ids
_WHOLE_ROWS = 50_000_000  # of a table whose keys are all looked for
_LEAST_SHARE = 0.5  # of keys that are ids, so that they are taken for keys
_ID_WORDS = {"id", "uid", "uuid", "guid", "key", "code", "pk", "fk", "no", "ref", "sku", "doi", "isbn", "name"}
_STRONG_ID_WORDS = _ID_WORDS - {"no", "name", "code"}
_PAIRS = (
    ("src", "dst"), ("source", "target"), ("from", "to"), ("citing", "cited"), ("follower", "followed"),
    ("head", "tail"), ("u", "v"), ("sender", "receiver"), ("parent", "child"), ("a", "b"),
)  # fmt: skip
_ENDS = {word for pair in _PAIRS[:-1] for word in pair} | {"parent", "manager", "reply", "friend", "referrer", "owner"}
_NEARLY = 0.98  # of rows that differ, where ids come twice by mistake


@dataclass
class ForeignKey:
    """A column of one table that holds ids of another."""

    column: str
    table: TableProfile  # whose ids they are
    share: float  # of its values that are ids there
    by_name: bool  # its name says so, too
    num_missing: int = 0  # rows without a value, or with one that is no id; -1: not counted, of a large table
    further_tables: list[str] = field(default_factory=list)  # other tables whose ids fit as well


@dataclass
class TableRole:
    """What a table is: ``nodes``, ``edges``, ``events`` (rows with a key and no id), ``labels`` or ``alone``."""

    table: TableProfile
    role: str = "alone"
    id: str | None = None
    id_others: list[str] = field(default_factory=list)  # further columns without a value twice
    has_duplicates: bool = False  # some ids come twice
    id_sql: str | None = None  # of an id that is made of several columns
    keys: list[ForeignKey] = field(default_factory=list)
    possible: list[ForeignKey] = field(default_factory=list)  # by values alone
    orphans: list[str] = field(default_factory=list)  # columns that look like ids of a table that is not there


def roles_of(tables: Sequence[TableProfile]) -> list[TableRole]:
    """Says what each table is; those without rows are nothing."""
    roles = [_with_id(TableRole(table)) for table in tables if table.num_rows]
    _find_keys(roles)
    referenced = {key.table.name for role in roles for key in role.keys}
    for role in roles:
        _decide(role, role.table.name in referenced)
    return roles


def _with_id(role: TableRole) -> TableRole:
    table = role.table
    near = [
        column
        for column in table.columns.values()
        if column.is_id_like
        and not column.is_time
        and column.num_present == table.num_seen
        # The count of different values is an estimate, from some thousands on.
        and column.num_values >= 0.85 * table.num_seen
    ]
    unique = [column for column in near if table.is_unique(quoted(column.name))]
    order = list(table.columns)
    unique.sort(key=lambda column: (-_id_score(column, table), order.index(column.name)))
    plausible = [column for column in unique if _id_score(column, table) > 0 or column.name == order[0]]
    plausible += [column for column in unique if column not in plausible and not column.is_whole]
    if plausible:
        role.id, role.id_others = plausible[0].name, [column.name for column in plausible[1:]]
        return role
    for column in table.columns.values():
        if column.is_id_like and not column.is_time and _id_score(column, table) >= 3:
            sql = quoted(column.name)
            num_present, num_values = table.ask(f"count({sql}), count(distinct {sql})")[0]
            if num_present == table.num_seen and num_values >= _NEARLY * table.num_seen:
                role.id, role.has_duplicates = column.name, True
                break
    return role


def _id_score(column: ColumnProfile, table: TableProfile) -> int:
    """Says how much a name is that of a table's own id."""
    words, table_words = words_of(column.name), set(words_of(table.name))
    score = 2 if set(words) & _STRONG_ID_WORDS else 1 if set(words) & _ID_WORDS else 0
    # user_id of users, or id alone; but not parent_id.
    rest = set(words) - _ID_WORDS
    is_own = bool(rest & table_words) or (bool(score) and not rest)
    return score + (2 if is_own else 0) + (1 if column.type == "UUID" else 0)


def _find_keys(roles: Sequence[TableRole]) -> None:
    with_ids = [role for role in roles if role.id is not None]
    for role in roles:
        for column in role.table.columns.values():
            if not column.is_id_like or column.is_time or (column.name == role.id and len(with_ids) < 2):
                continue
            fits = [key for owner in with_ids if (key := _key(role, column, owner)) is not None]
            fits.sort(key=lambda key: (-key.by_name, -_affinity(column, key.table), -key.share, key.table.num_rows))
            if not fits:
                continue
            best = fits[0]
            best.further_tables = [key.table.name for key in fits[1:] if key.by_name == best.by_name]
            (role.keys if best.by_name else role.possible).append(best)
    for role in roles:
        # A table of nothing but numbers may be a list of edges, whose columns have any names.
        table_words = [key for key in role.possible if key.share == 1]
        if not role.keys and role.id is None and len(table_words) >= 2 and len(role.table.columns) <= 4:
            role.keys, role.possible = table_words[:2], table_words[2:]
        for key in role.keys:
            key.num_missing = _num_missing(role.table, key, with_ids)


def _key(role: TableRole, column: ColumnProfile, owner: TableRole) -> ForeignKey | None:
    """Returns the key that a column is of a table's ids; None where it is none."""
    table, ids = role.table, owner.table.columns[str(owner.id)]
    if table is owner.table and column.name == owner.id:
        return None
    affinity = _affinity(column, owner.table, str(owner.id))
    if column.name == role.id and affinity < 2:
        return None  # ids of its own
    mixed = column.is_whole != ids.is_whole
    if mixed and not affinity:
        return None
    cast = "varchar" if mixed or not column.is_whole else "hugeint"
    keys = f"select {quoted(column.name)}::{cast} as k, count(*) as n from {table.sample}"
    keys += f" where {quoted(column.name)} is not null group by 1 order by hash(k) limit {_KEYS}"
    there = owner.table.source.select(f"{quoted(str(owner.id))}::{cast} as k")
    total, matched = table.source.con.execute(
        f"select sum(n), sum(n) filter (where k in (select k from ({there}) where k is not null)) from ({keys})"
    ).fetchall()[0]
    share = float(matched or 0) / float(total or 1)
    if share < _LEAST_SHARE:
        return None
    # Small numbers are ids of any table; texts that match are hardly ever something else.
    if column.name == role.id and not _is_part(role, owner, share):
        return None
    by_name = affinity >= 1 or (not column.is_whole and (share > 0.9 or column.num_values >= 10))
    return ForeignKey(column.name, owner.table, share, by_name)


def _is_part(role: TableRole, owner: TableRole, share: float) -> bool:
    """Returns whether a table's rows are of some nodes of another, where the ids of both are the same."""
    table, whole = role.table, owner.table
    table_words = set(words_of(str(role.id))) & set(words_of(table.name))
    its = set(words_of(str(role.id))) & set(words_of(whole.name))
    if share < 0.95 or table_words:
        return False
    return whole.num_rows > table.num_rows or bool(its)


def _affinity(column: ColumnProfile, table: TableProfile, id_: str | None = None) -> int:
    """Says how much a column's name is that of ids of a table: 2 it names it, 1 it is one of some ids, 0 neither."""
    words, table_words = set(words_of(column.name)), set(words_of(table.name))
    is_same = id_ is not None and words == set(words_of(id_)) and bool(words - {"id", "key", "code", "name", "no"})
    if is_same or words & table_words or any(word.endswith("id") and word[:-2] in table_words for word in words):
        return 2
    initials = {name[0] + "id" for name in table_words if name}
    if words & initials:
        return 2
    return 1 if words & (_STRONG_ID_WORDS | _ENDS) else 0


def _num_missing(table: TableProfile, key: ForeignKey, with_ids: Sequence[TableRole]) -> int:
    if table.num_rows > _WHOLE_ROWS:
        return -1
    owner = next(role for role in with_ids if role.table is key.table)
    sql = f"{quoted(key.column)}::varchar"
    ids = owner.table.source.select(f"{quoted(str(owner.id))}::varchar as k")
    return int(
        table.ask("count(*)", f"where {sql} is null or {sql} not in ({ids} where k is not null)", whole=True)[0][0]
    )


def _decide(role: TableRole, is_referenced: bool) -> None:
    """Says what a table is, by its id and its keys."""
    table = role.table
    own_is_key = next((key for key in role.keys if key.column == role.id), None)
    if own_is_key is not None and not is_referenced:
        # Rows for some of another table's nodes, one each: labels, or more of what is known of them.
        role.role, role.id = "labels", None
        role.keys = [own_is_key, *(key for key in role.keys if key is not own_is_key)]
        if len(role.keys) > 1:
            role.role = "edges"
        return
    role.keys = [key for key in role.keys if key.column != role.id]
    foreign = [key for key in role.keys if key.table is not table]
    if role.id is not None and (is_referenced or len(foreign) < 2):
        role.role = "nodes"
        return
    if len(role.keys) >= 2:
        role.role, role.keys = "edges", _ends_first(role.keys)
        return
    role.orphans = _orphans(role)
    if len(role.keys) + len(role.orphans) >= 2:
        role.role = "edges"
    elif role.keys:
        # A key, perhaps a time, and one thing more: what was known of a node then.
        key = role.keys[0].column
        further = [column for column in table.columns.values() if not column.is_time and column.name != key]
        is_named = len(further) == 1 and bool(set(words_of(further[0].name)) & LABEL_WORDS)
        is_known = is_named or table.is_unique(quoted(key))
        role.role = "labels" if further and is_known else "events"
    else:
        role.id_sql = _composite(role)
        role.role = "nodes" if role.id_sql else "alone"


def _ends_first(keys: list[ForeignKey]) -> list[ForeignKey]:
    """Puts the two ends first: two that are a pair by their names, or ids of two tables."""
    for first, second in _PAIRS:
        pair = [next((key for key in keys if word in words_of(key.column)), None) for word in (first, second)]
        if pair[0] is not None and pair[1] is not None and pair[0] is not pair[1]:
            first_two = [key for key in pair if key is not None]
            return first_two + [key for key in keys if key not in first_two]
    second_key = next((key for key in keys[1:] if key.table is not keys[0].table), keys[1])
    return [keys[0], second_key, *(key for key in keys[1:] if key is not second_key)]


def _orphans(role: TableRole) -> list[str]:
    """Lists columns that look like ids, by name, of a table that is not there: a pair first."""
    table, used = role.table, {key.column for key in role.keys} | {role.id}
    names = {
        column.name: words_of(column.name)
        for column in table.columns.values()
        if column.is_id_like and not column.is_time and column.name not in used and column.num_present == table.num_seen
    }
    for first, second in _PAIRS:
        pair = [next((name for name, words in names.items() if word in words), None) for word in (first, second)]
        if None not in pair and pair[0] != pair[1]:
            return [str(name) for name in pair]
    like = [name for name, words in names.items() if set(words) & _STRONG_ID_WORDS or re.search(r"[a-z]I[dD]$", name)]
    return like[: 2 - len(role.keys)]


def _composite(role: TableRole) -> str | None:
    """Returns the SQL of an id of two or three of the first columns, where these are unique together."""
    table = role.table
    names = [
        column.name
        for column in table.columns.values()
        if column.is_id_like and column.num_present == table.num_seen and column.num_values > 1
    ][:5]
    for size in (2, 3):
        for last in range(size, len(names) + 1):
            chosen = [quoted(name) for name in names[:last][-size:]]
            sql = f"concat_ws('/', {', '.join(chosen)})"
            if table.is_unique(sql):
                return sql
    return None
