"""Makes the site from the files of the repository: navigation, first page, reference and links.

``docs/index.md`` lists every page once, in sections: those are the site's navigation. The site's first page is
the README with that list below it. Links to files outside ``docs/`` lead to copies of these files on the site.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # tests read this file without the tools of the site
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "lightning_gnnload"
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<file>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
NAMES = re.compile(r"^::: names of (?P<words>.+)$", re.MULTILINE)


def sections(index: str) -> dict[str, list[tuple[str, str]]]:
    """The sections of ``docs/index.md``, each with the ``(title, file)`` of its pages, in order."""
    found: dict[str, list[tuple[str, str]]] = {}
    for block in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, rows = block.partition("\n")
        links = [match for row in rows.splitlines() if row.startswith("| ") for match in LINK.finditer(row)]
        found[title] = [(link["text"][:1].upper() + link["text"][1:], link["file"]) for link in links]
    return found


def exports(package: Path) -> dict[str, str]:
    """The module of each name that a package exports, by its stub or else its ``__init__.py``."""
    stub = package / "__init__.pyi"
    code = ast.parse((stub if stub.exists() else package / "__init__.py").read_text(encoding="utf-8"))
    rows = [row for row in code.body if isinstance(row, ast.ImportFrom) and row.module]
    prefix = ".".join(package.relative_to(ROOT).parts)
    return {name.name: f"{prefix}.{row.module}" if row.level else str(row.module) for row in rows for name in row.names}


def reference_names(words: str) -> dict[str, str]:
    """The module of each public name that these words stand for: a name, a module or package that has public names, or
    a package that users import from itself."""
    public, names = exports(PACKAGE), {}
    for word in words.split():
        chosen = {
            name: module
            for name, module in public.items()
            if word == name or f"{module}.".startswith(f"lightning_gnnload.{word}.")
        }
        if not chosen or (PACKAGE / word / "__init__.pyi").exists():
            chosen |= exports(PACKAGE / word)
        names |= {name: module for name, module in chosen.items() if name not in names}
    return names


def with_reference(markdown: str) -> str:
    """Writes the entries of ``::: names of WORDS`` lines, for the tool that reads docstrings."""
    return NAMES.sub(
        lambda line: "\n\n".join(
            f"::: {module}.{name}\n    options:\n      heading: {name}\n      toc_label: {name}"
            for name, module in reference_names(line["words"]).items()
        ),
        markdown,
    )


def site_path(target: str) -> str:
    """Where a file of the repository is on the site, both relative to their roots."""
    return "index.md" if target == "README.md" else target.removeprefix("docs/")


def with_site_links(markdown: str, source: str) -> str:
    """Turns links between files of the repository into those of the site; ``source`` is the page's own file."""
    page = site_path(source)

    def moved(link: re.Match[str]) -> str:
        if not link["file"] or "://" in link["file"]:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["file"]))
        if (ROOT / target).is_dir():
            return link["text"]
        file = posixpath.relpath(site_path(target), posixpath.dirname(page) or ".")
        return f"[{link['text']}]({file}{link['anchor'] or ''})"

    return LINK.sub(moved, markdown)


def outside(markdown: str, source: str) -> set[str]:
    """The files outside ``docs/`` to which a page links, relative to the repository."""
    targets = {
        posixpath.normpath(posixpath.join(posixpath.dirname(source), link["file"])) for link in LINK.finditer(markdown)
    }
    return {target for target in targets if (ROOT / target).is_file() and not target.startswith("docs/")} - {
        "README.md"
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    index = sections((DOCS / "index.md").read_text(encoding="utf-8"))
    config.nav = [{"Home": "index.md"}]
    for section, pages in index.items():
        config.nav.append({section: [{title: site_path(posixpath.normpath(f"docs/{file}"))} for title, file in pages]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files outside ``docs/`` to which pages link, and those to which these link in turn."""
    waiting = {"README.md"} | {f"docs/{file.src_uri}" for file in files.documentation_pages()}
    from mkdocs.structure.files import File

    copied: set[str] = set()
    while waiting:
        source = waiting.pop()
        if source.endswith(".md"):
            waiting |= (links := outside((ROOT / source).read_text(encoding="utf-8"), source) - copied)
            copied |= links
    for source in sorted(copied):
        files.append(File.generated(config, source, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    source = f"docs/{page.file.src_uri}" if page.file.generated_by is None else page.file.src_uri
    markdown = with_site_links(markdown, source)
    if source == "docs/index.md":
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        markdown = with_site_links(readme, "README.md") + markdown[markdown.index("\n## ") :]
    if source.startswith(("docs/words", "docs/benchmarks", "docs/pyg_tests")):
        page.meta["search"] = {"boost": 0.2}  # they name everything: guides first
    if source == "docs/reference.md":
        markdown = with_reference(markdown)
    return markdown.replace("```python no-run", "```python")
