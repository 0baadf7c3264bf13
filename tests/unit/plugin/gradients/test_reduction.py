"""The delayed reduction under DDP, with one trainer in this process; several trainers are in tests/integration."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

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
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))


def batches() -> list[Tensor]:
    return list(torch.randn(NUM_STEPS, 5, 8, generator=torch.Generator().manual_seed(1)))


def wrapped(
    staleness: int, contributions: ExtraGradients | None = None, **ddp: bool
) -> tuple[DistributedDataParallel, DelayedReduction]:
    # Buckets of one or two parameters each, in another order after the first step.
    model = DistributedDataParallel(network(), bucket_cap_mb=0.001, **ddp)
    reduction = DelayedReduction(staleness, contributions=contributions)
    model.register_comm_hook(reduction, hook)
    return model, reduction


def backward(model: nn.Module, batch: Tensor) -> list[Tensor]:
    model.zero_grad()
    model(batch).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def awaited(reduction: DelayedReduction, model: nn.Module, num_left: int) -> list[list[Tensor]]:
    """Applies, as far as counts go, and returns the averages."""
    averages = []
    for launch in reduction.awaited(num_left):
        averages.append([launch.gradients()[parameter].clone() for parameter in model.parameters()])
        reduction.count_update(launch)
    return averages


@pytest.mark.parametrize("ddp", [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}], ids=str)
@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_averages_come_in_order_and_no_later_than_the_bound(staleness: int, ddp: dict[str, bool]) -> None:
    """Per parameter, though the first step's buckets hold others than the later ones'; meanwhile the parameters have
    the trainer's own gradients."""
    model, reduction = wrapped(staleness, **ddp)
    plain, history = network(), deque[list[Tensor]]()
    for batch in batches():
        history.append(backward(plain, batch))
        torch.testing.assert_close(backward(model, batch), history[-1], rtol=0, atol=0)
        for average in awaited(reduction, model, staleness):
            torch.testing.assert_close(average, history.popleft(), rtol=0, atol=0)
        assert reduction.num_unapplied == len(history) <= staleness
    left = [[launch.gradients()[p] for p in model.parameters()] for launch in reduction.drain()]
    torch.testing.assert_close(left, list(history), rtol=0, atol=0)
    assert (reduction.stats.launched, reduction.stats.flushed) == (NUM_STEPS, staleness)


class Held(dist.Work):
    """A collective that ends when it is told to."""

    def __init__(self, is_over: bool = False) -> None:
        super().__init__()
        self.is_over = is_over

    def is_completed(self) -> bool:
        return self.is_over

    def wait(self, *_: object) -> bool:
        self.is_over = True
        return True


def test_what_has_come_is_applied_at_once_but_never_out_of_order() -> None:
    model, reduction = wrapped(3)
    works = []
    for batch in batches()[:3]:
        backward(model, batch)
        launch = reduction._unapplied[-1]
        for bucket in launch.buckets:
            bucket.work.wait()
        # The last bucket of each, as one that was enough would be the first to end.
        launch.buckets[-1] = replace(launch.buckets[-1], work=Held())
        works.append(launch.buckets[-1].work)
    assert list(reduction.arrived()) == []
    works[1].is_over = True
    assert list(reduction.arrived()) == [], "an average before the first would make another version"
    works[0].is_over = True
    assert [launch.number for launch in reduction.arrived()] == [0, 1]
    assert [launch.number for launch in reduction.awaited(1)] == [], "one is left, which nobody waits for"
    assert [launch.number for launch in reduction.drain()] == [2]


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


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_contributions_are_added_and_divided_by_the_summed_weight(staleness: int) -> None:
    model, reduction = wrapped(staleness)
    given = reduction.contributions = Given(model)
    plain, wanted, found = network(), [], []
    for step, batch in enumerate(batches()):
        gradients = backward(plain, batch)
        wanted.append([(g + 1) / 3 for g in gradients] if step % 3 == 2 else gradients)
        backward(model, batch)
        found += awaited(reduction, model, staleness)
        assert given.num_asked == step + 1  # once a step, whatever the number of buckets
    found += [[launch.gradients()[p] for p in model.parameters()] for launch in reduction.drain()]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("num_left", [0, 3], ids=["applied at once", "applied at the bound"])
@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_words_are_acted_upon_at_the_bound_however_early_the_average_is_applied(staleness: int, num_left: int) -> None:
    """When an average comes differs between trainers; what they agree on must come at the same step in all."""
    model, reduction = wrapped(staleness)
    given = reduction.contributions = Given(model)
    agreed = []
    for step, batch in enumerate(batches()):
        reduction.stop_asked = step >= 3
        backward(model, batch)
        awaited(reduction, model, min(num_left, staleness))
        reduction.act_on_words(staleness)
        assert len(given.told) == max(step + 1 - staleness, 0)
        agreed.append(reduction.stop_agreed)
    assert agreed.index(True) == 3 + staleness
    list(reduction.drain())
    assert given.told == [(step, [step, step * step][: step % 3]) for step in range(NUM_STEPS)]


def test_too_many_announcements_are_refused() -> None:
    model, reduction = wrapped(1)
    given = reduction.contributions = Given(model)
    given.announce = lambda: [0] * (MAX_ANNOUNCED + 1)  # type: ignore[method-assign]
    with pytest.raises(StalenessError, match=f"{MAX_ANNOUNCED + 1} integers.*at most {MAX_ANNOUNCED}"):
        backward(model, batches()[0])


def test_the_lag_is_counted_in_updates() -> None:
    model, reduction = wrapped(2)
    lags = []
    for step, batch in enumerate(batches()):
        backward(model, batch)
        for launch in reduction.awaited(0 if step > 5 else 2):
            reduction.count_update(launch)
            lags.append(reduction.stats.lag)
    assert lags == [0, 1, 2, 2, 2, 2, 2, 0, 0]
    assert (reduction.stats.max_lag, reduction.stats.mean_lag) == (2, pytest.approx(sum(lags) / NUM_STEPS))
    assert reduction.stats.applied == reduction.stats.launched == NUM_STEPS


def test_what_was_abandoned_is_never_applied() -> None:
    model, reduction = wrapped(2)
    backward(model, batches()[0])
    reduction.abandon()
    assert list(reduction.drain()) == []


@pytest.mark.parametrize("staleness", [0, 2])
def test_where_a_trainers_own_gradient_does_not_count_the_others_do(staleness: int) -> None:
    model, reduction = wrapped(staleness)
    given = reduction.contributions = Given(model)
    given.take = lambda: GradientTerm({p: torch.full_like(p, 6.0) for p in model.parameters()}, 2.0, counts_own=False)  # type: ignore[method-assign]
    found = []
    for batch in batches()[:3]:
        backward(model, batch.fill_(torch.inf))  # what does not count may be anything
        found += awaited(reduction, model, staleness)
    found += [list(launch.gradients().values()) for launch in reduction.drain()]
    assert len(found) == 3
    assert all(gradient.eq(3).all() for average in found for gradient in average)
