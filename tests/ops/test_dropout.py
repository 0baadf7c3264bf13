"""Dropout: equal to its oracle in every format, with every instruction set and number of threads; and its law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import DropoutError
from lightning_gnnload.ops import instruction_sets
from lightning_gnnload.ops.dropout import (
    DropoutKey,
    drop,
    drop_by_bits,
    keep_mask,
    num_bit_bytes,
    scale_of,
    threshold_of,
)
from tests import oracle

from .graphs import instruction_set

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SIZES = (0, 1, 127, 128, 300, 513)
PLACE = {"seed": 1 << 63 | 5, "epoch": 3, "step": 7, "rank": 2, "layer": 1, "call": 4}


@pytest.fixture(params=instruction_sets())
def _instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    with instruction_set(request.param):
        yield


@pytest.fixture
def _threads() -> Iterator[None]:
    number = torch.get_num_threads()
    yield
    torch.set_num_threads(number)


def bits_of(x: torch.Tensor) -> torch.Tensor:
    """By which -0 is not 0, while one NaN is as good as another: torch makes several."""
    return torch.where(x.isnan(), torch.nan, x).to(x.dtype).view(torch.uint8)


@cache
def mask_of(count: int, threshold: int) -> np.ndarray:
    return oracle.dropout_mask(count, threshold, **PLACE)


def numbers(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Of all sizes, special ones among them."""
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, generator=generator) * torch.exp2(torch.randint(-30, 18, (count,), generator=generator))
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, 6e-8, 65504.0, 3e38])
    where = torch.randint(0, 4, (count,), generator=generator) == 0
    x[where] = special[torch.randint(0, len(special), (int(where.sum()),), generator=generator)]
    return x.to(dtype)


@pytest.mark.usefixtures("_instruction_set")
@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_to_the_oracle(dtype: torch.dtype) -> None:
    key = DropoutKey.of(**PLACE)
    for count in SIZES:
        x = numbers(count, dtype)
        for p, relu in ((0.1, False), (0.5, True), (0.9, True)):
            threshold = threshold_of(p)
            mask = mask_of(count, threshold)
            wanted = oracle.dropped(x, mask, threshold, relu)
            out = torch.full_like(x, 7)
            bits = drop(x, out, threshold, key, relu, with_bits=True)
            assert torch.equal(bits_of(out), bits_of(wanted)), (count, p)
            again = torch.full_like(x, 7)
            drop(x, again, threshold, key, relu)  # without bits
            assert torch.equal(bits_of(again), bits_of(wanted))
            grad = numbers(count, dtype).flip(0)
            kept = mask & ~(x.double() <= 0).numpy() if relu else mask
            drop_by_bits(grad, again, threshold, bits)
            assert torch.equal(bits_of(again), bits_of(oracle.dropped(grad, kept, threshold, False)))
            in_place = x.clone()
            drop(in_place, in_place, threshold, key, relu)
            assert torch.equal(bits_of(in_place), bits_of(wanted))


@pytest.mark.usefixtures("_instruction_set", "_threads")
def test_threads_change_nothing() -> None:
    """Two threads and more get two million elements and more; the last chunk is no whole one."""
    x = torch.randn(3_200_001)
    key, threshold = DropoutKey.of(**PLACE), threshold_of(0.3)
    results = []
    for number in (1, 3):
        torch.set_num_threads(number)
        out = torch.empty_like(x)
        bits = drop(x, out, threshold, key, True, with_bits=True)
        grad = torch.empty_like(x)
        drop_by_bits(x, grad, threshold, bits)
        results.append((out, bits, grad))
    assert all(map(torch.equal, *results))
    expected = torch.where(keep_mask(len(x), threshold, key, x.device) & (x > 0), x * scale_of(threshold), 0)
    assert torch.equal(results[0][0], expected)


def test_masks_by_torchs_own_operations_are_the_same() -> None:
    """For devices on which no kernel runs."""
    key = DropoutKey.of(**PLACE)
    expected = mask_of(300, 6554)
    assert np.array_equal(keep_mask(300, 6554, key, torch.device("cpu")).numpy(), expected)


