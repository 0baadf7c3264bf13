"""The examples of the documentation run: each ``python`` block of README.md and docs/, file by file.

Blocks of one file share a namespace and run in order, in an empty folder. ``python no-run`` blocks are only
compiled. In the cookbook, commands of ``bash`` blocks run, too, and a ``yaml`` block is the file that it begins with.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from lightning_gnnload.errors import MissingExtraError
from lightning_gnnload.pipeline.loader import EpochLoader
from lightning_gnnload.plugin.commands import cli
from tests.runif import EXTRA_MODULES

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "docs" / "cookbook").glob("*.md"))
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {*RECIPES})
CALLS = ("data.train_dataloader()", "module.train_dataloader()")
"""What loops read beside loaders that have a name."""
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def python_blocks(text: str) -> Iterator[tuple[str, str]]:
    """``(how, code)`` of each Python block; the code is moved to its line in the page, for tracebacks."""
    for match in FENCE.finditer(text):
        language, _, how = match["info"].strip().partition(" ")
        if language in ("python", "py"):
            yield how.strip(), "\n" * text.count("\n", 0, match.start("code")) + match["code"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__markdown__"}
    for how, code in python_blocks(page.read_text(encoding="utf-8")):
        assert how in ("", "no-run"), f"{page.name}: a python block is tagged {how!r}; 'no-run' is the only tag"
        compiled = compile(code, str(page), "exec")
        if how == "":
            run(compiled, namespace)
            check_loops(ast.parse(code), namespace)


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_recipes_run_as_they_stand(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__markdown__"}
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        language, code = match["info"].strip(), match["code"]
        if language == "python":
            run(compile(code, str(page), "exec"), namespace)
        elif language == "yaml" and code.startswith("# "):
            Path(code.splitlines()[0].removeprefix("# ")).write_text(code)
        elif language == "bash":
            for line in (line for line in code.splitlines() if line.startswith("gnnload ")):
                monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
                with pytest.raises(SystemExit) as ended:
                    cli.main()
                assert not ended.value.code, line


def check_loops(code: ast.AST, namespace: dict[str, object]) -> None:
    """Reads what the loops of a block read, for two epochs, which are others."""
    for loop in ast.walk(code):
        if isinstance(loop, ast.For) and (read := ast.unparse(loop.iter)) in {*namespace, *CALLS}:
            made = eval(read, namespace)
            if isinstance(made, DataLoader | EpochLoader):
                epochs = [[ids_of(batch) for batch in eval(read, namespace)] for _ in range(2)]
                assert epochs[0] != epochs[1], read


def ids_of(batch: Any) -> Any:
    """Which nodes a mini-batch of any format has."""
    if isinstance(batch, tuple | list):  # DGL's
        return ids_of(batch[0])
    if isinstance(batch, dict):
        return {name: ids_of(ids) for name, ids in batch.items()}
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    # Subgraphs without seeds have edges alone.
    name = next(name for name in ("nodes", "n_id", "input_nodes", "edge_index") if hasattr(batch, name))
    return ids_of(getattr(batch, name))


def test_loops_of_the_guides_are_read_for_two_epochs() -> None:
    for page in ("from_dgl", "from_graphbolt", "from_pyg", "links", "lightning"):
        blocks = python_blocks((ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8"))
        parts = (part for _, code in blocks for part in ast.walk(ast.parse(code)))
        assert {ast.unparse(part.iter) for part in parts if isinstance(part, ast.For)} & {"loader", *CALLS}, page


def run(code: object, namespace: dict[str, object]) -> None:
    try:
        exec(code, namespace)  # type: ignore[call-overload]
    except MissingExtraError as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_MODULES.values():
            raise
        pytest.skip(f"needs {error.name}")


def test_blocks_are_found_where_they_stand() -> None:
    # A pattern that swallows text between two blocks, or misses a tag, would let examples rot unseen.
    text = "# T\n```python\na = 1\n```\ntext\n```bash\nls\n```\n\n```python no-run\nb = (\n  2)\n```\n"
    assert list(python_blocks(text)) == [("", "\n\na = 1\n"), ("no-run", "\n" * 10 + "b = (\n  2)\n")]
