"""The versions that a report of an error names; read from what pip wrote down, so that nothing is imported."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from lightning_gnnload import __version__

_PACKAGES = ("torch", "pytorch-lightning", "lightning", "torchmetrics", "numpy")
EXTRAS = {
    "pyg": ("torch-geometric",),
    "dgl": ("dgl",),
    "tables": ("duckdb", "pyarrow"),
    "ogb": ("ogb",),
    "partition": ("pymetis",),
}
"""The packages that each extra brings, for machines without a GPU."""


def version_of(package: str) -> str:
    """Returns what is installed; an empty text where nothing is."""
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


def versions() -> list[str]:
    """Lists this package, Python, and what the package needs, each by its name and version."""
    installed = [f"{package} {release}" for package in _PACKAGES if (release := version_of(package))]
    return [f"lightning-gnnload {__version__}", f"Python {platform.python_version()}", *installed]
