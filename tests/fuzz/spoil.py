"""Arguments gone wrong: of other types, dtypes, shapes and layouts, out of range, overlapping."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch

from tests.fuzz.damage import ODD_NUMBERS, ODD_TEXTS


def spoil(random: Random, arguments: dict[str, Any]) -> None:
    """Replaces up to two, sometimes by what makes two arrays share memory."""
    for _ in range(random.choice([0, 1, 1, 2])):
        name = random.choice(list(arguments))
        arrays = [value for value in arguments.values() if type(value) is np.ndarray]
        if arrays and random.random() < 0.2:
            arguments[name] = _relative(random, random.choice(arrays))
        elif type(arguments[name]) is np.ndarray and random.random() < 0.6:
            arguments[name] = _odd_array(random, arguments[name])
        else:
            arguments[name] = _odd_argument(random)


def _relative(random: Random, array: np.ndarray) -> np.ndarray:
    """A view of an array that may be another argument, too."""
    array = np.atleast_1d(array)
    if (
        array.flags.c_contiguous
        and array.nbytes
        and array.nbytes % 8 == 0
        and not array.dtype.hasobject
        and random.random() < 0.5
    ):
        return array.reshape(-1).view(random.choice([np.uint8, np.int32, np.int64]))
    return array[random.choice([slice(None), slice(1, None), slice(None, None, -1), slice(0, 0)])]


def _odd_array(random: Random, array: np.ndarray) -> Any:
    array = np.atleast_1d(array if array.dtype.kind in "iufb" and array.size else np.zeros(3))
    numbers = [n for n in ODD_NUMBERS if isinstance(n, int) and -(2**63) <= n < 2**63]

    def changed(at: int, number: int) -> np.ndarray:
        copy = array.copy()
        if copy.size:
            info = np.iinfo(copy.dtype) if copy.dtype.kind in "iu" else None
            with np.errstate(over="ignore"):  # in float16, most of them are infinite
                fitting = np.array(number if info is None else min(max(number, info.min), info.max)).astype(copy.dtype)
            copy.flat[at % copy.size] = fitting
        return copy

    def misaligned() -> np.ndarray:
        buffer = np.zeros(array.nbytes + 1, np.uint8)
        view = buffer[1:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view

    def cast() -> np.ndarray:
        with np.errstate(all="ignore"):
            return array.astype(random.choice(["i1", "i4", "u8", ">i8", "f4", "f8", "c8", "O", "?", "M8[s]", "U4"]))

    def frozen() -> np.ndarray:
        copy = array.copy()
        copy.flags.writeable = False
        return copy

    ways: list[Callable[[], Any]] = [
        *[lambda: changed(random.randrange(64), random.choice(numbers))] * 4,
        cast,
        lambda: np.repeat(array, 2, axis=0)[::2],
        lambda: array[::-1],
        lambda: array[:-1],
        lambda: array[:0],
        lambda: array[None],
        lambda: array.reshape(-1),
        lambda: np.asfortranarray(np.stack([array, array])),
        lambda: np.broadcast_to(array.reshape(-1)[:1], (7,)),
        lambda: np.array(3),
        lambda: np.ma.masked_array(array, mask=True),
        lambda: array.reshape(-1).view(np.matrix),
        lambda: np.zeros(3, [("a", "i4"), ("b", "f8")]),
        misaligned,
        frozen,
        lambda: torch.zeros(array.shape, dtype=torch.int64),
        lambda: array.tolist(),
        lambda: memoryview(array.copy()),
    ]
    return random.choice(ways)()


def _odd_argument(random: Random) -> Any:
    scalars: list[Any] = [
        *ODD_NUMBERS,
        *ODD_TEXTS,
        None,
        True,
        b"bytes",
        1j,
        object(),
        int,
        [],
        {},
        (),
        [[]],
        "new",
        "hash",
    ]
    others: list[Any] = [
        [0, 0],
        [None],
        ["a", "b"],
        [2**70],
        [[0, 1], [2]],
        [0.5, 1.5],
        range(3),
        np.int64(3),
        np.float32(2),
        np.array([1, 2]),
        np.array("text"),
        np.zeros((2, 2, 2)),
        np.empty(0),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(2, 3).t(),
        torch.zeros(3, requires_grad=True),
        torch.zeros(3, device="meta"),
        torch.eye(2).to_sparse(),
    ]
    return random.choice([*scalars, *others])
