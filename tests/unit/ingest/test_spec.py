"""graph.yaml is read strictly: every mistake is an error that names its place and what would do."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload.errors import GraphSpecError
from lightning_gnnload.ingest.spec import ColumnSpec, End, GraphSpec

SPEC: dict[str, Any] = {
    "version": 1,
    "nodes": {"user": {"from": "u.parquet", "id": "uid"}, "item": {"from": "i.csv", "id": "sku"}},
    "edges": {"buys": {"from": "b.parquet", "src": "user.u", "dst": "item.s", "time": "at"}},
    "tasks": {"churn": {"seed": "user.uid", "y": "left", "split": {"share": [0.8, 0.2]}}},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The specification above with one key set, by its dotted path; ``...`` takes it away."""
    spec = deepcopy(SPEC)
    *way, last = path.split(".")
    at: Any = spec
    for key in way:
        at = at.setdefault(key, {})
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return spec


def test_a_sound_one_has_defaults_and_ends() -> None:
    spec = GraphSpec.of(changed("nodes.user.x", ["age", {"column": "zip", "as": "category"}]))
    assert spec.nodes["user"].x == (ColumnSpec(column="age"), ColumnSpec(column="zip", kind="category"))
    assert spec.edges["buys"].src == End("user", "u")
    assert spec.edges["buys"].on_missing == "error"
    assert spec.tasks["churn"].split.share == (0.8, 0.2, 0.0)
    assert spec.build.memory_bytes == 4 * 10**9
    assert GraphSpec.of(changed("edges.buys.reverse", True)).edges["buys"].relations("buys") == ("buys", "rev_buys")
    assert GraphSpec.of(changed("build.memory", "1.5GiB")).build.memory_bytes == 3 * 2**29


def test_links_of_a_table_of_edges_have_its_ends() -> None:
    task = GraphSpec.of(changed("tasks.churn", {"edge": "buys", "split": {"share": [1, 0]}})).tasks["churn"]
    assert task.is_links
    assert [str(end) for end in task.ends] == ["user.u", "item.s"]


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("versoin", 1, r"graph.yaml: there is no key 'versoin'; did you mean 'version'\?"),
        ("version", 2, "version: 2 was given, but this version of the package reads version: 1"),
        ("nodes", [], "nodes: .* a mapping is needed"),
        ("nodes.user.id", ..., "nodes.user: the key 'id' is missing. Needed are: from, id"),
        ("nodes.user.id", False, "nodes.user.id: False was given, but a text is needed"),
        ("nodes.user.from", 3, "nodes.user.from: 3 was given, but a path, a list of paths"),
        ("nodes.user.form", "x", r"nodes.user: there is no key 'form'; did you mean 'from'\?"),
        ("nodes.user.id_type", "string", "nodes.user.id_type: 'string' was given, but auto or text or integer"),
        ("nodes.user.time_unit", "s", "nodes.user.time_unit: it says how times are read, but there is no time"),
        ("build", {"memory": "99999999999999999999TB"}, "build.memory: '9+TB' was given, but an amount of memory"),
        ("build", {"memory": "9" * 5000 + "GB"}, "build.memory: '9+.*' was given, but an amount of memory"),
        ("nodes.user.x", "age", "nodes.user.x: 'age' was given, but a list of columns"),
        ("nodes.user.x", ["age", "age"], "nodes.user.x: the column 'age' is listed twice"),
        ("nodes.user.x", [{"column": "a", "as": "int"}], r"nodes.user.x\[0\].as: 'int' was given, but auto or number"),
        ("nodes.a.b", {}, "nodes.a: there is no key 'b'"),
        ("nodes.a__b", {}, "nodes: 'a__b' was given, but a name is needed"),
        ("edges", {}, "edges: there are none"),
        ("edges.buys.src", "u", "edges.buys.src: 'u' was given, but .* TYPE.COLUMN"),
        ("edges.buys.src", "usr.u", r"edges.buys.src: 'usr.u' names the node type 'usr'.*did you mean 'user'\?"),
        ("edges.buys.self_loops", True, "edges.buys.self_loops: True was given, but keep or drop"),
        ("edges.buys.reverse", "buys", "edges: 'buys' names two edge types"),
        ("edges.buys.time_unit", "hours", "edges.buys.time_unit: 'hours' was given, but s or ms or us or ns"),
        ("tasks.churn.y", ..., "tasks.churn: without y: COLUMN, its labels, a task of nodes has nothing to train"),
        ("tasks.churn.seed", ..., "tasks.churn: seeds are nodes or links"),
        ("tasks.churn.src", "user.u", "tasks.churn: seeds are nodes or links"),
        ("tasks.churn.split", ..., "tasks.churn: the key 'split' is missing"),
        ("tasks.churn.split", {}, "tasks.churn.split: {} was given, but one way to split is needed"),
        ("tasks.churn.split", {"share": [0.8, 0.3]}, "which sum to 1"),
        ("tasks.churn.split", {"val": "2026-03"}, "val and test are dates, but the task has no time"),
        ("tasks.churn.split", {"val": "March"}, "tasks.churn.split.val: 'March' was given, but a date"),
        ("tasks.churn.split", {"column": "c", "seed": 3}, "tasks.churn.split.seed: a seed belongs to share"),
        ("tasks.churn.edge", "bys", r"tasks.churn.edge: there are no edges 'bys'; did you mean 'buys'\?"),
        (
            "tasks.l",
            {"src": "item.s", "dst": "user.u", "edge": "buys", "split": {"column": "c"}},
            "tasks.l: its links lead from item to user, but edges 'buys' from user to item",
        ),
        ("tasks.l", {"src": "user.u", "dst": "item.s", "split": {"column": "c"}}, "tasks.l: links need a table"),
        ("build.memory", "4", "build.memory: '4' was given, but an amount of memory with its unit"),
        ("build.threads", 0, "build.threads: 0 was given"),
    ],
)
def test_mistakes_are_named(path: str, value: Any, told: str) -> None:
    with pytest.raises(GraphSpecError, match=told):
        GraphSpec.of(changed(path, value))


