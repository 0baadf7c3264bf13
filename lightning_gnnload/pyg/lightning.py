"""LightningNodeData and LightningLinkData: PyG's data modules, over a GraphDataModule."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch_geometric.loader as pyg
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import BaseSampler
from torch_geometric.sampler.base import SubgraphType

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.datasets.base import Dataset
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.seeds import SeedOrder, Sequential
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import LoaderConfigError, SeedError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module.datamodule import GraphDataModule
from lightning_gnnload.plugin.strategy.factored import FactoredStrategy
from lightning_gnnload.pyg.attributes import Attributes
from lightning_gnnload.pyg.inputs import check_links, check_nodes
from lightning_gnnload.pyg.loaders import AskedRows, ThreadedLoader, are_drawn, can_gather
from lightning_gnnload.pyg.sampler import GnnloadSampler
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.workload import Workload

_SPLITS = {"train": "train", "val": "val", "test": "test", "predict": "pred"}
"""What PyG's arguments call the data of each phase."""


class _PhaseLoader(ThreadedLoader):
    """A loader that reads a phase's input by PyG's rules, and by which a data module makes its mini-batches."""

    @property
    def rows(self) -> _PhaseRows:
        return _PhaseRows(self._sampler, self.input_data, getattr(self, "neg_sampling", None), self)

    def converted(self, attributes: Attributes | None, batch: MiniBatch) -> Any:
        """Makes PyG's mini-batch of one of ours, whose attributes have been gathered where kernels gather them."""
        return self._converted(attributes if self._is_gathered() else None, batch)


class _PhaseNodeLoader(_PhaseLoader, pyg.NodeLoader):
    def __init__(self, data: Any, node_sampler: GnnloadSampler, *, seed: int, **kwargs: Any) -> None:
        check_nodes(data, kwargs.get("input_nodes"))
        super().__init__(data, node_sampler, **self._honoured(kwargs, seed))
        self._begin()

    @property
    def _sampler(self) -> Any:
        return self.node_sampler


class _PhaseLinkLoader(_PhaseLoader, pyg.LinkLoader):
    def __init__(self, data: Any, link_sampler: GnnloadSampler, *, seed: int, **kwargs: Any) -> None:
        check_links(data, kwargs.get("edge_label_index"))
        super().__init__(data, link_sampler, **self._honoured(kwargs, seed))
        self._begin()

    @property
    def _sampler(self) -> Any:
        return self.link_sampler


class _PhaseRows(AskedRows):
    """The rows of a phase, which know the loader by whose rules they ask."""

    def __init__(self, sampler: GnnloadSampler, inputs: Any, neg_sampling: Any, loader: _PhaseLoader) -> None:
        super().__init__(sampler, inputs, neg_sampling)
        self.loader = loader


class _ScriptsData(Dataset):
    """The data that a user's script holds in every rank, as tables that kernels gather from.

    Args:
        data: a ``Data``, a ``HeteroData``, or a pair of stores.
        graph: what is sampled of it; None where nothing is.
        edges: as :class:`.Attributes` has it.
        is_gathered: whether kernels gather attributes at all.

    Attributes:
        attributes: of the data, once loaded, where kernels gather them.
    """

    def __init__(self, data: Any, graph: Graph | None, *, edges: bool, is_gathered: bool) -> None:
        self.data, self.graph, self.edges, self.is_gathered = data, graph, edges, is_gathered
        self.attributes: Attributes | None = None
        self._seen: list[Any] = []

    def prepare(self) -> None:
        """Does nothing: the script has it."""

    def load(self) -> GraphData:
        assert self.graph is not None, "the caller samples"
        if not self.is_gathered:
            return GraphData(self.graph)
        self._seen = list(self._held())
        self.attributes = Attributes(self.data, self.graph, edges=self.edges)
        return self.attributes.tables

    @property
    def has_changed(self) -> bool:
        """Whether the script has given its data other attributes since they were loaded."""
        if self.attributes is None:
            return False
        held = list(self._held())
        return len(held) != len(self._seen) or any(a is not b for a, b in zip(held, self._seen, strict=True))

    def _held(self) -> Iterator[Any]:
        return (value for store in self.data.stores for value in store.values())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "attributes": None, "_seen": []}


