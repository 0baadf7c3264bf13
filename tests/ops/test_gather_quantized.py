"""Bytes gathered as floats equal NumPy's arithmetic to the last bit, with every instruction set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import GnnLoadError, SeedError
from lightning_gnnload.ops import _kernels, gather_quantized, instruction_sets
from tests import oracle

from .graphs import instruction_set

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
ALL_CODES = np.arange(-128, 128).astype(np.int8)


@pytest.fixture(params=instruction_sets())
def _instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    with instruction_set(request.param):
        yield


def columns(width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scales and offsets of many sizes; some columns constant, some without an offset."""
    rng = np.random.default_rng(seed)
    scale = np.ldexp(rng.random(width), rng.integers(-30, 12, width)).astype(np.float32)
    offset = np.ldexp(rng.standard_normal(width), rng.integers(-30, 14, width)).astype(np.float32)
    scale[rng.random(width) < 0.1], offset[rng.random(width) < 0.2] = 0, 0
    return scale, offset


def check(codes: np.ndarray, ids: np.ndarray, num_out: int, dtype: str, positions: np.ndarray | None) -> None:
    scale, offset = columns(codes.shape[1], codes.shape[1])
    out = np.full((num_out, codes.shape[1]), 7, DTYPES[dtype])
    wanted = out.copy()
    wanted[positions if positions is not None else slice(None)] = oracle.dequantized(codes[ids], scale, offset, dtype)
    gather_quantized(codes, scale, offset, ids, out, positions)
    np.testing.assert_array_equal(out.view(np.uint8), wanted.view(np.uint8), f"{codes.shape[1]} columns")  # -0 is not 0


@pytest.mark.usefixtures("_instruction_set")
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_any_width(dtype):
    for width in [*range(67), 100, 602]:
        rng = np.random.default_rng(width)
        codes = rng.integers(-128, 128, (50, width)).astype(np.int8)
        ids = rng.integers(0, 50, 300)  # more than are fetched ahead
        check(codes, ids, 300, dtype, None)
        check(codes, ids, 400, dtype, rng.permutation(400)[:300])


@pytest.mark.usefixtures("_instruction_set")
@pytest.mark.parametrize("dtype", DTYPES)
def test_much_output_is_the_same(dtype):
    rng = np.random.default_rng(1)
    codes = rng.integers(-128, 128, (2000, 2000)).astype(np.int8)
    num_out = _kernels.STREAM_BYTES // (2000 * DTYPES[dtype]().itemsize) + 3
    check(codes, rng.integers(0, 2000, num_out), num_out, dtype, None)


@pytest.mark.usefixtures("_instruction_set")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_rounding_of_16_bits(dtype):
    """Each code in columns of every binary exponent, subnormal and infinite results among them, beside torch."""
    exponents = np.arange(-149, 120)
    scale = np.ldexp(np.random.default_rng(0).random((40, len(exponents))) + 0.5, exponents).astype(np.float32).ravel()
    scale[: len(exponents)] = np.ldexp(1.0, exponents)  # ties
    offset = np.zeros_like(scale)
    codes = np.repeat(ALL_CODES[:, None], len(scale), axis=1)
    out = np.empty(codes.shape, DTYPES[dtype])
    gather_quantized(codes, scale, offset, np.arange(256), out)
    values = torch.from_numpy(codes.astype(np.float32) * scale)
    wanted = values.to(getattr(torch, dtype)).view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(out.view(np.uint16), wanted)


@pytest.mark.usefixtures("_instruction_set")
def test_product_and_sum_are_rounded_each():
    """A fused multiply-add would keep the low bits of the product: this case tells the two apart."""
    scale, offset = np.float32([1 + 2**-23]), np.float32([-3])
    codes = np.array([[3]], np.int8)
    out = np.empty((1, 1), np.float32)
    gather_quantized(codes, scale, offset, np.zeros(1, np.int64), out)
    exact = 3 * (1 + 2**-23) - 3
    assert out[0, 0] == np.float32(np.float32(3) * scale[0]) - np.float32(3)
    assert out[0, 0] != np.float32(exact)


@pytest.mark.parametrize("bad", [-1, 5, 2**63 - 1])
def test_bad_ids_and_positions_are_named_and_nothing_is_written(bad):
    codes, column, out = np.ones((5, 3), np.int8), np.ones(3, np.float32), np.zeros((5, 3), np.float32)
    good, wrong = np.zeros(2, np.int64), np.array([0, bad])
    with pytest.raises(SeedError, match=rf"ids\[1\] is {bad}, but the table has 5 rows"):
        gather_quantized(codes, column, column, wrong, out, good)
    with pytest.raises(SeedError, match=rf"positions\[1\] is {bad}, but out has 5 rows"):
        gather_quantized(codes, column, column, good, out, wrong)
    assert not out.any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"codes": np.ones((4, 3), np.uint8)}, "codes has dtype uint8"),
        ({"scale": np.ones(3)}, "scale has dtype float64"),
        ({"offset": np.ones(2, np.float32)}, "offset has 2 columns, but codes has 3"),
        ({"out": np.ones((2, 3))}, "out has dtype float64"),
        ({"out": np.ones((2, 4), np.float32)}, "out has 4 columns, but codes has 3"),
        ({"out": np.ones((1, 3), np.float32)}, "out has 1 rows, but ids has 2"),
        ({"positions": np.arange(3)}, "positions has 3 entries, but ids has 2"),
    ],
)
def test_wrong_arrays(changed, message):
    given: dict[str, Any] = {
        "codes": np.ones((4, 3), np.int8),
        "scale": np.ones(3, np.float32),
        "offset": np.ones(3, np.float32),
        "ids": np.arange(2),
        "out": np.ones((2, 3), np.float32),
    }
    with pytest.raises(GnnLoadError, match=message):
        gather_quantized(**given | changed)
