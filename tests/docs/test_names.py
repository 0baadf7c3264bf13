"""The checker of names finds what it is to find, and nothing else."""

from __future__ import annotations

import pytest

from tests.docs.test_house import module_of

names = module_of("names")


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "def f(given): ...",
        "def f(*, kind=0): ...",
        "def f(*others): ...",
        "lambda each: 0",
        "[each for each in ()]",
        "for _held in (): ...",
        "with open('a') as (told, _): ...",
        "try: ...\nexcept OSError as seen: ...",
        "match 0:\n    case [*left]: ...",
        "if (made := 1): ...",
        "class A:\n    of_type: int = 0",
        "def add(self, other): ...",
    ],
)
def test_a_name_that_says_nothing_is_found_in_every_binding(source: str) -> None:
    assert len(names.nothing_said("a.py", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "node_type = 1",
        "f(found=1)",
        "print(each)",
        "a.found = 1",
        "offset = 1",
        "class A:\n    def __eq__(self, other): ...",
        "def found(): ...",
    ],
)
def test_other_names_and_uses_pass(source: str) -> None:
    assert names.nothing_said("a.py", source) == []


def test_a_name_of_two_classes_or_functions_is_found() -> None:
    one, two = (
        "class A: ...\ndef f(): ...\ndef _g(): ...\ndef main(): ...",
        "class A: ...\ndef f(): ...\ndef _g(): ...\ndef main(): ...",
    )
    assert [fault.split()[0] for fault in names.homonyms({"p/a.py": one, "p/b.py": two})] == ["A", "f"]
    assert names.homonyms({"p/ops/a.py": one, "p/ops/cuda/b.py": two}) == [], "the same operation on a device"
    assert names.homonyms({"p/a.py": one}) == []
