from fractions import Fraction
from math import inf, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_gnnload import FactoredStrategy
from lightning_gnnload.errors import LaunchError, RoleConfigError
from lightning_gnnload.plugin import compat
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.job import Role, RolePlan
from lightning_gnnload.plugin.strategy.roles import samplers_needed


@given(st.integers(2, 16), st.data(), st.integers(1, 4))
def test_every_rank_has_one_place(num_devices: int, data: st.DataObject, num_nodes: int) -> None:
    plan = RolePlan(num_devices, data.draw(st.integers(1, num_devices - 1)), num_nodes)
    places = [(node, local) for node in range(num_nodes) for local in range(num_devices)]
    by_role: dict[Role, list[int]] = {Role.TRAINER: [], Role.SAMPLER: []}
    for node, local in places:
        by_role[plan.role(local)].append(plan.global_rank(node, local))
    # Lightning's world is 0, 1, ... over all machines in order; a gap or a repetition would hang its collectives.
    assert by_role[Role.TRAINER] == list(range(plan.world_size))
    assert by_role[Role.SAMPLER] == list(range(plan.world_size, num_nodes * num_devices))
    assert plan.world_size == num_nodes * plan.num_trainers
    # Local indices name sockets: each sampler of a machine has its own.
    samplers = [plan.index(local) for local in range(num_devices) if plan.role(local) is Role.SAMPLER]
    assert samplers == list(range(plan.num_samplers))


def test_trainers_come_first() -> None:
    plan = RolePlan(num_devices=4, num_samplers=2, num_nodes=2)
    assert [plan.role(rank) for rank in range(4)] == [Role.TRAINER] * 2 + [Role.SAMPLER] * 2
    assert [plan.index(rank) for rank in range(4)] == [0, 1, 0, 1]
    assert [plan.global_rank(1, rank) for rank in range(4)] == [2, 3, 6, 7]


@pytest.mark.parametrize(
    ("num_devices", "num_samplers", "message"),
    [
        (4, 0, r"samplers=0.*at least one.*strategy='auto'"),
        (2, -1, r"samplers=-1.*at least one"),
        (2, 2, r"samplers=2 of devices=2 leaves no device.*devices=3"),
        (1, 2, r"samplers=2 of devices=1.*devices=3.*trainers=1, samplers=2"),
    ],
)
def test_plans_that_cannot_work(num_devices: int, num_samplers: int, message: str) -> None:
    with pytest.raises(RoleConfigError, match=message):
        RolePlan(num_devices, num_samplers)


@pytest.mark.parametrize("num_nodes", [1, 3])
def test_a_machines_only_rank_is_a_trainer_with_a_sampler_inside(num_nodes: int) -> None:
    plan = RolePlan(num_devices=1, num_samplers=1, num_nodes=num_nodes)
    assert plan.is_lone
    assert plan.role(0) is Role.TRAINER
    assert [plan.global_rank(node, 0) for node in range(num_nodes)] == list(range(plan.world_size))
    assert not RolePlan(num_devices=2, num_samplers=1).is_lone


@given(st.integers(1, 500), st.integers(1, 500), st.integers(2, 64))
def test_the_fewest_samplers_are_taken_that_are_nearly_the_best(sample_ms: int, train_ms: int, num_ranks: int) -> None:
    by_count = {
        count: max(Fraction(sample_ms, count), Fraction(train_ms, num_ranks - count)) for count in range(1, num_ranks)
    }
    enough = min(by_count.values()) * Fraction(103, 100)
    needed = samplers_needed(float(sample_ms), float(train_ms), num_ranks)
    slack = 1 + Fraction(1, 10**9)  # floats
    assert by_count[needed] <= enough * slack
    assert needed == 1 or by_count[needed - 1] * slack >= enough, "one less would do"


@pytest.mark.parametrize(
    ("sample_ms", "train_ms", "num_ranks", "needed"),
    [
        (1, 1e9, 8, 1),  # one feeds all, but none is too few
        (1e9, 1, 8, 7),  # somebody must train
        (10, 10, 8, 4),
        (10, 30, 8, 2),
        (10, 29, 8, 2),  # GNNLab's 8 / (K + 1), rounded up, is 3: every 5.8 ms in place of 5.0
        (20, 60, 4, 1),
        (21.1, 63.1, 4, 1),  # a third of a per cent slower at sampling: not worth a third of the trainers
        (23, 60, 4, 1),
        (33, 60, 4, 2),
        (12.1, 31, 8, 2),
        (10, 70, 2, 1),
        (0, 0, 2, 1),  # quicker than the clock
    ],
)
def test_by_hand(sample_ms: float, train_ms: float, num_ranks: int, needed: int) -> None:
    assert samplers_needed(sample_ms, train_ms, num_ranks) == needed


