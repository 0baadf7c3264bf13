"""NeighborLoader and LinkNeighborLoader: PyG's own, whose mini-batches our threads make."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch_geometric.loader as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.seeds import Sequential, Shuffled
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.resume import ResumePoint
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pyg.attributes import Attributes
from lightning_gnnload.pyg.batches import as_data
from lightning_gnnload.pyg.inputs import check_links, check_nodes
from lightning_gnnload.pyg.outputs import sampler_output
from lightning_gnnload.pyg.sampler import GnnloadSampler
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.rows import Asked, Sharing
from lightning_gnnload.sample.workload import Workload


@dataclass(frozen=True)
class _Listed(BatchRequest):
    """A mini-batch of these rows."""

    rows: Any = None


class AskedRows:
    """The rows of a PyG loader's input, as a workload asks for them; see :class:`.SeedRows`."""

    def __init__(self, sampler: GnnloadSampler, inputs: Any, neg_sampling: NegativeSampling | None = None) -> None:
        self._sampler, self._inputs, self._neg_sampling = sampler, inputs, neg_sampling
        self.sharing: Sharing = "disjoint" if sampler.disjoint else "plain"
        self.is_timed = sampler.is_temporal

    @property
    def has_queries(self) -> bool:
        return self.sharing == "disjoint"

    def nodes_of(self, rows: np.ndarray) -> np.ndarray:
        return self._sampler.ends_of(self._inputs[torch.from_numpy(rows)])

    def ask(self, rows: Any, key: DrawKey) -> Asked:
        return self._sampler.asked(self._inputs[torch.as_tensor(rows)], key, self._neg_sampling)


class _ListedWorkload(Workload):
    """Mini-batches of rows that torch's samplers list."""

    def asked_by(self, request: BatchRequest) -> Asked:
        assert isinstance(request, _Listed)
        return self.rows.ask(request.rows, self.key_of(request))


