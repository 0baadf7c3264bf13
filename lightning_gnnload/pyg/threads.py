"""ThreadedLoader: what a loader of PyG becomes where threads of its process make the mini-batches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, SequentialSampler
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NodeSamplerInput

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.checksums import checksum_of
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.data.sanity import visibility_issue
from lightning_gnnload.data.seedform import SeedForm
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.data.visibility import VisibleEdges
from lightning_gnnload.errors import LoaderConfigError, warn
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.position import Position
from lightning_gnnload.pipeline.resume import OnResumeChange, ResumePoint
from lightning_gnnload.pipeline.slots import SlotPool
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pyg.attributes import Attributes, as_data, describe_omitted, repeated
from lightning_gnnload.pyg.inputs import check_listed, check_range, check_structure
from lightning_gnnload.pyg.keywords import OF_GRAPH_DATA_MODULE, DrawnSeed
from lightning_gnnload.pyg.outputs import NEW_MEMORY, sampler_output
from lightning_gnnload.pyg.rows import AnnouncedRows, OrderedRows, ShuffledRows
from lightning_gnnload.pyg.sampler import GnnloadSampler
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.seeds.rows import SeedBatch, SeedKind, Sharing
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.settings import keywords_of, refuse_unknown


class PyGSeeds(SeedKind):
    """The rows of a PyG loader's input, as PyG's rules ask for them."""

    form = SeedForm("pyg")

    def __init__(self, loader: ThreadedLoader) -> None:
        self.loader = loader
        self._sampler, self._inputs = loader._sampler, loader.input_data
        self._negatives = getattr(loader, "neg_sampling", None)
        self.rows = np.arange(len(loader.dataset))
        self.sharing: Sharing = "disjoint" if self._sampler.disjoint else "plain"
        self.is_timed = self._sampler.is_temporal
        self.has_negatives = self._negatives is not None

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(("rows",) if self.sharing == "disjoint" else ())

    @property
    def settings_by_name(self) -> dict[str, Any]:
        labels, negatives = getattr(self._inputs, "label", None), self._negatives
        settings = {"subgraph_type": self._sampler.subgraph_type.value, "inputs": checksum_of_inputs(self._inputs)}
        settings["edge_label"] = None if labels is None else f"{checksum_of([labels]):08x}"
        settings["neg_sampling"] = None
        if negatives is not None:
            weights = checksum_of([negatives.src_weight, negatives.dst_weight])
            settings["neg_sampling"] = f"{negatives.mode.value} {negatives.amount} {weights:08x}"
        return settings

    def nodes_of(self, rows: np.ndarray) -> np.ndarray:
        return self._sampler.nodes_of(self._inputs[torch.from_numpy(rows)])

    def ask(self, rows: Any, key: DrawKey) -> SeedBatch:
        listed = torch.as_tensor(rows)
        check_range(listed, len(self._inputs.node if isinstance(self._inputs, NodeSamplerInput) else self._inputs.row))
        return self._sampler.seed_batch(self._inputs[listed], key, self._negatives)

    def seen(self, rows: np.ndarray) -> VisibleEdges | None:
        return self._sampler.seen(self._inputs[torch.from_numpy(rows)])

    def bound(self, order: SeedOrder, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        table = self._ordered_table
        return order.bind_rows(table, table.ends, self._sampler.graph, global_batch_size)

    @cached_property
    def _ordered_table(self) -> SeedTable:
        """The nodes of all rows, and their times, as orders look at them."""
        nodes, times, node_time = self.nodes_of(self.rows), self._inputs.time, self._sampler.graph.node_time
        if nodes.shape[1] == 2:
            return SeedTable(src=nodes[:, 0], dst=nodes[:, 1], time=times)
        return SeedTable(nodes[:, 0], time=node_time[nodes[:, 0]] if times is None and node_time is not None else times)


class ThreadedLoader:
    """What our loaders do otherwise than PyG's, beside which each of them inherits it: threads make mini-batches.

    Mini-batches are a pure function of (graph, settings, seed, epoch, step, seeds), the same for any number of workers.
    """

    # Set by PyG's loaders and torch's.
    data: Any
    input_data: Any
    dataset: Any
    transform: Any
    transform_sampler_output: Any
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
    _attributes_class = Attributes
    _is_told = False
    on_resume_change: OnResumeChange = "error"
    """What becomes of an epoch that is resumed and whose mini-batches have become others: ``"error"`` or ``"warn"``."""

    def _honoured(self, kwargs: dict[str, Any], seed: int, sampler: Any) -> dict[str, Any]:
        """Returns the keywords for torch's DataLoader, of those that were given: all, where another sampler than ours
        leaves the mini-batches to it.

        Raises:
            LoaderConfigError: some that mean nothing to threads.
        """
        makers = [vars(base)["__init__"] for base in type(self).__mro__[:-1] if "__init__" in vars(base)]
        keywords = [name for maker in makers for name in keywords_of(maker)]
        refuse_unknown(type(self).__name__, kwargs, keywords, OF_GRAPH_DATA_MODULE)
        self.seed = seed
        self.position = Position()
        self._epoch_of_rows = 0
        if not isinstance(sampler, GnnloadSampler):
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
        if isinstance(self._sampler, GnnloadSampler):
            listed = self.sampler if self.batch_sampler is None else self.batch_sampler
            listed = getattr(listed, "sampler", listed)  # of a batch sampler
            if not isinstance(listed, OrderedRows | ShuffledRows):
                check_listed(listed, len(self.dataset))
            self._listen()
            check_structure(self.data)
            self._check_rows()
            if self.num_workers:
                _say_once()

    def _check_rows(self) -> None:
        """Refuses rows and attributes that no mini-batch can have, and tells what is seldom meant, once a sampler."""
        rows = self.input_data, getattr(self, "neg_sampling", None)
        self._sampler.check_inputs(*rows)
        oddities: list[str | None] = [*self._sampler.oddities(*rows)]
        if isinstance(self.data, Data | HeteroData):
            is_links = not isinstance(self.input_data, NodeSamplerInput)
            oddities.append(describe_omitted(self.data, self.input_data.input_type, links=is_links))
        if can_read(self.data):
            self._attributes_class(self.data, self._sampler.graph, edges=False)  # refuses what has no rows
        for text in oddities:
            if text is not None and text not in self._sampler.warned:
                self._sampler.warned.add(text)
                self._tell(text)

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

    @property
    def _sampler(self) -> Any:
        """The sampler of nodes or links."""
        raise NotImplementedError

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
        if not isinstance(self._sampler, GnnloadSampler):
            return super().__iter__()  # type: ignore[misc]
        return self._get_iterator()

    def _get_iterator(self) -> Iterator[Any]:
        if not isinstance(self._sampler, GnnloadSampler):
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
        sampler = self._sampler
        attributes = Attributes(self.data, sampler.graph, edges=are_drawn(sampler)) if self._is_gathered() else None
        lists, rows = SlotPool(pinned=self._is_pinned), SlotPool(pinned=self._is_pinned)
        room = rows.room if self._is_pinned else NEW_MEMORY

        def convert(batch: MiniBatch) -> Any:
            if not self._is_pinned:  # few: who keeps labels does not keep what was sampled
                batch.seed_columns = {name: column.clone() for name, column in batch.seed_columns.items()}
            output = sampler_output(batch, sampler, room=lists.room)
            return self._filtered(output, attributes, lambda source: source.gathered(output, rows.room, room))

        return self._threads(GraphData(sampler.graph), sampler.inner(), convert).made(self._requests(epoch, start))

    def _threads(self, tables: GraphData, inner: Sampler, convert: Callable[[MiniBatch], Any]) -> SampledLoader:
        """Returns what makes mini-batches of the rows that this loader lists: ``inner`` draws, ``tables`` are gathered,
        and ``convert`` makes of a mini-batch what the loader yields."""
        sampler = self._sampler
        workload = Workload(sampler.graph, inner, lambda *_: PyGSeeds(self), seed=self.seed)
        if not self._is_told and (edges := workload.seen()) is not None:
            issue = visibility_issue(edges, f"{type(self).__name__}: the seeds", _OF_SEEDS)
            if issue is not None and issue.is_suspicious:
                warn(issue.text)
        self._is_told = True
        return SampledLoader(
            BatchSource(tables, workload),
            num_threads=self.num_workers,
            num_ahead=None if self.prefetch_factor is None else self.num_workers * self.prefetch_factor,
            on_thread=self.worker_init_fn,
            convert=convert,
            pinned=self._is_pinned,
        )

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

    def filter_fn(self, out: Any) -> Any:
        """Returns the data of who was sampled, as PyG's own does, by whose fields it goes."""
        if not isinstance(self._sampler, GnnloadSampler):
            return super().filter_fn(out)  # type: ignore[misc]
        if not can_read(self.data):
            loader = copy(self)
            if isinstance(self.data, Data | HeteroData):
                loader.data = repeated(self.data)
            return super(ThreadedLoader, loader).filter_fn(out)  # type: ignore[misc]
        if self.transform_sampler_output is not None:
            out = self.transform_sampler_output(out)
        attributes = Attributes(self.data, self._sampler.graph, edges=False)
        return self._as_data(out, attributes, attributes.gathered(out, NEW_MEMORY, NEW_MEMORY))

    def _is_gathered(self) -> bool:
        """Whether our kernels gather attributes for all that was sampled, before somebody makes something else of
        it."""
        return self.transform_sampler_output is None and can_gather(self.data, self._sampler)

    @property
    def _is_pinned(self) -> bool:
        return self.pin_memory and torch.cuda.is_available()

    def _filtered(
        self, output: Any, attributes: Attributes | None, gather: Callable[[Attributes], dict[str, torch.Tensor]]
    ) -> Any:
        """Returns the data of who was sampled, whose attributes ``gather`` gives."""
        return self.filter_fn(output) if attributes is None else self._as_data(output, attributes, gather(attributes))

    def _as_data(self, output: Any, attributes: Attributes, rows: dict[str, torch.Tensor]) -> Any:
        negatives = getattr(self, "neg_sampling", None)
        data = as_data(output, rows, attributes, self.input_data.input_type, negatives)
        return data if self.transform is None else self.transform(data)

    # Resuming, as torchdata's StatefulDataLoader has it.

    def state_dict(self) -> dict[str, Any]:
        """Returns where the loader is: mini-batches that were given are done. Nothing, with a sampler of others'."""
        if not isinstance(self._sampler, GnnloadSampler):
            return {}
        return (self.position.loaded or self._resume_point()).to_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where :meth:`state_dict` was, unless another epoch is set; by its seed, where
        this loader was given none.

        Raises:
            CheckpointError: ``state`` is not a loader's; or, when the iteration begins, its epoch cannot go on with the
                settings of this one.
        """
        if not isinstance(self._sampler, GnnloadSampler):
            warn(
                f"the epoch begins anew: with the sampler {type(self._sampler).__name__}, which is not of this "
                f"package, a {type(self).__name__} is PyG's own, and cannot go on in mid-epoch."
            )
            return
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
        return ResumePoint(
            **self.position.place(),
            num_seeds=len(self.dataset),
            global_batch_size=self.batch_size or 0,
            seed=int(self.seed),
            order=order,
            seeds=checksum_of_inputs(self.input_data),
            graph=self._sampler.graph.fingerprint,
            sampler=self._sampler.inner().description,
            settings=json.dumps({"drop_last": self.drop_last, **PyGSeeds(self).settings_by_name}),
        )


def checksum_of_inputs(inputs: Any) -> str:
    """Returns a checksum of a loader's rows, with their times, and their type."""
    columns = {name: values for name, values in vars(inputs).items() if isinstance(values, torch.Tensor)}
    return f"{checksum_of(columns[name] for name in sorted(columns) if name != 'label'):08x} {inputs.input_type}"


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


_OF_SEEDS = "give input_time=, or edge_label_time= of links; or leave time_attr= out"
"""What to do where seeds have the times of their nodes."""

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


def can_read(data: Any) -> bool:
    """Whether mini-batches' attributes are looked up here; otherwise by PyG, in stores and beside ``adj_t``."""
    return isinstance(data, Data | HeteroData) and not any("adj_t" in store for store in data.stores)


def can_gather(data: Any, sampler: GnnloadSampler) -> bool:
    """Whether our kernels can gather these data's attributes for what the sampler finds."""
    return can_read(data) and sampler.sample_direction == "forward"  # types of edges are the graph's


def are_drawn(sampler: GnnloadSampler) -> bool:
    """Whether a mini-batch's edges are those that were drawn."""
    return sampler.subgraph_type.value == "directional"
