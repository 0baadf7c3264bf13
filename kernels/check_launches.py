"""Compares every ``device.launch(...)`` of the package with the kernel's parameters, without running it.

Checked are the names of the operation, the kernel and its arguments, and which types are instantiated. What a launch
takes from ``**mapping`` is read where the mapping is a literal or the ``arguments`` of a class; a launch with any other
has to pass no argument that the kernel lacks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda import sources

GRID = {"blocks", "threads", "shared_bytes"}


def wrong_launches(folder: Path) -> list[str]:
    """What is wrong, a line each: ``path:line: ...``."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
    shared = {name: keys for tree in trees.values() for name, keys in _class_arguments(tree)}
    return [
        f"{path}:{call.lineno}: {wrong}"
        for path, tree in trees.items()
        for function, call in _launches(tree)
        for wrong in _wrong(call, _Scope(tree, function, shared))
    ]


def num_launches(folder: Path) -> int:
    return sum(len(list(_launches(ast.parse(path.read_text())))) for path in folder.rglob("*.py"))


class _Scope:
    """Where a launch stands: what its names may mean."""

    def __init__(self, tree: ast.Module, function: ast.AST, shared: dict[str, set[str]]) -> None:
        self._tree, self._function, self._shared = tree, function, shared

    def value(self, node: ast.expr) -> ast.expr | None:
        """Of a name, what the function assigns to it, if it does so once."""
        if not isinstance(node, ast.Name):
            return node
        assigned = [
            statement.value
            for statement in ast.walk(self._function)
            if (isinstance(statement, ast.Assign) and _names(statement.targets) == [node.id])
            or (isinstance(statement, ast.AnnAssign) and _names([statement.target]) == [node.id])
        ]
        return assigned[0] if len(assigned) == 1 else None

    def keys(self, node: ast.expr | None) -> set[str] | None:
        """Of a mapping; None where they cannot be told."""
        if isinstance(node, ast.Name):
            return self.keys(self.value(node))
        if isinstance(node, ast.Attribute) and node.attr == "arguments":
            owner = _last_name(node.value)
            return next((keys for name, keys in self._shared.items() if name.lower().endswith(owner.lower())), None)
        if isinstance(node, ast.Dict):
            return _union(
                {key.value} if isinstance(key, ast.Constant) else self.keys(value) if key is None else None
                for key, value in zip(node.keys, node.values, strict=True)
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return _union((self.keys(node.left), self.keys(node.right)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._returned(node.func.id)
        if isinstance(node, ast.DictComp):
            return self._filtered(node)
        return None

    def _returned(self, name: str) -> set[str] | None:
        for statement in self._tree.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                returns = [part for part in ast.walk(statement) if isinstance(part, ast.Return)]
                if len(returns) == 1:
                    return _Scope(self._tree, statement, self._shared).keys(returns[0].value)
        return None

    def _filtered(self, node: ast.DictComp) -> set[str] | None:
        """``{name: array for name, array in mapping.items() if name != "one"}``."""
        source, conditions = node.generators[0].iter, node.generators[0].ifs
        if not (
            isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and source.func.attr == "items"
        ):
            return None
        keys = self.keys(source.func.value)
        for condition in conditions:
            if not (isinstance(condition, ast.Compare) and isinstance(condition.ops[0], ast.NotEq)):
                return None
            without = condition.comparators[0]
            keys = keys - {without.value} if keys is not None and isinstance(without, ast.Constant) else None
        return keys


def _wrong(call: ast.Call, scope: _Scope) -> Iterator[str]:
    named = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args[:2]]
    if len(named) < 2 or not all(isinstance(name, str) for name in named):
        yield "launch() has to begin with the literal names of an operation and a kernel."
        return
    op, name = map(str, named)
    try:
        kernel = sources.kernel(op, name)
    except GnnLoadError as error:
        yield str(error)
        return
    known = {parameter.name for parameter in kernel.parameters}
    given = {keyword.arg for keyword in call.keywords if keyword.arg} - GRID
    spread = _union(scope.keys(keyword.value) for keyword in call.keywords if keyword.arg is None)
    if unknown := (given | (spread or set())) - known:
        yield f"{op}/{name} has no parameters {sorted(unknown)}; it has {sorted(known)}."
    if spread is not None and (missing := known - given - spread):
        yield f"{op}/{name} is launched without {sorted(missing)}."
    if twice := given & (spread or set()):
        yield f"{op}/{name} is given {sorted(twice)} twice."
    types = scope.value(call.args[2]) if len(call.args) > 2 else ast.Tuple([])
    if isinstance(types, ast.Tuple) and not any(_fits(types.elts, known) for known in kernel.instantiations):
        yield f"{op}/{name} is not instantiated for {ast.unparse(types)}; it is for {list(kernel.instantiations)}."


def _fits(types: list[ast.expr], instantiated: tuple[str, ...]) -> bool:
    """Whether types may be those of an instantiation; only literal ones can be told."""
    return len(types) == len(instantiated) and all(
        not isinstance(given, ast.Constant) or given.value == known
        for given, known in zip(types, instantiated, strict=True)
    )


def _launches(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Call]]:
    """Every launch of a device's kernel, and the innermost function around it."""
    waiting: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
    while waiting:
        function, node = waiting.pop()
        if isinstance(node, ast.FunctionDef):
            function = node
        if isinstance(node, ast.Call) and _is_launch(node.func):
            yield function, node
        waiting += [(function, child) for child in ast.iter_child_nodes(node)]


def _is_launch(called: ast.expr) -> bool:
    return (
        isinstance(called, ast.Attribute)
        and called.attr == "launch"
        and _last_name(called.value) in ("device", "_device")
    )


def _class_arguments(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Classes with an ``arguments`` that is a literal, and its keys."""
    for owner in ast.walk(tree):
        if isinstance(owner, ast.ClassDef):
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and method.name == "arguments":
                    returned = next((p.value for p in ast.walk(method) if isinstance(p, ast.Return)), None)
                    keys = _Scope(tree, method, {}).keys(returned)
                    if keys is not None:
                        yield owner.name, keys


def _union(parts: Iterable[set[str] | None]) -> set[str] | None:
    whole: set[str] = set()
    for part in parts:
        if part is None:
            return None
        whole |= part
    return whole


def _names(targets: list[ast.expr]) -> list[str]:
    return [target.id if isinstance(target, ast.Name) else "" for target in targets]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
