"""The columns of users' graphs: splits, weights and types to draw by, and edges as they lay before they were sorted."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.arrays import tensor_view
from lightning_gnnload.data.graphdata import SPLITS
from lightning_gnnload.errors import GraphDataError


def chosen(columns: Mapping[str, Any], names: Iterable[str] | None, argument: str, where: str) -> dict[str, Any]:
    """Returns the columns of these names; all of them when ``names`` is None.

    Raises:
        GraphDataError: ``argument`` names what is not ``where`` the columns are.
    """
    if names is None:
        return dict(columns)
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name not in columns:
            raise GraphDataError(f"{argument}={name!r}, but {where} holds only {sorted(map(str, columns))}.")
    return {name: columns[name] for name in names}


def edge_columns(
    columns: Mapping[str, Any], names: Iterable[str] | None, features: str | None, usual: str, where: str
) -> tuple[Any, dict[str, Any]]:
    """Returns the features of edges, None where there are none, and the other columns of these ``names``.

    Args:
        columns: of the graph's edges, by name.
        names: as :func:`chosen` has them.
        features: the column ``[E, F]`` that holds features; None for the ``usual`` one, if it is there.
        usual: what libraries' own data sets call it.
        where: the columns are.

    Raises:
        GraphDataError: a name that no column has.
    """
    carried = chosen(columns, names, "edge_tables", where)
    if features is None:
        return (carried.pop(usual) if getattr(carried.get(usual), "ndim", 0) == 2 else None), carried
    carried.pop(features, None)
    return chosen(columns, [features], "edge_feature_name", where)[features], carried


def split_ids(given: Mapping[str, Any], columns: Mapping[str, Any], num_nodes: int) -> dict[str, Any]:
    """Returns the ids of ``"train"``, ``"val"`` and ``"test"``: those that were given, else those of the graph's mask.

    Args:
        given: by split: node ids, a boolean mask ``[N]``, or None.
        columns: of the graph's nodes, by name; ``train_mask`` and so on are looked for.
        num_nodes: N.

    Raises:
        GraphDataError: a mask without one entry a node, as where a data set brings several splits side by side.
    """
    found: dict[str, Any] = {}
    for name in SPLITS:
        ids, what = given[name], name
        if ids is None and columns.get(f"{name}_mask") is not None:
            ids, what = torch.as_tensor(columns[f"{name}_mask"]).bool(), f"{name}_mask"
        if ids is not None and (mask := torch.as_tensor(ids)).dtype is torch.bool:
            if mask.shape != (num_nodes,):
                raise GraphDataError(
                    f"{what} has the shape {list(mask.shape)}, but one entry a node, [{num_nodes}], is needed. "
                    f"Where it holds several splits, choose one of them: {name}={name}_mask[:, 0]."
                )
            ids = mask.nonzero().view(-1)
        found[name] = ids
    return found


def drawable_weights(name: str, weights: Any) -> Any:
    """Returns edge weights ``[E]`` that samplers can draw by, as floats; None, with a warning, where these are none."""
    if weights is None:
        return None
    weights = torch.as_tensor(weights)
    flat = weights.view(-1) if weights.shape == (len(weights), 1) else weights
    if flat.ndim != 1 or not bool((flat.isfinite() & (flat >= 0)).all()):
        warnings.warn(
            f"{name} of the graph: mini-batches carry it, but no sampler can draw by it, which needs one finite "
            f"number of at least 0 an edge.",
            stacklevel=4,
        )
        return None
    # NumPy has no bfloat16; float64 holds integers up to 2**53 exactly.
    return flat.float() if flat.dtype is torch.bfloat16 else flat if flat.is_floating_point() else flat.double()


def drawable_types(types: Any) -> Any:
    """Returns edge types ``[E]`` that samplers can draw by; None where these are none."""
    types = None if types is None else torch.as_tensor(types)
    return None if types is None or types.ndim != 1 or types.dtype not in _INTEGERS else types


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def original_edge_ids(edge_ids: torch.Tensor, edge_order: np.ndarray | None) -> torch.Tensor:
    """Converts positions in ``Graph.indices`` to positions in the edge list that the graph was built from.

    Args:
        edge_ids: int64 ``[B]``.
        edge_order: ``Graph.edge_order``, int64 ``[E]``; None leaves the ids as they are.
    """
    if edge_order is None:
        return edge_ids
    # The order is as long as the graph: ids go to it, whatever their device.
    return tensor_view(edge_order)[edge_ids.cpu()].to(edge_ids.device)
