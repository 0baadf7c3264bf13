"""What messages and documents tell users to install exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITTEN = [
    *(ROOT / "lightning_gnnload").rglob("*.py"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]


def extras() -> set[str]:
    if sys.version_info < (3, 11):
        pytest.skip("reads pyproject.toml by tomllib")
    import tomllib

    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def test_extras_that_are_told_of_are_there_and_quoted() -> None:
    known, found = extras(), 0
    for path in WRITTEN:
        for line in path.read_text().splitlines():
            for quote, names in re.findall(
                r"(['\"]?)(?:lightning-gnnload|pip install '?\.)\[([a-z0-9_,{} -]+)\]", line
            ):
                if "{" in names:
                    continue  # of a message, whose callers are looked at below
                found += 1
                assert {name.strip() for name in names.split(",")} <= known, f"{path}: {line}"
                assert quote or "pip install '." in line, f"{path}: shells take brackets for patterns: {line}"
    assert found > 5
    for path in (ROOT / "lightning_gnnload").rglob("*.py"):
        for extra in re.findall(r'MissingExtraError\(\s*"[\w.]+", "([\w-]+)"', path.read_text()):
            assert extra in known, path


def test_the_digest_of_sources_follows_names_and_content(tmp_path: Path) -> None:
    from lightning_gnnload.ops.installed import sources_digest

    (tmp_path / "kernels" / "fuzz").mkdir(parents=True)
    (tmp_path / "kernels" / "a.cpp").write_text("int a;")
    first = sources_digest(tmp_path)
    (tmp_path / "kernels" / "fuzz" / "b.cpp").write_text("not compiled into the package")
    assert sources_digest(tmp_path) == first
    (tmp_path / "kernels" / "a.cpp").write_text("int b;")
    changed = sources_digest(tmp_path)
    (tmp_path / "kernels" / "a.cpp").rename(tmp_path / "kernels" / "c.cpp")
    assert len({first, changed, sources_digest(tmp_path)}) == 3
