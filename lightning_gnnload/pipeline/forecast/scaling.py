"""What to expect of a run on more machines: an epoch by their number, what limits it, and how busy each thing is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.cluster import Cluster, RemoteTask
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.search import MeasuredRun
from lightning_gnnload.pipeline.forecast.steps import StepForecast, forecast_step
from lightning_gnnload.pipeline.forecast.work import BatchWork, RunLayout

_REQUESTED_BYTES, _COUNT_BYTES = 4, 4  # of a node: its row of its part, and how many edges were drawn of it
_DRAWN_BYTES = 8  # of an edge: its source's id
ASKING_THREADS = 8
"""Sampling threads of a rank whose lists lie with owners, at least: they wait more than they compute."""


@dataclass(frozen=True)
class ClusterForecast:
    """An epoch on so many machines; ``speedup``: over one machine, which has all the graph."""

    cluster: Cluster
    step: StepForecast
    epoch_s: float
    speedup: float

    @property
    def machines(self) -> int:
        return self.cluster.machines


def forecast_machines(
    measured: MeasuredRun,
    layout: RunLayout,
    machine: Machine,
    cluster: Cluster,
    counts: Sequence[int],
    advance: Callable[[int], object] = lambda machines: None,
) -> list[ClusterForecast]:
    """Predicts an epoch for each number of machines, of ``layout`` on each: a step has so many times its seeds.

    Args:
        machine: one of them.
        cluster: theirs, whatever its number of machines.
        advance: called with each number before it is simulated.

    Raises:
        PlanError: the layout samples and trains in turns, or there are fewer seeds than trainers.

    Example:
        >>> from lightning_gnnload.pipeline.forecast.memory import BatchSize, DataSize
        >>> run = MeasuredRun(
        ...     works={100: BatchWork(sample_ms=2.0, gather_ms=2.0, train_device_ms=10.0)},
        ...     sizes={100: BatchSize(num_nodes=50_000, num_edges=90_000, num_bytes=0, train_bytes=0)},
        ...     data=DataSize(10**6, 0, 0, 0, 512 * 10**6, row_bytes=512),
        ...     num_seeds=80_000,
        ...     mine=RunLayout(batch_size=100),
        ... )
        >>> cluster = Cluster(placement="collective", link_gb_s=0.1, ahead=4)
        >>> forecasts = forecast_machines(run, run.mine, Machine(cores=8, memory_gib=64), cluster, [1, 8])
        >>> [(forecast.machines, forecast.step.limit) for forecast in forecasts]
        [(1, 'device'), (8, 'network')]
    """
    alone_s = 0.0
    forecasts = []
    for count in dict.fromkeys([1, *counts]):
        advance(count)
        placement = "replicated" if count == 1 and cluster.placement == "collective" else cluster.placement
        forecast = _forecast(measured, layout, machine, replace(cluster, machines=count, placement=placement))
        if count == 1:
            whole = replace(cluster, machines=1, placement="replicated")
            alone_s = forecast.epoch_s
            if placement == "owners":
                alone_s = _forecast(measured, layout, machine, whole).epoch_s
        if count in counts:
            forecasts.append(replace(forecast, speedup=alone_s / max(forecast.epoch_s, 1e-12)))
    return forecasts


def tasks_of(
    measured: MeasuredRun, num_seeds: int, host: BatchWork, cluster: Cluster, cached: float
) -> tuple[RemoteTask, ...]:
    """What a mini-batch of so many seeds asks of others: each hop's draws, then its rows. ``host``: its work where one
    machine does all of it; ``cached``: the share of rows that it has besides its part's."""
    remote = cluster.remote
    if not remote:
        return ()
    size = measured.size_of(num_seeds)
    hops = measured.hops or ((size.num_edges / 2, size.num_edges),)
    all_edges = max(sum(edges for _, edges in hops), 1e-9)
    share = size.num_edges / all_edges  # their counts are those of the largest mini-batches
    drawn_ms = host.sample_ms * (1 - cluster.joining) * remote
    tasks = [
        RemoteTask(
            request_bytes=remote * share * nodes * _REQUESTED_BYTES,
            answer_bytes=remote * share * (edges * _DRAWN_BYTES + nodes * _COUNT_BYTES),
            core_ms=drawn_ms * edges / all_edges,
        )
        for nodes, edges in hops
    ]
    rows = remote * (1 - cached) * size.num_nodes
    if measured.data.row_bytes and rows:
        gathered_ms = host.gather_ms * remote * (1 - cached)
        tasks.append(RemoteTask(rows * _REQUESTED_BYTES, rows * measured.data.row_bytes, gathered_ms))
    return tuple(tasks)


def _forecast(measured: MeasuredRun, layout: RunLayout, machine: Machine, cluster: Cluster) -> ClusterForecast:
    together = replace(machine, machines=cluster.machines, network_gb_s=cluster.link_gb_s)
    if cluster.placement == "owners":
        layout = replace(layout, threads=max(layout.threads, ASKING_THREADS))
    if not measured.fits_seeds(layout, together):
        raise PlanError(
            f"{measured.num_seeds} seeds are not enough for {layout.trainers} trainers on each of "
            f"{cluster.machines} machines."
        )
    num_seeds = measured.seeds_of(layout, together)
    work = measured.work_of(layout, together)
    host = measured.work_of(layout, replace(together, gpus=())) if machine.gpus else work
    cached = measured.cache.hit_rate(max(cluster.hot, layout.cache))
    tasks = tasks_of(measured, num_seeds, host, cluster, cached)
    if tasks:
        # Lists lie with hosts, which draw.
        kept_share = 1 - cluster.remote * (1 - cluster.joining)
        gathered = 1 - cluster.remote * (1 - cached)
        work = replace(
            work,
            sample_ms=host.sample_ms * kept_share,
            draw_device_ms=0.0,
            gather_ms=work.gather_ms * gathered,
            wait_ms=work.wait_ms * gathered,
        )
    alone = replace(machine, machines=1)
    exchange_ms = alone.exchange_ms(measured.gradient_bytes, max(layout.trainers, 2), measured.meeting_ms)
    if layout.trainers == 1:  # what it takes to meet, but for the bytes
        exchange_ms = alone.exchange_ms(0, 2, measured.meeting_ms) if cluster.machines > 1 else 0.0
    work = replace(work, exchange_ms=exchange_ms)
    if not cluster.sizes and not cluster.recorded:
        cluster = replace(cluster, sizes=measured.batch_sizes)
    size = measured.size_of(num_seeds)
    # Trainers with devices gather rows themselves.
    batch_bytes = max(size.num_bytes - (size.num_nodes * measured.data.row_bytes if machine.gpus else 0.0), 0.0)
    traffic = (tasks, measured.gradient_bytes, batch_bytes)
    step = forecast_step(work, layout, machine.cores, len(machine.gpus), cluster, *traffic)
    global_batch = num_seeds * layout.trainers * cluster.machines
    num_steps = min(measured.num_steps(layout, together), measured.num_seeds / global_batch)
    first_ms = work.making_core_ms + work.wait_ms + work.draw_device_ms
    return ClusterForecast(cluster, step, (num_steps * step.step_ms + first_ms) / 1e3, 1.0)
