"""Parameters and gradients through shared memory, between two models in one process, and with a second process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from lightning_gnnload.plugin.gradients.contributors import ParameterExchange, TensorLayout, state_of


def network(width: int = 5, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2, bias=False))
    module[2].weight.requires_grad_(False)
    return module.to(torch.float64) if seed == 9 else module


Pair = tuple[nn.Module, ParameterExchange, nn.Module, ParameterExchange]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A sampler's model and memory, and trainer 0's."""
    sampler, trainer = network(seed=1), network(seed=2)
    its = ParameterExchange(sampler)
    theirs = ParameterExchange(trainer, os.dup(its.slot.fd))
    yield sampler, its, trainer, theirs
    its.close()
    theirs.close()


def digest(module: nn.Module) -> str:
    exchange = ParameterExchange(module)
    exchange.close()
    return exchange.digest


def test_parameters_and_buffers_arrive_bit_for_bit_and_a_newer_version_touches_no_older_one(pair: Pair) -> None:
    sampler, its, trainer, theirs = pair
    first = {name: tensor.clone() for name, tensor in state_of(trainer).items()}
    older = theirs.publish(state_of(trainer))
    for tensor in state_of(trainer).values():
        tensor.data.add_(1)
    newer = theirs.publish(state_of(trainer))
    assert older is not None
    assert newer is not None
    its.load(older, state_of(sampler))
    assert all(torch.equal(tensor, first[name]) for name, tensor in state_of(sampler).items())
    its.load(newer, state_of(sampler))
    assert all(torch.equal(tensor, state_of(trainer)[name]) for name, tensor in state_of(sampler).items())
    assert "1.running_mean" in first
    assert "1.num_batches_tracked" in first


def test_gradients_of_trained_parameters_go_back_each_copy_by_itself(pair: Pair) -> None:
    _, its, _, theirs = pair
    for copy, gradients in enumerate(its.gradients):
        for place, view in enumerate(gradients.values()):
            view.fill_(10 * copy + place)
    assert list(theirs.gradients[0]) == ["0.weight", "0.bias", "1.weight", "1.bias"]  # none of what is frozen
    for copy, gradients in enumerate(theirs.gradients):
        assert [view.unique().tolist() for view in gradients.values()] == [[10 * copy + place] for place in range(4)]


def test_no_version_is_written_over_one_that_another_process_reads(pair: Pair) -> None:
    _, its, trainer, theirs = pair
    reading, done = os.pipe(), os.pipe()
    if os.fork() == 0:
        fcntl.lockf(its.slot.fd, fcntl.LOCK_SH, 1, 1)
        os.write(reading[1], b".")
        os.read(done[0], 1)
        os._exit(0)
    os.read(reading[0], 1)
    assert theirs.publish(state_of(trainer)) == 0
    assert theirs.publish(state_of(trainer)) is None  # copy 1 is being read
    os.write(done[1], b".")
    os.wait()
    assert theirs.publish(state_of(trainer)) == 1  # the lock went with its process
    for fd in (*reading, *done):
        os.close(fd)


@pytest.mark.parametrize("other", [network(width=6), network(seed=9), nn.Sequential(nn.Linear(3, 5))])
def test_another_model_has_another_digest(other: nn.Module) -> None:
    assert digest(other) != digest(network()) == digest(network(seed=3))


def test_tensors_lie_aligned_and_apart() -> None:
    tensors = {
        "a": torch.zeros(3),
        "b": torch.zeros((), dtype=torch.int64),
        "c": torch.zeros(0, 4),
        "d": torch.zeros(7),
    }
    layout = TensorLayout(tensors)
    assert layout.num_bytes == 3 * 64
    memory = bytearray(64 + layout.num_bytes)
    views = layout.views(memory, 64)
    for value, view in enumerate(views.values(), 1):
        view.fill_(value)
    assert {name: view.tolist() for name, view in views.items()} == {"a": [1.0] * 3, "b": 2, "c": [], "d": [4.0] * 7}
    assert not any(memory[:64])