class ShuffledRows(torch.utils.data.Sampler):
    """Shuffles rows as a pure function of (seed, epoch)."""

    num_rows = 0  # of the loader, which knows it later

    def __init__(self, seed: int) -> None:
        self.seed, self.epoch = seed, 0

    def __iter__(self) -> Iterator[int]:
        return iter(Shuffled().order(np.arange(self.num_rows), seed=self.seed, epoch=self.epoch).tolist())

    def __len__(self) -> int:
        return self.num_rows


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

    _started = False
    _resume_at: ResumePoint | None = None

    def _honoured(self, kwargs: dict[str, Any], seed: int) -> dict[str, Any]:
        """Returns the keywords for torch's DataLoader, of those that were given.

        Raises:
            LoaderConfigError: some that mean nothing to threads.
        """
        for name, (is_fine, instead) in _REFUSED.items():
            if name in kwargs and not is_fine(kwargs[name]):
                raise LoaderConfigError(f"{type(self).__name__} cannot heed {name}={kwargs[name]!r}: {instead}")
        self.seed = seed
        self.epoch = self._num_yielded = 0
        found = {name: value for name, value in kwargs.items() if name not in ("dataset", "collate_fn")}
        if found.pop("shuffle", None) and found.get("sampler") is None and found.get("batch_sampler") is None:
            found["sampler"] = ShuffledRows(seed)
        elif kwargs.get("shuffle"):
            found["shuffle"] = True  # torch says why this cannot be
        return found

    def _begin(self) -> None:
        """Does what can be done only when PyG's constructor has read the rows."""
        if isinstance(self.sampler, ShuffledRows):
            self.sampler.num_rows = len(self.dataset)
        if isinstance(self._sampler, GnnloadSampler):
            self._sampler.check_inputs(self.input_data, getattr(self, "neg_sampling", None))
            if self.num_workers:
                _say_once()

    @property
    def _sampler(self) -> Any:
        """The sampler of nodes or links."""
        raise NotImplementedError

    def check_worker_number_rationality(self) -> None:
        """Says nothing: torch counts worker processes, and these are threads."""

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``; otherwise each is the one after the last."""
        self.epoch, self._started, self._num_yielded = epoch, False, 0

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(self._sampler, GnnloadSampler):
            return super().__iter__()  # type: ignore[misc]
        return self._get_iterator()

    def _get_iterator(self) -> Iterator[Any]:
        if not isinstance(self._sampler, GnnloadSampler):
            return super()._get_iterator()  # type: ignore[misc]
        if self._started:
            self.set_epoch(self.epoch + 1)
        start, point = 0, self._resume_at
        if point is not None:
            point.check(self._resume_point(0), 1)
            self.epoch, start, self._resume_at = point.epoch, point.step, None
        self._started, self._num_yielded = True, start
        return self._counted(self._made(self.epoch, start))

    def _counted(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            self._num_yielded += 1
            yield batch
        self.set_epoch(self.epoch + 1)

    def _made(self, epoch: int, start: int) -> Iterator[Any]:
        sampler = self._sampler
        attributes = Attributes(self.data, sampler.graph, edges=are_drawn(sampler)) if self._is_gathered() else None
        tables = GraphData(sampler.graph) if attributes is None else attributes.tables
        threads = self._threads(tables, sampler.inner(), partial(self._converted, attributes))
        return threads.made(self._requests(epoch, start))

    def _threads(self, tables: GraphData, inner: Sampler, convert: Callable[[MiniBatch], Any]) -> SampledLoader:
        """Returns what makes mini-batches of the rows that this loader lists.

        Args:
            tables: what is gathered.
            inner: what draws.
            convert: makes of a mini-batch what the loader yields.
        """
        sampler = self._sampler
        workload = _ListedWorkload(
            sampler.graph,
            inner,
            np.arange(len(self.dataset)),
            batch_size=1,
            order=Sequential(),
            seed=self.seed,
            rows=AskedRows(sampler, self.input_data, getattr(self, "neg_sampling", None)),
        )
        return SampledLoader(
            BatchSource(tables, workload),
            num_threads=self.num_workers,
            num_ahead=None if self.prefetch_factor is None else self.num_workers * self.prefetch_factor,
            on_thread=self.worker_init_fn,
            convert=convert,
            pinned=self.pin_memory and torch.cuda.is_available(),
        )

    def _requests(self, epoch: int, start: int) -> Iterator[BatchRequest]:
        rows = self.sampler
        if isinstance(rows, ShuffledRows):
            rows.epoch = epoch
        for step, index in enumerate(self._index_sampler):  # type: ignore[attr-defined]
            if step >= start:
                yield _Listed(epoch, step, 0, 1, [index] if isinstance(index, int) else index)

    def _is_gathered(self) -> bool:
        """Whether our kernels gather attributes; otherwise PyG does, for what was sampled."""
        return self.transform_sampler_output is None and can_gather(self.data, self._sampler)

    def _converted(self, attributes: Attributes | None, batch: Any) -> Any:
        output = sampler_output(batch, self._sampler)
        if attributes is None:
            return self.filter_fn(output)  # type: ignore[attr-defined]
        rows, negatives = attributes.rows_of(batch), getattr(self, "neg_sampling", None)
        made = as_data(output, rows, attributes, self.input_data.input_type, negatives)
        return made if self.transform is None else self.transform(made)

    # Resuming, as torchdata's StatefulDataLoader has it.

    def state_dict(self) -> dict[str, Any]:
        """Returns where the loader is: mini-batches that were given are done."""
        if self._resume_at is not None:
            return self._resume_at.to_state()
        # Lightning does not ask for what comes after the last mini-batch.
        is_over = self._num_yielded > 0 and self._num_yielded == _length(self)
        point = self._resume_point(0 if is_over else self._num_yielded)
        return replace(point, epoch=self.epoch + is_over).to_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where :meth:`state_dict` was.

        Raises:
            CheckpointError: ``state`` is not a loader's; or, when the iteration begins, its epoch cannot go on with the
                settings of this one.
        """
        self._resume_at = ResumePoint.from_state(state)

    def _resume_point(self, step: int) -> ResumePoint:
        order = type(self.sampler if self.batch_sampler is None else self.batch_sampler).__name__
        order = f"{order} of {type(self.sampler).__name__}"
        return ResumePoint(self.epoch, step, len(self.dataset), self.batch_size or 0, self.seed, order)


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
    warnings.warn(
        "num_workers means threads of this process here: they share its memory, and no worker processes are started.",
        stacklevel=6,
    )


def can_gather(data: Any, sampler: GnnloadSampler) -> bool:
    """Whether our kernels can gather these data's attributes for what the sampler finds."""
    is_forward = sampler.sample_direction == "forward"  # types of edges are the graph's
    return is_forward and isinstance(data, Data | HeteroData) and not any("adj_t" in each for each in data.stores)


def are_drawn(sampler: GnnloadSampler) -> bool:
    """Whether a mini-batch's edges are those that were drawn."""
    return sampler.subgraph_type.value == "directional"


