"""Which ranks gather, under which strategy, and by what name they find each other."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.plugins import environments

from lightning_gnnload import FactoredStrategy
from lightning_gnnload.host import flags
from lightning_gnnload.host.flags import Flag
from lightning_gnnload.plugin.module.gather_group import GatherGroup


class At(environments.LightningEnvironment):
    """A rank of a job on a port of its own."""

    def __init__(self, local_rank: int, port: int) -> None:
        super().__init__()
        self.at, self._main_port = local_rank, port

    def local_rank(self) -> int:
        return self.at


def trainer(local_rank: int, num_devices: int, port: int = 1234, node: int = 0, **strategy: Any) -> Any:
    strategy = {"cluster_environment": At(local_rank, port), "_timeout": timedelta(seconds=7), **strategy}
    return SimpleNamespace(
        strategy=SimpleNamespace(**strategy),
        num_devices=num_devices,
        local_rank=local_rank,
        global_rank=10 * node + local_rank,
        node_rank=node,
    )


def names(*trainers: Any) -> list[str]:
    """Without the number of the opening, which counts in each process."""
    return [GatherGroup.of(each).name.rsplit("-", 1)[0] for each in trainers]


def test_a_rank_alone_shares_with_nobody() -> None:
    for each, of in ((None, None), (trainer(0, 1, node=2), 20), (trainer(0, 2, cluster_environment=None), 0)):
        assert GatherGroup.of(each) == GatherGroup(trainer=of)
        assert GatherGroup.of(each).membership("cache") is None


def test_all_local_ranks_of_another_strategy_gather() -> None:
    found = GatherGroup.of(trainer(1, 3))
    assert (found.is_here, found.index, found.count, found.timeout_s) == (True, 1, 3, 7)
    assert found.trainer == 1
    membership = found.membership("cache")
    assert membership is not None
    assert (membership.index, membership.count, membership.timeout_s) == (1, 3, 7)
    assert membership.ranks == (0, 1, 2)
    assert membership.key == found.name
    assert found.name not in membership.name, "messages have the name"
    rows = found.membership("rows", at_most_s=2)
    assert rows is not None
    assert rows.timeout_s == 2
    assert rows.name != membership.name, "a table is put together, and then a cache opened"
    same, other_port, other_node = names(trainer(0, 3), trainer(0, 3, port=99), trainer(0, 3, node=1))
    assert names(trainer(1, 3)) == [same]
    assert len({same, other_port, other_node}) == 3
    assert GatherGroup.of(trainer(0, 3)).name != GatherGroup.of(trainer(0, 3)).name, "two fits of one job do not meet"


def factored(local_rank: int, num_devices: int, samplers: int) -> Any:
    strategy = FactoredStrategy(samplers, cluster_environment=At(local_rank, 4321), connect_timeout_s=9)
    strategy.parallel_devices = [torch.device("cpu")] * num_devices
    return trainer(local_rank, num_devices - samplers, gather_group=strategy.gather_group), strategy


def test_samplers_gather_and_trainers_leave_it_to_them() -> None:
    of_ranks = [GatherGroup.of(factored(rank, 5, 2)[0]) for rank in range(5)]
    assert [each.is_here for each in of_ranks] == [False, False, False, True, True]
    assert [(each.index, each.count, each.timeout_s) for each in of_ranks[3:]] == [(0, 2, 9), (1, 2, 9)]
    assert of_ranks[3].name == of_ranks[4].name
    assert of_ranks[3].ranks == of_ranks[4].ranks == (3, 4)
    # Where devices gather, each trainer does for itself.
    assert [factored(rank, 5, 2)[1].training.trainer for rank in range(5)] == [0, 1, 2, None, None]


def test_a_lone_rank_gathers() -> None:
    assert GatherGroup.of(factored(0, 1, 1)[0]) == GatherGroup()


@pytest.mark.parametrize("ended", [3, 4])
def test_a_sampler_that_has_ended_is_not_waited_for(ended: int) -> None:
    _, strategy = factored(0, 6, 3)
    flag = Flag(flags.rank_ended(strategy.run_name, ended))
    try:
        living = [rank for rank in (3, 4, 5) if rank != ended]
        assert [GatherGroup.of(factored(rank, 6, 3)[0]).index for rank in living] == [0, 1]
        assert {GatherGroup.of(factored(rank, 6, 3)[0]).count for rank in living} == {2}
    finally:
        flag.lower()
