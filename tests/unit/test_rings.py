"""Tests belong to rings, and collecting them is cheap."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import rings

TESTS = Path(rings.__file__).parent


def item(path: str, *marks: str) -> Any:
    """A test of a file, with marks; ``added`` are those that it gets."""
    added: list[str] = []
    closest = dict.fromkeys(marks, True).get
    return SimpleNamespace(
        path=TESTS / path, nodeid=path, get_closest_marker=closest, add_marker=added.append, added=added
    )


def test_collecting_imports_neither_pyg_nor_dgl() -> None:
    """Each worker collects all tests. Put such an import below ``if TYPE_CHECKING:``, and tests/conftest.py runs it
    before the file's first test."""
    assert rings.libraries == set()


@pytest.mark.parametrize(
    ("path", "ring"), [("unit/test_a.py", "law"), ("gpu/test_a.py", "matrix"), ("faults/test_campaign.py", "hunt")]
)
def test_a_test_is_of_its_files_ring(path: str, ring: str) -> None:
    each = item(path)
    rings.mark([each])
    assert each.added == [ring]


def test_a_mark_goes_before_and_stands_alone() -> None:
    each = item("unit/test_a.py", "matrix")
    rings.mark([each])
    assert each.added == []
    for wrong in (item("gpu/test_a.py", "law"), item("unit/test_a.py", "law", "hunt")):
        with pytest.raises(pytest.UsageError, match="keep one"):
            rings.mark([wrong])


def test_every_line_of_the_table_is_there() -> None:
    assert [path for path in rings.FILES if not (TESTS / path).exists()] == []
    assert set(rings.FILES.values()) <= set(rings.RINGS)


def test_no_file_of_the_table_has_marks_too() -> None:
    """A run of law would not see that: it imports none of them."""
    marks = re.compile(rf"mark\.({'|'.join(rings.RINGS)})\b|mostly_matrix")
    files = [file for file in TESTS.rglob("test_*.py") if rings.of_file(file) != "law"]
    assert files
    assert [file.name for file in files if marks.search(file.read_text())] == []


def test_only_files_of_which_nothing_is_selected_are_left_out() -> None:
    matrix, law = TESTS / "gpu/test_fit.py", TESTS / "unit/test_rings.py"
    assert [rings.is_left_out(matrix, asked) for asked in ("law", "law or matrix", "not law", "")] == [
        True,
        *[False] * 3,
    ]
    assert not any(rings.is_left_out(law, asked) for asked in ("law", "matrix"))  # which may hold marks
    assert not rings.is_left_out(matrix.parent, "law")


def test_a_file_that_began_in_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([1.0, 3.0, 3.0])
    monkeypatch.setattr(rings, "_start", 0.0)
    monkeypatch.setattr(rings, "_running", set())
    monkeypatch.setattr(rings, "time", SimpleNamespace(monotonic=lambda: next(now)))
    assert [rings.may_begin(file, 2.0) for file in ("early", "late", "early")] == [True, False, True]


def test_cases_are_law_where_they_are_told_to_be() -> None:
    cases = rings.mostly_matrix([("a", 1), "b", ("c", 3)], ("c", 3))
    assert cases[2] == ("c", 3)
    assert [(each.values, [mark.name for mark in each.marks]) for each in cases[:2]] == [
        (("a", 1), ["matrix"]),
        (("b",), ["matrix"]),
    ]
    with pytest.raises(AssertionError, match="d"):  # a name that is no case any more
        rings.mostly_matrix(["a"], "d")