class NeighborLoader(ThreadedLoader, pyg.NeighborLoader):
    """PyG's ``NeighborLoader``, with neither pyg-lib nor torch-sparse, and the same mini-batches in every run.

    Arguments and fields of mini-batches are PyG's. What is otherwise:

    - ``num_workers=n`` means n threads of this process, which share the graph and its features; 0 samples in the
      caller's thread.
    - ``seed`` decides all draws and the order of ``shuffle=True``. Each iteration is the next epoch, whose draws are
      new; :meth:`set_epoch` sets it.
    - :meth:`state_dict` and :meth:`load_state_dict` resume in mid-epoch.
    - ``disjoint`` and times work with every ``subgraph_type``.

    Args:
        data: a ``Data``, a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)``.
        num_neighbors: neighbours of each node, by hop: a list, a dict of lists by edge type, or a ``NumNeighbors``.
        input_nodes: the seeds: None for all nodes, ids, a mask, or in a graph with types a type or ``(type, ids)``.
        input_time: of the seeds; those of nodes are their own, where there are some.
        replace: draw with replacement.
        subgraph_type: ``"directional"``, ``"bidirectional"`` or ``"induced"``.
        disjoint: each seed has nodes of its own; always so by time.
        temporal_strategy: ``"uniform"``, or ``"last"``, which takes the newest.
        time_attr: the attribute of nodes or edges by which nothing later than its seed is drawn.
        weight_attr: the attribute of edges in proportion to which they are drawn.
        transform: called with each mini-batch, in the thread that made it.
        transform_sampler_output: called with who was sampled, before attributes are gathered.
        is_sorted: nothing: edges are sorted in linear time.
        filter_per_worker: nothing: threads gather.
        neighbor_sampler: a :class:`.GnnloadSampler`, to share its graph; with another one it is PyG's own loader.
        directed: False is ``subgraph_type="induced"``.
        seed: random seed; None: of ``generator``, or of torch's own, which ``torch.manual_seed`` decides.
        **kwargs: those of torch's DataLoader.

    Raises:
        LoaderConfigError: keywords of DataLoader that mean nothing to threads.
        GraphDataError, GraphFormatError, SamplerConfigError: as :class:`.GnnloadSampler`.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.arange(4.0)[:, None], edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]))
        >>> [batch] = NeighborLoader(data, [-1, -1], input_nodes=torch.tensor([0]), seed=7)
        >>> batch.x.view(-1).tolist(), batch.edge_index.tolist(), batch.batch_size
        ([0.0, 1.0, 2.0, 3.0], [[1, 2, 3], [0, 0, 1]], 1)
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: torch.Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        settings = (subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted)
        seed = drawn_seed(seed, neighbor_sampler, kwargs)
        sampler = neighbor_sampler
        if sampler is None:
            sampler = GnnloadSampler(data, num_neighbors, *settings, directed=directed, seed=seed)
        check_nodes(data, input_nodes)
        # Lightning makes a loader anew of its attributes.
        self.num_neighbors, self.neighbor_sampler, self.time_attr = num_neighbors, sampler, time_attr
        super().__init__(
            data,
            num_neighbors,
            input_nodes,
            input_time,
            time_attr=time_attr,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=sampler,
            **self._honoured(kwargs, seed),
        )
        self._begin()

    @property
    def _sampler(self) -> Any:
        return self.node_sampler


class LinkNeighborLoader(ThreadedLoader, pyg.LinkNeighborLoader):
    """PyG's ``LinkNeighborLoader``, as :class:`NeighborLoader` is its ``NeighborLoader``.

    Negatives are drawn by PyG's rules, and so may be edges of the graph; :class:`.Negatives` of a
    :class:`.GraphDataModule` never are.

    Args:
        data: as :class:`NeighborLoader` has it.
        num_neighbors: likewise.
        edge_label_index: the links: None for all edges, their ends ``[2, R]``, or in a graph with types an edge type,
            or ``(edge type, ends)``.
        edge_label: their labels, ``[R]`` or ``[R, C]``.
        edge_label_time: their times; needs ``time_attr``, which needs them.
        replace: as :class:`NeighborLoader` has it, as are the others that are not named here.
        neg_sampling: a ``NegativeSampling``, its mode, or a dict of its arguments.
        neg_sampling_ratio: binary negatives for each link.
        seed: random seed, of negatives as well.
        **kwargs: those of torch's DataLoader.

    Raises:
        LoaderConfigError: keywords of DataLoader that mean nothing to threads.
        GraphDataError, GraphFormatError, SamplerConfigError: as :class:`.GnnloadSampler`; weights of negatives that are
            none.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]), num_nodes=4)
        >>> [batch] = LinkNeighborLoader(data, [-1], neg_sampling="binary", batch_size=3, seed=7)
        >>> batch.n_id[batch.edge_label_index][:, :3].tolist(), batch.edge_label.tolist()
        ([[1, 2, 3], [0, 0, 1]], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: torch.Tensor | None = None,
        edge_label_time: torch.Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        settings = (subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr, is_sorted)
        seed = drawn_seed(seed, neighbor_sampler, kwargs)
        sampler = neighbor_sampler
        if sampler is None:
            sampler = GnnloadSampler(data, num_neighbors, *settings, directed=directed, seed=seed)
        self.num_neighbors, self.neighbor_sampler, self.time_attr = num_neighbors, sampler, time_attr
        self.edge_label, self.edge_label_time = edge_label, edge_label_time
        check_links(data, edge_label_index)
        super().__init__(
            data,
            num_neighbors,
            edge_label_index,
            edge_label,
            edge_label_time,
            neg_sampling=neg_sampling,
            neg_sampling_ratio=neg_sampling_ratio,
            time_attr=time_attr,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=sampler,
            **self._honoured(kwargs, seed),
        )
        self._begin()

    @property
    def _sampler(self) -> Any:
        return self.link_sampler


def drawn_seed(seed: int | None, sampler: Any, kwargs: Mapping[str, Any]) -> int:
    """Returns the seed that was given, or that of a sampler that was; else one that the user's generator draws."""
    if seed is None and isinstance(sampler, GnnloadSampler):
        return sampler.seed
    if seed is None:
        return int(torch.randint(2**62, (), generator=kwargs.get("generator")))
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise LoaderConfigError(f"seed={seed!r}: a whole number from 0 to 2**64 - 1 is needed.")
    return seed
