"""EpochRows: rows in an epoch's order, which loaders of PyG's names make mini-batches of, and resume amid."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import BatchSampler, SequentialSampler

from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import LoaderConfigError, warn
from lightning_gnnload.pipeline.position import Position
from lightning_gnnload.pipeline.resume import OnResumeChange, ResumePoint
from lightning_gnnload.pyg.inputs import check_listed
from lightning_gnnload.pyg.keywords import OF_GRAPH_DATA_MODULE, DrawnSeed
from lightning_gnnload.pyg.rows import AnnouncedRows, OrderedRows, ShuffledRows
from lightning_gnnload.settings import keywords_of, refuse_unknown


class Origins(NamedTuple):
    """What a loader's mini-batches are a function of: checksums of rows and graph, the sampler, other settings."""

    seeds: str
    graph: str
    sampler: str
    settings: dict[str, Any]


class EpochRows:
    """Lists the rows of each mini-batch of an epoch, as torch's DataLoader would, and knows where its reader is.

    A loader inherits it beside PyG's class, and makes mini-batches in :meth:`_made_of`. They are a pure function of
    (graph, settings, seed, epoch, step, rows), the same for any number of workers, which are threads.
    """

    # Set by PyG's loaders and torch's.
    dataset: Any
    num_workers: int
    prefetch_factor: int | None
    worker_init_fn: Callable[[int], None] | None
    pin_memory: bool
    sampler: Any
    batch_sampler: Any
    batch_size: int | None
    drop_last: bool
    loader_cores: Any
    _old_worker_init_fn: Callable[[int], None]
    seed: int
    _is_ours = True  # not torch's, or those of a sampler of others'
    on_resume_change: OnResumeChange = "error"
    """What becomes of an epoch that is resumed and whose mini-batches have become others: ``"error"`` or ``"warn"``."""

    def _honoured(self, kwargs: dict[str, Any], seed: int, is_ours: bool = True) -> dict[str, Any]:
        """Returns the keywords for torch's DataLoader, of those that were given: all, where the mini-batches are not
        ours, and are left to it.

        Raises:
            LoaderConfigError: some that mean nothing to threads.
        """
        makers = [vars(base)["__init__"] for base in type(self).__mro__[:-1] if "__init__" in vars(base)]
        keywords = [*dict.fromkeys(name for maker in makers for name in keywords_of(maker))]
        refuse_unknown(type(self).__name__, kwargs, keywords, OF_GRAPH_DATA_MODULE)
        self.seed = seed
        self.position = Position()
        self._epoch_of_rows = 0
        if not is_ours:
            return kwargs
        for name, (is_fine, instead) in _REFUSED.items():
            if name in kwargs and not is_fine(kwargs[name]):
                raise LoaderConfigError(f"{type(self).__name__} does not support {name}={kwargs[name]!r}: {instead}")
        kwargs = {name: value for name, value in kwargs.items() if name not in ("dataset", "collate_fn")}
        if kwargs.get("sampler") is None and kwargs.get("batch_sampler") is None:
            shuffle = kwargs.pop("shuffle", None)
            kwargs["sampler"] = ShuffledRows(self.position, seed) if shuffle else OrderedRows(self.position)
        return kwargs  # with shuffle and a sampler, torch says why this cannot be

    def _begin(self) -> None:
        """Does what can be done only when PyG's constructor has read the rows."""
        if self._is_ours:
            listed = self.sampler if self.batch_sampler is None else self.batch_sampler
            listed = getattr(listed, "sampler", listed)  # of a batch sampler
            if not isinstance(listed, OrderedRows | ShuffledRows):
                check_listed(listed, len(self.dataset))
            self._listen()
            self._check_rows()
            if self.num_workers:
                _say_once()

    def _check_rows(self) -> None:
        """Refuses what no mini-batch can have, and tells what is seldom meant."""

    def _tell(self, text: str) -> None:
        """Warns of what is allowed, but seldom meant."""
        warn(f"{type(self).__name__}: {text}")

    def _listen(self) -> None:
        """Puts an object where Lightning looks for one to announce each epoch to: ``loader.sampler``, and the sampler
        of ``loader.batch_sampler``."""
        if isinstance(self.sampler, OrderedRows | ShuffledRows):
            self.sampler.data_source = self.dataset
        elif self.batch_size is not None:  # so torch made the batch sampler, for this loader alone
            self.batch_sampler.sampler = AnnouncedRows(self.position, self.sampler)
        elif self.batch_sampler is not None:
            # Beside it torch has made a sampler of its own, which nobody reads, and lets none be given.
            vars(self)["sampler"] = OrderedRows(self.position, self.dataset)

    @property
    def epoch(self) -> int:
        """The epoch that was begun last, or is to begin."""
        return self.position.epoch

    def check_worker_number_rationality(self) -> None:
        """Says nothing: torch counts worker processes, and these are threads."""

    def _aff_init_fn(self, worker_id: int) -> None:
        """Binds the calling thread to its cores; PyG's own, meant for a process, would bind the main thread."""
        cores = self.loader_cores[worker_id]
        os.sched_setaffinity(0, cores if isinstance(cores, list) else [cores])
        self._old_worker_init_fn(worker_id)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``; otherwise each is the one after the last."""
        self.position.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        if not self._is_ours:
            return super().__iter__()  # type: ignore[misc]
        return self._get_iterator()

    def _get_iterator(self) -> Iterator[Any]:
        if not self._is_ours:
            return super()._get_iterator()  # type: ignore[misc]
        return self._read(self.position.read(self._made, self._check))

    def _read(self, batches: Iterator[Any]) -> Iterator[Any]:
        # Torch's DistributedSampler is told by whoever made it.
        epoch = getattr(self.sampler, "epoch", None)
        if isinstance(epoch, int) and epoch != self._epoch_of_rows:
            self._epoch_of_rows = epoch
            self.position.announce(epoch)
        yield from batches

    def _check(self, point: ResumePoint) -> None:
        """Raises CheckpointError: the epoch cannot go on with the settings of this loader."""
        point.check(self._resume_point(), 1, _length(self), self.on_resume_change)

    def _made(self, epoch: int, start: int) -> Iterator[Any]:
        """Yields an epoch's mini-batches, from a step on."""
        return self._made_of(self._requests(epoch, start))

    def _made_of(self, requests: Iterator[BatchRequest]) -> Iterator[Any]:
        """Yields the mini-batches of these rows."""
        raise NotImplementedError

    def _requests(self, epoch: int, start: int) -> Iterator[BatchRequest]:
        if isinstance(self.sampler, ShuffledRows):
            self.sampler.drawn_epoch = epoch
        for step, index in enumerate(self._index()):
            if step >= start:
                yield BatchRequest(epoch, step, 0, 1, [index] if isinstance(index, int) else index)

    def _index(self) -> Iterable[Any]:
        """Returns the rows of each mini-batch of an epoch: slices of an array where torch would list the same rows, one
        number at a time."""
        rows, batches = self.sampler, self.batch_sampler
        is_plain = type(batches) is BatchSampler and self.batch_size is not None
        if not is_plain or type(rows) not in (ShuffledRows, OrderedRows, SequentialSampler):
            return self._index_sampler  # type: ignore[attr-defined]
        order = rows.of_epoch() if isinstance(rows, ShuffledRows) else np.arange(len(rows))
        size = batches.batch_size
        return (order[step * size : (step + 1) * size] for step in range(len(batches)))

    @property
    def _is_pinned(self) -> bool:
        return self.pin_memory and torch.cuda.is_available()

    # Resuming, as torchdata's StatefulDataLoader has it.

    def state_dict(self) -> dict[str, Any]:
        """Returns where the loader is: mini-batches that were given are done. Nothing, with a sampler of others'."""
        if not self._is_ours:
            return {}
        return (self.position.loaded or self._resume_point()).to_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where :meth:`state_dict` was, unless another epoch is set; by its seed, where
        this loader was given none.

        Raises:
            CheckpointError: ``state`` is not a loader's; or, when the iteration begins, its epoch cannot go on with the
                settings of this one.
        """
        point = ResumePoint.from_state(state)
        if isinstance(self.seed, DrawnSeed) and 0 <= point.seed < 2**64:
            self.seed = DrawnSeed(point.seed)
            if isinstance(self.sampler, ShuffledRows):
                self.sampler.seed = point.seed
        self.position.load(point)

    def _resume_point(self) -> ResumePoint:
        order = type(self.sampler if self.batch_sampler is None else self.batch_sampler).__name__
        order = f"{order} of {type(self.sampler).__name__}"
        if (num_ranks := getattr(self.sampler, "num_replicas", 1)) > 1:
            order = f"{order}, shared by {num_ranks} ranks"
        seeds, graph, sampler, settings = self._origins()
        return ResumePoint(
            **self.position.place(),
            num_seeds=len(self.dataset),
            global_batch_size=self.batch_size or 0,
            seed=int(self.seed),
            order=order,
            seeds=seeds,
            graph=graph,
            sampler=sampler,
            settings=json.dumps({"drop_last": self.drop_last, **settings}),
        )

    def _origins(self) -> Origins:
        """Returns what mini-batches are a function of, beside what any loader knows."""
        raise NotImplementedError


def _length(loader: Any) -> int | None:
    """Returns how many mini-batches an epoch has; None where the user's sampler does not say."""
    try:
        return len(loader)
    except TypeError:
        return None


def _is_none(value: Any) -> bool:
    return value is None


def _is_loaders_own(function: Any) -> bool:
    """Whether Lightning took it from a loader, to make another one like it."""
    return function is None or isinstance(getattr(function, "__self__", None), torch.utils.data.DataLoader)


_REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "timeout": (
        lambda value: value == 0,
        "it bounds the wait for a worker process; threads need none.",
    ),
    "multiprocessing_context": (_is_none, "it says how worker processes begin; workers are threads. Leave it out."),
    "in_order": (bool, "mini-batches come in order, so that they are the same for any number of workers."),
    "collate_fn": (_is_loaders_own, "PyG's loaders drop it in silence. Give transform=, which gets the mini-batch."),
    "dataset": (lambda value: isinstance(value, range), "rows are those of input_nodes or edge_label_index."),
}
"""Keywords of torch's DataLoader: which values mean nothing, and why others cannot be heeded."""


@cache
def _say_once() -> None:
    warn("num_workers means threads of this process here: they share its memory, and no worker processes are started.")
