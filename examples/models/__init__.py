"""The models of the examples, each a plain LightningModule."""

from .classifiers import GAT, GCN, GraphSAGE, NodeClassifier, PinSAGE
from .hgt import HGT
from .temporal import TemporalSAGE
from .typed import RGCN, TypedClassifier

__all__ = [
    "GAT",
    "GCN",
    "HGT",
    "RGCN",
    "GraphSAGE",
    "NodeClassifier",
    "PinSAGE",
    "TemporalSAGE",
    "TypedClassifier",
]