def test_all_mistakes_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(
        "version: 1\n"
        "nodes:\n  user: {from: u.csv, idd: uid, x: [{colum: a, as: nomber}]}\n"
        "  item: {from: 3, id: sku, time_unit: s}\n"
        "edges:\n  buys:\n    from: b.csv\n    src: usr.u\n    dst: item\n    wieght: 3\n"
        "tasks:\n  t: {seed: users.uid, y: no, split: {share: [0.5, 0.6]}}\n"
        "bild: {}\n"
    )
    with pytest.raises(GraphSpecError) as raised:
        GraphSpec.read(tmp_path / "graph.yaml")
    lines = [
        line.removeprefix(f"{tmp_path / 'graph.yaml'}:").partition(":")[0] for line in str(raised.value).splitlines()
    ]
    assert lines == ["3", "3", "3", "4", "4", "8", "9", "10", "12", "12", "12", "13"]
    assert len(raised.value.faults) == len(lines)


BOMB = "version:\n- &a [x, x]\n" + "".join(
    f"- &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghijklmnopqrstuvwxyz")
)
"""Lists of lists that would have 9**25 entries."""
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n" for before, name in pairwise("abcdefghijk")
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version: 1\nversion: 1\n", "'version' is there twice"),
        ("version: [1\n", "cannot be read as YAML"),
        ("- 1\n", "a mapping is needed"),
        ("!!python/object/apply:os.system [ls]\n", "cannot be read as YAML"),
        ("[" * 1000, "cannot be read as YAML: it is nested too deeply"),
        ("a: " + "{a: " * 1000, "cannot be read as YAML: it is nested too deeply"),
        ("version: " + "9" * 5000, r"cannot be read as YAML: a value is none: .*4300 digits"),
        ("version: 2026-13-45", "cannot be read as YAML: a value is none: month must be in 1..12"),
        ("version: !!bool x", "cannot be read as YAML: a value is none"),
        ("version: !!int ''", "cannot be read as YAML: a value is none"),
        ("version: !!timestamp x", "cannot be read as YAML: a value is none"),
        (BOMB, r"version: \[\[.*, but this version"),
        (MERGED + "version: 1\n", "cannot be read as YAML: merges too many fields"),
        ("version: &a [*a]", r"version: \[+\.\.\.\]+ was given"),
    ],
)
def test_files_that_are_none(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(text)
    with pytest.raises(GraphSpecError, match=told):
        GraphSpec.read(tmp_path / "graph.yaml")
    with pytest.raises(GraphSpecError, match=r"none\.yaml cannot be opened: No such file"):
        GraphSpec.read(tmp_path / "none.yaml")
