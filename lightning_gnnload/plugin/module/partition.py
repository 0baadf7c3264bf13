"""Training on parts: a data module's mini-batches from a partition of its graph."""

from __future__ import annotations

import secrets
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.distributed import PrefixStore, Store, TCPStore

from lightning_gnnload.cache.cache import FeatureCache
from lightning_gnnload.cache.policy import PartPolicy
from lightning_gnnload.cache.rules import policy_named
from lightning_gnnload.cache.static import SharerOf, number_among_equals
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import LoaderConfigError, PartitionError
from lightning_gnnload.plugin import handover
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.sample.group.exchange import DEFAULT_TIMEOUT_S, DistributedExchange, Exchange, ThreadExchange
from lightning_gnnload.sample.group.group import RankGroup
from lightning_gnnload.sample.parts.collective import CollectiveSampler, open_colleagues
from lightning_gnnload.sample.parts.sampler import PartSampler, check_reach
from lightning_gnnload.sample.workload import Workload
from lightning_gnnload.storage.partitions import load_partition

Partitioned = Partition | Path | str | None


class ModulePartition:
    """The partition of a data module's graph, loaded and checked at its first use. ``setting`` is a partition, its
    folder, or None for a graph that is sampled whole. Thread-safe.

    Source: PaGraph (TPDS'21), sections 3.2 and 4.
    """

    def __init__(self, setting: Partitioned) -> None:
        if not isinstance(setting, Partition | Path | str | None):
            raise LoaderConfigError(
                f"partition is {setting!r}, but must be one, the folder that `gnnload partition` wrote, or None."
            )
        self.setting = setting
        self._opened: Partition | None = None
        self._opening = threading.Lock()
        self._collective = CollectiveSampling()

    def connect(self, trainer: pl.Trainer | None) -> None:
        """Connects the ranks that sample together, if each has the lists of its own nodes alone. A collective."""
        if self._opened is not None and not self._opened.is_self_reliant:
            self._collective.connect(self._opened, trainer)

    def disconnect(self, error: BaseException | None = None) -> None:
        """Leaves them, at the end or because of ``error``. Safe to call twice. Raises ExchangeError: another rank has
        failed."""
        self._collective.disconnect(error)

    def open(self, graph: Graph) -> Partition | None:
        """Loads and checks the partition of this graph, once; None for a graph that is sampled whole."""
        with self._opening:
            if self._opened is None and self.setting is not None:
                partition = self.setting if isinstance(self.setting, Partition) else load_partition(self.setting)
                partition.check(graph)
                self._opened = partition
            return self._opened

    def num_parts_for(self, rank: Any, graph: Graph) -> int:
        """Counts the parts, of which ``rank`` is one. Raises LoaderConfigError: it is none."""
        partition = self.open(graph)
        num_parts = 0 if partition is None else partition.num_parts
        if type(rank) is not int or not 0 <= rank < num_parts:
            needed = f"give the number of a part, from 0 to {num_parts - 1}" if num_parts else "there is no partition="
            raise LoaderConfigError(f"train_dataloader(rank={rank!r}): {needed}; or leave rank= out.")
        return num_parts

    def workload(self, whole: Workload, phase: str) -> Workload:
        """Returns the mini-batches of a phase, each sampled in the part of its seeds, or by all ranks together
        (:class:`.CollectiveSampling`).

        Training needs a trainer for each part; PartitionError, PartReachError if parts, seeds or sampler do not fit. An
        evaluation that the parts cannot serve is sampled in the whole graph, with the same result.
        """
        partition = self.open(whole.graph)
        if partition is None:
            return whole
        if not partition.is_self_reliant:
            return self._collective.workload(whole, partition, phase)
        if whole.kind.table is not None:
            raise PartitionError(
                "parts that sample alone take seeds that are node ids, at their nodes' own times: no rows of a "
                "SeedTable, no links. Make parts with hops=0, which ranks sample together, or train without partition=."
            )
        seeds = partition.seeds_of(phase)
        if phase == "train":
            check_reach(whole.sampler, partition)
            _check_trainers(partition, whole.num_ranks)
        elif whole.num_ranks != partition.num_parts or not _reaches(partition, whole):
            return whole
        if seeds is None:
            if phase == "train":
                raise PartitionError(f"{partition!r} was made for other seeds than those to train on. Make it again.")
            return whole
        order = _balanced_order(seeds, whole)
        changes: dict[str, Any] = {"sampler": PartSampler(whole.sampler, partition), "order": order}
        return Workload(**{**whole.settings(), **changes})

    def own_levels(
        self, levels: tuple[FeatureCache, ...], workload: Workload, phase: str, rank: int, *, progress: bool
    ) -> tuple[FeatureCache, ...]:
        """The caches of a rank that gathers for one part alone, filled for that, but for those with
        ``share="partitioned"``."""
        if not isinstance(workload.sampler, PartSampler):
            return levels
        return tuple(
            level
            if level.share == "partitioned" or level.evicts
            else _part_level(level, workload.sampler, phase, rank, progress)
            for level in levels
        )

    def sharer_of(self, gather_group: GatherGroup, first_node: int = 0) -> SharerOf | None:
        """Returns a function from rows to the ranks that cache them: ranks that sample the row's part. None without
        parts. ``first_node`` is the node of the table's first row.

        Source: DSP (PPoPP'23), section 3.1: each GPU caches hot nodes of its own patch.
        """
        partition = self._opened
        if partition is None or gather_group.count == 1:
            return None
        # As LocalOrder shares parts out: ranks of a machine all parts; self-reliant ones over those of all machines.
        is_of_all = partition.is_self_reliant and gather_group.trainer is not None
        num_ranks, first = (partition.num_parts, gather_group.ranks[0]) if is_of_all else (gather_group.count, 0)

        def sharer_of(rows: np.ndarray) -> np.ndarray:
            part = partition.part_of(rows + first_node)
            # Several ranks that share a part take turns.
            rank = (part * num_ranks + number_among_equals(part) % num_ranks) // partition.num_parts - first
            return np.where((rank >= 0) & (rank < gather_group.count), rank, -1)

        return sharer_of

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the loaded parts out, as another process maps them itself."""
        return {"setting": self.setting}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["setting"])  # type: ignore[misc]


def _balanced_order(seeds: list[np.ndarray], whole: Workload) -> LocalOrder:
    order = LocalOrder(seeds, whole.order, drop_last=whole.drop_last)
    order.check(whole.seeds)
    if not order.is_balanced:
        raise PartitionError(
            f"the parts have {', '.join(str(len(ids)) for ids in seeds)} seeds, but trainers take equal shares "
            f"of each step, and none can sample another part's seeds. Make the partition with partition_graph, "
            f"which balances them."
        )
    return order


def _part_level(level: FeatureCache, sampler: PartSampler, phase: str, rank: int, progress: bool) -> FeatureCache:
    policy = policy_named(level.policy, window=level.window, progress=progress)
    part = sampler.partition.parts[rank]
    return replace(level, policy=PartPolicy(policy, sampler.sampler, sampler.partition, part, phase), window=1)


def _reaches(partition: Partition, workload: Workload) -> bool:
    reach = workload.sampler.reach
    return reach is not None and reach <= partition.hops


def _check_trainers(partition: Partition, num_trainers: int) -> None:
    num_parts = partition.num_parts
    if num_trainers != num_parts:
        raise PartitionError(
            f"the partition has {num_parts} parts, but there {'is' if num_trainers == 1 else 'are'} {num_trainers} "
            f"trainer{'s' * (num_trainers != 1)}, and each trains on one part. Give the Trainer {num_parts} of them "
            f"(devices={num_parts}; with FactoredStrategy, beside the samplers), or make a part for each trainer: "
            f"gnnload partition ... --parts {num_trainers}. {_by_hand(num_parts)}"
        )


def _by_hand(num_parts: int) -> str:
    return (
        "In a loop by hand, take the mini-batches of one part, train_dataloader(rank=0) "
        f"{'or rank=1' if num_parts == 2 else f'to rank={num_parts - 1}'}, or begin a process group of {num_parts}."
    )


_LOOPBACK = "127.0.0.1"


class CollectiveSampling:
    """Connects the ranks of a machine that sample together, each of which has one part of the graph.

    These are the trainers, or the samplers of a FactoredStrategy. They communicate by gloo on loopback, in a group of
    their own. Each machine has all parts. Each mini-batch has the seeds of one part (DSP, section 3.2), and is made by
    the rank of that part: the trainer itself, or a sampler, which any other one replaces (BGL, NSDI'23, section 3.1).
    ``colleagues`` are there between :meth:`connect` and :meth:`disconnect`, in ranks that sample.

    Source: DSP (PPoPP'23), section 3.
    """

    def __init__(self) -> None:
        self.colleagues: RankGroup | None = None
        self._gather_group: GatherGroup | None = None  # nobody has met yet: mini-batches are read by hand

    def connect(self, partition: Partition, trainer: pl.Trainer | None) -> None:
        """Connects this rank, a collective; does nothing where mini-batches are read by hand, or ranks are not as many
        as parts. Raises PartitionMismatchError, ExchangeError or CacheShareError: another rank has another partition,
        is gone or late."""
        if self.colleagues is not None or trainer is None:
            return
        self._gather_group = gather_group = GatherGroup.of(trainer)
        if gather_group.is_here and gather_group.count == partition.num_parts:
            self.colleagues = open_colleagues(partition, _exchange(gather_group))

    def workload(self, whole: Workload, partition: Partition, phase: str) -> Workload:
        """Returns the mini-batches of a phase, which all ranks sample together. By hand, and in trainers that others
        sample for, they are drawn from the whole graph, alike.

        Raises PartitionError: training with more or fewer ranks than parts. SamplerConfigError: a sampler that cannot.
        """
        gather_group, num_parts = self._gather_group, partition.num_parts
        is_factored = gather_group is not None and gather_group.trainer is None
        num_ranks = self._num_ranks(whole, num_parts, is_factored)
        if num_ranks != num_parts and (gather_group is None or gather_group.is_here):
            if phase == "train" or not whole.graph.has_lists:
                raise _wrong_number("sampler" if is_factored else "trainer", num_ranks, num_parts)
            if not is_factored:
                return whole
        changes: dict[str, Any] = {}
        # Predictions that samplers work for stay in the order of their seeds, in which trainers return them.
        if phase != "predict" or not is_factored:
            changes["order"] = self._order(whole, partition, is_factored)
        if self.colleagues is not None:
            changes["sampler"] = CollectiveSampler(whole.sampler, self.colleagues)
        return Workload(**{**whole.settings(), **changes})

    def _num_ranks(self, whole: Workload, num_parts: int, is_factored: bool) -> int:
        # Trainers of all machines were counted; each machine has all parts, one a rank.
        if self._gather_group is not None and (is_factored or whole.num_ranks == num_parts):
            return self._gather_group.count
        return whole.num_ranks

    def _order(self, whole: Workload, partition: Partition, is_factored: bool) -> LocalOrder:
        # Of links the targets decide.
        owners = partition.part_of(whole.kind.nodes_of(whole.seeds)[:, -1])
        return LocalOrder(
            [whole.seeds[owners == part] for part in range(partition.num_parts)],
            whole.order,
            num_ranks=whole.num_ranks,
            num_machines=self._gather_group.num_machines if self._gather_group is not None and is_factored else 1,
            drop_last=whole.drop_last,
        )

    def disconnect(self, error: BaseException | None = None) -> None:
        """Serves the others until all leave, or at once with ``error``, which they receive. Safe to call twice. Raises
        ExchangeError: another rank has failed."""
        colleagues, self.colleagues = self.colleagues, None
        if colleagues is None:
            return
        if error is None:
            colleagues.close()
        else:
            colleagues.fail(f"{type(error).__name__}: {error}")


def _wrong_number(role: str, num_ranks: int, num_parts: int) -> PartitionError:
    return PartitionError(
        f"the partition has {num_parts} parts, one for each {role} of this machine, but {num_ranks} "
        f"{role}{'s are' if num_ranks > 1 else ' is'} here. Give {num_parts} {role}s, or make as many parts "
        f"as there are {role}s: gnnload partition ... --hops 0 --parts {num_ranks}. {_by_hand(num_parts)}"
    )


def _exchange(gather_group: GatherGroup) -> Exchange:
    """Connects the ranks of a group, which meet by its name; there the first one opens a store for all."""
    membership = gather_group.membership("parts")
    if membership is None:
        [alone] = ThreadExchange.connect(1)
        return alone
    launch_info = handover.current()
    with membership.connect() as peers:
        store: Store
        if launch_info is not None:
            # A prefix for this meeting: the job's store outlives it, with its keys.
            [first, *_] = peers.all_gather({"prefix": secrets.token_hex(8)})
            store = PrefixStore(first.fields["prefix"], launch_info.store())
        else:
            hosted = _listening_store() if membership.index == 0 else None
            [first, *_] = peers.all_gather({"port": hosted.port if hosted is not None else 0})
            store = hosted or TCPStore(_LOOPBACK, first.fields["port"], is_master=False, wait_for_workers=False)
        timeout_s = gather_group.timeout_s or DEFAULT_TIMEOUT_S
        return DistributedExchange.connect(
            store, membership.index, membership.count, timeout_s, interface="lo", ranks=membership.ranks
        )


def _listening_store() -> TCPStore:
    """Opens a store in this process, at a free port of loopback: torch's own would listen on every interface."""
    server = socket.create_server((_LOOPBACK, 0))
    port = server.getsockname()[1]
    return TCPStore(_LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=server.detach())
