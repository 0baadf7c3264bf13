"""FactoredStrategy: devices factored into sampler ranks and trainer ranks."""

from __future__ import annotations

import inspect
import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch.nn.parallel import DistributedDataParallel

from lightning_gnnload.host import flags, malloc
from lightning_gnnload.pipeline.alternate import AlternatingLoader
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.depth import FIRST
from lightning_gnnload.pipeline.queue.loader import QueueLoader
from lightning_gnnload.pipeline.queue.row_gatherer import gather_on_trainer
from lightning_gnnload.pipeline.queue.service import SamplerService
from lightning_gnnload.pipeline.queue.trainer import BatchQueue
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import REMEDY, pl, refuse_by_name
from lightning_gnnload.plugin.gradients.switching import several_loaders
from lightning_gnnload.plugin.job import Job, Role, RoleDecision
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.module.settings import default_num_threads
from lightning_gnnload.plugin.strategy import ranks, resources
from lightning_gnnload.plugin.strategy.agreement import agree
from lightning_gnnload.plugin.strategy.beside_ddp import loss_beside_ddp
from lightning_gnnload.plugin.strategy.late import LateStrategy
from lightning_gnnload.plugin.strategy.launcher import ScriptLauncher, SpawnLauncher
from lightning_gnnload.plugin.strategy.rendezvous import check_environment
from lightning_gnnload.plugin.strategy.roles import check_role_options, check_run_options
from lightning_gnnload.plugin.strategy.sampler_device import reader_of
from lightning_gnnload.settings import keywords_of, refuse_unknown


