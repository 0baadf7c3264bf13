"""Names of packages whose modules are imported when a name is first used: those of their stubs, ``__init__.pyi``."""

import ast
from pathlib import Path


def homes(package: str) -> dict[str, str | None]:
    """Returns the module that holds each name of a package; None for a module of the package itself.

    Args:
        package: file of its ``__init__.py``.
    """
    stub = ast.parse(Path(package).with_suffix(".pyi").read_text(encoding="utf-8"))
    rows = [row for row in stub.body if isinstance(row, ast.ImportFrom)]
    return {name.name: row.module for row in rows for name in row.names}
