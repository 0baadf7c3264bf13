"""The picture of the layers and the glossary of classes are of today's sources."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def module_of(name: str) -> ModuleType:
    """Imports a script of the documentation."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


@pytest.fixture(scope="module")
def house() -> ModuleType:
    return module_of("house")


def test_the_picture_shows_the_imports_of_today(house: ModuleType) -> None:
    shown, there = set(house.drawn()), set(house.described(*house.edges()))
    assert shown == there, f"make house: missing {sorted(there - shown)}, gone {sorted(shown - there)}"


def test_the_glossary_lists_every_class_that_stands_in_two_files(house: ModuleType) -> None:
    listed = set(house.GLOSSARY.read_text().partition(house.BEGIN)[2].partition(house.END)[0].splitlines())
    wanted = {entry.line: entry.name for entry in house.entries()}
    missing = [name for line, name in wanted.items() if line not in listed]
    gone = [line for line in listed if line.startswith("| `") and line not in wanted]
    assert not missing, f"make house: the glossary lacks, or has other words for, {missing}"
    assert not gone, f"make house: the glossary still has {gone}"


def test_every_class_of_the_glossary_has_a_sentence(house: ModuleType) -> None:
    without = [f"{entry.file}: {entry.name}" for entry in house.entries() if not entry.sentence.endswith(".")]
    assert not without, f"the docstring's first sentence is missing: {without}"


@pytest.mark.parametrize(
    ("found", "left"),
    [
        ({("a", "b"), ("b", "c"), ("a", "c")}, {("a", "b"), ("b", "c")}),
        ({("a", "b"), ("c", "b")}, {("a", "b"), ("c", "b")}),
        ({("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")}, {("a", "b"), ("b", "c"), ("c", "d")}),
    ],
)
def test_arrows_that_follow_from_others_are_left_out(
    house: ModuleType, found: set[tuple[str, str]], left: set[tuple[str, str]]
) -> None:
    assert house.essential(found) == left


def test_an_import_of_a_layer_above_is_found(house: ModuleType) -> None:
    assert house.upward(house.LAYERS, {("plugin", "data"), ("data", "sample"), ("cache", "partition")}) == {
        ("data", "sample"),
        ("cache", "partition"),
    }
