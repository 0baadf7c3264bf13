"""lightning_gnnload: a PyTorch Lightning plugin that samples graphs while the model trains.

Names are those of ``__init__.pyi``. The module of a name is imported when the name is first used, so that samplers and
data load no Lightning, and the command line answers at once.
"""

from importlib import import_module
from typing import Any

from .lazy import homes, listing

__version__ = "0.2.0"

_HOMES = homes(__file__)

__all__ = [name for name, home in _HOMES.items() if home is not None]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:  # one of its modules, of which only those for users are listed
        try:
            if name.isidentifier() and not name.startswith("_"):
                return import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # A LightningCLI takes classes without their module if they are imported.
    if home.startswith(("plugin.", "models.")):
        for module in {*_HOMES.values()} - {None}:
            import_module(f".{module}", __name__)
        models = import_module(".models", __name__)
        for model in models.__all__:
            getattr(models, model)
    globals()[name] = value = getattr(import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return listing(globals(), _HOMES)
