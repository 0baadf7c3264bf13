"""ZipLoader: PyG's own, which makes the mini-batches of several loaders for the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import tee
from typing import Any

import torch_geometric.loader as pyg

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.pyg.epochs import EpochRows, Origins
from lightning_gnnload.pyg.keywords import drawn_seed
from lightning_gnnload.pyg.threads import ThreadedLoader


class ZipLoader(EpochRows, pyg.ZipLoader):
    """PyG's ``ZipLoader``: each mini-batch is a tuple of those that some loaders make of the same rows.

    Loaders draw by their own seeds, so that mini-batches are a pure function of (graphs, settings, seeds, epoch, step,
    rows). Epochs and resuming are those of :class:`.NeighborLoader`.

    Args:
        loaders: of :class:`.NeighborLoader`, :class:`.LinkNeighborLoader` and :class:`.HGTLoader`.
        filter_per_worker: nothing: threads gather.
        seed: random seed of the order; None: of ``generator``, or of torch's own, which ``torch.manual_seed`` decides.
        **kwargs: those of torch's DataLoader; ``num_workers`` is the threads of each loader.

    Raises:
        LoaderConfigError: loaders of others; keywords that are none, or of DataLoader that mean nothing to threads.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from lightning_gnnload.pyg import NeighborLoader
        >>> data = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]), num_nodes=4)
        >>> near, far = NeighborLoader(data, [-1], seed=0), NeighborLoader(data, [-1, -1], seed=0)
        >>> [(one.num_nodes, two.num_nodes) for one, two in ZipLoader([near, far], batch_size=1)]
        [(3, 4), (2, 2), (1, 1), (1, 1)]
    """

    def __init__(
        self, loaders: Sequence[Any], filter_per_worker: bool | None = None, *, seed: int | None = None, **kwargs: Any
    ) -> None:
        strangers = [loader for loader in loaders if not (isinstance(loader, ThreadedLoader) and loader._is_ours)]
        if strangers or not loaders:
            which = (
                f"a {type(strangers[0]).__name__} of others, or with a sampler of others" if strangers else "no loaders"
            )
            raise LoaderConfigError(
                f"ZipLoader was given {which}. Give NeighborLoader, LinkNeighborLoader or HGTLoader of "
                "lightning_gnnload.pyg, or take PyG's own: from torch_geometric.loader import ZipLoader."
            )
        seed = drawn_seed(seed, None, kwargs)
        super().__init__(loaders, filter_per_worker, **self._honoured(kwargs, seed))
        self._begin()

    def _made_of(self, requests: Iterator[BatchRequest]) -> Iterator[Any]:
        loaders_batches = []
        for loader, own_requests in zip(self.loaders, tee(requests, len(self.loaders)), strict=True):
            worker = copy(loader)
            worker.num_workers, worker.prefetch_factor = self.num_workers, self.prefetch_factor
            loaders_batches.append(worker._made_of(own_requests))
        return zip(*loaders_batches, strict=True)

    def _origins(self) -> Origins:
        points = [loader._resume_point() for loader in self.loaders]
        return Origins(
            " ".join(point.seeds for point in points),
            " ".join(point.graph for point in points),
            " ".join(point.sampler for point in points),
            {"loaders": [[point.seed, point.settings] for point in points]},
        )
