"""How much of the package runs for one warm mini-batch: it is to stay as little as it is."""

from __future__ import annotations

import sys

import pytest

from tests.trace import WAYS, trace_of

MOST_CALLS = {
    "untyped": 130,
    "untyped, pyg": 155,
    "untyped, cache": 165,
    "typed": 225,
    "typed, pyg": 310,
    "temporal links": 450,
    "temporal links, pyg": 525,
}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="comprehensions are no calls there")
@pytest.mark.parametrize("way", WAYS)
def test_a_mini_batch_takes_no_more_calls(way: str) -> None:
    figures = trace_of(way).figures
    assert 50 < figures["calls"] <= MOST_CALLS[way], f"python -m tests.trace --show '{way}' lists them"