@pytest.mark.parametrize(
    ("sample_ms", "train_ms", "num_ranks"), [(nan, 1, 2), (1, nan, 2), (inf, 1, 2), (1, inf, 2), (-1, 1, 2), (1, 1, 1)]
)
def test_what_is_no_time(sample_ms: float, train_ms: float, num_ranks: int) -> None:
    with pytest.raises(RoleConfigError, match=f"sample_ms={sample_ms}, train_ms={train_ms}, num_ranks={num_ranks}: "):
        samplers_needed(sample_ms, train_ms, num_ranks)


def test_devices_may_be_given_to_the_strategy() -> None:
    """As to DDPStrategy, whose constructor reads them before all else is there."""
    devices = [torch.device("cpu")] * 3
    strategy = pl.Trainer(strategy=FactoredStrategy(parallel_devices=devices), logger=False).strategy
    assert strategy.parallel_devices == devices[:2]
    assert strategy.roles == RolePlan(3, 1)
    with pytest.raises(RoleConfigError, match="leaves no device"):
        FactoredStrategy(2, parallel_devices=devices[:2])


def test_a_launcher_of_the_users_own_is_refused() -> None:
    """It starts the trainers alone, which would wait for the other ranks for half an hour."""
    strategy = FactoredStrategy(parallel_devices=[torch.device("cpu")] * 3)
    strategy.cluster_environment = compat.environments.LightningEnvironment()
    with pytest.raises(LaunchError, match="FactoredStrategy needs its own"):
        strategy.setup_distributed()


@given(st.integers(1, 6), st.data(), st.integers(2, 5))
def test_every_rank_has_one_place_where_machines_only_sample(
    num_devices: int, data: st.DataObject, num_nodes: int
) -> None:
    sampler_nodes = data.draw(st.integers(1, num_nodes - 1))
    num_samplers = data.draw(st.integers(0, num_devices - 1))
    plans = [RolePlan(num_devices, num_samplers, num_nodes, sampler_nodes, node) for node in range(num_nodes)]
    by_role: dict[Role, list[int]] = {Role.TRAINER: [], Role.SAMPLER: []}
    remote = []
    for node, plan in enumerate(plans):
        assert plan.only_samples == (node >= num_nodes - sampler_nodes)
        assert not plan.is_lone
        for local in range(num_devices):
            # Every machine must give a rank the same number, or a message of one names another one's rank.
            (rank,) = {each.global_rank(node, local) for each in plans}
            by_role[plan.role(local)].append(rank)
            if plan.only_samples:
                remote.append(rank)
                assert plan.index(local) == local
    assert by_role[Role.TRAINER] == list(range(plans[0].world_size))
    assert by_role[Role.SAMPLER] == list(range(plans[0].world_size, num_nodes * num_devices))
    assert all(list(plan.remote_samplers) == remote for plan in plans)
    assert {plan.num_trainers for plan in plans} == {0, num_devices - num_samplers}


def test_a_machine_must_be_left_to_train_on() -> None:
    with pytest.raises(RoleConfigError, match=r"sampler_nodes=2 of num_nodes=2 leaves no machine.*num_nodes=3"):
        RolePlan(2, 0, num_nodes=2, sampler_nodes=2).check_nodes()
    with pytest.raises(RoleConfigError, match=r"samplers=1 of devices=1 leaves no device.*Or samplers=0"):
        RolePlan(1, 1, num_nodes=2, sampler_nodes=1)
    RolePlan(2, 0, num_nodes=3, sampler_nodes=2).check_nodes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler_nodes": -1}, "sampler_nodes=-1: the number of machines"),
        ({"gathered_by": "nobody"}, "gathered_by='nobody' is not known; give one of 'samplers', 'trainers'"),
        ({"gathered_by": "trainers", "sampler_threads": "auto"}, "gathered_by='trainers' with 'auto'"),
        ({"sampler_nodes": True}, "sampler_nodes=True: the number of machines"),
        ({"sampler_nodes": 1, "samplers": "auto"}, "knows no network"),
        ({"sampler_nodes": 1, "samplers": 0, "switching": True}, "in shared memory"),
        ({"sampler_nodes": 1, "samplers": 0, "sampler_threads": "auto"}, "Give their number"),
        ({"samplers": 0}, "samplers=0: the number of samplers is needed"),
    ],
)
def test_what_knows_one_machine_is_refused_by_name(options: dict, message: str) -> None:
    with pytest.raises(RoleConfigError, match=message):
        FactoredStrategy(**options)
