"""Checks of a data module's settings; each raises LoaderConfigError."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_gnnload.adapters.formats import FORMATS
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.orders.even import EvenOrder
from lightning_gnnload.data.orders.proximity import ProximityOrder
from lightning_gnnload.data.orders.seeds import SeedOrder, Sequential, Shuffled, TimeOrder
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.datasets.folder import GraphFolder
from lightning_gnnload.datasets.partition import PartitionFolder, holds_rows
from lightning_gnnload.errors import GnnLoadError, LoaderConfigError
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.seeds.negatives import Negatives
from lightning_gnnload.settings import keywords_of


def named_data(data: Any, *, is_owned: bool = False) -> GraphData | Dataset:
    """Returns graph data or a dataset as it is, and the dataset of a partition, or of a folder that a path names, which
    is a partition's where its lists are others' (``is_owned``)."""
    is_path = isinstance(data, str | os.PathLike)
    if isinstance(data, Partition) or (is_path and (is_owned or holds_rows(data))):
        return PartitionFolder(data if isinstance(data, Partition) else Path(data))
    if isinstance(data, str | os.PathLike):
        return GraphFolder(data)
    if isinstance(data, GraphData | Dataset):
        return data
    if isinstance(data, type) and issubclass(data, GraphData | Dataset):
        raise LoaderConfigError(f"data is the class {data.__name__}; give one of it: {data.__name__}(...).")
    if isinstance(data, Graph):
        raise LoaderConfigError(
            "data is a Graph; give it with its features, labels and seeds: GraphData(graph, x, y, ...)."
        )
    subject = "None" if data is None else f"a {type(data).__name__}"
    library = type(data).__module__.split(".")[0]
    for name, form in FORMATS.items():
        if form.library == library:
            raise LoaderConfigError(
                f"data is {subject} of {library}; take GraphDataModule.from_{name}(data, sampler=...)."
            )
    raise LoaderConfigError(
        f"data is {subject}; give a GraphData, a dataset such as Debian(), or the folder of a graph. For graphs of "
        "other libraries there are GraphDataModule.from_dgl, .from_pyg and .from_ogb."
    )


ELSEWHERE = {
    "num_neighbors": "sampler=NeighborSampler([15, 10])",
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
    "prefetch_factor": "FactoredStrategy(queue_depth=...), where ranks sample",
    "fanouts": "sampler=NeighborSampler(fanouts)",
    "batch_sampler": "order=..., a SeedOrder of your own, with batch_size=...",
    "generator": "seed=...",
    "worker_init_fn": "nothing: draws depend on seed=... alone",
    "collate_fn": "batch_format=..., or on_after_batch_transfer of a subclass",
    "dataset": "data=...",
    "train": "GraphData(..., train=ids)",
    "val": "GraphData(..., val=ids)",
    "test": "GraphData(..., test=ids)",
    "pin_memory": "nothing: mini-batches for a GPU lie in page-locked memory",
    "transform": "on_after_batch_transfer of a subclass, or the model",
}
"""Settings of other loaders and data modules, and what says the same here."""

_MAX_DEFAULT_THREADS = 4
WAITING_THREADS = 8
"""Threads that wait for owners cost no processor: each has a mini-batch under way."""


def check_is_sampler(name: str, sampler: Any) -> None:
    """Checks that it is a sampler, and not its class or its fanouts."""
    if isinstance(sampler, Sampler):
        return
    if isinstance(sampler, type):
        raise LoaderConfigError(f"{name} is the class {sampler.__name__}; give one of it: {_example_of(sampler)}.")
    fanouts = sampler if isinstance(sampler, list | tuple) else [15, 10]
    form = "None" if sampler is None else f"{sampler!r}, of type {type(sampler).__name__}"
    raise LoaderConfigError(f"{name} is {form}; give a sampler: {name}=NeighborSampler({[*fanouts]}).")


def _example_of(cls: type) -> str:
    return f"{cls.__name__}([15, 10])" if "fanouts" in keywords_of(cls) else f"{cls.__name__}(...)"


def check_counts(*, batch_size: Any, eval_batch_size: Any, num_threads: Any, seed: Any) -> None:
    """Checks that numbers are whole and in their ranges; None lets another setting, or the machine, decide."""
    check_positive("batch_size", batch_size)
    check_positive("eval_batch_size", eval_batch_size, optional=True)
    if num_threads is not None and (not isinstance(num_threads, int) or num_threads < 0):
        raise LoaderConfigError(f"num_threads={num_threads!r}: a whole number is needed; 0 samples in the main thread.")
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise LoaderConfigError(f"seed={seed!r}: a whole number from 0 to 2**64 - 1 is needed.")


def default_num_threads(num_local_ranks: int) -> int:
    """Half of a rank's cores, so that the other half computes; at most 4, which outrun any trainer (BGL, 3.4)."""
    return min(max(len(os.sched_getaffinity(0)) // (2 * num_local_ranks), 1), _MAX_DEFAULT_THREADS)


def check_negatives(**settings: Any) -> None:
    """Checks negatives, which may be given by edge type."""
    for name, value in settings.items():
        by_type = value if isinstance(value, Mapping) else {None: value}
        for edge_type, negatives in by_type.items():
            if not isinstance(negatives, Negatives | None):
                setting = name if edge_type is None else f"{name} of {edge_type!r}"
                raise LoaderConfigError(
                    f"{setting}={negatives!r:.200}: Negatives are needed, such as Negatives('binary', num=1), "
                    "or of links of several types a dict of them by edge type."
                )


def seed_order(order: str | SeedOrder) -> SeedOrder:
    """Returns the order of this name, or a SeedOrder as it is. Raises LoaderConfigError: an unknown name."""
    if isinstance(order, SeedOrder):
        return order
    by_name: dict[str, type[SeedOrder]] = {
        "shuffle": Shuffled,
        "sequential": Sequential,
        "proximity": ProximityOrder,
        "time": TimeOrder,
        "even": EvenOrder,
    }
    if not isinstance(order, str) or order not in by_name:
        raise LoaderConfigError(
            f"order={order!r} is not known; give one of {', '.join(map(repr, by_name))} or a SeedOrder."
        )
    return by_name[order]()


def check_positive(
    name: str, value: Any, error: type[GnnLoadError] = LoaderConfigError, *, optional: bool = False
) -> None:
    """Checks that ``value`` is an integer of at least 1, or None where it is optional."""
    if not (is_positive(value) or (optional and value is None)):
        raise error(f"{name}={value!r}: a whole number of at least 1 is needed.")


def is_positive(value: Any) -> bool:
    """Whether it is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
