"""Checked entry points to the kernels. Nothing above this layer imports native code.

Names are those of ``__init__.pyi``. The module of a name is imported when the name is first used.
"""

from importlib import import_module
from typing import Any

from ..lazy import homes, listing

_HOMES = homes(__file__)

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return listing(globals(), _HOMES)
