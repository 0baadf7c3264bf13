"""PyG's loaders and data modules by one changed import, with neither pyg-lib nor torch-sparse.

Names are those of ``__init__.pyi``. The module of a name is imported when the name is first used, so that loaders load
no Lightning.
"""

from importlib import import_module
from typing import Any

from lightning_gnnload.errors import MissingExtraError
from lightning_gnnload.lazy import homes

_HOMES = homes(__file__)

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f".{_HOMES[name]}", __name__)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch_geometric":
            raise
        raise MissingExtraError("torch_geometric", "pyg", f"lightning_gnnload.pyg.{name}", error) from error
    globals()[name] = value = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
