"""The edges of a block on the CPU: what they cannot do is refused. Results are tested in tests/unit/nn."""

from __future__ import annotations

import pytest
import torch

from lightning_gnnload.errors import AggregationError
from lightning_gnnload.ops.host_edges import HostEdges


def test_weights_are_refused() -> None:
    edges = HostEdges(torch.tensor([0, 2]).int(), torch.tensor([1, 0]).int(), num_src=2)
    x, weights = torch.ones(2, 3), torch.ones(2)
    assert edges.sum_neighbors(x, None, is_mean=False).tolist() == [[2.0] * 3]
    for sum_rows in (edges.sum_neighbors, edges.sum_destinations):
        with pytest.raises(AggregationError, match="take no weights"):
            sum_rows(x, weights, is_mean=False)
