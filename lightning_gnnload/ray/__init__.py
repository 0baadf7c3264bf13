"""Ray Train starts, places and restarts the ranks, and the owners of a partition.

Names are those of ``__init__.pyi``. The module of a name is imported when the name is first used.
"""

from importlib import import_module
from typing import Any

from lightning_gnnload.errors import MissingExtraError
from lightning_gnnload.lazy import homes, listing

_HOMES = homes(__file__)

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f".{_HOMES[name]}", __name__)
    except ImportError as error:
        # Ray without what its extra ``train`` brings raises an ImportError of its own, which names no module.
        if isinstance(error, MissingExtraError) or not _is_rays(error):
            raise
        raise MissingExtraError("ray", "ray", f"lightning_gnnload.ray.{name}", error) from error
    globals()[name] = value = getattr(home, name)
    return value


def _is_rays(error: ImportError) -> bool:
    return (error.name or "").partition(".")[0] == "ray" or "ray[train]" in str(error)


def __dir__() -> list[str]:
    return listing(globals(), _HOMES)
