"""``torch_geometric.loader`` with pyg-lib; see :mod:`.pyg_loaders`."""

from __future__ import annotations

from functools import partial

import torch_geometric.typing
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.sampler import NeighborSampler

from tests.benchmarks.errors import Unavailable
from tests.benchmarks.pyg_loaders import PyGLoaders
from tests.benchmarks.serve import serve

if not torch_geometric.typing.WITH_PYG_LIB:
    raise Unavailable("PyG finds no pyg-lib")

if __name__ == "__main__":
    serve(partial(PyGLoaders, NeighborLoader, LinkNeighborLoader, NeighborSampler))
