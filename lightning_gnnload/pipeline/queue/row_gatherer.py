"""RowGatherer: the rows of a trainer's mini-batches, gathered by the trainer while samplers draw."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.features import Reads, summed_reads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.pipeline.loader import Prefetcher, SampledLoader
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.pipeline.source import BatchSource


class _Gathering(NamedTuple):
    """A step whose mini-batch has come, and the one that it becomes, with where its rows came from."""

    step: int
    payload: Payload
    completed: Future[tuple[MiniBatch, Reads]]


class RowGatherer:
    """Gathers the rows that samplers leave out, so that these cross the network once: from their owners, or this
    machine's disk, to the trainer. Threads do so for mini-batches that have come, while the model trains.

    For one stream, and one thread.

    Args:
        source: whose stores have the rows, those of nodes.
        rank: the trainer's, of ``num_ranks``.
        num_threads: mini-batches whose rows are gathered at once.

    Source: GNNLab (EuroSys'22), section 5.2: trainers extract; here on the host.
    """

    def __init__(self, source: BatchSource, *, rank: int, num_ranks: int, num_threads: int) -> None:
        self._source = source
        self._rank, self._num_ranks = rank, num_ranks
        self._most = max(num_threads, 1)
        self._threads = Threads(self._most, "gnnload-gather")
        self._ahead: deque[_Gathering] = deque()

    def take(self, queue: BatchQueue, stream: int, step: int, stop: int) -> tuple[MiniBatch, Payload] | None:
        """Takes the next mini-batch like :meth:`.BatchQueue.take`, with its rows; steps end before ``stop``."""
        while self._ahead and self._ahead[0].step < step:
            self._ahead.popleft()  # it was skipped
        if not self._ahead and not self._begin(queue, stream, step):
            return None
        while (following := self._ahead[-1].step + 1) < stop and len(self._ahead) <= self._most:
            if not queue.has_come(stream, following) or not self._begin(queue, stream, following):
                break
        first = self._ahead.popleft()
        batch, reads = self._threads.result(first.completed)
        return batch, replace(first.payload, reads=reads)

    def forget(self, stream: int) -> None:
        """Ends what is under way for a stream that is read no further."""
        self._ahead.clear()
        self._threads.shutdown(cancel_futures=True)

    def _begin(self, queue: BatchQueue, stream: int, step: int) -> bool:
        """Takes a step's mini-batch and begins to gather; returns whether a sampler made it."""
        if (delivered := queue.take(stream, step)) is None:
            return False
        batch, payload = delivered
        self._ahead.append(_Gathering(step, payload, self._threads.submit(self._complete, batch)))
        return True

    def _complete(self, batch: MiniBatch) -> tuple[MiniBatch, Reads]:
        """Returns the mini-batch with its rows, and where these came from. Called by threads."""
        source, request = self._source, BatchRequest(batch.epoch, batch.step, self._rank, self._num_ranks)
        source.open()
        tables, positions, reads = dict[str, torch.Tensor](), dict[str, torch.Tensor](), list[Reads]()
        for name in source.columns:
            store, ids, table = source.features[name], batch.nodes, source.data.tables.get(name)
            if isinstance(table, NodeTable):
                are_there = (ids >= table.nodes.start) & (ids < table.nodes.stop)
                positions[name] = are_there.nonzero().view(-1)
                ids = ids[positions[name]] - table.first
            if source.announces:
                store.announce(request)
            rows = torch.empty((len(ids), store.shape[1]), dtype=store.dtype)
            reads.append(store.gather(ids, rows) or ())
            tables[name] = rows.view(len(ids), *store.row_shape)
        completed = replace(batch, x=tables.pop("x", None), tables=tables, positions=positions)
        return completed, reads[0] if len(reads) == 1 else summed_reads(reads)


def gather_on_trainer(loader: SampledLoader) -> None:
    """Has what samplers make in the place of a trainer's loader come without rows, which this process gathers; on its
    device, if the loader does so. Raises LoaderConfigError: tables of edges, which are gathered beside their lists."""
    source, on_device = loader.source, loader.prefetcher
    if source.data.edge_stores:
        raise LoaderConfigError(
            f"gathered_by='trainers', but the data has tables of edges ({', '.join(source.data.edge_stores)}), whose "
            "rows samplers gather. Give gathered_by='samplers', or leave these tables out."
        )

    def prefetcher() -> Prefetcher | None:
        device_prefetcher = on_device()
        if device_prefetcher is not None or not source.features:
            return device_prefetcher
        return RowGatherer(source, rank=loader.rank, num_ranks=loader.num_ranks, num_threads=loader.num_threads)

    loader.prefetcher = prefetcher
