"""Models by name, which take what they need to know from the data. Names are those of ``__init__.pyi``."""

from importlib import import_module
from typing import Any

from lightning_gnnload.lazy import homes, listing

_HOMES = homes(__file__)

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return listing(globals(), __all__)