class _RowOrder(SeedOrder):
    """An order of a loader's rows, by the nodes and times that these are of."""

    def __init__(self, order: SeedOrder, loader: _PhaseLoader) -> None:
        self._order, self._loader = order, loader
        self._table: SeedTable | None = None
        self._nodes = np.zeros((0, 1), np.int64)

    @property
    def name(self) -> str:
        return self._order.name

    def bind(self, graph: Graph, labels: torch.Tensor | None, global_batch_size: int) -> SeedOrder:
        if self._table is None:
            self._nodes = self._loader.rows.nodes_of(np.arange(len(self._loader.dataset)))
            times = self._loader.input_data.time
            if times is None and self._nodes.shape[1] == 1 and graph.node_time is not None:
                times = graph.node_time[self._nodes[:, 0]]
            if self._nodes.shape[1] == 1:
                self._table = SeedTable(self._nodes[:, 0], time=times)
            else:
                self._table = SeedTable(src=self._nodes[:, 0], dst=self._nodes[:, 1], time=times)
        return self._order.bind_rows(self._table, self._nodes, graph, global_batch_size)

    def order(self, seeds: np.ndarray, *, seed: int, epoch: int) -> np.ndarray:
        raise AssertionError("only what bind() returns knows the rows")


class _PyGDataModule(GraphDataModule):
    """What both data modules are: PyG's arguments and attributes, and a GraphDataModule that makes the mini-batches.

    Args:
        data: a ``Data``, a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)``.
        has_val: whether there is anything to validate on.
        has_test: likewise to test on.
        loader: ``"neighbor"``, ``"link_neighbor"`` or ``"full"``; of no account with ``graph_sampler``.
        graph_sampler: a sampler of the user's.
        eval_loader_kwargs: what is otherwise in validation, test and prediction.
        kwargs: all other arguments: those of the sampler, of the loader, of torch's DataLoader, and of the
            GraphDataModule.
    """

    _LOADER: ClassVar[type[DataLoader]]
    """PyG's own loader, whose keywords are taken."""
    _SAMPLER: ClassVar[str]
    """The argument that takes a sampler."""
    _INPUTS: ClassVar[tuple[str, ...]]
    """The loader's inputs, in the order of its arguments, as attributes of this class call them after the split."""

    graph_sampler: BaseSampler  # not there with loader="full"
    eval_graph_sampler: BaseSampler

    def __init__(
        self,
        data: Any,
        has_val: bool,
        has_test: bool,
        loader: str,
        graph_sampler: BaseSampler | None,
        eval_loader_kwargs: Mapping[str, Any] | None,
        kwargs: dict[str, Any],
    ) -> None:
        loader = self._loader_named(loader, graph_sampler)
        own = {name: kwargs.pop(name) for name in _OWN if name in kwargs}
        _warn_of_shuffle(kwargs, type(self).__name__)
        if loader == "full":
            _reset_for_full_batches(kwargs, type(self).__name__)
        if (num_threads := own.get("num_threads")) is not None:
            if kwargs.get("num_workers", num_threads) != num_threads:
                raise LoaderConfigError(
                    f"num_threads={num_threads} and num_workers={kwargs['num_workers']} mean the same: threads of this "
                    "process. Give one of them."
                )
            kwargs["num_workers"] = num_threads
        kwargs.setdefault("batch_size", 1)
        kwargs.setdefault("num_workers", 0)
        kwargs.setdefault("pin_memory", loader != "full")
        kwargs.setdefault("persistent_workers", kwargs["num_workers"] > 0)
        own["seed"] = _agreed_seed(own.get("seed"), graph_sampler, kwargs)

        self.kwargs = kwargs
        self.loader = loader
        self._user_data = data
        self._set_samplers(graph_sampler, dict(eval_loader_kwargs or {}), own["seed"])
        self._check_own(own)
        samples = isinstance(getattr(self, "graph_sampler", None), GnnloadSampler)
        inner = self.graph_sampler.inner() if samples else NeighborSampler([1])
        super().__init__(
            self._scripts_data(),
            inner,
            batch_size=self.batch_size,
            batch_format="pyg",
            order=own.get("order", "shuffle"),
            seed=own["seed"],
            num_threads=kwargs["num_workers"],
            cache=own.get("cache"),
            eval_batch_size=self.eval_batch_size,
            eval_sampler=self.eval_graph_sampler.inner() if samples else None,
            eval_draws=own.get("eval_draws", "fixed"),
            sampling_device="cpu",
        )
        if not has_val:
            self.val_dataloader = None  # type: ignore[method-assign, assignment]
        if not has_test:
            self.test_dataloader = None  # type: ignore[method-assign, assignment]

    # PyG's attributes.

    @property
    def data(self) -> Any:
        """The user's own data."""
        return self._user_data

    @data.setter
    def data(self, data: Any) -> None:
        self._user_data = data
        self._dataset, self._data = self._scripts_data(), None
        self.caching.close()

    @property
    def batch_size(self) -> int:
        """Rows of each trainer and step, as ``loader_kwargs`` has it."""
        return self.loader_kwargs.get("batch_size", 1)

    @batch_size.setter
    def batch_size(self, batch_size: int) -> None:
        if "batch_sampler" not in self.loader_kwargs:
            self.loader_kwargs["batch_size"] = batch_size

    @property
    def eval_batch_size(self) -> int:
        """Likewise, as ``eval_loader_kwargs`` has it."""
        return self.eval_loader_kwargs.get("batch_size", 1)

    @eval_batch_size.setter
    def eval_batch_size(self, batch_size: int) -> None:
        self.eval_loader_kwargs["batch_size"] = batch_size

    @property
    def train_shuffle(self) -> bool:
        """Whether training rows are shuffled: not where the user gave a sampler of rows."""
        return all(self.loader_kwargs.get(name) is None for name in ("sampler", "batch_sampler"))

    def dataloader(self, *inputs: Any, **kwargs: Any) -> DataLoader:
        """Makes a loader as PyG's data module does, of its inputs, a sampler, and DataLoader's keywords."""
        raise NotImplementedError

    def full_dataloader(self, **kwargs: Any) -> DataLoader:
        """Makes the loader whose only mini-batch is the data."""
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        warnings.filterwarnings("ignore", ".*data loading bottlenecks.*")
        return DataLoader([self.data], collate_fn=_first, **kwargs)  # type: ignore[arg-type]

    # Lightning's hooks.

    def prepare_data(self) -> None:
        """Raises LoaderConfigError: ``loader="full"`` on more than one device."""
        super().prepare_data()
        if self.loader == "full" and self.trainer is not None and self.trainer.num_devices > 1:
            raise LoaderConfigError(
                f"{type(self).__name__} with loader='full' trains on a single device, but there are "
                f"{self.trainer.num_devices}. Give Trainer(devices=1), or loader='neighbor'."
            )

    def setup(self, stage: str | None = None) -> None:
        """Does nothing: the data are there, and read when a loader is made."""

    def train_dataloader(self) -> Any:
        return self._of_phase("train")

    def val_dataloader(self) -> Any:
        return self._of_phase("val")

    def test_dataloader(self) -> Any:
        return self._of_phase("test")

    def predict_dataloader(self) -> Any:
        return self._of_phase("predict")

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        if self.loader == "full":  # whose mini-batch is the user's own object
            return pl.LightningDataModule.transfer_batch_to_device(self, batch, device, dataloader_idx)
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    # How mini-batches are made.

    @property
    def graph_data(self) -> GraphData:
        """The graph, and the attributes that kernels gather.

        Raises:
            LoaderConfigError: nothing is sampled here, but by a sampler of the user's, or not at all.
        """
        if self._data is None:
            assert isinstance(self._dataset, _ScriptsData)
            if self._dataset.graph is None:
                raise LoaderConfigError(
                    f"{type(self).__name__} samples nothing itself with loader={self.loader!r}, but this needs a "
                    f"GnnloadSampler: give loader='neighbor', or {self._SAMPLER}=GnnloadSampler(...)."
                )
            self._data = self._dataset.load()
        return self._data

    def has_seeds(self, phase: str) -> bool:
        split = _SPLITS[phase]
        return phase == "train" or getattr(self, f"input_{split}_{self._INPUTS[0]}") is not None

    def workload(self, phase: str) -> Workload:
        """Describes what will be sampled in a phase. Raises SeedError: there is nothing to begin at."""
        training = phase == "train"
        overfit = training and self.trainer is not None and self.trainer.overfit_batches > 0
        loader = self._phase_loader(phase)
        assert isinstance(loader, _PhaseLoader), "the caller asked for it"
        num_rows: int = len(loader.dataset)  # type: ignore[arg-type]
        if not num_rows:
            raise SeedError(
                f"there is nothing to {phase} on: input_{_SPLITS[phase]}_{self._INPUTS[0]} is empty. Give at least one."
            )
        return Workload(
            self.graph_data.graph,
            self._inner(training=training),
            np.arange(num_rows),
            batch_size=self.batch_size if training else self.eval_batch_size,
            order=_RowOrder(self.order if training and not overfit else Sequential(), loader),
            seed=self.seed,
            fixed_draws=overfit or (not training and self.eval_draws == "fixed"),
            drop_last=bool(loader.drop_last),
            num_ranks=1 if self.trainer is None else self.trainer.world_size,
            rows=loader.rows,
            keep_rest=True,
        )

    def _of_phase(self, phase: str) -> Any:
        """Returns a phase's loader: ours, or PyG's own where it samples otherwise.

        Raises:
            LoaderConfigError: PyG's own, whose mini-batches FactoredStrategy's samplers cannot make.
        """
        if self._is_sampled(phase):
            return self._loader(phase)
        strategy = None if self.trainer is None else self.trainer.strategy
        if isinstance(strategy, FactoredStrategy) and not strategy.roles.is_lone:
            name = next((name for name in ("sampler", "batch_sampler") if self.loader_kwargs.get(name)), None)
            if self.loader == "full":
                name, instead = "loader='full'", "Give loader='neighbor'"
            elif isinstance(self.graph_sampler, GnnloadSampler):
                name, instead = f"{name}=", "Give order=, which all ranks can follow"
            else:
                name = f"{self._SAMPLER}={type(self.graph_sampler).__name__}(...)"
                instead = f"Give {self._SAMPLER}=GnnloadSampler(...)"
            raise LoaderConfigError(
                f"FactoredStrategy's samplers cannot make the mini-batches of {name}, which trainers read themselves. "
                f"{instead}; or leave strategy= out."
            )
        return self._phase_loader(phase)

    def _is_sampled(self, phase: str) -> bool:
        """Whether our pipeline makes a phase's mini-batches, step by step as ``order`` and ``seed`` say."""
        is_ours = isinstance(getattr(self, "graph_sampler", None), GnnloadSampler)
        return is_ours and (phase != "train" or self.train_shuffle)

    def _phase_loader(self, phase: str) -> DataLoader:
        training = phase == "train"
        inputs = [getattr(self, f"input_{_SPLITS[phase]}_{name}") for name in self._INPUTS]
        kwargs = dict(self.loader_kwargs if training else self.eval_loader_kwargs)
        kwargs["shuffle"] = training and self.train_shuffle and not self._is_sampled(phase)
        if self.loader == "full":
            kwargs["shuffle"] = training
        else:
            kwargs[self._SAMPLER] = self.graph_sampler if training else self.eval_graph_sampler
        return self.dataloader(*inputs, **kwargs)

    def _loader(self, phase: str) -> SampledLoader:
        assert isinstance(self._dataset, _ScriptsData)
        if self._dataset.has_changed:
            self.caching.close()
            self._data = None
        kwargs = self.loader_kwargs if phase == "train" else self.eval_loader_kwargs
        self._pins_memory = bool(kwargs["pin_memory"])
        loader = super()._loader(phase)
        loader.num_threads = kwargs["num_workers"]
        loader.on_thread = kwargs.get("worker_init_fn")
        if kwargs.get("prefetch_factor") is not None:
            loader.num_ahead = loader.num_threads * kwargs["prefetch_factor"]
        return loader

    def _convert(self, workload: Workload) -> Callable[[MiniBatch], Any]:
        assert isinstance(workload.rows, _PhaseRows)
        assert isinstance(self._dataset, _ScriptsData)
        return partial(workload.rows.loader.converted, self._dataset.attributes)

    def _as_carried(self, data: GraphData) -> GraphData:
        return data  # mini-batches carry what the user's data hold

    def _inner(self, *, training: bool) -> Sampler:
        """Returns what draws, the same object as long as its settings are."""
        given = self.graph_sampler if training else self.eval_graph_sampler
        assert isinstance(given, GnnloadSampler), "the caller asked for it"
        name, now = "sampler" if training else "eval_sampler", given.inner()
        if repr(getattr(self, name)) != repr(now):
            setattr(self, name, now)
        drawn_by: Sampler = getattr(self, name)
        return drawn_by

    def __str__(self) -> str:
        """Says how many rows each phase has, as Lightning does, but makes no mini-batch for it."""
        named = {"Train": "train", "Validation": "val", "Test": "test", "Predict": "predict"}
        return os.linesep.join(f"{{{name} dataloader: {self._size(phase)}}}" for name, phase in named.items())

    def _size(self, phase: str) -> str:
        if getattr(self, f"{phase}_dataloader") is None:
            return "None"
        try:
            return f"size={len(self._phase_loader(phase).dataset)}"  # type: ignore[arg-type]
        except (SeedError, AssertionError):  # as a HeteroData whose nodes to predict were not named
            return "None"

    def __repr__(self) -> str:
        settings = {"data": self.data, "loader": self.loader, **self.kwargs}
        told = ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
        return f"{type(self).__name__}({told})"

    # How arguments are read.

    def _loader_named(self, loader: str, graph_sampler: BaseSampler | None) -> str:
        if graph_sampler is not None:
            return "custom"
        if loader not in ("full", "neighbor", "link_neighbor"):
            more = f" without {self._SAMPLER}=" if loader == "custom" else ""
            raise LoaderConfigError(
                f"Undefined 'loader' option (got {loader!r}{more}). Give 'neighbor' or 'full', or {self._SAMPLER}=."
            )
        return loader

    def _set_samplers(self, graph_sampler: BaseSampler | None, changed: dict[str, Any], seed: int) -> None:
        """Makes the samplers, and parts the keywords of loaders from theirs, in training and in evaluation."""
        sampler_class = GnnloadSampler if graph_sampler is None else type(graph_sampler)
        taken = {*inspect.signature(sampler_class).parameters} if self.loader != "full" else set()
        self._check_known(self.kwargs, taken)
        self._check_known(changed, taken)
        of_sampler, self.loader_kwargs = _parted(self.kwargs, taken)
        if self.loader == "full":
            self.eval_loader_kwargs = self.loader_kwargs | changed
            return
        if graph_sampler is None:
            if "num_neighbors" not in of_sampler:
                raise LoaderConfigError(
                    f"loader={self.loader!r} needs num_neighbors=: how many neighbours a hop draws, such as [15, 10]."
                )
            self.graph_sampler = GnnloadSampler(self._user_data, **of_sampler, seed=seed)
        else:
            if of_sampler:
                warnings.warn(
                    f"Ignoring the arguments {list(of_sampler)} in '{type(self).__name__}' since a custom "
                    "'graph_sampler' was passed",
                    stacklevel=5,
                )
            self.graph_sampler = graph_sampler
        eval_sampler, changed = _parted(changed, taken)
        self.eval_graph_sampler = _changed(self.graph_sampler, eval_sampler)
        self.eval_loader_kwargs = self.loader_kwargs | {"drop_last": False} | changed
        for name in ("sampler", "batch_sampler"):
            self.eval_loader_kwargs.pop(name, None)
        if self.loader_kwargs.get("batch_sampler") is not None:
            self.loader_kwargs.pop("batch_size", None)
            self.loader_kwargs.pop("drop_last", None)

    def _check_known(self, kwargs: Mapping[str, Any], of_sampler: set[str]) -> None:
        """Raises LoaderConfigError: keywords that are nobody's, or of a GraphDataModule, which are said otherwise
        here."""
        of_loader = {*inspect.signature(self._LOADER).parameters, *inspect.signature(DataLoader).parameters}
        known = of_sampler | of_loader - {"data", "kwargs", "dataset", *_LOADER_INPUTS}
        for name in kwargs:
            if name in known:
                continue
            if name in _OF_GRAPH_DATA_MODULE:
                raise LoaderConfigError(
                    f"{type(self).__name__} has no {name}=; that of GraphDataModule is here: "
                    f"{_OF_GRAPH_DATA_MODULE[name]}."
                )
            raise LoaderConfigError(
                f"{type(self).__name__} knows no {name}=. It takes the keywords of PyG's, of torch's DataLoader, and "
                f"{', '.join(sorted(_OWN))}."
            )

    def _check_own(self, own: dict[str, Any]) -> None:
        """Raises LoaderConfigError: settings of a GraphDataModule where it is not what makes the mini-batches."""
        given = [name for name in ("order", "cache") if own.get(name) is not None]
        if self._is_sampled("train") or not given:
            return
        by = next((f"{name}=" for name in ("sampler", "batch_sampler") if self.loader_kwargs.get(name)), None)
        if self.loader == "full" or not isinstance(self.graph_sampler, GnnloadSampler):
            by = f"loader={self.loader!r}" if self.loader == "full" else f"{self._SAMPLER}={self.graph_sampler!r}"
        raise LoaderConfigError(
            f"{given[0]}= is of mini-batches that this package makes by an order of its own, which {by} replaces. "
            "Leave one of them out."
        )

    def _scripts_data(self) -> _ScriptsData:
        sampler = getattr(self, "graph_sampler", None)
        if not isinstance(sampler, GnnloadSampler):
            return _ScriptsData(self._user_data, None, edges=False, is_gathered=False)
        assert isinstance(self.eval_graph_sampler, GnnloadSampler)
        edges = are_drawn(sampler) and are_drawn(self.eval_graph_sampler)
        kwargs = (self.loader_kwargs, self.eval_loader_kwargs)
        is_gathered = can_gather(self._user_data, sampler) and any(
            each.get("transform_sampler_output") is None for each in kwargs
        )
        return _ScriptsData(self._user_data, sampler.graph, edges=edges, is_gathered=is_gathered)


