"""Scores of links, from rows of their endpoints that were computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from lightning_gnnload.data.arrays import as_ids
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import InferenceError

_PAIRS = 1 << 18
"""Scored at once: rows of both endpoints, 256 numbers wide, then take half a gigabyte."""


def score_links(
    score: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    rows: torch.Tensor | Mapping[str, torch.Tensor],
    links: SeedTable | tuple[Any, Any],
    graph: Graph | None = None,
) -> torch.Tensor:
    """Returns the scores of links, ``[R]``, from the rows that :func:`infer` gave for all nodes.

    Args:
        score: of the rows of sources and destinations, ``[P, F]`` each, such as a model's ``decode``.
        rows: ``[N, F]``, or by node type, of all nodes.
        links: a SeedTable of links, or a pair of node ids, ``[R]`` each.
        graph: of the nodes; needed with a SeedTable.

    Raises:
        InferenceError: seeds that are no links, or scores that are not one a link.
        SeedError: an id that is no node.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
        >>> score_links(lambda src, dst: (src * dst).sum(1), rows, ([0, 1], [1, 2]))
        tensor([2., 3.])
    """
    if isinstance(links, SeedTable):
        if links.kind != "links" or len(links.rows_by_type) > 1 or graph is None:
            raise InferenceError(
                f"score_links needs links of one edge type, SeedTable(src=..., dst=...), and graph=, whose nodes they "
                f"join, but it is given {links!r}."
            )
        nodes = links.nodes_in(graph)
    else:
        nodes = np.stack([as_ids(ids, name="links") for ids in links], axis=1)
    scores = []
    owner = getattr(score, "__self__", score)
    parameter = next(owner.parameters(), None) if isinstance(owner, nn.Module) else None
    device = torch.device("cpu") if parameter is None else parameter.device
    with torch.no_grad():
        for begin in range(0, len(nodes), _PAIRS):
            part = nodes[begin : begin + _PAIRS]
            pair_scores = score(*(_rows(rows, part[:, end], graph).to(device) for end in (0, 1)))
            if not isinstance(pair_scores, torch.Tensor) or pair_scores.shape[:1] != (len(part),):
                raise InferenceError(
                    f"the score of {len(part)} pairs of rows must be a tensor with one entry for each."
                )
            scores.append(pair_scores.cpu())
    return torch.cat(scores) if scores else torch.empty(0)


def _rows(rows: torch.Tensor | Mapping[str, torch.Tensor], nodes: np.ndarray, graph: Graph | None) -> torch.Tensor:
    if isinstance(rows, torch.Tensor):
        return rows[torch.from_numpy(as_ids(nodes, name="links", num_nodes=len(rows)))]
    if graph is None or graph.types is None:
        raise InferenceError("score_links of rows by node type needs graph=, which has the types.")
    [number] = np.unique(graph.types.number_of(nodes)).tolist()  # a table's links have one type
    name = graph.types.node_types[number]
    if name not in rows:
        raise InferenceError(f"rows of {name!r} are missing, which links join: infer(..., nodes={{{name!r}: 'all'}}).")
    return rows[name][torch.from_numpy(nodes - graph.types.first_node[number])]
