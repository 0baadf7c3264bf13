"""Mini-batches as models of other libraries expect them: one format a file, one row a format."""

from collections.abc import Mapping
from typing import Literal

from .base import BatchFormat
from .dgl import DGLFormat
from .pyg import PyGFormat

FORMATS: Mapping[str, BatchFormat] = {
    "blocks": BatchFormat(),
    "dgl": DGLFormat(),
    "pyg": PyGFormat(),
}
FormatName = Literal["blocks", "dgl", "pyg"]  # the rows' names, for checkers of types and the command line

__all__ = ["FORMATS", "BatchFormat", "FormatName"]
