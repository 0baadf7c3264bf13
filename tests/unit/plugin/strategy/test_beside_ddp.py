"""Whether the strategy says before a run that it will lose; the real job is in tests/integration/test_roles.py."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_gnnload.pipeline.forecast.stages import StageTimes
from lightning_gnnload.plugin.job import RoleDecision, RolePlan
from lightning_gnnload.plugin.strategy.beside_ddp import ddp_batch_ms, loss_beside_ddp
from lightning_gnnload.plugin.strategy.resources import Division, divide_cores

# Debian on two cores: a second thread saves a third of a step.
TIMES = StageTimes(
    sample_ms=2.0,
    gather_ms=1.0,
    making_core_ms=3.0,
    making_wait_ms=0.0,
    convert_ms=0.0,
    train_work_ms=40.0,
    train_fixed_ms=15.0,
    torch_threads=2,
)


def said(times: StageTimes | None = TIMES, num_ranks: int = 2, num_cores: int = 2, **job: Any) -> str:
    plan = RolePlan(num_ranks, 1, num_nodes=job.pop("num_nodes", 1))
    facts = {"num_seeds": 38_000, "batch_size": 1000}
    decision = RoleDecision(num_ranks, 1, times, num_cores, measured_on=facts)
    division = divide_cores(range(num_cores), plan, decision, pinned=False)
    stand_in: Any = SimpleNamespace(**{"roles": plan, "decision": decision, "switching": False} | job)
    return loss_beside_ddp(stand_in, division)


def test_a_loss_is_said_with_its_figures_and_with_what_to_set() -> None:
    """35 ms a batch with a trainer on both cores; 29 ms with two ranks, which have 58 ms of work for each batch."""
    assert said() == (
        "FactoredStrategy will take 1.21 times as long as DDP here, by the measured times: a batch takes 3.0 ms to "
        "make and 55.0 ms to train on, so an epoch of 38 batches takes 1.33 s with 1 of 2 ranks sampling, and 1.1 s "
        "where all of them train on the same 2 cores. Set Trainer(strategy='ddp'), with the same model and data module."
    )


def test_ranks_with_several_cores_each_lose_what_does_not_scale() -> None:
    """Three trainers on 8 cores, with 2 of them each, take 35 ms a step; four ranks under DDP take as long."""
    assert ddp_batch_ms(TIMES, num_ranks=4, num_cores=8) == pytest.approx(35 / 4)
    assert "1.33 times" in said(num_ranks=4, num_cores=8)


@pytest.mark.parametrize(
    "times",
    [
        replace(TIMES, train_fixed_ms=0.0),  # two threads are as good as two ranks
        replace(TIMES, making_core_ms=3.0, making_wait_ms=200.0),  # the disk decides, whoever waits for it
        replace(TIMES, train_fixed_ms=1.0),  # less than measuring errs by
    ],
)
def test_nothing_is_said_where_nothing_is_lost(times: StageTimes) -> None:
    assert said(times) == ""


@pytest.mark.parametrize(
    ("times", "job"),
    [
        (None, {}),
        (replace(TIMES, trains_on_device=True), {}),
        (replace(TIMES, draws_on_device=True), {}),
        (TIMES, {"switching": 2}),  # idle samplers train: it is not known how many
        (TIMES, {"num_nodes": 2}),
    ],
)
def test_nothing_is_said_where_it_is_not_known(times: StageTimes | None, job: dict[str, Any]) -> None:
    assert said(times, **job) == ""


def test_a_lone_rank_and_given_roles_are_no_loss() -> None:
    assert said(num_ranks=1) == ""
    job: Any = SimpleNamespace(roles=RolePlan(2, 1), decision=None, switching=False)
    assert loss_beside_ddp(job, Division(torch_threads=2)) == ""
