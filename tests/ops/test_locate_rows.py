"""Rows are dealt to their parts as one sort by part would deal them; what lies in no part is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightning_gnnload.errors import GraphFormatError, PartitionError, SeedError
from lightning_gnnload.ops import locate_rows


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(0, 60), st.integers(0, 200), st.booleans())
@example(seed=0, num_parts=1, num_nodes=0, num_rows=0, is_new=False)
@example(seed=1, num_parts=16, num_nodes=5, num_rows=90, is_new=False)  # parts without nodes, compared one by one
@example(seed=2, num_parts=17, num_nodes=5, num_rows=90, is_new=True)  # and searched among
def test_equals_a_stable_sort(seed: int, num_parts: int, num_nodes: int, num_rows: int, is_new: bool) -> None:
    random = np.random.default_rng(seed)
    starts = np.sort(np.concatenate([[0, num_nodes], random.integers(0, num_nodes + 1, num_parts - 1)]))
    begins = starts[:-1] + random.integers(0, 3, num_parts)
    new_ids = None if is_new else random.permutation(num_nodes)
    first = 0 if is_new else int(random.integers(0, num_nodes + 1))
    rows = random.integers(0, max(num_nodes - first, 1), num_rows if num_nodes > first else 0)
    ids = rows if new_ids is None else new_ids[first + rows]
    parts = np.searchsorted(starts, ids, side="right") - 1
    order = np.argsort(parts, kind="stable")
    counts, own_rows, positions = locate_rows(rows, num_nodes - first, starts, begins, new_ids, first)
    np.testing.assert_array_equal(counts, np.bincount(parts, minlength=num_parts))
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(own_rows, (ids - begins[parts])[order])


STARTS = np.array([0, 2, 3])


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rows": np.array([0, 3])}, SeedError, r"ids\[1\] is 3"),
        ({"rows": np.array([-1])}, SeedError, r"ids\[0\] is -1"),
        ({"new_ids": np.array([0, 3, 1])}, GraphFormatError, "new id 3"),
        ({"new_ids": np.array([0, -1, 1])}, GraphFormatError, "new id -1"),
        ({"num_rows": 4}, PartitionError, "num_rows"),
        ({"first": 1}, PartitionError, "num_rows"),
        ({"starts": np.array([0, 3, 2])}, PartitionError, "ascend"),
        ({"starts": np.array([1, 2, 3])}, PartitionError, "ascend"),
        ({"starts": np.array([0]), "begins": np.array([], np.int64)}, PartitionError, "one more"),
        ({"begins": np.array([0])}, PartitionError, "begins has 1"),
        ({"rows": np.array([0], np.int32)}, SeedError, "int64"),
    ],
)
def test_refuses(changes: dict, error: type[Exception], words: str) -> None:
    arguments = {"rows": np.array([1]), "num_rows": 3, "starts": STARTS, "begins": STARTS[:-1], "new_ids": np.arange(3)}
    with pytest.raises(error, match=words):
        locate_rows(**{**arguments, **changes})
