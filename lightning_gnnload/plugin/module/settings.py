"""Checks of a data module's settings; each raises LoaderConfigError."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from lightning_gnnload.data.datasets.base import Dataset
from lightning_gnnload.data.datasets.folder import GraphFolder
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.data.orders.seeds import SeedOrder, Sequential, Shuffled
from lightning_gnnload.data.orders.time import TimeOrder
from lightning_gnnload.errors import LoaderConfigError


def named_data(data: Any) -> GraphData | Dataset:
    """Returns graph data or a dataset as it is, and the dataset of a folder that a path names."""
    if isinstance(data, str | os.PathLike):
        return GraphFolder(data)
    if not isinstance(data, GraphData | Dataset):
        raise LoaderConfigError(
            f"data is a {type(data).__name__}; give a GraphData, a dataset such as Debian(), or the folder of a graph. "
            f"For graphs of other libraries there are GraphDataModule.from_dgl, .from_pyg and .from_ogb."
        )
    return data


_OF_PYG = {
    "num_neighbors": "sampler=NeighborSampler([15, 10], expand='new')",
    "neighbor_sampler": "sampler=NeighborSampler(...)",
    "input_nodes": "GraphData(..., train=ids), or predict=ids",
    "input_time": "GraphData(..., train=SeedTable(ids, time=times))",
    "input_id": "GraphData(..., train=SeedTable(ids)), whose row numbers it is",
    "edge_label_index": "GraphData(..., train=SeedTable(src=..., dst=...))",
    "edge_label": "GraphData(..., train=SeedTable(src=..., dst=..., y=...))",
    "edge_label_time": "GraphData(..., train=SeedTable(src=..., dst=..., time=...))",
    "time_attr": "Graph.from_hetero(..., node_time=..., edge_time=...)",
    "weight_attr": "Graph.from_coo(..., edge_weight=...) with WeightedNeighborSampler",
    "temporal_strategy": "NeighborSampler(..., pick='uniform' or 'last')",
    "neg_sampling": "negatives=Negatives('binary') or Negatives('triplet', num=...)",
    "neg_sampling_ratio": "negatives=Negatives('binary', num=...)",
    "disjoint": "NeighborSampler(..., sharing='disjoint')",
    "subgraph_type": "NeighborSampler, which gives directed subgraphs, or ShadowSampler, which gives induced ones",
    "directed": "NeighborSampler, which gives directed subgraphs, or ShadowSampler, which gives induced ones",
    "replace": "NeighborSampler(..., replace=True)",
    "shuffle": "order='shuffle' or 'sequential'",
    "num_workers": "num_threads=...",
    "persistent_workers": "num_threads=..., whose threads need none",
    "pin_memory": "nothing: mini-batches for a GPU lie in page-locked memory",
    "transform": "on_after_batch_transfer of a subclass, or the model",
}
"""Settings of PyG's loaders, and what says the same here."""


def refuse_others(others: dict[str, Any]) -> None:
    """Refuses settings that are not the data module's; of those that PyG's loaders have, it says what is meant here.

    Raises:
        LoaderConfigError, TypeError: there is one.
    """
    for name in others:
        if name in _OF_PYG:
            raise LoaderConfigError(f"GraphDataModule has no {name}=; that of PyG's loaders is here: {_OF_PYG[name]}.")
        raise TypeError(f"GraphDataModule got an unexpected keyword argument {name!r}.")


def check_numbers(*, batch_size: Any, eval_batch_size: Any, num_threads: Any, seed: Any) -> None:
    """Checks that numbers are whole and in their ranges; None lets another setting, or the machine, decide."""
    _check_positive("batch_size", batch_size)
    if eval_batch_size is not None:
        _check_positive("eval_batch_size", eval_batch_size)
    if num_threads is not None and (not isinstance(num_threads, int) or num_threads < 0):
        raise LoaderConfigError(f"num_threads={num_threads!r}: a whole number is needed; 0 samples in the main thread.")
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise LoaderConfigError(f"seed={seed!r}: a whole number from 0 to 2**64 - 1 is needed.")


def check_choice(name: str, value: Any, known: Collection[str]) -> None:
    """Checks that it is one of the known names."""
    if value not in known:
        raise LoaderConfigError(f"{name}={value!r} is not known; give one of {', '.join(map(repr, known))}.")


def seed_order(order: str | SeedOrder) -> SeedOrder:
    """Returns the order named ``"shuffle"``, ``"sequential"``, ``"proximity"`` or ``"time"``, or the one that is given.

    Raises:
        LoaderConfigError: an unknown name.
    """
    if isinstance(order, SeedOrder):
        return order
    by_name: dict[str, type[SeedOrder]] = {
        "shuffle": Shuffled,
        "sequential": Sequential,
        "proximity": ProximityOrder,
        "time": TimeOrder,
    }
    if order not in by_name:
        raise LoaderConfigError(
            f"order={order!r} is not known; give one of {', '.join(map(repr, by_name))} or a SeedOrder."
        )
    return by_name[order]()


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LoaderConfigError(f"{name}={value!r}: a whole number of at least 1 is needed.")
