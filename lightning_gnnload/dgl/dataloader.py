"""DataLoader: DGL's own, whose mini-batches our threads make."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dgl
import numpy as np
import torch
from torch import distributed

from lightning_gnnload.adapters.dgl.write import DGLFormat
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.dgl.edges import EdgePredictionSampler
from lightning_gnnload.dgl.rows import EdgeSeedRows, NodeSeedRows
from lightning_gnnload.errors import LoaderConfigError, SeedError
from lightning_gnnload.ops.checks import as_integer
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.position import Position
from lightning_gnnload.pipeline.resume import OnResumeChange, ResumePoint
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.settings import check_whole_number, keywords_of, refuse_unknown


class DataLoader(dgl.dataloading.DataLoader):
    """DGL's ``DataLoader``, with threads in the place of worker processes, and the same mini-batches in every run.

    Arguments, attributes and mini-batches are DGL's. What is otherwise:

    - ``num_workers=n`` means n threads of this process, which share the graph and its features; 0 samples in the
      caller's thread. Mini-batches do not depend on their number.
    - ``seed`` decides all draws and the order of ``shuffle=True``. Each iteration is the next epoch, whose draws are
      new; :meth:`set_epoch` sets it.
    - :meth:`state_dict` and :meth:`load_state_dict` resume in mid-epoch.
    - With ``use_ddp``, all ranks shuffle all rows by ``ddp_seed``, and each takes its part; DGL's shuffle their own
      parts alone, always of the same rows.
    - ``use_uva`` samples on the host, by threads, and copies mini-batches to the device.

    Of a sampler that is not of this package, or of a subclass or a negative sampler of yours, the loader is DGL's own,
    and only what our samplers draw is drawn by our kernels.

    Args:
        graph: a DGLGraph, which may have types.
        indices: ids of nodes, or of edges, a tensor or a list; or a dict of these by type.
        graph_sampler: a sampler of :mod:`lightning_gnnload.dgl`, or another.
        device: where mini-batches go; None for the graph's, with ``use_uva`` the current GPU.
        use_ddp: give each rank of the process group its part of the rows, of equal length.
        ddp_seed: the seed of all ranks, where ``seed`` is None.
        batch_size: rows of a mini-batch, in each rank.
        drop_last: leave out a last mini-batch with fewer rows.
        shuffle: shuffle the rows in each epoch.
        use_prefetch_thread: nothing: threads make mini-batches ahead.
        use_alternate_streams: nothing.
        pin_prefetcher: nothing.
        use_uva: see above.
        gpu_cache: refused.
        seed: random seed, from 0 to 2**64 - 1; None: ``ddp_seed`` with ``use_ddp``, or else one of torch's, which
            ``torch.manual_seed`` decides.
        **kwargs: those of torch's DataLoader: ``num_workers``, ``prefetch_factor``, ``worker_init_fn`` and others.

    Attributes:
        seed: of all draws.
        on_resume_change: what becomes of an epoch that is resumed and whose mini-batches have become others:
            ``"error"`` or ``"warn"``.

    Raises:
        LoaderConfigError: keywords that are none, or that mean nothing to threads.
        SeedError: indices that are none of the graph's.
        SamplerConfigError: settings of the sampler that do not fit the graph.
        CudaUnavailableError: ``device`` is a GPU, and there is none that this DGL works with.

    Example:
        >>> from lightning_gnnload.dgl import NeighborSampler
        >>> g = dgl.graph(([1, 2, 3], [0, 0, 1]))
        >>> g.ndata["feat"] = torch.arange(4.0)
        >>> sampler = NeighborSampler([-1, -1], prefetch_node_feats=["feat"])
        >>> [(input_nodes, output_nodes, blocks)] = DataLoader(g, torch.tensor([0]), sampler, num_workers=1)
        >>> output_nodes.tolist(), blocks[0].srcdata["feat"].tolist()
        ([0], [0.0, 1.0, 2.0, 3.0])
    """

    on_resume_change: OnResumeChange = "error"

    def __init__(
        self,
        graph: Any,
        indices: Any,
        graph_sampler: Any,
        device: Any = None,
        use_ddp: bool = False,
        ddp_seed: int = 0,
        batch_size: int = 1,
        drop_last: bool = False,
        shuffle: bool = False,
        use_prefetch_thread: bool | None = None,
        use_alternate_streams: bool | None = None,
        pin_prefetcher: bool | None = None,
        use_uva: bool = False,
        gpu_cache: Any = None,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        prefetching = {
            "use_prefetch_thread": use_prefetch_thread,
            "use_alternate_streams": use_alternate_streams,
            "pin_prefetcher": pin_prefetcher,
        }
        has_names: Callable[[Any], bool] = getattr(graph_sampler, "has_names", lambda g: False)
        self._rows: NodeSeedRows | None = None
        # Of anything else, such as a data set of mini-batches of ids, DGL makes what it can.
        if has_names(graph) and isinstance(indices, Mapping | torch.Tensor | np.ndarray | list | tuple | range):
            rows_class = EdgeSeedRows if isinstance(graph_sampler, EdgePredictionSampler) else NodeSeedRows
            self._rows = rows_class(graph, indices, graph_sampler)
        elif has_names(graph) and not hasattr(indices, "device"):
            raise SeedError(f"indices must be ids, or a dict of these by type, not {indices!r:.100}.")
        if self._rows is None:
            if gpu_cache is not None:
                kwargs["gpu_cache"] = gpu_cache
            settings = (device, use_ddp, ddp_seed, batch_size, drop_last, shuffle)
            super().__init__(graph, indices, graph_sampler, *settings, use_uva=use_uva, **prefetching, **kwargs)
            return
        keywords = [name for name in keywords_of(torch.utils.data.DataLoader.__init__) if name not in _DGLS]
        refuse_unknown(type(self).__name__, kwargs, keywords)
        # Examples give caches of no rows where they want none.
        cached = any(count for sizes in (gpu_cache or {}).values() for count in sizes.values())
        for name, value in {**kwargs, "gpu_cache": gpu_cache if cached else None}.items():
            if name in _REFUSED and value is not None and value is not _DEFAULTS.get(name):
                raise LoaderConfigError(f"DataLoader does not support {name}={value!r}: {_REFUSED[name]}")
        check_whole_number("batch_size", batch_size, LoaderConfigError)
        num_workers = as_integer("num_workers", kwargs.pop("num_workers", 0), LoaderConfigError)
        check_whole_number("num_workers", num_workers, LoaderConfigError, least=0)
        prefetch_factor = kwargs.pop("prefetch_factor", None)
        self._worker_init_fn = kwargs.pop("worker_init_fn", None)
        try:
            target = torch.device(device if device is not None else "cuda" if use_uva else "cpu")
        except (RuntimeError, TypeError) as error:
            raise LoaderConfigError(f"device={device!r} is none of this machine's: {error}") from error
        if target.type != "cpu":
            DGLFormat().check_device(target)
        super().__init__(
            graph,
            self._rows.by_type if isinstance(indices, Mapping) else next(iter(self._rows.by_type.values())),
            graph_sampler,
            target,
            use_ddp,
            ddp_seed,
            batch_size,
            drop_last,
            shuffle,
            generator=kwargs.get("generator"),
        )
        self._shares = (distributed.get_world_size(), distributed.get_rank()) if use_ddp else (1, 0)
        # As the user gave them: DGL's constructor would start worker processes, pin the graph, and make further copies.
        self.indices, self.use_uva, self.num_workers, self.prefetch_factor = (
            indices,
            use_uva,
            num_workers,
            prefetch_factor,
        )
        # Not drop_last and batch_size, which torch's constructor sets: DGL gives it neither.
        self._size, self._drops_last = batch_size, bool(drop_last)
        self._is_seed_drawn = seed is None and not use_ddp
        self.seed = self._seed_of(seed, ddp_seed if use_ddp else None, kwargs.get("generator"))
        self.position = Position()
        # Where Lightning looks for one to announce each epoch to.
        self.sampler.set_epoch = self.position.announce
        drawing = self._rows.drawing
        drawing.inner(graph)  # refuses settings that cannot be
        if not drawing.yields_blocks:
            # What DGL makes of a graph when it is first asked is made here, by one thread.
            graph.subgraph({name: torch.empty(0, dtype=graph.idtype) for name in graph.ntypes})

    @staticmethod
    def _seed_of(seed: int | None, shared: int | None, generator: torch.Generator | None) -> int:
        if seed is None and shared is None:
            return int(torch.randint(2**62, (), generator=generator))
        number = as_integer("seed", shared if seed is None else seed, LoaderConfigError)
        if not 0 <= number < 2**64:
            raise LoaderConfigError(f"seed={number}: a whole number from 0 to 2**64 - 1 is needed.")
        return number

    @property
    def epoch(self) -> int:
        """The epoch that was begun last, or is to begin."""
        return self.position.epoch

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``; otherwise each is the one after the last."""
        self.position.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        if self._rows is None:
            return super().__iter__()
        return self.position.read(self._made, self._check)

    def __len__(self) -> int:
        if self._rows is None:
            return super().__len__()
        return (self._num_own + (0 if self._drops_last else self._size - 1)) // self._size

    @property
    def _num_own(self) -> int:
        """How many rows an epoch has in this rank; as many in each."""
        assert self._rows is not None
        num_ranks, num_rows = self._shares[0], len(self._rows.rows)
        return num_rows // num_ranks if self._drops_last else -(-num_rows // num_ranks)

    def _order(self, epoch: int) -> np.ndarray:
        """Returns the rows of this rank in an epoch, in their order. The first rows come again where the last rank has
        fewer than others."""
        assert self._rows is not None
        rows, (num_ranks, rank) = self._rows.rows, self._shares
        if self.shuffle:
            rows = Shuffled().order(rows, seed=self.seed, epoch=epoch)
        if num_ranks > 1 and len(rows):
            rows = np.resize(rows, num_ranks * self._num_own)
        return rows[rank * self._num_own : (rank + 1) * self._num_own]

    def _made(self, epoch: int, start: int) -> Iterator[Any]:
        rows, order = self._rows, self._order(epoch)
        assert rows is not None
        # The graph may have been changed since the last epoch, and so may settings of the sampler.
        epoch_rows = type(rows)(self.graph, rows.indices, rows.sampler)
        workload = Workload(
            epoch_rows.graph, epoch_rows.drawing.inner(self.graph), lambda *_: epoch_rows, seed=self.seed
        )
        loader = SampledLoader(
            BatchSource(GraphData(epoch_rows.graph), workload),
            num_threads=self.num_workers,
            num_ahead=None if self.prefetch_factor is None else self.num_workers * self.prefetch_factor,
            on_thread=self._init_thread,
            convert=epoch_rows.convert,
        )
        requests = (
            BatchRequest(epoch, step, 0, 1, order[step * self._size : (step + 1) * self._size])
            for step in range(start, len(self))
        )
        batches = loader.made(requests)
        return batches if self.device.type == "cpu" else (_moved(batch, self.device) for batch in batches)

    def _init_thread(self, number: int) -> None:
        if self.cpu_affinity_enabled:
            os.sched_setaffinity(0, [self._loader_cores[number]])  # of the calling thread alone
        if self._worker_init_fn is not None:
            self._worker_init_fn(number)

    @contextmanager
    def enable_cpu_affinity(
        self, loader_cores: list[int] | None = None, compute_cores: list[int] | None = None, verbose: bool = True
    ) -> Iterator[None]:
        """Binds threads that sample to one core each, and the caller's to the others, while it is open.

        Args:
            loader_cores: one for each of ``num_workers``; None for the first that this process may use.
            compute_cores: of the thread that trains; None for the rest.
            verbose: print which cores these are.

        Raises:
            LoaderConfigError: there is no worker, or there are too few cores.
        """
        if self._rows is None:
            with super().enable_cpu_affinity(loader_cores, compute_cores, verbose):
                yield
            return
        if self.device.type != "cpu" or not hasattr(os, "sched_setaffinity"):
            yield
            return
        if self.num_workers < 1:
            raise LoaderConfigError(
                "enable_cpu_affinity() binds sampling threads: give DataLoader(num_workers=1) or more."
            )
        before, num_threads = os.sched_getaffinity(0), dgl.utils.get_num_threads()
        loading = list(loader_cores or sorted(before)[: self.num_workers])
        computing = list(compute_cores or sorted(before - {*loading}))
        if len(loading) != self.num_workers or not computing:
            raise LoaderConfigError(
                f"enable_cpu_affinity(): {self.num_workers} workers need a core each, and training one more, but there "
                f"are loader_cores={loading} and compute_cores={computing} of {len(before)} cores. Give DataLoader "
                "fewer num_workers, or name the cores."
            )
        self._loader_cores, self.cpu_affinity_enabled = loading, True
        try:
            os.sched_setaffinity(0, computing)
            dgl.utils.set_num_threads(len(computing))
            if verbose:
                print(f"{self.num_workers} sampling threads have the cores {loading}, training {computing}")
            yield
        finally:
            os.sched_setaffinity(0, before)
            dgl.utils.set_num_threads(num_threads)
            self.cpu_affinity_enabled = False

    # Resuming, as torchdata's StatefulDataLoader has it.

    def state_dict(self) -> dict[str, Any]:
        """Returns where the loader is: mini-batches that were yielded are done. Nothing, where it is DGL's own."""
        return {} if self._rows is None else (self.position.loaded or self._resume_point()).to_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where :meth:`state_dict` was, unless another epoch is set; by its seed, where
        this loader drew its own.

        Raises:
            CheckpointError: ``state`` is not a loader's; or, when the iteration begins, its epoch cannot go on with the
                settings of this one.
            LoaderConfigError: this loader is DGL's own, which cannot go on in mid-epoch.
        """
        if self._rows is None:
            raise LoaderConfigError(
                f"with {type(self.graph_sampler).__name__}, whose draws have no names, the loader is DGL's own, and "
                "cannot go on in mid-epoch. Begin the epoch anew, or give a sampler of lightning_gnnload.dgl."
            )
        point = ResumePoint.from_state(state)
        if self._is_seed_drawn and 0 <= point.seed < 2**64:
            self.seed = point.seed
        self.position.load(point)

    def _check(self, point: ResumePoint) -> None:
        """Raises CheckpointError: the epoch cannot go on with the settings of this loader."""
        point.check(self._resume_point(), 1, len(self), self.on_resume_change)

    def _resume_point(self) -> ResumePoint:
        rows = self._rows
        assert rows is not None
        return ResumePoint(
            **self.position.place(),
            num_seeds=len(rows.rows),
            global_batch_size=self._size * self._shares[0],
            seed=self.seed,
            order="shuffle" if self.shuffle else "sequential",
            seeds=rows.checksum,
            graph=rows.graph.fingerprint,
            sampler=rows.drawing.inner(self.graph).description,
            settings=json.dumps({"drop_last": self._drops_last, **rows.settings_by_name}),
        )


_DGLS = ("dataset", "pin_memory")
"""Keywords of torch's DataLoader that DGL's sets itself."""
_DEFAULTS = {"timeout": 0, "in_order": True}
_REFUSED = {
    "timeout": "it bounds the wait for a worker process; threads need none.",
    "multiprocessing_context": "it says how worker processes begin; workers are threads. Leave it out.",
    "in_order": "mini-batches come in order, so that they are the same for any number of workers.",
    "collate_fn": "the sampler makes the mini-batch. Give a sampler of yours, with which the loader is DGL's own.",
    "sampler": "rows are those of indices. Give indices in their order, with shuffle=False.",
    "batch_sampler": "rows are those of indices. Give indices in their order, with shuffle=False.",
    "gpu_cache": "rows are gathered on the host. GraphDataModule(cache=...) keeps some on GPUs.",
}
"""Keywords that other loaders take, and why this one cannot heed them."""


def _moved(part: Any, device: torch.device) -> Any:
    if isinstance(part, Mapping):
        return {name: _moved(value, device) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return type(part)(_moved(value, device) for value in part)
    return part.to(device, non_blocking=True)
