"""Runs every layer of DGL and PyG on our mini-batches, and writes the tables of docs/layers.md.

python -m tests.integration.layers.page
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

PAGE = Path(__file__).parents[3] / "docs" / "layers.md"


def verdicts(row: Any, library: Any) -> dict[str, str]:
    """By mini-batch: ``"equal"``, ``"refused"``, where the library refuses its own likewise, or what differs."""
    found: dict[str, str] = {}
    for make in row.variants:
        torch.manual_seed(0)
        layers = [make(), make()]
        for what, *sides in library.batches(row):
            verdict = _verdict(*(_attempt(library.outcome, layers, row, side) for side in sides))
            found[what] = max(found.get(what, "equal"), verdict, key=_gravity)
    return found


def _gravity(verdict: str) -> int:
    return {"equal": 0, "refused": 1}.get(verdict, 2)


def _attempt(outcome: Callable[..., list[torch.Tensor]], *given: Any) -> list[torch.Tensor] | str:
    try:
        return outcome(*given)
    except Exception as error:  # whatever a layer raises
        return repr(error)


def _verdict(ours: list[torch.Tensor] | str, theirs: list[torch.Tensor] | str) -> str:
    if isinstance(ours, str) or isinstance(theirs, str):
        return "refused" if ours == theirs else f"{ours!s:.200} in place of {theirs!s:.200}"
    # In float32, sums of other orders differ; gradients run through two layers.
    apart = [(a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True) if not a.allclose(b, 1e-4, 1e-5)]
    return f"differs by {max(apart):.1g}" if apart else "equal"


@cache
def table(name: str) -> tuple[dict[str, dict[str, str]], str]:
    """Of ``"dgl"`` or ``"pyg"``: the verdicts by layer and mini-batch, and the table in Markdown."""
    library = import_module(f"tests.integration.layers.{name}_layers")
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # of thousands of tiny kernels, on a machine that may be busy
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = {layer: verdicts(row, library) for layer, row in library.ROWS.items()}
    finally:
        torch.set_num_threads(num_threads)
    header = ["layer", "given", *library.BATCHES, "remark"]
    lines = [f"With {library.VERSION}:", "", _line(header), _line(["---"] * len(header))]
    for layer, row in library.ROWS.items():
        results = (found[layer].get(what, "no") for what in library.BATCHES)
        lines.append(_line([layer, f"`{row.given}`", *results, row.remark]))
    lines += ["", "Not fed by a mini-batch:", "", _line(["layer", "why"]), _line(["---"] * 2)]
    lines += map(_line, library.NOT_FED.items())
    return found, "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def with_table(text: str, name: str) -> str:
    """The page's text with the table of ``name`` as it comes out now."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{table(name)[1]}\n\n{end}{rest.split(end)[1]}"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for library in ("dgl", "pyg"):
        text = with_table(text, library)
    PAGE.write_text(text, encoding="utf-8")
