"""Runs over tables that are packed, as tests of packed mini-batches need them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload import (
    GraphData,
    MemoryFeatureStore,
    NeighborSampler,
    NodeTable,
)
from lightning_gnnload.cache.packed.open import open_packed
from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.module.packing import run_of
from tests.unit.seed_tables import kind_of_seeds, plain_graph
from tests.unit.toy import content, toy_data, toy_graph, toy_workload
from tests.unit.typed import typed_graph

EPOCHS = 3
MEMORY = {"tables": 45_000, "edges": 60_000, "types": 30_000}
NUM_STEPS = 7  # of an epoch of the toy


def packing(folder: Path, **settings: Any) -> Packing:
    return Packing(
        str(folder / "packed"), **{"memory": 130_000, "room": "1GB", "window": 5, "always": True, **settings}
    )


@contextmanager
def opened(data: GraphData, settings: Packing, **workload: Any) -> Iterator[BatchSource]:
    """A source over packed rows of a training of EPOCHS epochs; closed at the end."""
    made = toy_workload(data, **{"end_epoch": EPOCHS, **workload})
    run = replace(run_of(data, made, None, 1), lasting_epochs=settings.cycle, progress=False)
    stores = open_packed(settings, run)
    try:
        yield BatchSource(data, made, stores)
    finally:
        for store in stores.values():
            store.close()


def wide_data(**settings: Any) -> GraphData:
    """Rows of 400 bytes, of which memory has room for some."""
    return toy_data(600, 112, width=100, **settings)


def batches(source: BatchSource, epochs: range = range(EPOCHS), num_threads: int = 0) -> list[Any]:
    loader = SampledLoader(source, num_threads=num_threads)
    made = []
    for epoch in epochs:
        loader.set_epoch(epoch)
        made += [content(batch) for batch in loader]
    source.tiers = {tier: rows for tier, rows, _ in loader.stats.reads}  # type: ignore[attr-defined]
    return made


def kind(name: str) -> tuple[GraphData, dict[str, Any]]:
    """Data of one kind of tables and seeds, with the settings of its workload."""
    wide = torch.arange(300 * 40, dtype=torch.float32).view(300, 40)
    if name == "tables":
        tables = {"half": wide[:, :7].half(), "years": torch.arange(300), "wide": wide.view(300, 10, 4)}
        return GraphData(toy_graph(), wide, torch.arange(300) % 7, np.arange(100), tables=tables), {}
    edges = {"sampler": NeighborSampler([4, 3], expand="new", edge_ids=True)}
    if name == "edges":
        graph = plain_graph()
        rows = torch.arange(graph.num_edges * 50.0).view(-1, 50)
        return GraphData(graph, wide, train=np.arange(100), edge_x=rows, edge_tables={"one": rows[:, 0]}), edges
    if name == "types":
        graph, numbers = typed_graph(), torch.arange(6000.0).view(-1, 40)
        papers, authors = NodeTable(numbers[:30], first=0), NodeTable(numbers[:20, :9], first=30)
        of_edges = {("author", "writes", "paper"): {"a": numbers[:120]}, ("paper", "cites", "paper"): {"b": numbers}}
        tables = {"paper": papers, "author": authors}
        return GraphData(graph, train=np.arange(30), tables=tables, edge_tables=of_edges), edges
    data, settings = kind_of_seeds(name)
    data.x = MemoryFeatureStore(wide)  # its own rows are few enough to stay in memory
    return data, settings
