from dataclasses import replace
from typing import Any

import pytest

from lightning_gnnload.errors import CheckpointError
from lightning_gnnload.pipeline.resume import ResumePoint

BEFORE = ResumePoint(
    epoch=3,
    step=7,
    num_seeds=320,
    global_batch_size=32,
    seed=5,
    order="Shuffled",
    seeds="0badcafe",
    graph="9-20-12345678",
    sampler="NeighborSampler([5])",
)
STEPS = 10


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_an_epoch_goes_on_with_the_same_settings(num_ranks: int) -> None:
    BEFORE.check(replace(BEFORE, epoch=4, step=0), num_ranks, STEPS, "error")


@pytest.mark.parametrize(
    ("change", "num_ranks", "says"),
    [
        ({"global_batch_size": 64}, 4, r"global_batch_size=32 then and 64 now.*Give batch_size=8, for 4 x 8 seeds"),
        ({"global_batch_size": 48}, 3, r"global_batch_size=32 then.*trainers, 3, must divide"),
        ({"num_seeds": 321}, 1, r"after 7 steps of epoch 3.*num_seeds=320 then and 321 now.*settings of then"),
        ({"seeds": "0badf00d"}, 1, r"seeds='0badcafe' then and '0badf00d' now.*settings of then"),
        ({"graph": "9-20-12345679"}, 1, r"graph='9-20-12345678' then and '9-20-12345679' now"),
        (
            {"sampler": "NeighborSampler([6])"},
            1,
            r"sampler='NeighborSampler\(\[5\]\)' then and .*on_resume_change=\"warn\"",
        ),
        ({"seed": 6, "order": "Sequential"}, 1, r"seed=5 then and 6 now, order='Shuffled' then and 'Sequential' now"),
    ],
)
def test_other_seeds_in_mid_epoch_are_refused(change: dict[str, Any], num_ranks: int, says: str) -> None:
    now = replace(BEFORE, step=0, **change)
    with pytest.raises(CheckpointError, match=says):
        BEFORE.check(now, num_ranks, STEPS, "error")
    with pytest.raises(CheckpointError, match="after 1 steps"):
        replace(BEFORE, step=1).check(now, num_ranks, STEPS, "error")
    with pytest.warns(UserWarning, match="after 7 steps of epoch 3.*goes on all the same"):
        BEFORE.check(now, num_ranks, STEPS, "warn")
    replace(BEFORE, step=0).check(now, num_ranks, STEPS, "error")  # none can be left out, or come twice


def test_a_step_beyond_the_epoch_is_refused_whatever_may_change() -> None:
    now = replace(BEFORE, step=0, num_seeds=200)
    for allowed in ("error", "warn"):
        with pytest.raises(CheckpointError, match="after 7 steps of epoch 3, but an epoch has 6 now"):
            BEFORE.check(now, 1, 6, allowed)
    BEFORE.check(BEFORE, 1, 7, "error")  # all steps are done, and the next epoch comes
    BEFORE.check(BEFORE, 1, None, "error")


def test_the_state_holds_all_of_it_in_plain_types() -> None:
    state = BEFORE.to_state()
    assert not state.keys() & {"ahead", "again", "settings"}, "an older release does not know them"
    assert ResumePoint.from_state(state) == BEFORE
    assert {type(value) for value in state.values()} == {int, str}  # what torch.load(weights_only=True) reads


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"epoch": 3, "step": 7},
        {**BEFORE.to_state(), "step": "7"},
        {**BEFORE.to_state(), "more": 1},
        {**BEFORE.to_state(), "step": -1},
        {**BEFORE.to_state(), "settings": "[1]"},
        {**BEFORE.to_state(), "settings": "{"},
        {**BEFORE.to_state(), "settings": "[" * 100_000},
    ],
)
def test_a_foreign_loaders_state_is_refused(state: Any) -> None:
    with pytest.raises(CheckpointError, match=r"where epoch, step, num_seeds.*not\s+a loader of GraphDataModule"):
        ResumePoint.from_state(state)
