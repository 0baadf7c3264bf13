"""Collective sampling under Lightning: which ranks hold a part each, how they meet, and what each samples."""

from __future__ import annotations

from typing import Any

from lightning_gnnload.data.local import LocalOrder
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module.gathering import Gathering
from lightning_gnnload.plugin.strategy.rendezvous import join_local_store, open_local_store
from lightning_gnnload.sample.colleagues import Colleagues
from lightning_gnnload.sample.collective import CollectiveSampler, open_colleagues
from lightning_gnnload.sample.distributed_exchange import DEFAULT_TIMEOUT_S, DistributedExchange
from lightning_gnnload.sample.exchange import Exchange
from lightning_gnnload.sample.thread_exchange import ThreadExchange
from lightning_gnnload.sample.workload import Workload


class Collective:
    """A data module's colleagues: the ranks of its machine that make mini-batches, part ``p`` with the p-th of them.

    These are the trainers, or the samplers of a FactoredStrategy. They talk over gloo on loopback, in a group of their
    own that needs none of the trainers'. Several machines hold the same parts each.

    Attributes:
        colleagues: between :meth:`meet` and :meth:`leave`, in ranks that sample; else None.

    Source: DSP (PPoPP'23), section 3.
    """

    def __init__(self) -> None:
        self.colleagues: Colleagues | None = None
        self._gathering: Gathering | None = None  # nobody has met yet: mini-batches are read by hand

    def meet(self, partition: Partition, trainer: pl.Trainer | None) -> None:
        """Called by all ranks of a job, in one order. By hand, or where ranks are not as many as parts, nobody meets.

        Raises:
            PartitionMismatchError: another rank has another partition.
            ExchangeError, CacheShareError: another rank is gone, or late.
        """
        if self.colleagues is not None or trainer is None:
            return
        self._gathering = gathering = Gathering.of(trainer)
        if gathering.is_here and gathering.count == partition.num_parts:
            self.colleagues = open_colleagues(partition, _exchange(gathering))

    def workload(self, whole: Workload, partition: Partition, phase: str) -> Workload:
        """The mini-batches of a phase, sampled by all ranks together.

        Where each trainer samples, its seeds are those of the part that it holds (DSP, section 3.2). By hand, and in
        trainers that others sample for, these are the same mini-batches of the whole graph.

        Raises:
            PartitionError: training with more or fewer ranks than parts.
            SamplerConfigError: a sampler that cannot be sampled collectively.
        """
        gathering, num_parts = self._gathering, partition.num_parts
        is_local = gathering is None or gathering.trainer is not None
        if gathering is not None and not gathering.is_here:
            return whole
        num_ranks = whole.num_ranks if is_local else num_parts
        if gathering is not None and num_ranks == num_parts:
            num_ranks = gathering.count
        if num_ranks != num_parts:
            if phase != "train":
                return whole
            who = "trainer" if is_local else "sampler"
            raise PartitionError(
                f"the partition has {num_parts} parts, one for each {who} of this machine, but {num_ranks} "
                f"{who}{'s are' if num_ranks > 1 else ' is'} here. Give {num_parts} {who}s, or make as many parts as "
                f"there are {who}s: gnnload partition ... --hops 0 --parts {num_ranks}."
            )
        ours: dict[str, Any] = {}
        if is_local:
            owners = partition.part_of(whole.seeds)
            seeds = [whole.seeds[owners == part] for part in range(num_parts)]
            ours["order"] = LocalOrder(seeds, whole.order, drop_last=whole.drop_last)
        if self.colleagues is not None:
            ours["sampler"] = CollectiveSampler(whole.sampler, self.colleagues)
        return Workload(**{**whole.settings(), **ours})

    def leave(self, error: BaseException | None = None) -> None:
        """Serves the others until all leave, or at once with ``error``, of which they are told. Safe to call twice.

        Raises:
            ExchangeError: another rank has failed.
        """
        colleagues, self.colleagues = self.colleagues, None
        if colleagues is None:
            return
        if error is None:
            colleagues.close()
        else:
            colleagues.fail(f"{type(error).__name__}: {error}")


def _exchange(gathering: Gathering) -> Exchange:
    """Connects the ranks of a gathering; they meet by its name, where the first one opens a store for all."""
    sharers = gathering.sharers("parts")
    if sharers is None:
        [alone] = ThreadExchange.connect(1)
        return alone
    with sharers.meet() as meeting:
        store, port = open_local_store() if sharers.index == 0 else (None, 0)
        [told, *_] = meeting.exchange({"port": port})
        store = store or join_local_store(told.fields["port"])
        timeout_s = gathering.timeout_s or DEFAULT_TIMEOUT_S
        return DistributedExchange.connect(store, sharers.index, sharers.count, timeout_s, interface="lo")
