"""The formats that mini-batches are converted to: one a file, one row each."""

from collections.abc import Mapping
from typing import Literal

from lightning_gnnload.adapters.base import BatchFormat
from lightning_gnnload.adapters.dgl.graphbolt import GraphBoltFormat
from lightning_gnnload.adapters.dgl.write import DGLFormat
from lightning_gnnload.adapters.pyg.write import PyGFormat

FORMATS: Mapping[str, BatchFormat] = {
    "blocks": BatchFormat(),
    "dgl": DGLFormat(),
    "pyg": PyGFormat(),
    "graphbolt": GraphBoltFormat(),
}
FormatName = Literal["blocks", "dgl", "pyg", "graphbolt"]  # the rows' names, for checkers of types and the command line