class FactoredStrategy(LateStrategy):
    """Trains on some ranks and samples on the others, which a bounded queue in shared memory connects.

    Of ``Trainer(devices=n)``, the last ``samplers`` local ranks sample. Lightning's world consists of the trainers
    alone, which run plain DDP: callbacks, loggers, checkpoints, metrics, validation and test work as ever. Works
    under Lightning's own launcher, ``start_method="spawn"`` and torchrun. With ``devices=1``, the one rank trains and
    samples in threads beside it. On CPUs, trainers have as many torch threads as under DDP with as many trainers.

    Args:
        samplers: how many of each machine's ranks sample. ``"auto"`` measures, before training begins, how long the
            stages of a mini-batch take, on copies of the model and the data module; prints what it decides for samplers
            and threads, and why; and keeps the figures in ``gnnload_roles.json`` in the Trainer's ``default_root_dir``.
        staleness: optimizer steps by which a gradient may be late; a trainer that is late by less makes no other one
            wait. 0 is plain DDP. See :mod:`.staleness` and ``staleness_stats``.
        switching: whether a sampler that has nothing to sample trains mini-batches of the epoch's end, whose gradients
            join the trainers', and by how many updates these may be late: ``True`` is 1, and ``staleness + 1``
            counts where it is more. A sampler that is slower than trainers needs more: see :mod:`.switching` and
            ``switching_stats``. A lone device alternates: it fills a queue with all cores, then trains from it.
        queue_depth: mini-batches that each sampler may have made ahead, or in use, for each trainer and loader.
            Each is a buffer in shared memory as large as the largest batch; with 2 or more, sampling overlaps training.
            ``"auto"`` follows the waits: it grows while trainers wait though samplers had time, and falls where nobody
            waits, from 2 to 64 within ``queue_memory_bytes`` (:class:`.QueueDepth`).
        sampler_nodes: how many machines only sample, with all their ranks, for the trainers of all others: the last of
            ``Trainer(num_nodes=n)``. Their mini-batches come over TCP, between ends that know the user's secret
            (:mod:`.remote_samplers`). ``samplers`` are of each other machine then, and may be 0.
        gathered_by: ``"trainers"``: each gathers the rows of its own mini-batches, in threads beside training. Between
            machines, rows cross the network once then, from their owners, or not at all. Not for tables of edges.
            Trainers on GPUs gather in any case where they can.
        trainers: with this, ``trainers + samplers`` ranks are laid round-robin over the devices, which they share
            where there are fewer; else there is one rank a device.
        queue_memory_bytes: for ``queue_depth="auto"``, what the slots of one machine may take together for one
            loader; None takes an eighth of its memory.
        pin_cores: whether each rank runs on cores of its own, as many as its measured work needs; on a lone device,
            torch leaves some to the sampling threads. For machines that no other job uses.
        sampler_threads: sampling threads of a sampler; None takes what was measured, if anything was, or the sampler's
            share of the cores, at most 8; on a lone device half of them, at most 4. ``"auto"`` measures, as
            ``samplers="auto"`` does, for a given number of samplers.
        connect_timeout_s: how long ranks wait for each other to start while that one does nothing. Time in which its
            process runs, or waits for a core or a disk, does not count, up to ``setup_timeout_s``.
        stall_timeout_s: how long a trainer waits for a mini-batch that a sampler owes; then it counts as lost. At the
            end of a call, how long a sampler may take to end.
        setup_timeout_s: how long a sampler may make no progress before its first mini-batch, in the data module's
            ``setup`` or in opening features; then it counts as lost. Rows that are cached and mini-batches that are
            sampled ahead are progress; what ``setup`` does cannot be observed.
        lags: with ``staleness``, ``"record"`` keeps in checkpoints how late each trainer's gradients were, which
            depends on time alone; the path of such a checkpoint repeats the run that saved it, bit for bit.
        takeover: whether training goes on, with the same mini-batches, when a sampler is lost (killed, out of memory,
            stopped, raised): the others take its work over, or the trainers sample themselves. Else the job ends.
        **ddp: arguments of Lightning's DDPStrategy.

    Raises:
        RoleConfigError: samplers that leave no trainer, or options that this release does not have.

    Source: GNNLab (EuroSys'22), section 5.2.

    Example:
        >>> import pytorch_lightning as pl
        >>> strategy = FactoredStrategy(samplers=1, staleness=1)
        >>> trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=3, logger=False)
        >>> trainer.world_size  # the trainers
        2
    """

    strategy_name = "factored"

    def __init__(
        self,
        samplers: int | Literal["auto"] = 1,
        staleness: int = 0,
        switching: bool | int = False,
        queue_depth: int | Literal["auto"] = FIRST,
        *,
        sampler_nodes: int = 0,
        gathered_by: Literal["samplers", "trainers"] = "samplers",
        trainers: int | None = None,
        queue_memory_bytes: int | None = None,
        pin_cores: bool = False,
        sampler_threads: int | Literal["auto"] | None = None,
        connect_timeout_s: float = 60.0,
        stall_timeout_s: float = 120.0,
        setup_timeout_s: float = 1800.0,
        lags: str | None = None,
        takeover: bool = True,
        **ddp: Any,
    ) -> None:
        # Lightning passes what it does not know on to DistributedDataParallel, which would refuse it in the ranks only.
        takers = (*FactoredStrategy.__mro__, DistributedDataParallel)
        constructors = [vars(cls)["__init__"] for cls in takers if "__init__" in vars(cls)]
        refuse_unknown("FactoredStrategy", ddp, [*itertools.chain(*map(keywords_of, constructors))])
        check_role_options(samplers, trainers, queue_depth, queue_memory_bytes, sampler_nodes)
        check_run_options(
            switching,
            sampler_threads,
            takeover,
            sampler_nodes,
            gathered_by,
            measures="auto" in (samplers, sampler_threads),
            connect_timeout_s=connect_timeout_s,
            stall_timeout_s=stall_timeout_s,
            setup_timeout_s=setup_timeout_s,
        )
        self.samplers = samplers
        self.gathered_by = gathered_by
        self.pin_cores = pin_cores
        self.queue_memory_bytes = queue_memory_bytes
        self.role_decision: RoleDecision | None = None
        self.queue_depth: int = FIRST if queue_depth == "auto" else queue_depth
        self.division = resources.Division()  # of this machine's cores, while a rank runs
        self._depth_by_memory = queue_depth == "auto"
        self.sampler_threads = None if sampler_threads == "auto" else sampler_threads
        self._measures = "auto" in (samplers, sampler_threads)
        self.connect_timeout_s = connect_timeout_s
        self.stall_timeout_s = stall_timeout_s
        self.setup_timeout_s = setup_timeout_s
        self.takeover = takeover
        self._requests = dict.fromkeys(compat.LOADER_BARRIERS.values(), 0)
        self._next_loader = 0
        provisional = 1 if samplers == "auto" else samplers  # until the ranks agree
        super().__init__(
            provisional, trainers, sampler_nodes, staleness=staleness, switching=switching, lags=lags, **ddp
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}(samplers={self.num_samplers}): {REMEDY}>"  # quoted by the other's Trainer

    # Roles that are measured.

    @property
    def is_undecided(self) -> bool:
        """Whether the ranks must measure, and agree, before they take roles."""
        return self.role_decision is None and self._measures

    def decide(self, decision: RoleDecision) -> None:
        self.role_decision, self.num_samplers = decision, decision.num_samplers

    @property
    def num_sampler_threads(self) -> int:
        # The default leaves half of the cores to training, which a sampler does not do.
        shared = default_num_threads(self.roles.num_devices)
        return self.sampler_threads or self.division.sampler_threads or (shared if self.roles.is_lone else 2 * shared)

    @property
    def gather_group(self) -> GatherGroup:
        """The group of this machine's living samplers, which gather for its trainers; trainers are not in it."""
        roles = self.roles
        if roles.is_lone:
            return GatherGroup()
        samplers = range(roles.num_trainers, roles.num_devices)
        # Without those whose process has ended: the others would wait in vain for them to come.
        ranks = [rank for rank in samplers if not flags.is_up(flags.rank_ended(self.run_name, rank))]
        if self.local_rank not in ranks:
            return GatherGroup(is_here=False, num_machines=roles.num_training_nodes)
        name = f"{self.run_name}-{self.session}"
        # Later than one that hangs gives itself up: the others name it then, and why it hung.
        return replace(self._group(True, ranks, name), silence_s=2 * self.setup_timeout_s)

    @property
    def training(self) -> GatherGroup:
        """The trainers of this machine, which share caches on their devices."""
        roles, is_trainer = self.roles, self.role is Role.TRAINER
        trainer = self.global_rank if is_trainer else None
        if roles.num_trainers == 1:
            return GatherGroup(trainer=trainer)
        name = f"{self.run_name}-{self.session}-trainers"
        return replace(self._group(is_trainer, range(roles.num_trainers), name), trainer=trainer)

    def _group(self, is_here: bool, local_ranks: Sequence[int], name: str) -> GatherGroup:
        ranks = tuple(self.roles.global_rank(self.node_rank, rank) for rank in local_ranks)
        index = local_ranks.index(self.local_rank) if is_here else self.local_rank
        machines = self.roles.num_training_nodes
        return GatherGroup(is_here, index, len(ranks), name, self.connect_timeout_s, ranks=ranks, num_machines=machines)

    # What a rank does.

    @property
    def job(self) -> Job:
        assert self.cluster_environment is not None
        return Job(
            roles=self.roles,
            decision=self.role_decision,
            is_undecided=self.is_undecided,
            environment=self.cluster_environment,
            node_rank=self.node_rank,
            local_rank=self.local_rank,
            device=self.root_device,
            run_name=self.run_name,
            session=self.session,
            start_method=self.start_method,
            num_sampler_threads=self.num_sampler_threads,
            has_sampler_threads=self.sampler_threads is not None,
            shares_devices=self.trainers is not None,
            samplers=self.samplers,
            staleness=self.staleness,
            switching=self.switching,
            queue_depth=self.queue_depth,
            queue_memory_bytes=self._queue_memory_bytes if self._depth_by_memory else None,
            pin_cores=self.pin_cores,
            connect_timeout_s=self.connect_timeout_s,
            stall_timeout_s=self.stall_timeout_s,
            setup_timeout_s=self.setup_timeout_s,
            takeover=self.takeover,
            queue_secret=self.queue_secret,
        )

    @property
    def queue_secret(self) -> str | None:
        """By which the ends of a queue between machines know each other; None: as :func:`.find_secret` finds it."""
        return None

    def play(self, trainer: pl.Trainer, session: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # No decorators, whose frames would stand among the user's.
        with malloc.freed_memory_kept(), compat.status_by_sigterm():
            return self._play(trainer, session, function, *args, **kwargs)

    def _play(self, trainer: pl.Trainer, session: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.session = session
        if self.start_method == "fork":
            # OpenMP's threads do not outlive a fork: a rank with more than one hangs if its parent has computed before.
            torch.set_num_threads(1)
            tempfile.tempdir = None  # the parent's is gone with it
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
        is_new = self.is_undecided
        if is_new:
            self.decide(agree(self.job, trainer, arguments))
        self.division = self._divide_cores()
        if self._depth_by_memory:
            self.queue_depth = max(FIRST, self.num_sampler_threads + 1)  # each thread has a slot, and the trainer one
        if is_new and self.division.about and (self.node_rank, self.local_rank) == (0, 0):
            pl.utilities.rank_zero.rank_zero_info(self.division.about)
            if warning := loss_beside_ddp(self.job, self.division):
                pl.utilities.rank_zero.rank_zero_warn(warning)
        self.set_world_ranks()  # under spawn, the strategy was made in the parent
        with resources.own_cores(self.job, self.division), compat.no_advice_to_sync(self.roles.world_size):
            if self.roles.is_lone:
                return function(*args, **kwargs)
            if self.role is Role.SAMPLER:
                # Other launchers (torchrun, a spawning parent) end the job when any rank fails.
                starts_ranks = getattr(self.launcher, "starts_ranks", False)
                return ranks.sample(
                    self.job,
                    trainer,
                    arguments,
                    ends_with_any_rank=not starts_ranks,
                    beside=self.beside_sampling,
                )
            reader = reader_of(ranks.datamodule_in(arguments), self.root_device)
            self.queue = ranks.open_queue(self.job, reader, self._timeout)
            # A trainer that waits for a mini-batch begins no step, where Lightning would handle a SIGTERM.
            self.queue.on_wait = compat.keep_collectives_out_of_sigterm(trainer, self.defer_sigterm)
            model = ranks.model_in(arguments, trainer)
            with self.beside_training(self.queue):
                return ranks.train(self.job, trainer, model, self.queue, partial(function, *args, **kwargs))

    def beside_sampling(self, service: SamplerService) -> AbstractContextManager[None]:
        """What a subclass does in a sampler while that serves; it is entered before the service starts."""
        return nullcontext()

    def beside_training(self, queue: BatchQueue) -> AbstractContextManager[None]:
        """What a subclass does in a trainer while it trains; it is left after the samplers were told of the end."""
        return nullcontext()

    @property
    def _queue_memory_bytes(self) -> int:
        return self.queue_memory_bytes or resources.default_queue_memory_bytes()

    def _divide_cores(self) -> resources.Division:
        if self.roles.is_lone and self.switching:
            return resources.Division()  # sampling and training have all cores in turn
        return resources.divide_cores(
            os.sched_getaffinity(0),
            self.roles,
            self.role_decision,
            pinned=self.pin_cores,
            sampler_threads=self.sampler_threads,
            torch_threads=resources.default_torch_threads(self.job),
        )

    # What Lightning calls for launching, in every rank, and for loaders, in trainers.

    def _configure_launcher(self) -> None:
        """Chooses the launcher, in every rank and in the parent of spawned ones."""
        assert self.cluster_environment is not None
        self.roles.check_nodes()
        check_environment(self.cluster_environment, self.roles)
        self._launcher = (
            ScriptLauncher(self) if self._start_method == "popen" else SpawnLauncher(self, self._start_method)
        )

    def barrier(self, name: str | None = None) -> None:
        if name in compat.LOADER_BARRIERS:
            # Loaders that are made again are new ones to the samplers, too, which find them by this count.
            self._requests[compat.LOADER_BARRIERS[name]] += 1
            self._next_loader = 0
        super().barrier(name)

    def process_dataloader(self, dataloader: object) -> object:
        """Puts a queue loader in a sampled loader's place."""
        # Lightning names no loader: it passes those of a phase one by one, after the barrier that starts the count.
        index, self._next_loader = self._next_loader, self._next_loader + 1
        if isinstance(dataloader, list | tuple) and not dataloader:
            return dataloader  # of a phase that the data have no split for
        if not isinstance(dataloader, SampledLoader):
            pl.utilities.rank_zero.rank_zero_warn(
                f"FactoredStrategy was given a {type(dataloader).__name__}, which trainers read themselves "
                f"while the samplers are idle. Use GraphDataModule, or a subclass of it."
            )
            return dataloader
        return self._beside(dataloader) if self.roles.is_lone else self._queue_loader(dataloader, index)

    def _queue_loader(self, dataloader: SampledLoader, index: int) -> QueueLoader:
        """The loader of a trainer, whose mini-batches come from the samplers."""
        assert self.queue is not None
        trainer = self.lightning_module.trainer  # type: ignore[union-attr]
        assert trainer.state.stage is not None
        phase = trainer.state.stage.dataloader_prefix
        assert phase is not None
        if self.gathered_by == "trainers":
            gather_on_trainer(dataloader)
        ledger = self._switch.ledger if self._switch is not None and phase == "train" else None
        if ledger is not None and index:
            raise several_loaders()

        def limit() -> float:
            # Read at each epoch: the sanity check reads the validation loaders too, but has another limit.
            stage = trainer.state.stage.value  # type: ignore[union-attr]
            name = {"train": "training", "sanity_check": "sanity_val", "validate": "val"}.get(stage, stage)
            steps = getattr(trainer, f"num_{name}_batches")
            return steps[index] if isinstance(steps, list) else steps

        loader = QueueLoader(
            self.queue,
            dataloader,
            phase=phase,
            loader=index,
            reload=self._requests[phase],
            limit=limit,
            ledger=ledger,
        )
        loader.progress = dataloader.progress
        return loader

    def _beside(self, loader: SampledLoader) -> SampledLoader:
        """The loader of a rank that is both sampler and trainer."""
        if self.switching:
            depth = None if self._depth_by_memory else self.queue_depth
            memory = self._queue_memory_bytes
            return AlternatingLoader(loader, num_threads=self.sampler_threads, depth=depth, memory_bytes=memory)
        host_threads = 0 if self.role_decision is None else self.role_decision.host_threads
        loader.num_threads = self.sampler_threads or self.division.sampler_threads or host_threads or loader.num_threads
        return loader

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        about = "Sampler ranks and trainer ranks, joined by a queue"
        # By the class's name as well, as in YAML; Lightning looks names up in lower case.
        for name in (cls.strategy_name, cls.__name__.lower()):
            strategy_registry.register(name, cls, description=about)
        for suffix, start_method in (("spawn", "spawn"), ("fork", "fork"), ("notebook", "fork")):
            name = f"{cls.strategy_name}_{suffix}"
            strategy_registry.register(name, cls, description=f"{about}; {start_method}", start_method=start_method)


if FactoredStrategy.strategy_name not in pl.strategies.StrategyRegistry:
    FactoredStrategy.register_strategies(pl.strategies.StrategyRegistry)
    refuse_by_name(name for name in pl.strategies.StrategyRegistry if name.startswith(FactoredStrategy.strategy_name))
