"""The delayed reduction under DDP, with one trainer in this process; several trainers are in tests/integration."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lightning_gnnload.errors import StalenessError
from lightning_gnnload.plugin.gradients.reduction import (
    MAX_ANNOUNCED,
    DelayedReduction,
    ExtraGradients,
    GradientTerm,
    hook,
)

NUM_STEPS = 9


@pytest.fixture(autouse=True)
def world_of_one() -> Iterator[None]:
    if dist.is_initialized():  # by an earlier test's Trainer, for the whole process
        dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))


def batches() -> list[Tensor]:
    return list(torch.randn(NUM_STEPS, 5, 8, generator=torch.Generator().manual_seed(1)))


def wrapped(
    delay: int, contributions: ExtraGradients | None = None, **ddp: bool
) -> tuple[DistributedDataParallel, DelayedReduction]:
    # Buckets of one or two parameters each, in another order after the first step.
    model = DistributedDataParallel(network(), bucket_cap_mb=0.001, **ddp)
    reduction = DelayedReduction(delay, contributions=contributions)
    model.register_comm_hook(reduction, hook)
    return model, reduction


def backward(model: nn.Module, batch: Tensor) -> list[Tensor]:
    model.zero_grad()
    model(batch).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("ddp", [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}], ids=str)
@pytest.mark.parametrize("delay", [0, 1, 2, 4])
def test_each_backward_pass_hands_out_the_gradients_of_some_steps_ago(delay: int, ddp: dict[str, bool]) -> None:
    """Per parameter, though the first step's buckets hold others than the later ones'."""
    model, reduction = wrapped(delay, **ddp)
    plain, history = network(), deque[list[Tensor]]()
    for step, batch in enumerate(batches()):
        handed_out = backward(model, batch)
        history.append(backward(plain, batch))
        if step < delay:
            assert reduction.handed_out is None
            assert not any(gradient.any() for gradient in handed_out)
        else:
            assert reduction.handed_out is not None
            assert reduction.handed_out.number == step - delay
            torch.testing.assert_close(handed_out, history.popleft(), rtol=0, atol=0)
    left = [[launch.gradients()[p] for p in model.parameters()] for launch in reduction.drain()]
    torch.testing.assert_close(left, list(history), rtol=0, atol=0)
    assert (reduction.stats.launched, reduction.stats.flushed) == (NUM_STEPS, delay)


def test_gradients_keep_the_layout_of_their_parameters() -> None:
    """A bucket is flat in memory order: read as if it were contiguous, a permuted weight's gradient is scrambled."""
    model = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    plain = nn.Conv2d(3, 4, 2)
    plain.load_state_dict(model.state_dict())
    delayed = DistributedDataParallel(model)
    reduction = DelayedReduction(1)
    delayed.register_comm_hook(reduction, hook)
    images = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    backward(delayed, images)
    backward(plain, images)
    (launch,) = reduction.drain()
    for mine, its in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(launch.gradients()[mine], its.grad)
        assert launch.gradients()[mine].stride() == mine.stride()


class Given:
    """Contributes ones of weight 2 at every third step, and announces the step and its square."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.num_asked = 0
        self.told: list[tuple[int, list[int]]] = []

    def take(self) -> GradientTerm:
        self.num_asked += 1
        if self.num_asked % 3:
            return GradientTerm(None, 1.0)
        return GradientTerm({p: torch.ones_like(p) for p in self.model.parameters()}, 3.0)

    def announce(self) -> Sequence[int]:
        step = self.num_asked - 1
        return [step, step * step][: step % 3]

    def announced(self, launch: int, words: list[int]) -> None:
        self.told.append((launch, words))


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_contributions_are_added_and_divided_by_the_summed_weight(delay: int) -> None:
    model, reduction = wrapped(delay)
    given = reduction.contributions = Given(model)
    plain, wanted, found = network(), [], []
    for step, batch in enumerate(batches()):
        gradients = backward(plain, batch)
        wanted.append([(g + 1) / 3 for g in gradients] if step % 3 == 2 else gradients)
        handed_out = backward(model, batch)
        found += [handed_out] if reduction.handed_out is not None else []
        assert given.num_asked == step + 1  # once a step, whatever the number of buckets
    found += [[launch.gradients()[p] for p in model.parameters()] for launch in reduction.drain()]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_announcements_are_told_when_their_step_is_handed_out(delay: int) -> None:
    model, reduction = wrapped(delay)
    given = reduction.contributions = Given(model)
    for step, batch in enumerate(batches()):
        backward(model, batch)
        assert len(given.told) == max(step + 1 - delay, 0)
    list(reduction.drain())
    assert given.told == [(step, [step, step * step][: step % 3]) for step in range(NUM_STEPS)]


def test_too_many_announcements_are_refused() -> None:
    model, reduction = wrapped(1)
    given = reduction.contributions = Given(model)
    given.announce = lambda: [0] * (MAX_ANNOUNCED + 1)  # type: ignore[method-assign]
    with pytest.raises(StalenessError, match=f"{MAX_ANNOUNCED + 1} integers.*at most {MAX_ANNOUNCED}"):
        backward(model, batches()[0])


def test_a_wish_to_stop_is_agreed_on_when_its_step_is_handed_out() -> None:
    model, reduction = wrapped(2)
    agreed = []
    for step, batch in enumerate(batches()):
        reduction.stop_asked = step >= 3
        backward(model, batch)
        agreed.append(reduction.stop_agreed)
    assert agreed.index(True) == 3 + 2


def test_parameters_lag_by_the_delay_and_no_more() -> None:
    model, reduction = wrapped(2)
    lags = []
    for batch in batches():
        backward(model, batch)
        if reduction.handed_out is not None:
            reduction.count_update(reduction.handed_out)
            lags.append(reduction.stats.lag)
    for launch in reduction.drain():
        reduction.count_update(launch)
        lags.append(reduction.stats.lag)
    assert lags == [0, 1, *[2] * (NUM_STEPS - 2)]
    assert reduction.stats.max_lag == 2
    assert reduction.stats.applied == reduction.stats.launched == NUM_STEPS


def test_what_was_abandoned_is_never_applied() -> None:
    model, reduction = wrapped(2)
    backward(model, batches()[0])
    reduction.abandon()
    assert list(reduction.drain()) == []


@pytest.mark.parametrize("delay", [0, 2])
def test_where_a_trainers_own_gradient_does_not_count_the_others_do(delay: int) -> None:
    model, reduction = wrapped(delay)
    given = reduction.contributions = Given(model)
    given.take = lambda: GradientTerm({p: torch.full_like(p, 6.0) for p in model.parameters()}, 2.0, own=False)  # type: ignore[method-assign]
    found = []
    for batch in batches()[:3]:
        backward(model, batch.fill_(torch.inf))  # what does not count may be anything
        found += [reduction.handed_out] if reduction.handed_out is not None else []
    found += list(reduction.drain())
    assert len(found) == 3
    assert all(gradient.eq(3).all() for launch in found for gradient in launch.gradients().values())
