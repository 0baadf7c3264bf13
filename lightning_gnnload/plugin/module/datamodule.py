"""GraphDataModule: sampled mini-batches for every phase, under any Lightning strategy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from lightning_gnnload.adapters.formats import FORMATS, FormatName
from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.seeds import SeedOrder
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.datasets.partition import PartitionFolder
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.owners.wire import Wire
from lightning_gnnload.pipeline.position import NextEpoch
from lightning_gnnload.pipeline.resume import OnResumeChange
from lightning_gnnload.pipeline.transfer import DeviceCopies
from lightning_gnnload.plugin.accelerate import forget_trainer
from lightning_gnnload.plugin.compat import (
    OneLightningMixin,
    converts_input,
)
from lightning_gnnload.plugin.module import error_reporting
from lightning_gnnload.plugin.module.caching import CacheSettings, ModuleCache, cached_tables
from lightning_gnnload.plugin.module.integrity import FolderChecks, check_trainers
from lightning_gnnload.plugin.module.loaders import ModuleLoaders
from lightning_gnnload.plugin.module.owners import MadeBy, ModuleOwners, check_remote
from lightning_gnnload.plugin.module.packing import check_packing
from lightning_gnnload.plugin.module.partition import ModulePartition, Partitioned
from lightning_gnnload.plugin.module.sanity_log import SanityLog
from lightning_gnnload.plugin.module.settings import (
    ELSEWHERE,
    check_counts,
    check_is_sampler,
    check_negatives,
    named_data,
    seed_order,
)
from lightning_gnnload.plugin.module.sources import ModuleSources
from lightning_gnnload.plugin.module.trainer_device import DeviceChoice, TrainerDevice
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.seeds.links import Exclude, LinkSettings
from lightning_gnnload.sample.seeds.negatives import Negatives
from lightning_gnnload.settings import check_one_of, keywords_of, refuse_unknown


class GraphDataModule(ModuleSources, OneLightningMixin, ModuleLoaders):
    """A data module whose mini-batches are sampled neighbourhoods, made by threads or by sampler ranks.

    Every training rank gets the same number of steps; every evaluation seed comes exactly once. A run resumes in
    mid-epoch from Lightning's checkpoints, batch for batch.

    Args:
        data: a GraphData, a dataset such as ``Debian()``, which stays light until ``setup``, or the folder of a graph
            that ``gnnload build`` or :func:`.save_graph_data` wrote (:class:`.GraphFolder`); or a partition whose rows
            lie with their parts, or its folder (:class:`.PartitionFolder`).
        sampler: how neighbourhoods are drawn.
        batch_size: seeds per trainer and step; the global batch is this times the number of trainers.
        batch_format: a name in :data:`.FORMATS`: ``"blocks"`` gives a :class:`MiniBatch`, ``"dgl"`` and ``"pyg"`` what
            these libraries' own loaders yield, ``(input_nodes, output_nodes, blocks)`` and a ``Data``, ``"graphbolt"``
            the fields of GraphBolt's ``MiniBatch``.
        seed: the random seed of orders and draws.
        order: ``"shuffle"``, ``"sequential"``, ``"proximity"`` (:class:`.ProximityOrder`), ``"time"``
            (:class:`.TimeOrder`), ``"even"`` (:class:`.EvenOrder`) or a SeedOrder, for training; evaluation is
            sequential.
        num_threads: sampling threads of this rank; None takes half of the rank's cores, at most 4, or 8 where these
            wait for owners; 0 samples in the main thread.
        cache: hot rows of the features on faster memory: ``FeatureCache(...)``, a list of these (nearest first),
            ``"auto"``, or None; for other tables than x, a dict of these by the tables' names. Filled for the training
            mini-batches when the first one is made, and used in all phases of a fit; a validation, test or prediction
            by itself fills one for its own. It changes no mini-batch.
        eval_batch_size: for validation, test and prediction; ``batch_size`` when None.
        eval_sampler: likewise; ``sampler`` when None.
        eval_draws: ``"fixed"``: a node draws the same neighbours whenever it is evaluated, whatever the epoch,
            batch size and number of trainers, so that metrics are comparable; ``"fresh"``: new ones each epoch.
        predict: what to predict. None: the rows that the data have for it, as tasks of tables do; where there are none,
            or ``as_of`` is another time than theirs, all nodes of the seeds' type. Else node ids, in a graph with types
            also by node type, a :class:`SeedTable`, or ``"train"``, ``"val"``, ``"test"``, ``"predict"``, or ``"all"``
            nodes, or those of a node type by its name.
        as_of: predict for this time, a date as ``"2026-07-01"`` (a number where the graph's times are), in place of the
            rows' own times; None: for that of the task, if it has one. Nodes that are there only later are left out
            where they were not named by their ids.
        drop_last: leave out a training epoch's last step when it is not full.
        partition: of the graph, or its folder, as ``gnnload partition`` writes it: each trainer trains on its part's
            seeds, which are sampled in that part and shuffled by themselves. One made with ``hops=0`` is sampled by
            all ranks together, for any number of trainers under FactoredStrategy. See :class:`.ModulePartition`. Where
            ``graph`` or ``features`` names owners, the partition whose parts they own.
        sampling_device: ``"cpu"``; ``"cuda"``: mini-batches are drawn and gathered on the GPU that trains on them, or
            an error says why not; ``"auto"``: likewise, but on the CPU where there is no GPU or it cannot, and says
            why. It changes no mini-batch.
        feature_name: for ``"dgl"``, the name of the features in ``srcdata``.
        label_name: for ``"dgl"``, the name of the labels in ``dstdata``.
        edge_feature_name: for ``"dgl"``, the name of edge features in ``edata``.
        negatives: which false edges come with links, the rows of a SeedTable with ``src`` and ``dst``; of links of
            several types also ``{edge type: Negatives or None}``.
        eval_negatives: for validation and test, to rank among; ``negatives`` when None.
        exclude: the edges left out of sampling where links are trained on, so that no target edge leaks its own answer:
            ``"self"``: the mini-batch's own; ``"reverse"``: these and their reverse edges; None: none. Likewise in
            evaluation, of tables with ``edge_ids``, whose links are edges of the graph.
        reverse_types: ``{edge type: type of its reverse edges}``, where names do not say so (:func:`.reverse_of`).
        on_resume_change: what to do where a run resumes in mid-epoch with other seeds, another graph or other settings
            than its checkpoint was made with: ``"error"``, or ``"warn"`` and go on.
        task: the name of the task to train, validate and test on, where the data have several.
        edge_time: mini-batches carry the times of their edges, as the edge table ``"edge_time"``, for models that read
            how old an edge is (:meth:`.GraphData.with_edge_times`).
        graph: where lists lie: None: here. ``"remote"``: with the owners of the job, which a strategy starts, or whose
            addresses ``GNNLOAD_OWNERS`` lists; else their addresses, ``["10.0.0.2:7500", ...]``. They draw the
            mini-batches, which are the same. ``data`` is then a partition made with ``hops=0``, or its folder, of which
            the head is enough; or a whole graph, with its ``partition``.
        features: where rows lie, likewise. With ``graph`` None, rows of nodes alone come from owners; but of a
            partition, whose lists lie with its rows, both do.
        made_by: with ``graph``, who makes mini-batches: ``"ranks"``, as does None, ask owners hop by hop, and for rows;
            ``"owners"`` make whole ones, one request each, with rows of tables that have no cache here.
        wire: with ``features``, how rows of real numbers come: ``"exact"``; or rounded, each table's alike however they
            come: ``"float16"``, ``"bfloat16"`` in half of float32's bytes, off by 2^-11 and 2^-8 of a number at most,
            ``"int8"`` in a quarter, off by 1/254 of a row's largest (:class:`.WireRows`).
        packing: for tables on a disk: ``Packing(folder)`` reads them in order and writes the rows of each training
            mini-batch to that folder before it is needed (:class:`.Packing`). It changes no mini-batch, unless it is
            told to round rows or repeat epochs. Evaluation reads the tables.
        verify: under a Trainer, compare data and parts from a folder with their checksums, during training and once a
            machine: see :class:`.BackgroundCheck`.

    Raises:
        LoaderConfigError: settings that cannot work.
        CacheConfigError: ``cache`` is no such thing.
        PackingConfigError: ``packing`` is no such thing, or goes with no other setting here.
        PackingMismatchError: when the first mini-batch is needed: the folder is of another run.
        CudaUnavailableError, KernelCompileError, DeviceMemoryError: with ``sampling_device="cuda"``, when the first
            mini-batch is needed.
        StoreFormatError: in training, or at its end: a file is damaged.
        PartitionError: on ``setup`` or when loaders are made: ``partition`` is of another graph, too shallow for the
            sampler, or has more or fewer parts than there are trainers.

    Example:
        >>> import torch
        >>> from lightning_gnnload import Graph, GraphData, GraphDataModule, NeighborSampler
        >>> graph = Graph.from_coo([0, 1, 2, 3], [1, 2, 3, 0])
        >>> data = GraphData(graph, x=torch.randn(4, 8), y=[0, 1, 0, 1], train=[0, 1, 2])
        >>> module = GraphDataModule(data, NeighborSampler([2, 2]), batch_size=2)
        >>> [batch.num_seeds for batch in module.train_dataloader()]
        [2, 1]
    """

    _TIMES_OF_SEEDS: ClassVar = (
        "give each row's, by time: COLUMN at the task in graph.yaml, or SeedTable(ids, time=times); to predict, give "
        "the time itself, as_of='2026-07-01' (--as-of), such rows or the name of their split, predict='test'; or "
        "ignore times, by before: null, "
        "NeighborSampler(..., before=None)"
    )
    """What to do where seeds have the times of their nodes."""

    def __init__(
        self,
        data: GraphData | Dataset | Partition | str | Path,
        sampler: Sampler = None,  # type: ignore[assignment]  # needed; but others say first what it is called here
        batch_size: int = 1024,
        batch_format: FormatName = "blocks",
        seed: int = 0,
        order: str | SeedOrder = "shuffle",
        num_threads: int | None = None,
        cache: CacheSettings = None,
        *,
        eval_batch_size: int | None = None,
        eval_sampler: Sampler | None = None,
        eval_draws: Literal["fixed", "fresh"] = "fixed",
        predict: Any = None,
        as_of: Any = None,
        drop_last: bool = False,
        partition: Partitioned = None,
        sampling_device: DeviceChoice = "auto",
        feature_name: str = "feat",
        label_name: str = "label",
        edge_feature_name: str = "feat",
        negatives: Negatives | Mapping[Any, Negatives | None] | None = None,
        eval_negatives: Negatives | Mapping[Any, Negatives | None] | None = None,
        exclude: Exclude | None = "reverse",
        reverse_types: Mapping[Any, Any] | None = None,
        on_resume_change: OnResumeChange = "error",
        task: str | None = None,
        edge_time: bool = False,
        verify: bool = True,
        packing: Packing | None = None,
        graph: str | list[str] | None = None,
        features: str | list[str] | None = None,
        made_by: MadeBy = None,
        wire: Wire = "exact",
        **unknown: Any,
    ) -> None:
        refuse_unknown("GraphDataModule", unknown, keywords_of(GraphDataModule.__init__), ELSEWHERE)
        super().__init__()
        data = named_data(data, is_owned=(graph or features) is not None and partition is None)
        check_is_sampler("sampler", sampler)
        check_is_sampler("eval_sampler", sampler if eval_sampler is None else eval_sampler)
        check_counts(batch_size=batch_size, eval_batch_size=eval_batch_size, num_threads=num_threads, seed=seed)
        check_one_of("eval_draws", eval_draws, ("fixed", "fresh"), LoaderConfigError)
        check_one_of("batch_format", batch_format, FORMATS, LoaderConfigError)
        check_one_of("on_resume_change", on_resume_change, ("error", "warn"), LoaderConfigError)
        check_negatives(negatives=negatives, eval_negatives=eval_negatives)
        check_packing(packing, cache=cache, partition=partition, sampling_device=sampling_device)
        if isinstance(data, PartitionFolder) and partition is None:
            partition, graph = data.partition, features if graph is None else graph  # no sampler could read its lists
        self.owners = ModuleOwners(graph, features, partition, made_by, cached_tables(cache), wire)
        check_remote(self.owners, packing=packing, sampling_device=sampling_device, order=seed_order(order))
        self.sampler = FORMATS[batch_format].fitted(sampler)
        self.eval_sampler = self.sampler if eval_sampler is None else FORMATS[batch_format].fitted(eval_sampler)
        for checked in (self.sampler, self.eval_sampler):
            FORMATS[batch_format].check_sampler(checked)
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.batch_format = batch_format
        self.seed = seed
        self.order = seed_order(order)
        self.num_threads = num_threads
        self.cache = cache
        self.eval_draws = eval_draws
        self.predict = predict
        self.as_of = as_of
        self.drop_last = drop_last
        self.on_resume_change: OnResumeChange = on_resume_change
        self.feature_name = feature_name
        self.label_name = label_name
        self.edge_feature_name = edge_feature_name
        self.links = LinkSettings(negatives, exclude, reverse_types)
        self.eval_negatives = eval_negatives or negatives
        self.task = task
        self.edge_time = edge_time
        self._dataset = data if isinstance(data, Dataset) else None
        self._data = self._as_carried(data) if isinstance(data, GraphData) else None
        self.template: Any = None  # what every batch of from_pyg repeats
        self._sanity_log = SanityLog(type(self).__name__, self._TIMES_OF_SEEDS)
        self._pins_memory = True
        self._copies = DeviceCopies()
        self._next_epochs = defaultdict[str, NextEpoch](NextEpoch)  # of loops by hand, by phase and part
        self._part_by_hand: int | None = None
        self.packing = packing
        self.caching = ModuleCache(cache, packing)
        self.sampling_device = sampling_device if packing is None and not self.owners.is_asked else "cpu"
        self._sampling = TrainerDevice(self.sampling_device)
        self.module_partition = ModulePartition(None if self.owners.is_asked else partition)
        self._folder_checks = FolderChecks(verify)

    # Lightning's hooks.

    def prepare_data(self) -> None:
        if self._dataset is not None:
            self._dataset.prepare()

    def setup(self, stage: str | None = None) -> None:
        self.owners.follow(self.trainer)
        if self._data is None and self._dataset is not None:
            self._data = self._as_carried(self._dataset.load())
        error_reporting.begin_script_call(self.trainer)
        if self._data is not None:
            partition = self.module_partition.open(self._data.graph)
            self._folder_checks.start(self.trainer, self._data, partition)
            if self.trainer is not None:
                check_trainers(self.trainer, self._data, partition)
            self.module_partition.connect(self.trainer)

    def teardown(self, stage: str | None = None) -> None:
        """Closes the cache, gives back the device, and parts from the ranks that this one samples with."""
        self._sampling.close()
        self.caching.close()
        self.owners.close()
        self.module_partition.disconnect()
        if self.trainer is not None:
            forget_trainer(self.trainer)
        # Last: damage must leave nothing open.
        try:
            self._folder_checks.raise_damage()
        finally:
            self._folder_checks.close()

    def on_exception(self, exception: BaseException) -> None:
        """Closes what ``teardown`` would close, which Lightning does not call where a fit fails, and has one rank tell
        the error, whichever strategy has started them."""
        error_reporting.note_in_script(exception, self.trainer)
        if self.trainer is not None:
            forget_trainer(self.trainer)
        try:
            self._sampling.close()
        finally:
            self.caching.close()
            self._folder_checks.close()
            self.owners.close()
            self.module_partition.disconnect(exception)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        # At once, not after hours of training on damaged rows.
        self._folder_checks.raise_damage()
        # Here, as each training step's mini-batch passes through before its forward pass.
        if self.trainer is not None and self.trainer.training:
            self._sampling.begin_step(self.trainer.global_step)
            self.caching.begin_step(self)
        if isinstance(batch, MiniBatch | TypedMiniBatch) and device.type == "cuda" and batch.device.type == "cpu":
            return self._copies.start(batch, device)
        if self.trainer is not None and converts_input(self.trainer.precision_plugin):
            batch = FORMATS[self.batch_format].converted(batch, self.trainer.precision_plugin.convert_input)
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def __str__(self) -> str:
        """Says what it is made of. Lightning's own makes every loader to count what is in it."""
        return (
            f"GraphDataModule({self._data or self._dataset!r}, {self.sampler!r}, batch_size={self.batch_size}, "
            f"batch_format={self.batch_format!r}, seed={self.seed})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leaves loaded data out: spawned ranks get the descriptor, and map the data themselves."""
        state = self.__dict__.copy()
        # What is open belongs to this process.
        state["_copies"] = DeviceCopies()
        state["_next_epochs"] = defaultdict[str, NextEpoch](NextEpoch)
        state["caching"] = ModuleCache(self.cache, self.packing)
        state["_sampling"] = TrainerDevice(self.sampling_device)
        state["_folder_checks"] = FolderChecks(self._folder_checks.verify)
        if self._dataset is not None:
            state["_data"] = None
        return state

    def _as_carried(self, data: GraphData) -> GraphData:
        """Takes rows from their owners and the splits of the task, and adds the graph's columns to the data where
        batches carry them: models of other libraries look for edge weights and types in their batches, and train on
        without a word where these are missing."""
        data = self.owners.carried(data)
        if self.task is not None and self.task != data.task:
            data = data.with_task(self.task)
        if self.edge_time and "edge_time" not in data.edge_tables:
            data = data.with_edge_times()
        samplers_know_edges = all(hasattr(sampler, "edge_ids") for sampler in (self.sampler, self.eval_sampler))
        models_read_columns = FORMATS[self.batch_format].library is not None
        if models_read_columns and any(
            getattr(sampler, "edge_ids", False) for sampler in (self.sampler, self.eval_sampler)
        ):
            _ = data.graph.edge_order  # of lists that are elsewhere: told here, not by the first mini-batch
        return data.with_graph_columns() if models_read_columns and samplers_know_edges else data
