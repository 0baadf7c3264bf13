"""Each link within the documentation leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_markdown import FENCE, PAGES, ROOT

LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


def links(page: Path) -> list[str]:
    """The targets of a page's links, without those to other sites and those in code."""
    found = (match["target"] for match in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))))
    return [target for target in found if not target.startswith(("https://", "http://"))]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub and MkDocs give a page's headings."""
    titles = (match["title"].lower() for match in HEADING.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        file, _, anchor = target.partition("#")
        other = (page.parent / file).resolve() if file else page
        if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
            broken.append(target)
    assert not broken


def test_links_and_anchors_are_read_as_they_are_written(tmp_path: Path) -> None:
    # Links in code, and headings that are comments in code, are neither.
    page = tmp_path / "page.md"
    code = "```python\n# no heading [f](g)\n```\n"
    page.write_text(f"# PyG's own: `x=1`\n[a](b.md#c) [d](https://e.org)\n{code}## A-b, c\n")
    assert links(page) == ["b.md#c"]
    assert anchors(page) == {"pygs-own-x1", "a-b-c"}
