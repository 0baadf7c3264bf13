"""Data sets as light descriptors: ``prepare()`` once a machine, ``load()`` in every rank."""

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