class LightningNodeData(_PyGDataModule):
    """PyG's ``LightningNodeData``, over a :class:`.GraphDataModule`: with neither pyg-lib nor torch-sparse, and with
    what that has more.

    Arguments, attributes and mini-batches are PyG's, and these those of :class:`.NeighborLoader`. What is otherwise:

    - With :class:`.FactoredStrategy`, other processes sample and gather. ``transform`` and
      ``transform_sampler_output`` are called by the trainer, as are PyG's own rules for attributes that are no tables
      of numbers: ragged columns of a TensorFrame, sparse and transposed tensors.
    - A run resumes in mid-epoch from Lightning's checkpoints, mini-batch for mini-batch.
    - With several trainers each row comes exactly once in an epoch. One trainer has as many steps as PyG's loader; of
      several, a rest of fewer rows than there are trainers joins the step before.
    - A node draws the same neighbours whenever it is evaluated, unless ``eval_draws="fresh"``; and ``drop_last`` is of
      training alone, unless ``eval_loader_kwargs`` has it.
    - ``num_workers=n`` means n threads of this process; 0 samples in the caller's thread.

    Args:
        data: a ``Data``, a ``HeteroData``, or a pair ``(FeatureStore, GraphStore)``.
        input_train_nodes: the seeds: ids, a mask, or in a graph with types a type or ``(type, ids)``; None: those of
            ``train_mask``, ``train_idx`` or ``train_index``, where the data have one, else all nodes.
        input_train_time: their times, where these are not the nodes' own.
        input_val_nodes: likewise, of ``val_mask`` or ``valid_mask`` and so on; without them nothing is validated on.
        input_val_time: likewise.
        input_test_nodes: likewise, of ``test_mask`` and so on.
        input_test_time: likewise.
        input_pred_nodes: likewise, of ``pred_mask`` and so on, else all nodes.
        input_pred_time: likewise.
        loader: ``"neighbor"``, or ``"full"``, by which the data are the only mini-batch, as PyG has it.
        node_sampler: samples instead: a :class:`.GnnloadSampler`, or another one, by PyG's own loader.
        eval_loader_kwargs: what is otherwise in validation, test and prediction, such as ``dict(num_neighbors=[-1])``.
        **kwargs: those of :class:`.NeighborLoader` and of torch's DataLoader, where ``sampler`` and ``batch_sampler``
            are of training alone; and of :class:`.GraphDataModule` ``seed``, ``order``, ``cache``, ``eval_draws`` and
            ``num_threads``, which is ``num_workers``. Without ``seed`` it is that of ``seed_everything``, else 0.

    Raises:
        LoaderConfigError: keywords that are none, or that cannot be heeded together.
        GraphDataError, GraphFormatError, SamplerConfigError: as :class:`.GnnloadSampler`.
        SeedError: when a loader is made: nothing to begin at, or what is no node.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.arange(4.0)[:, None], edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]))
        >>> data.train_mask = torch.tensor([True, True, True, False])
        >>> module = LightningNodeData(data, num_neighbors=[-1], batch_size=2)
        >>> [batch.batch_size for batch in module.train_dataloader()], module.data is data
        ([2, 1], True)
    """

    _LOADER = pyg.NodeLoader
    _SAMPLER = "node_sampler"
    _INPUTS = ("nodes", "time", "id")

    def __init__(
        self,
        data: Any,
        input_train_nodes: Any = None,
        input_train_time: torch.Tensor | None = None,
        input_val_nodes: Any = None,
        input_val_time: torch.Tensor | None = None,
        input_test_nodes: Any = None,
        input_test_time: torch.Tensor | None = None,
        input_pred_nodes: Any = None,
        input_pred_time: torch.Tensor | None = None,
        loader: Literal["neighbor", "full"] = "neighbor",
        node_sampler: BaseSampler | None = None,
        eval_loader_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.input_train_nodes = _given_or_inferred(input_train_nodes, data, "train")
        self.input_train_time = input_train_time
        self.input_train_id: torch.Tensor | None = None
        self.input_val_nodes = _given_or_inferred(input_val_nodes, data, "val", "valid")
        self.input_val_time = input_val_time
        self.input_val_id: torch.Tensor | None = None
        self.input_test_nodes = _given_or_inferred(input_test_nodes, data, "test")
        self.input_test_time = input_test_time
        self.input_test_id: torch.Tensor | None = None
        self.input_pred_nodes = _given_or_inferred(input_pred_nodes, data, "pred")
        self.input_pred_time = input_pred_time
        self.input_pred_id: torch.Tensor | None = None
        has_val, has_test = self.input_val_nodes is not None, self.input_test_nodes is not None
        super().__init__(data, has_val, has_test, loader, node_sampler, eval_loader_kwargs, kwargs)

    def dataloader(
        self,
        input_nodes: Any,
        input_time: torch.Tensor | None = None,
        input_id: torch.Tensor | None = None,
        node_sampler: BaseSampler | None = None,
        **kwargs: Any,
    ) -> DataLoader:
        if self.loader == "full":
            return self.full_dataloader(**kwargs)
        kwargs |= {"input_nodes": input_nodes, "input_time": input_time, "input_id": input_id}
        if isinstance(node_sampler, GnnloadSampler):
            return _PhaseNodeLoader(self.data, node_sampler, seed=self.seed, **kwargs)
        return pyg.NodeLoader(self.data, node_sampler, **kwargs)


class LightningLinkData(_PyGDataModule):
    """PyG's ``LightningLinkData``, as :class:`LightningNodeData` is its ``LightningNodeData``.

    Args:
        data: as :class:`LightningNodeData` has it.
        input_train_edges: the links: their ends ``[2, R]``, or in a graph with types an edge type, or
            ``(edge type, ends)``; None for all edges.
        input_train_labels: their labels, ``[R]`` or ``[R, C]``.
        input_train_time: their times.
        input_val_edges: likewise, as are the others of ``val``, ``test`` and ``pred``; without them nothing is
            validated or tested on.
        loader: as :class:`LightningNodeData` has it.
        link_sampler: likewise.
        eval_loader_kwargs: likewise.
        **kwargs: likewise, and those of :class:`.LinkNeighborLoader`: ``neg_sampling``, ``neg_sampling_ratio``.

    Raises:
        LoaderConfigError, GraphDataError, GraphFormatError, SamplerConfigError, SeedError: as
            :class:`LightningNodeData`.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]), num_nodes=4)
        >>> settings = dict(num_neighbors=[-1], neg_sampling="binary", batch_size=2)
        >>> module = LightningLinkData(data, input_train_edges=data.edge_index, **settings)
        >>> [batch.edge_label.tolist() for batch in module.train_dataloader()]
        [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0]]
    """

    _LOADER = pyg.LinkLoader
    _SAMPLER = "link_sampler"
    _INPUTS = ("edges", "labels", "time", "id")

    def __init__(
        self,
        data: Any,
        input_train_edges: Any = None,
        input_train_labels: torch.Tensor | None = None,
        input_train_time: torch.Tensor | None = None,
        input_val_edges: Any = None,
        input_val_labels: torch.Tensor | None = None,
        input_val_time: torch.Tensor | None = None,
        input_test_edges: Any = None,
        input_test_labels: torch.Tensor | None = None,
        input_test_time: torch.Tensor | None = None,
        input_pred_edges: Any = None,
        input_pred_labels: torch.Tensor | None = None,
        input_pred_time: torch.Tensor | None = None,
        loader: Literal["neighbor", "link_neighbor", "full"] = "neighbor",
        link_sampler: BaseSampler | None = None,
        eval_loader_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.input_train_edges = input_train_edges
        self.input_train_labels = input_train_labels
        self.input_train_time = input_train_time
        self.input_train_id: torch.Tensor | None = None
        self.input_val_edges = input_val_edges
        self.input_val_labels = input_val_labels
        self.input_val_time = input_val_time
        self.input_val_id: torch.Tensor | None = None
        self.input_test_edges = input_test_edges
        self.input_test_labels = input_test_labels
        self.input_test_time = input_test_time
        self.input_test_id: torch.Tensor | None = None
        self.input_pred_edges = input_pred_edges
        self.input_pred_labels = input_pred_labels
        self.input_pred_time = input_pred_time
        self.input_pred_id: torch.Tensor | None = None
        has_val, has_test = input_val_edges is not None, input_test_edges is not None
        super().__init__(data, has_val, has_test, loader, link_sampler, eval_loader_kwargs, kwargs)

    def dataloader(
        self,
        input_edges: Any,
        input_labels: torch.Tensor | None = None,
        input_time: torch.Tensor | None = None,
        input_id: torch.Tensor | None = None,
        link_sampler: BaseSampler | None = None,
        **kwargs: Any,
    ) -> DataLoader:
        if self.loader == "full":
            return self.full_dataloader(**kwargs)
        kwargs |= {"edge_label_index": input_edges, "edge_label": input_labels}
        kwargs |= {"edge_label_time": input_time, "input_id": input_id}
        if isinstance(link_sampler, GnnloadSampler):
            return _PhaseLinkLoader(self.data, link_sampler, seed=self.seed, **kwargs)
        return pyg.LinkLoader(self.data, link_sampler, **kwargs)


def _given_or_inferred(nodes: Any, data: Any, *splits: str) -> Any:
    """Returns a split's nodes, or what the data say they are; None where neither tells.

    Raises:
        LoaderConfigError: nodes of several types could be meant.
    """
    if nodes is not None or not isinstance(data, Data | HeteroData):
        return nodes
    for name in (f"{split}_{kind}" for split in splits for kind in ("mask", "idx", "index")):
        if name not in data:
            continue
        if isinstance(data, Data):
            return data[name]
        of_types = [(kind, store[name]) for kind, store in data.node_items() if name in store]
        if len(of_types) != 1:
            raise LoaderConfigError(
                f"{name} is an attribute of {len(of_types)} types of nodes "
                f"({', '.join(kind for kind, _ in of_types)}), so that which of them is meant is not known. Give "
                f"input_{'val' if splits[0] == 'val' else splits[0]}_nodes=('type', ids)."
            )
        return of_types[0]
    return None


def _agreed_seed(seed: int | None, sampler: BaseSampler | None, kwargs: Mapping[str, Any]) -> int:
    """Returns a seed that is the same in every rank: the one given, that of a sampler or a generator that was, that of
    ``seed_everything``, which sets a variable that all ranks have, or 0."""
    if seed is not None:
        return seed
    if isinstance(sampler, GnnloadSampler):
        return sampler.seed
    if kwargs.get("generator") is not None:
        return int(torch.randint(2**62, (), generator=kwargs["generator"]))
    return int(os.environ.get("PL_GLOBAL_SEED", 0))


def _changed(sampler: BaseSampler, settings: Mapping[str, Any]) -> BaseSampler:
    """Returns a copy with other settings; itself where there are none.

    Raises:
        LoaderConfigError: settings that a copy of ours cannot change.
    """
    if not settings:
        return sampler
    changed = copy(sampler)
    for name, value in settings.items():
        if isinstance(sampler, GnnloadSampler) and name not in _CHANGEABLE:
            raise LoaderConfigError(
                f"eval_loader_kwargs has {name}=, which is of the graph that all phases share. It may change "
                f"{', '.join(_CHANGEABLE)}."
            )
        setattr(changed, name, SubgraphType(value) if name == "subgraph_type" else value)
    return changed


def _parted(kwargs: Mapping[str, Any], of_sampler: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the sampler's keywords, and the others."""
    taken = {name: value for name, value in kwargs.items() if name in of_sampler}
    return taken, {name: value for name, value in kwargs.items() if name not in of_sampler}


def _warn_of_shuffle(kwargs: dict[str, Any], name: str) -> None:
    """Drops ``shuffle``, as PyG does."""
    if "shuffle" in kwargs:
        warnings.warn(
            f"The 'shuffle={kwargs.pop('shuffle')}' option is ignored in '{name}': training rows are shuffled, others "
            "are not. Remove it from the argument list to disable this warning; order='sequential' shuffles none.",
            stacklevel=4,
        )


def _reset_for_full_batches(kwargs: dict[str, Any], name: str) -> None:
    """Drops what is not for the one mini-batch that is all, as PyG does."""
    for key, needed in (("batch_size", 1), ("num_workers", 0), ("pin_memory", False)):
        if kwargs.get(key, needed) != needed:
            warnings.warn(
                f"Re-setting '{key}' to {needed} in '{name}' for loader='full' (got '{kwargs[key]}')", stacklevel=4
            )
            kwargs[key] = needed
    for key in ("sampler", "batch_sampler"):
        if kwargs.pop(key, None) is not None:
            warnings.warn(f"'{key}' option is not supported for loader='full'", stacklevel=4)


def _first(batches: list[Any]) -> Any:
    return batches[0]


_OWN = ("seed", "order", "cache", "eval_draws", "num_threads")
"""Settings of a GraphDataModule that these have, too."""
_CHANGEABLE = ("num_neighbors", "subgraph_type", "replace", "disjoint", "temporal_strategy")
"""Settings of a GnnloadSampler that a copy of it may change."""
_LOADER_INPUTS = (
    *("node_sampler", "input_nodes", "input_time", "input_id"),
    *("link_sampler", "edge_label_index", "edge_label", "edge_label_time"),
)
"""Arguments of PyG's loaders that these data modules give them themselves."""
_WITH_FROM_PYG = "GraphDataModule.from_pyg(data, ...), whose mini-batches are of another kind"
_OF_GRAPH_DATA_MODULE = {
    "batch_format": "PyG's own, as its loaders yield it",
    "eval_batch_size": "eval_loader_kwargs=dict(batch_size=...)",
    "eval_sampler": "eval_loader_kwargs=dict(num_neighbors=...)",
    "predict": "input_pred_nodes=... or input_pred_edges=...",
    "negatives": "neg_sampling=...",
    "eval_negatives": "eval_loader_kwargs=dict(neg_sampling=...)",
    "sampling_device": "'cpu', as mini-batches carry the edges' ids in the data, which the host looks up",
    "partition": _WITH_FROM_PYG,
    "exclude": _WITH_FROM_PYG,
    "reverse_types": _WITH_FROM_PYG,
    "feature_name": "the attribute's own name",
    "label_name": "the attribute's own name",
    "edge_feature_name": "the attribute's own name",
}
"""Settings of a GraphDataModule that these lack, and what says the same here."""
