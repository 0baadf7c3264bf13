"""Data sets as light descriptors: ``prepare()`` once a machine, ``load()`` in every rank."""

import warnings
from importlib import import_module
from typing import Any

from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.datasets.debian import Debian
from lightning_gnnload.datasets.folder import GraphFolder
from lightning_gnnload.datasets.graphbolt import GraphBolt
from lightning_gnnload.datasets.linksplit import LinkSplit
from lightning_gnnload.datasets.ogb import OGB
from lightning_gnnload.datasets.purchases import Purchases
from lightning_gnnload.datasets.reddit import Reddit
from lightning_gnnload.datasets.relbench import RelBench
from lightning_gnnload.datasets.synthetic import Synthetic

__all__ = [
    "OGB",
    "Dataset",
    "Debian",
    "GraphBolt",
    "GraphFolder",
    "LinkSplit",
    "Purchases",
    "Reddit",
    "RelBench",
    "Synthetic",
]


def __getattr__(name: str) -> Any:
    if name != "DGLCSV":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = "lightning_gnnload.datasets.DGLCSV has moved. Write: from lightning_gnnload import DGLCSV"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return import_module("lightning_gnnload").DGLCSV
