"""Data sets as light descriptors: ``prepare()`` once a machine, ``load()`` in every rank."""

from lightning_gnnload.data.datasets.base import Dataset
from lightning_gnnload.data.datasets.debian import Debian
from lightning_gnnload.data.datasets.dgl_csv import DGLCSV
from lightning_gnnload.data.datasets.folder import GraphFolder
from lightning_gnnload.data.datasets.graphbolt import GraphBolt
from lightning_gnnload.data.datasets.linksplit import LinkSplit
from lightning_gnnload.data.datasets.ogb import OGB
from lightning_gnnload.data.datasets.purchases import Purchases
from lightning_gnnload.data.datasets.reddit import Reddit
from lightning_gnnload.data.datasets.relbench import RelBench
from lightning_gnnload.data.datasets.synthetic import Synthetic

__all__ = [
    "DGLCSV",
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