def test_devices_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs there, on the CPU: torch.where over the mask, bits in bytes."""
    x, key, threshold = numbers(300, torch.float32), DropoutKey.of(**PLACE), threshold_of(0.4)
    wanted, passed = torch.empty_like(x), torch.empty_like(x)
    drop_by_bits(x, passed, threshold, drop(x, wanted, threshold, key, True, with_bits=True))
    results = []
    with monkeypatch.context() as patched:
        patched.setattr("lightning_gnnload.ops.dropout._runs_on", lambda device: None)
        out = torch.empty_like(x)
        bits = drop(x, out, threshold, key, True, with_bits=True)
        assert len(bits) == num_bit_bytes(x)
        results.append(out.clone())
        drop_by_bits(x, out, threshold, bits)
        results.append(out)
    assert torch.equal(bits_of(results[0]), bits_of(wanted))
    assert torch.equal(bits_of(results[1]), bits_of(passed))


def test_probabilities() -> None:
    assert [threshold_of(p) for p in (0, 0.1, 0.5, 1 - 1e-9, 1)] == [0, 6554, 32768, 65535, 65536]
    assert scale_of(32768) == 2


@dataclass(frozen=True)
class Place:
    seed: int = 1
    epoch: int = 2
    step: int = 3
    rank: int = 0
    layer: int = 0
    call: int = 0


def mask_at(place: Place, p: float, count: int) -> np.ndarray:
    x = torch.ones(count)
    drop(x, x, threshold_of(p), DropoutKey.of(**vars(place)))
    return x.numpy() != 0


ROWS, COLUMNS = 4096, 256


def z_of_shares(sums: np.ndarray, trials: int, keep: float) -> float:
    """The chi-square of many sums, as a standard normal number (Wilson and Hilferty): beyond 5 by chance in less than
    one of a million."""
    chi = (((sums - trials * keep) ** 2) / (trials * keep * (1 - keep))).sum()
    n = sums.size
    return ((chi / n) ** (1 / 3) - (1 - 2 / (9 * n))) / np.sqrt(2 / (9 * n))


def z_of_agreement(one: np.ndarray, other: np.ndarray, keep: float) -> float:
    """How far the share of equal elements lies from that of independent masks, in standard deviations."""
    equal = keep**2 + (1 - keep) ** 2
    return (np.mean(one == other) - equal) / np.sqrt(equal * (1 - equal) / one.size)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_law(p: float) -> None:
    """A million elements: each is kept as often as it should, independent of its neighbours in row and column, and of
    the masks whose keys are next to its own. Some twenty numbers that are standard normal; that one of them is beyond
    five has a probability of 1e-5, and with this seed none is."""
    keep = 1 - threshold_of(p) / 65536
    place = Place()
    mask = mask_at(place, p, ROWS * COLUMNS).reshape(ROWS, COLUMNS)
    numbers = {"mean": (mask.mean() - keep) / np.sqrt(keep * (1 - keep) / mask.size)}
    numbers["rows"] = z_of_shares(mask.sum(axis=1), COLUMNS, keep)
    numbers["columns"] = z_of_shares(mask.sum(axis=0), ROWS, keep)
    flat = mask.ravel()
    for apart in (1, 2, 16, 32, 128, COLUMNS):
        numbers[f"{apart} apart"] = z_of_agreement(flat[apart:], flat[:-apart], keep)
    for name, value in (*((name, getattr(place, name) + 1) for name in vars(place)), ("seed", 1 << 32 | 1)):
        other = mask_at(replace(place, **{name: value}), p, mask.size)
        numbers[f"{name}={value}"] = z_of_agreement(flat, other, keep)
    assert max(map(abs, numbers.values())) < 5, numbers


def test_first_rows_do_not_depend_on_how_many_more_there_are() -> None:
    assert np.array_equal(mask_at(Place(), 0.5, 1000), mask_at(Place(), 0.5, 5000)[:1000])


def test_numbers_of_all_sizes_give_other_keys() -> None:
    """Each bit of each number counts: nothing is cut off, and no two numbers share bits."""
    bits = {"seed": 64, "epoch": 32, "step": 32, "rank": 16, "layer": 16, "call": 32}
    plain = dict.fromkeys(bits, 0)
    keys = {DropoutKey.of(**plain | {name: 1 << bit}) for name, count in bits.items() for bit in range(count)}
    assert len(keys) == sum(bits.values())


@pytest.mark.parametrize(
    ("x", "threshold", "message"),
    [
        (torch.ones(4, 3, dtype=torch.int64), 1, "torch.int64"),
        (torch.ones(4, 3).to_sparse(), 1, "sparse"),
        (torch.ones(3, 4).t(), 1, "contiguous"),
        (torch.ones(3), 1, r"\[4, 3\] of torch.float32, but gets \[3\]"),
        (torch.ones(4, 3).double(), 1, "torch.float64"),
        (torch.ones(4, 3), 65536, "threshold 65536"),
        (torch.ones(4, 3), -1, "threshold -1"),
    ],
)
def test_what_the_kernels_do_not_take(x: torch.Tensor, threshold: int, message: str) -> None:
    with pytest.raises(DropoutError, match=message):
        drop(x, torch.empty(4, 3), threshold, DropoutKey(0, 0))


@pytest.mark.parametrize("bits", [torch.zeros(31, dtype=torch.uint8), torch.zeros(32, dtype=torch.int8)])
def test_bits_of_other_tensors_are_not_read(bits: torch.Tensor) -> None:
    x = torch.ones(129)
    with pytest.raises(DropoutError, match="of another tensor"):
        drop_by_bits(x, x, 1, bits)
