"""A measured run, as tests of plans need one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.memory import BatchSize, DataSize
from lightning_gnnload.pipeline.forecast.search import CacheEffect, EpochForecast, MeasuredRun, forecast_all
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

GIB = 1 << 30
DATA = DataSize(
    num_nodes=1_000_000,
    process_bytes=300 << 20,
    library_bytes=100 << 20,
    graph_bytes=200 << 20,
    feature_bytes=2 * GIB,
    row_bytes=2048,
)
WORK = BatchWork(sample_ms=6.0, gather_ms=4.0, train_work_ms=20.0, train_fixed_ms=20.0)


def measured_run(global_batch: int = 1024, **settings: Any) -> MeasuredRun:
    """Half of a mini-batch takes half."""
    half = BatchWork().scaled(WORK, 0.5)
    size = BatchSize(num_nodes=100_000, num_edges=150_000, num_bytes=200 << 20, train_bytes=100 << 20)
    defaults: dict[str, Any] = {
        "works": {global_batch: WORK, global_batch // 2: half},
        "sizes": {global_batch: size, global_batch // 2: BatchSize(0, 0, 0, 0).scaled(size, 0.5)},
        "data": DATA,
        "num_seeds": 100 * global_batch,
        "mine": RunLayout(batch_size=global_batch, torch_threads=4),
        "cache": CacheEffect("presample", (0.1, 0.5), (0.5, 0.9), 40.0, 30.0),
    }
    return MeasuredRun(**(defaults | settings))


def forecasts_of(machine: Machine, **settings: Any) -> list[EpochForecast]:
    return forecast_all(replace(measured_run(**settings)), machine)
