"""What objects are described by: their settings, however deep arrays lie in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.data.checksums import describe_settings


class Windows:
    def __init__(self, of: Any) -> None:
        self.of = of


def described(of: Any) -> str:
    return describe_settings(Windows(of)).removeprefix("Windows(of=").removesuffix(")")


@pytest.mark.parametrize("of", [[15, 10], (1,), (), {"a": [1], "b": None}, "a", 0.5, {}])
def test_plain_settings_are_as_python_shows_them(of: Any) -> None:
    assert described(of) == repr(of)


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (1, x), lambda x: {"a": x}, lambda x: {("a", "b"): [x]}])
def test_arrays_within_others_count_whole(wrap: Any) -> None:
    starts = np.arange(5_000)
    others = np.where(starts == 2_500, -1, starts)
    assert described(wrap(starts)) != described(wrap(others))
    assert described(wrap(torch.from_numpy(starts))) == described(wrap(starts.copy()))


def test_sets_have_one_order_wherever_they_lie() -> None:
    assert described({"b", "a"}) == "['a', 'b']"
    assert described([{"x": {"b", "a"}}]) == "[{'x': ['a', 'b']}]"


def test_a_list_that_holds_itself_is_described() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert described(loop).startswith("[1, [1, [1")
