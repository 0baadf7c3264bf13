"""The former place of the data sets, which the package itself has."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

_NAMES = ("DGLCSV", *import_module("lightning_gnnload.datasets").__all__)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: see lightning_gnnload.datasets")
    message = f"{__name__}.{name} has moved. Write: from lightning_gnnload import {name}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(import_module("lightning_gnnload"), name)


def __dir__() -> list[str]:
    return [*_NAMES]
