"""PyGDataModule: a GraphDataModule that reads PyG's arguments, and makes PyG's mini-batches."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any, ClassVar

import torch
from torch import distributed
from torch.utils.data import DataLoader
from torch_geometric.sampler import BaseSampler

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.seeds import Sequential
from lightning_gnnload.errors import LoaderConfigError, SeedError, warn
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.plugin.compat import pl, restoring_loaders
from lightning_gnnload.plugin.module.datamodule import GraphDataModule
from lightning_gnnload.plugin.strategy.factored import FactoredStrategy
from lightning_gnnload.pyg.keywords import (
    MODULE_KEYWORDS,
    SHARED_SEED,
    agreed_seed,
    changed_sampler,
    check_keywords,
    drawn_seed,
    drop_shuffle,
    loader_named,
    reset_for_full_batches,
    split_keywords,
)
from lightning_gnnload.pyg.phases import PhaseLoader, ScriptsData
from lightning_gnnload.pyg.sampler import GnnloadSampler
from lightning_gnnload.pyg.threads import PyGSeeds, are_drawn, can_gather
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.workload import Workload

_SPLITS = {"train": "train", "val": "val", "test": "test", "predict": "pred"}
"""What PyG's arguments call the data of each phase."""


class PyGDataModule(GraphDataModule):
    """Takes PyG's arguments, has its attributes, and makes its mini-batches as a GraphDataModule does.

    ``loader`` is ``"neighbor"``, ``"link_neighbor"`` or ``"full"``, and counts only without ``graph_sampler``, the
    user's own sampler. ``kwargs`` are all other arguments: those of the sampler, of the loader, of torch's DataLoader,
    and of the GraphDataModule; ``eval_loader_kwargs`` are those that differ in validation, test and prediction.
    """

    _LOADER: ClassVar[type[DataLoader]]
    """PyG's own loader, with the same keywords."""
    _SAMPLER: ClassVar[str]
    """The argument for a sampler."""
    _TIMES_OF_SEEDS: ClassVar = "give input_train_time=, and so on; or leave time_attr= out"
    _INPUTS: ClassVar[tuple[str, ...]]
    """The loader's inputs, in the order of its arguments: ``nodes`` of the attribute ``input_train_nodes``."""

    graph_sampler: BaseSampler  # not there with loader="full"
    eval_graph_sampler: BaseSampler

    def __init__(
        self,
        data: Any,
        loader: str,
        graph_sampler: BaseSampler | None,
        eval_loader_kwargs: Mapping[str, Any] | None,
        kwargs: dict[str, Any],
    ) -> None:
        loader = loader_named(loader, graph_sampler, self._SAMPLER)
        settings = {name: kwargs.pop(name) for name in MODULE_KEYWORDS if name in kwargs}
        drop_shuffle(kwargs, type(self).__name__)
        if loader == "full":
            reset_for_full_batches(kwargs, type(self).__name__)
        if (num_threads := settings.get("num_threads")) is not None:
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
        seed = agreed_seed(settings.get("seed"), graph_sampler, kwargs)
        # A drawn seed differs from rank to rank: see seed.
        self._is_seed_drawn = seed is None
        settings["seed"] = int(drawn_seed(seed, None, kwargs))

        self.kwargs = kwargs
        self.loader = loader
        self._user_data = data
        self._set_samplers(graph_sampler, dict(eval_loader_kwargs or {}), settings["seed"])
        self._check_replaced(settings)
        # GraphDataModule needs a sampler to describe itself by, also where PyG's own loader samples.
        samples = isinstance(getattr(self, "graph_sampler", None), GnnloadSampler)
        inner = self.graph_sampler.inner() if samples else NeighborSampler([1])
        super().__init__(
            self._scripts_data(),
            inner,
            batch_size=self.batch_size,
            batch_format="pyg",
            order=settings.get("order", "shuffle"),
            seed=settings["seed"],
            num_threads=kwargs["num_workers"],
            cache=settings.get("cache"),
            eval_batch_size=self.eval_batch_size,
            eval_sampler=self.eval_graph_sampler.inner() if samples else None,
            eval_draws=settings.get("eval_draws", "fixed"),
            sampling_device="cpu",
        )
        if not self.has_seeds("val"):
            self.val_dataloader = None  # type: ignore[method-assign, assignment]
        if not self.has_seeds("test"):
            self.test_dataloader = None  # type: ignore[method-assign, assignment]

    def _set_inputs(self, split: str, *values: Any) -> None:
        """Sets a split's inputs under PyG's names; what is left out is None, but a script may set it."""
        for name, value in zip_longest(self._INPUTS, values):
            setattr(self, f"input_{split}_{name}", value)

    # PyG's attributes.

    @property
    def data(self) -> Any:
        """The user's own data."""
        return self._user_data

    @data.setter
    def data(self, data: Any) -> None:
        self._user_data = data
        self._dataset, self._data = self._scripts_data(), None
        # Caches have rows of the data before.
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
    def seed(self) -> int:
        """The random seed of orders and draws. Ranks share rows by it, so that one which torch drew in this rank is
        used only where there are no others; else it is 0."""
        return SHARED_SEED if self._is_seed_drawn and self._has_peers else self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._seed = seed

    @property
    def _has_peers(self) -> bool:
        """Whether other ranks train on the same rows, or sample them."""
        if self.trainer is None:
            return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
        roles = getattr(self.trainer.strategy, "roles", None)
        return self.trainer.world_size > 1 if roles is None else not roles.is_lone

    def state_dict(self) -> dict[str, Any]:
        """Returns the seed where torch drew it, so that a run that is resumed goes on by it."""
        return {"seed": self._seed} if self._is_seed_drawn else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._is_seed_drawn:
            self._seed = state_dict["seed"]

    @property
    def train_shuffle(self) -> bool:
        """Whether training rows are shuffled: not where the user gave a sampler of rows."""
        return all(self.loader_kwargs.get(name) is None for name in ("sampler", "batch_sampler"))

    def dataloader(self, *inputs: Any, **kwargs: Any) -> DataLoader:
        """Makes a loader as PyG's data module does, of its inputs, a sampler, and DataLoader's keywords."""
        raise NotImplementedError

    def full_dataloader(self, **kwargs: Any) -> DataLoader:
        """Makes the loader whose only mini-batch is the data."""
        # As PyG does: workers would only copy the one mini-batch.
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

    def train_dataloader(self) -> Any:  # type: ignore[override]  # without parts
        return self._dataloader("train")

    def val_dataloader(self) -> Any:
        return self._dataloader("val")

    def test_dataloader(self) -> Any:
        return self._dataloader("test")

    def predict_dataloader(self) -> Any:
        return self._dataloader("predict")

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        if self.loader == "full":  # whose mini-batch is the user's own object
            return pl.LightningDataModule.transfer_batch_to_device(self, batch, device, dataloader_idx)
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    # How mini-batches are made.

    @property
    def graph_data(self) -> GraphData:
        """The graph, and the attributes that kernels gather.

        Raises:
            LoaderConfigError: a sampler of another package, or none, makes the mini-batches.
        """
        if self._data is None:
            assert isinstance(self._dataset, ScriptsData)
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
        """Describes what will be sampled in a phase; raises SeedError where there are no seeds."""
        training = phase == "train"
        overfit = training and self.trainer is not None and self.trainer.overfit_batches > 0
        loader = self._phase_loader(phase)
        assert isinstance(loader, PhaseLoader), "the caller asked for it"
        if not len(loader.dataset):  # type: ignore[arg-type]
            raise SeedError(
                f"there is nothing to {phase} on: input_{_SPLITS[phase]}_{self._INPUTS[0]} is empty. Give at least one."
            )
        workload = Workload(
            self.graph_data.graph,
            self._inner(training=training),
            lambda *_: PyGSeeds(loader),
            batch_size=self.batch_size if training else self.eval_batch_size,
            order=self.order if training and not overfit else Sequential(),
            seed=self.seed,
            # Trainer(overfit_batches=...) trains on the same mini-batches again and again.
            fixed_draws=overfit or (not training and self.eval_draws == "fixed"),
            drop_last=bool(loader.drop_last),
            num_ranks=1 if self.trainer is None else self.trainer.world_size,
            keep_rest=True,
        )
        if self._is_seed_drawn:
            workload.shared_seed = SHARED_SEED  # of a loader that is made before there are ranks
        return workload

    @restoring_loaders()
    def _dataloader(self, phase: str) -> Any:
        """Returns a phase's loader: ours, or PyG's own where it samples otherwise, which FactoredStrategy refuses."""
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
        loader = self._phase_loader(phase)
        if isinstance(loader, PhaseLoader):
            loader.position.follow(self._next_epochs[phase])
        return loader

    def _is_sampled(self, phase: str) -> bool:
        """Whether our pipeline makes a phase's mini-batches, step by step as ``order`` and ``seed`` say."""
        is_ours = isinstance(getattr(self, "graph_sampler", None), GnnloadSampler)
        return is_ours and (phase != "train" or self.train_shuffle)

    def _phase_loader(self, phase: str) -> DataLoader:
        training = phase == "train"
        inputs = [getattr(self, f"input_{_SPLITS[phase]}_{name}") for name in self._INPUTS]
        kwargs = dict(self.loader_kwargs if training else self.eval_loader_kwargs)
        # Where our pipeline samples, order= shuffles: the loader is made for its rows alone.
        kwargs["shuffle"] = training and self.train_shuffle and not self._is_sampled(phase)
        if self.loader == "full":
            kwargs["shuffle"] = training
        else:
            kwargs[self._SAMPLER] = self.graph_sampler if training else self.eval_graph_sampler
        return self.dataloader(*inputs, **kwargs)

    def _loader(self, phase: str) -> SampledLoader:
        assert isinstance(self._dataset, ScriptsData)
        if self._dataset.has_changed:
            self.caching.close()
            self._data = None
        kwargs = self.loader_kwargs if phase == "train" else self.eval_loader_kwargs
        self._pins_memory = bool(kwargs["pin_memory"])
        loader = super()._loader(phase)
        # PyG's keywords may differ in evaluation, and change after the module was made.
        loader.num_threads = kwargs["num_workers"]
        loader.on_thread = kwargs.get("worker_init_fn")
        if kwargs.get("prefetch_factor") is not None:
            loader.num_ahead = loader.num_threads * kwargs["prefetch_factor"]
        return loader

    def _convert(self, workload: Workload) -> Callable[[MiniBatch], Any]:
        assert isinstance(workload.kind, PyGSeeds)
        assert isinstance(self._dataset, ScriptsData)
        return partial(workload.kind.loader.converted, self._dataset.attributes)  # type: ignore[attr-defined]

    def _as_carried(self, data: GraphData) -> GraphData:
        return data  # mini-batches carry what the user's data hold

    def _inner(self, *, training: bool) -> Sampler:
        """Returns the sampler that draws, the same object as long as its settings are."""
        sampler = self.graph_sampler if training else self.eval_graph_sampler
        assert isinstance(sampler, GnnloadSampler), "the caller asked for it"
        name, inner = "sampler" if training else "eval_sampler", sampler.inner()
        # PyG's settings may change between epochs; caches and other ranks go by the object.
        if repr(getattr(self, name)) != repr(inner):
            setattr(self, name, inner)
        current: Sampler = getattr(self, name)
        return current

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
        arguments = ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
        return f"{type(self).__name__}({arguments})"

    # How arguments are read.

    def _set_samplers(self, graph_sampler: BaseSampler | None, changed: dict[str, Any], seed: int) -> None:
        """Makes the samplers, and splits the keywords of loaders from theirs, in training and in evaluation."""
        sampler_class = GnnloadSampler if graph_sampler is None else type(graph_sampler)
        names = {*inspect.signature(sampler_class).parameters} if self.loader != "full" else set()
        for keywords in (self.kwargs, changed):
            check_keywords(keywords, names, self._LOADER, type(self).__name__)
        sampler_kwargs, self.loader_kwargs = split_keywords(self.kwargs, names)
        if self.loader == "full":
            self.eval_loader_kwargs = self.loader_kwargs | changed
            return
        if graph_sampler is None:
            if "num_neighbors" not in sampler_kwargs:
                raise LoaderConfigError(
                    f"loader={self.loader!r} needs num_neighbors=: how many neighbours a hop draws, such as [15, 10]."
                )
            self.graph_sampler = GnnloadSampler(self._user_data, **sampler_kwargs, seed=seed)
        else:
            if sampler_kwargs:
                warn(
                    f"Ignoring the arguments {list(sampler_kwargs)} in '{type(self).__name__}' since a custom "
                    "'graph_sampler' was passed"
                )
            self.graph_sampler = graph_sampler
        eval_sampler, changed = split_keywords(changed, names)
        self.eval_graph_sampler = changed_sampler(self.graph_sampler, eval_sampler)
        self.eval_loader_kwargs = self.loader_kwargs | {"drop_last": False} | changed
        # They list training rows; PyG's data modules give them to no other phase, either.
        for name in ("sampler", "batch_sampler"):
            self.eval_loader_kwargs.pop(name, None)
        # torch's DataLoader refuses a batch sampler beside these, which have defaults here.
        if self.loader_kwargs.get("batch_sampler") is not None:
            self.loader_kwargs.pop("batch_size", None)
            self.loader_kwargs.pop("drop_last", None)

    def _check_replaced(self, settings: dict[str, Any]) -> None:
        """Raises LoaderConfigError: settings of a GraphDataModule, but it does not make the mini-batches."""
        names = [name for name in ("order", "cache") if settings.get(name) is not None]
        if self._is_sampled("train") or not names:
            return
        by = next((f"{name}=" for name in ("sampler", "batch_sampler") if self.loader_kwargs.get(name)), None)
        if self.loader == "full" or not isinstance(self.graph_sampler, GnnloadSampler):
            by = f"loader={self.loader!r}" if self.loader == "full" else f"{self._SAMPLER}={self.graph_sampler!r}"
        raise LoaderConfigError(
            f"{names[0]}= sets how this package makes mini-batches, but {by} replaces that. Leave one of them out."
        )

    def _scripts_data(self) -> ScriptsData:
        sampler = getattr(self, "graph_sampler", None)
        if not isinstance(sampler, GnnloadSampler):
            return ScriptsData(self._user_data, None, edges=False, is_gathered=False)
        assert isinstance(self.eval_graph_sampler, GnnloadSampler)
        edges = are_drawn(sampler) and are_drawn(self.eval_graph_sampler)
        kwargs = (self.loader_kwargs, self.eval_loader_kwargs)
        is_gathered = can_gather(self._user_data, sampler) and any(
            settings.get("transform_sampler_output") is None for settings in kwargs
        )
        return ScriptsData(self._user_data, sampler.graph, edges=edges, is_gathered=is_gathered)


def _first(batches: list[Any]) -> Any:
    return batches[0]
