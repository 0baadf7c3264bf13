"""The models of the examples, each a plain LightningModule."""

from .classifiers import GAT, GCN, GraphSAGE, NodeClassifier, PinSAGE
from .links import LinkSAGE
from .temporal import TemporalSAGE
from .typed import RGCN, TypedClassifier

__all__ = [
    "GAT",
    "GCN",
    "RGCN",
    "GraphSAGE",
    "LinkSAGE",
    "NodeClassifier",
    "PinSAGE",
    "TemporalSAGE",
    "TypedClassifier",
]
