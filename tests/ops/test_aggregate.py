"""Sum, mean and maximum of neighbours equal plain loops, with every instruction set and any number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import AggregationError, GraphFormatError, SamplerConfigError
from lightning_gnnload.ops import (
    add_to_sources,
    instruction_sets,
    max_neighbors,
    sum_destinations,
    sum_neighbors,
)
from tests import oracle

from .graphs import instruction_set

WIDTHS = (0, 1, 15, 33, 128, 130)  # a tile of columns, and parts of one


@pytest.fixture(params=instruction_sets())
def _instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    with instruction_set(request.param):
        yield


def block(num_dst: int, num_src: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Some destinations without edges, others with many, some of them twice."""
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, 6, num_dst) * rng.integers(0, 2, num_dst)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    return indptr, rng.integers(0, num_src, indptr[-1]).astype(np.int32)


def numbers(shape: tuple[int, int], dtype: type, seed: int) -> np.ndarray:
    """Many that are equal; infinities, both zeros and NaN."""
    rng = np.random.default_rng(seed)
    odd = np.array([np.inf, -np.inf, 0.0, -0.0, np.nan], dtype)
    x = rng.integers(-3, 3, shape).astype(dtype)
    return np.where(rng.random(shape) < 0.2, odd[rng.integers(0, len(odd), shape)], x)


def as_bits(x: np.ndarray) -> np.ndarray:
    """bfloat16's."""
    return torch.from_numpy(x).bfloat16().view(torch.int16).numpy().view(np.uint16)


@pytest.mark.usefixtures("_instruction_set")
@pytest.mark.parametrize("is_mean", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16])
def test_sums_and_means_of_both_ends(dtype: type, is_mean: bool) -> None:
    """Bit for bit: of fractions, which another order or a product that is not rounded would show."""
    for width in WIDTHS:
        indptr, indices = block(40, 30, width)
        for num_rows, kernel, expected in ((30, sum_neighbors, 40), (40, sum_destinations, 30)):
            x = np.random.default_rng(width).random((num_rows, width)) - 0.5
            x = x.astype(np.float64 if dtype == np.float64 else np.float32)
            if dtype == np.uint16:
                x = torch.from_numpy(x).bfloat16().float().numpy()
            if kernel is sum_neighbors:
                wanted = oracle.sum_neighbors(indptr, indices, x, is_mean)
            else:
                wanted = oracle.sum_destinations(indptr, indices, x, expected, is_mean)
            if dtype == np.uint16:
                x, wanted = as_bits(x), as_bits(wanted)
            out = np.full((expected, width), 7, dtype)
            kernel(indptr, indices, x, out, is_mean, num_threads=2)
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.usefixtures("_instruction_set")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16])
def test_the_largest_and_whose_it_is(dtype: type) -> None:
    for width in WIDTHS:
        indptr, indices = block(40, 30, width)
        x = numbers((30, width), np.float64 if dtype == np.float64 else np.float32, width)
        wanted, whose = oracle.max_neighbors(indptr, indices, x)
        if dtype == np.uint16:
            x, wanted = as_bits(x), as_bits(wanted)
        out, source = np.full(wanted.shape, 7, dtype), np.full(wanted.shape, 7, np.int32)
        max_neighbors(indptr, indices, x, out, source, num_threads=2)
        np.testing.assert_array_equal(source, whose)
        np.testing.assert_array_equal(out.view(np.uint8), wanted.view(np.uint8))  # -0 is not 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16])
def test_gradients_go_to_the_largest(dtype: type) -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(-1, 9, (50, 37)).astype(np.int32)
    grad = rng.integers(-9, 9, source.shape).astype(np.float64 if dtype == np.float64 else np.float32)
    into = rng.random((9, 37)).astype(grad.dtype)
    wanted = oracle.add_to_sources(source, grad, into)
    add_to_sources(source, as_bits(grad) if dtype == np.uint16 else grad, into, num_threads=2)
    np.testing.assert_array_equal(into, wanted)


