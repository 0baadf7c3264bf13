"""Where two Lightnings meet: our classes are those of one, and a Trainer of the other one must say so.

What it says by itself is that it expected something else, but not that there is another package of that name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NoReturn

from lightning_gnnload.errors import LightningCompatibilityError
from lightning_gnnload.plugin.compat import PACKAGE_VARIABLE, PACKAGES, pl

_OTHER, _OTHER_NAME = next((module, name) for name, module in PACKAGES.items() if module != pl.__name__)
REMEDY = (
    f"lightning_gnnload follows {pl.__name__} here. For {_OTHER}, set the environment variable "
    f"{PACKAGE_VARIABLE}={_OTHER_NAME}, or import nothing of {pl.__name__}"
)


def refuse(what: str) -> NoReturn:
    """Raises LightningCompatibilityError."""
    raise LightningCompatibilityError(f"{what} cannot work with a Trainer of {_OTHER}: {REMEDY}.")


def refuse_by_name(names: Iterable[str]) -> None:
    """Strategies that the other Lightning, where it is imported already, shall know well enough to refuse."""
    if _OTHER in sys.modules:
        registry = import_module(_OTHER).strategies.StrategyRegistry
        for name in names:
            if name not in registry:
                registry.register(name, lambda name=name, **_: refuse(f"strategy={name!r}"))


class OfOneLightning:
    """A mixin for data modules."""

    _trainer: Any = None

    @property
    def trainer(self) -> Any:
        """Set by the Trainer that uses it. Raises LightningCompatibilityError: that is not of this Lightning."""
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Any) -> None:
        if type(trainer).__module__.startswith(f"{_OTHER}."):
            refuse(type(self).__name__)
        self._trainer = trainer

    def __iter__(self) -> NoReturn:
        """A Trainer of the other Lightning takes it for a loader."""
        raise LightningCompatibilityError(
            f"{type(self).__name__} is no loader: iterate over train_dataloader() or another of its loaders. "
            f"If it was given to a Trainer of {_OTHER}: {REMEDY}."
        )
