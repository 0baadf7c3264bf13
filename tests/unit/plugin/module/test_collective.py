"""CollectiveSampling: what each rank samples, by who makes mini-batches, how many they are, and how many parts there
are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import PartitionError
from lightning_gnnload.plugin.module import partition
from lightning_gnnload.plugin.module.gather_group import GatherGroup
from lightning_gnnload.plugin.module.partition import CollectiveSampling
from lightning_gnnload.sample.group.exchange import ThreadExchange
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.workload import Workload
from tests.unit.parts import partition_of
from tests.unit.sample.ranks import on_ranks
from tests.unit.seed_tables import KINDS, kind_of_seeds
from tests.unit.toy import toy_data, toy_workload

DATA = toy_data()
PARTS = partition_of(DATA.graph, np.arange(300) % 3 % 2, {}, hops=0)  # uneven: 200 nodes and 100


def meet(
    monkeypatch: pytest.MonkeyPatch, gatherings: list[GatherGroup], parts: Partition = PARTS
) -> list[CollectiveSampling]:
    """One of each rank, which have met where they are two."""
    exchanges = ThreadExchange.connect(2, timeout_s=10)
    monkeypatch.setattr(partition, "_exchange", lambda gather_group: exchanges[gather_group.index])
    monkeypatch.setattr(GatherGroup, "of", classmethod(lambda _, trainer: trainer))

    def of(gather_group: GatherGroup) -> CollectiveSampling:
        made = CollectiveSampling()
        made.connect(parts, gather_group)  # type: ignore[arg-type]
        return made

    return on_ranks(of, gatherings)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_table_go_to_the_part_of_their_targets(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """And mini-batches of times, links and rows that share no nodes equal those of the whole graph, in that order."""
    data, settings = kind_of_seeds(kind)
    part_of = np.random.default_rng(0).integers(0, 2, data.graph.num_nodes)
    parts = partition_of(data.graph, part_of, {}, hops=0)
    trainers = meet(monkeypatch, [GatherGroup(index=index, count=2, trainer=index) for index in range(2)], parts)

    def batches(rank: int) -> None:
        whole = toy_workload(data, num_ranks=2, **settings)
        together = trainers[rank].workload(whole, parts, "train")
        alone = Workload(**{**whole.settings(), "order": together.order})
        requests = [request for request in together.requests(0) if request.rank == rank]
        for request in requests:
            assert together.nodes_of(request).tolist() == alone.nodes_of(request).tolist()
        rows = together.seeds_of(requests[0])
        assert set(part_of[together.kind.nodes_of(rows)[:, -1]].tolist()) == {rank}

    assert on_ranks(batches, range(2)) == [None, None]
    leave(trainers)


def leave(ranks: list[CollectiveSampling]) -> None:
    assert on_ranks(lambda rank: rank.disconnect(), ranks) == [None] * len(ranks)
    assert [rank.colleagues for rank in ranks] == [None] * len(ranks)


def workload(rank: CollectiveSampling, num_ranks: int, phase: str = "train") -> Workload:
    return rank.workload(toy_workload(DATA, num_ranks=num_ranks), PARTS, phase)


def test_trainers_that_sample_take_the_seeds_of_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    trainers = meet(monkeypatch, [GatherGroup(index=index, count=2, trainer=index) for index in range(2)])
    found = [workload(rank, num_ranks=2) for rank in trainers]
    order = found[0].order
    assert isinstance(order, LocalOrder)
    assert [set(PARTS.part_of(seeds)) for seeds in order.parts] == [{0}, {1}]
    assert np.array_equal(np.sort(np.concatenate(order.parts)), np.sort(DATA.train))
    assert all(isinstance(each.sampler, CollectiveSampler) for each in found)
    with pytest.raises(PartitionError, match="2 parts, one for each trainer of this machine, but 4 trainers are here"):
        workload(trainers[0], num_ranks=4)  # on two machines
    assert isinstance(workload(trainers[0], num_ranks=4, phase="val").sampler, NeighborSampler)
    leave(trainers)
    # By hand, after the fit, the same mini-batches come of the whole graph.
    after = workload(trainers[0], num_ranks=2)
    assert isinstance(after.sampler, NeighborSampler)
    assert after.order.name == order.name


def test_samplers_and_those_they_sample_for_take_slices_of_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    samplers = meet(monkeypatch, [GatherGroup(index=index, count=2, num_machines=2) for index in range(2)])
    [trainer] = meet(monkeypatch, [GatherGroup(is_here=False, num_machines=2)])
    names = {workload(rank, num_ranks=6).order.name for rank in [*samplers, trainer]}
    assert len(names) == 1
    assert names.pop().endswith(" for 6 ranks on 2 machines)")
    assert all(isinstance(workload(rank, num_ranks=6).sampler, CollectiveSampler) for rank in samplers)
    assert isinstance(workload(trainer, num_ranks=6).sampler, NeighborSampler)
    # Trainers hand predictions on in the order of their seeds.
    for rank in [*samplers, trainer]:
        assert isinstance(workload(rank, num_ranks=6, phase="predict").order, Shuffled)
    leave([*samplers, trainer])


def test_evaluation_has_one_order_whoever_is_there_to_sample_it(monkeypatch: pytest.MonkeyPatch) -> None:
    [sampler] = meet(monkeypatch, [GatherGroup(count=3)])
    [trainer] = meet(monkeypatch, [GatherGroup(is_here=False)])
    evaluated = [workload(rank, num_ranks=2, phase="val") for rank in (sampler, trainer)]
    assert evaluated[0].order.name == evaluated[1].order.name
    assert all(isinstance(each.sampler, NeighborSampler) for each in evaluated)


@pytest.mark.parametrize(
    ("gather_group", "num_ranks", "message"),
    [
        (GatherGroup(count=3), 2, "but 3 samplers are here"),
        (GatherGroup(count=3, trainer=0), 3, "but 3 trainers are here"),
        (None, 1, "but 1 trainer is here"),
    ],
)
def test_as_many_ranks_as_parts(
    monkeypatch: pytest.MonkeyPatch, gather_group: Any, num_ranks: int, message: str
) -> None:
    [rank] = meet(monkeypatch, [gather_group])
    assert rank.colleagues is None
    with pytest.raises(PartitionError, match=message):
        workload(rank, num_ranks)
    evaluated = workload(rank, num_ranks, phase="val")
    assert isinstance(evaluated.sampler, NeighborSampler)


def test_the_failure_of_one_rank_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = meet(monkeypatch, [GatherGroup(index=index, count=2, trainer=index) for index in range(2)])
    first.disconnect(RuntimeError("the model diverged"))
    [error] = on_ranks(lambda rank: rank.disconnect(), [second])
    assert "rank 0: RuntimeError: the model diverged" in str(error)