def test_threads_that_have_much_to_do_change_nothing() -> None:
    indptr, indices = block(20_000, 5_000, 1)
    x = numbers((5_000, 70), np.float32, 1)
    results = []
    for num_threads in (1, 3):
        out, source = np.empty((20_000, 70), np.float32), np.empty((20_000, 70), np.int32)
        max_neighbors(indptr, indices, x, out, source, num_threads)
        into = np.zeros_like(x)
        add_to_sources(source, np.random.default_rng(2).random(out.shape, np.float32), into, num_threads)
        arrays = [out, source, into]
        for kernel, rows, num_rows in ((sum_neighbors, x, len(out)), (sum_destinations, arrays[0], len(x))):
            arrays.append(np.empty((num_rows, 70), np.float32))
            kernel(indptr, indices, np.nan_to_num(rows, posinf=0.1, neginf=0.3), arrays[-1], True, num_threads)
        results.append([array.tobytes() for array in arrays])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 2, 3], [0, 4, 1], r"indices\[1\] is 4, but there are 4 rows"),
        ([0, 2, 3], [0, -1, 1], r"indices\[1\] is -1"),
        ([0, 2, 4], [0, 1, 1], "ends at 4"),
        ([0, 2, 1], [0], "must ascend from 0"),
        ([1, 2, 3], [0, 1, 1], "must ascend from 0"),
    ],
)
def test_a_block_that_is_none_is_refused_with_nothing_written(
    indptr: list[int], indices: list[int], message: str
) -> None:
    out, source = np.full((2, 3), 7, np.float32), np.full((2, 3), 7, np.int32)
    with pytest.raises(GraphFormatError, match=message):
        max_neighbors(np.int32(indptr), np.int32(indices), np.ones((4, 3), np.float32), out, source)
    for kernel, rows in ((sum_neighbors, 4), (sum_destinations, 2)):
        sums = np.full((6 - rows, 3), 7, np.float32)
        with pytest.raises(GraphFormatError, match=message):
            kernel(np.int32(indptr), np.int32(indices), np.ones((rows, 3), np.float32), sums, is_mean=True)
        assert (sums == 7).all()
    assert (out == 7).all()
    assert (source == 7).all()


def test_a_source_that_is_none_gets_no_gradient() -> None:
    into = np.zeros((4, 1), np.float32)
    for number in (4, -2):
        with pytest.raises(GraphFormatError, match=rf"from\[1\] is {number}"):
            add_to_sources(np.int32([[0], [number]]), np.ones((2, 1), np.float32), into)
    assert not into.any()


def test_shapes_and_dtypes_that_do_not_fit() -> None:
    indptr, indices, x = np.int32([0, 1]), np.int32([0]), np.ones((1, 2), np.float32)
    out, source = np.empty((1, 2), np.float32), np.empty((1, 2), np.int32)
    with pytest.raises(AggregationError, match=r"out has shape \[1, 3\], but \[1, 2\]"):
        max_neighbors(indptr, indices, x, np.empty((1, 3), np.float32), source)
    with pytest.raises(AggregationError, match="x"):
        max_neighbors(indptr, indices, x.astype(np.float16), out, source)
    for num_threads in (0, 1.5):
        with pytest.raises(AggregationError, match=f"num_threads is {num_threads}, but must"):
            max_neighbors(indptr, indices, x, out, source, num_threads)  # type: ignore[arg-type]
    with pytest.raises(AggregationError, match="must agree"):
        add_to_sources(source, out, np.empty((1, 3), np.float32))
    with pytest.raises(AggregationError, match=r"out has shape \[2, 2\], but \[1, 2\]"):
        sum_neighbors(indptr, indices, x, np.empty((2, 2), np.float32), is_mean=True)
    with pytest.raises(AggregationError, match="grad has 2 rows, but indptr has 1"):
        sum_destinations(indptr, indices, np.ones((2, 2), np.float32), out, is_mean=True)
    for reduces in (sum_neighbors, sum_destinations):
        with pytest.raises(AggregationError, match="is_mean is 2, but must be True or False"):
            reduces(indptr, indices, x, out, 2)  # type: ignore[arg-type]
    with pytest.raises(SamplerConfigError, match="out and x share memory"):
        sum_neighbors(indptr, indices, x, x, is_mean=False)
