"""What attention over sampled edges needs: shares of all edges into a node, and sums that they weigh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lightning_gnnload.data.block import Block
from lightning_gnnload.nn.aggregate import aggregate


def softmax_over_edges(scores: Mapping[Any, Tensor], blocks: Mapping[Any, Block]) -> dict[Any, Tensor]:
    """Returns shares of the shapes of ``scores``, float32 ``[num_edges, heads]`` by edge type; those of all edges into
    a destination sum to one, whatever their types.

    Args:
        scores: by edge type; all types lead to one node type.
        blocks: of the same types; none is without edges.
    """

    def at_dst(rows: Mapping[Any, Tensor], reduce: str) -> Tensor:
        parts = [torch.segment_reduce(values, reduce, offsets=blocks[key].indptr) for key, values in rows.items()]
        return torch.stack(parts)

    # In bfloat16, shares of some hundred edges would not sum to one.
    wide = {key: values.float() for key, values in scores.items()}
    dst = {key: blocks[key].edge_dst() for key in wide}
    highest = at_dst({key: values.detach() for key, values in wide.items()}, "max").amax(0)
    power = {key: (values - highest[dst[key]]).exp() for key, values in wide.items()}
    total = at_dst(power, "sum").sum(0)
    return {key: values / total[dst[key]] for key, values in power.items()}


def sum_by_heads(block: Block, x: Tensor, share: Tensor) -> Tensor:
    """Returns the sums of sources' rows ``[num_src, heads * F]``, of each head by its shares ``[num_edges, heads]``:
    ``[num_dst, heads * F]``."""
    parts = x.chunk(share.shape[1], dim=1)
    return torch.cat(
        [aggregate(block, part, "sum", share[:, head].contiguous()) for head, part in enumerate(parts)], dim=1
    )
