"""The site's navigation has every page once, its reference every public name once, and quoted messages exist."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import lightning_gnnload
from tests.docs.test_house import DOCS, module_of
from tests.docs.test_markdown import ROOT

pages = module_of("pages")
REFERENCE = (DOCS / "reference.md").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation_once() -> None:
    listed = Counter(
        file for entries in pages.sections((DOCS / "index.md").read_text()).values() for _, file in entries
    )
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert there - set(listed) == set(), "list these in docs/index.md: it is the site's navigation"
    assert [file for file, count in listed.items() if count > 1] == [], "listed twice in docs/index.md"


def test_sections_are_read_from_tables_alone() -> None:
    rows = "| page | for |\n| --- | --- |\n| [b](b.md) | and [c](c.md#d) |\n"
    index = f"# T\n[a](a.md)\n## One\n\n{rows}\n[e](e.md)\n## Two\n"
    assert pages.sections(index) == {"One": [("B", "b.md"), ("C", "c.md")], "Two": []}


def reference() -> list[str]:
    """The full names of the reference's entries, in order."""
    return re.findall(r"^::: (\S+)$", pages.with_reference(REFERENCE), re.MULTILINE)


def test_every_public_name_is_in_the_reference_once() -> None:
    entries = reference()
    assert [entry for entry, count in Counter(entries).items() if count > 1] == []
    modules = {"lightning_gnnload": pages.exports(pages.PACKAGE)}
    modules |= {name: pages.exports(pages.PACKAGE / name) for name in ("pyg", "dgl", "models")}
    public = {f"{module}.{name}" for names in modules.values() for name, module in names.items()}
    assert public - set(entries) == set(), "add its module to a line of docs/reference.md"
    assert entries[0].endswith(".GraphDataModule")


def test_the_reference_has_public_names_only() -> None:
    packages = [package for name in ("pyg", "dgl", "models", "conform") if (package := pages.PACKAGE / name).exists()]
    public = {"errors", *lightning_gnnload.__all__}.union(*map(pages.exports, packages))
    assert {entry.rpartition(".")[2] for entry in reference()} <= public


def test_every_public_name_has_an_example() -> None:
    documented = {name: inspect.getdoc(getattr(lightning_gnnload, name)) or "" for name in lightning_gnnload.__all__}
    assert [name for name, text in documented.items() if ">>>" not in text and "```" not in text] == []


@pytest.mark.parametrize(
    ("source", "link", "moved"),
    [
        ("README.md", "[a](docs/guides/time.md#b)", "[a](guides/time.md#b)"),
        ("README.md", "[a](CONTRIBUTING.md)", "[a](CONTRIBUTING.md)"),
        ("docs/guides/time.md", "[a](../index.md)", "[a](../index.md)"),
        ("docs/guides/time.md", "[a](../../examples/debian_sage.py)", "[a](../examples/debian_sage.py)"),
        ("docs/guides/time.md", "![a](../cache.png)", "![a](../cache.png)"),
        ("docs/guides/time.md", "the [folder](../../examples/configs)", "the folder"),
        ("CONTRIBUTING.md", "[a](docs/design.md) [b](#c)", "[a](design.md) [b](#c)"),
        ("docs/guides/time.md", "[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
    ],
)
def test_links_lead_to_the_same_file_on_the_site(source: str, link: str, moved: str) -> None:
    assert pages.with_site_links(link, source) == moved


def literals(package: Path) -> Iterator[list[str]]:
    """The constant parts of each string of the package's code, with those of strings within it."""
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                yield [part for part in parts if isinstance(part, str)]


def test_every_message_of_the_troubleshooting_page_is_one_of_the_code() -> None:
    page = (DOCS / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(messages) > 20
    # Parts of an f-string are joined by what no message contains, and read in their order.
    sources = ["\0".join(parts) for parts in literals(ROOT / "lightning_gnnload") if any(len(p) > 8 for p in parts)]
    missing = []
    for message in messages:
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in message.split("...")), re.DOTALL)
        if not any(pattern.search(source) for source in sources):
            missing.append(message)
    assert not missing
