"""Ids as the user holds them: nodes marked by masks, and edges before they were sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
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


def original_edge_ids(edge_ids: torch.Tensor, edge_order: np.ndarray | None) -> torch.Tensor:
    """Positions in ``Graph.indices`` as positions in the edge list that the graph was built from.

    Args:
        edge_ids: int64 ``[B]``.
        edge_order: ``Graph.edge_order``, int64 ``[E]``; None leaves the ids as they are.
    """
    if edge_order is None:
        return edge_ids
    # The order is as long as the graph: ids go to it, whatever their device.
    return tensor_view(edge_order)[edge_ids.cpu()].to(edge_ids.device)
