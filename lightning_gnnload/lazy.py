"""Names whose modules are imported when they are first used: of packages, and functions of classes below them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Generic, TypeVar

Made = TypeVar("Made")


def homes(package: str) -> dict[str, str | None]:
    """The module of each name of a package, by the stub beside its file ``__init__.py``; None for its own modules."""
    stub = ast.parse(Path(package).with_suffix(".pyi").read_text(encoding="utf-8"))
    rows = [row for row in stub.body if isinstance(row, ast.ImportFrom)]
    return {name.name: row.module for row in rows for name in row.names}


def listing(variables: Iterable[str], names: Iterable[str]) -> list[str]:
    """What ``dir()`` shows of a package: its public names, and of its other ``variables`` those that are Python's.

    Example:
        >>> listing(["__doc__", "import_module", "_HOMES"], ["Graph"])
        ['Graph', '__doc__']
    """
    return sorted({*names, *(name for name in variables if name.startswith("__"))})


class Imported(Generic[Made]):
    """A static method of a class that is the function of the same name in a module above it, which imports the class.

    Args:
        module: the full name of the module.

    Example:
        >>> class Paths:
        ...     join = Imported[str]("posixpath")
        >>> Paths.join("a", "b"), Paths.join.__module__
        ('a/b', 'posixpath')
    """

    def __init__(self, module: str) -> None:
        self.module = module

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Made]:
        return getattr(import_module(self.module), self.name)
