"""``lightning_gnnload.pyg`` in its place; see :mod:`.pyg_loaders`."""

from __future__ import annotations

from functools import partial

from lightning_gnnload import pyg
from tests.benchmarks.pyg_loaders import PyGLoaders
from tests.benchmarks.serve import serve

if __name__ == "__main__":
    serve(partial(PyGLoaders, pyg.NeighborLoader, pyg.LinkNeighborLoader, pyg.GnnloadSampler))
