"""The former place of the data sets, which the package itself has."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    package = import_module("lightning_gnnload")
    if name not in package.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = f"{__name__}.{name} has moved. Write: from lightning_gnnload import {name}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(package, name)
