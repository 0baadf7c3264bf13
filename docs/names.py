"""Refuses names that say nothing, and one name for two things, in the package: ``make names``.

A reader meets most names far from where they are bound, so each must say what its value is: ``matches``, not ``found``;
``node_type``, not ``kind``. And a name that two classes share, or two public functions, is looked up in vain.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "lightning_gnnload"

SAY_NOTHING = frozenset(
    (
        *("asked", "done", "drawn", "each", "ends", "found", "given", "has", "held", "kept", "kind", "known", "left"),
        *("made", "of", "other", "others", "owed", "own", "place", "places", "said", "same", "seen", "shown", "such"),
        *("taken", "these", "thing", "things", "those", "told", "wanted", "what", "whose"),
    )
)

ALLOWED = {
    "lightning_gnnload/cache/cache.py": {"left"},
    "lightning_gnnload/conform/contract.py": {"found"},
    "lightning_gnnload/datasets/synthetic.py": {"kind"},
    "lightning_gnnload/ingest/edges.py": {"kept"},
    "lightning_gnnload/ingest/features.py": {"kind"},
    "lightning_gnnload/ingest/spec.py": {"kind"},
    "lightning_gnnload/ops/queries.py": {"of_seed"},
    "lightning_gnnload/ops/cuda/sampling/layer.py": {"places"},
    "lightning_gnnload/ops/cuda/sampling/paths.py": {"known"},
    "lightning_gnnload/ops/cuda/sampling/workspace.py": {"known"},
    "lightning_gnnload/plugin/commands/doctor.py": {"found"},
    "lightning_gnnload/models/sage.py": {"own"},
}
"""By file: arguments and fields that users write, keys of files and checkpoints, and members of kernels' structures."""

ALLOWED_TWICE = {"random_walk", "LaborSampler", "NeighborSampler", "ShaDowKHopSampler"}
"""The sampler's function, and the operation that it calls; and names of DGL's and PyG's, each in its own package."""


def says_nothing(name: str) -> bool:
    word = name.strip("_")
    return word in SAY_NOTHING or word.startswith("of_")


def bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yields the names that a module binds, in all of its scopes, and the line of each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = node.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            named += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
            # Python's own name for the second operand: __eq__(self, other).
            is_operator = not isinstance(node, ast.Lambda) and node.name.startswith("__")
            yield from ((arg.arg, arg.lineno) for arg in named if not (is_operator and arg.arg == "other"))


def nothing_said(path: str, source: str) -> list[str]:
    """Lists the bindings of one file that say nothing, as ``path:line``."""
    allowed = ALLOWED.get(path, set())
    return [
        f"{path}:{line}: {name!r} does not say what it is: name the value (node_type, matches, endpoints ...)"
        for name, line in bindings(ast.parse(source))
        if says_nothing(name) and name not in allowed
    ]


def homonyms(sources: dict[str, str]) -> list[str]:
    """Lists classes of one name, and public functions of one name, that stand in several files.

    ``ops/cuda`` may repeat a name of ``ops``: it is the same operation on a device. Each command has its ``main``.
    """
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            is_public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name != "main"
            if is_public or isinstance(node, ast.ClassDef):
                homes[node.name].add(path.replace("/ops/cuda/", "/ops/"))
    # An operation and its device's form may lie in files of two names.
    return [
        f"{name} is {len(files)} things: {', '.join(sorted(files))}"
        for name, files in sorted(homes.items())
        if len(files) > 1 and name not in ALLOWED_TWICE and not all("/ops/" in path for path in files)
    ]


def main() -> int:
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    faults = [fault for path, source in sources.items() for fault in nothing_said(path, source)] + homonyms(sources)
    for fault in faults:
        print(fault)
    print(f"{len(sources)} files, {len(faults)} names to mend")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
