"""Masks, which other libraries mark splits with, as node ids, which GraphData keeps."""

from __future__ import annotations

from typing import Any

import torch

from lightning_gnnload.errors import GraphDataError


def ids_of_mask(mask: Any, *, what: str, num_nodes: int) -> torch.Tensor | None:
    """The ids where ``mask`` ``[N]``, boolean or 0 and 1, is set: int64, ascending; None stays None.

    Raises:
        GraphDataError: not one entry a node, as where a data set brings several splits side by side.
    """
    if mask is None:
        return None
    mask = torch.as_tensor(mask)
    if mask.shape != (num_nodes,):
        raise GraphDataError(
            f"{what} has the shape {list(mask.shape)}, but one entry a node, [{num_nodes}], is needed. "
            f"Where it holds several splits, keep one of them: {what}[:, 0]."
        )
    return mask.nonzero().view(-1)
