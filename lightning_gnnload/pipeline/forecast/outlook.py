"""Outlook: which arrangement of machines is the fastest that fits, and what one more of each thing would give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.cluster import PLACEMENTS, Cluster, Placement
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.scaling import ClusterForecast, forecast_machines
from lightning_gnnload.pipeline.forecast.search import MeasuredRun
from lightning_gnnload.pipeline.forecast.work import RunLayout

_GB = 1e9
_GRAPH_SHARE = 0.8  # of a machine's memory, that the graph and its rows may take beside the run
WORTH = 0.05
"""Of an epoch: what gives less is not worth its price, nor told apart by the simulation."""

ERRORS: dict[Placement, tuple[float, float]] = {
    "replicated": (-0.05, 0.15),
    "collective": (-0.15, 0.30),
    "owners": (-0.15, 0.20),
}
"""How far epochs may lie from those that are simulated, as shares of them: below, above. What was measured:
docs/guides/machines.md."""


@dataclass(frozen=True)
class Arrangement:
    """A placement of the graph on all machines; ``problem`` says why it cannot be, and is empty where it can."""

    forecast: ClusterForecast
    problem: str = ""

    @property
    def placement(self) -> Placement:
        return self.forecast.cluster.placement

    @property
    def band_s(self) -> tuple[float, float]:
        """Between which times an epoch is to be expected."""
        below, above = ERRORS[self.placement]
        return self.forecast.epoch_s * (1 + below), self.forecast.epoch_s * (1 + above)


@dataclass(frozen=True)
class Gain:
    """One more of something, and the seconds of an epoch with it."""

    name: str
    epoch_s: float


@dataclass(frozen=True)
class Outlook:
    """The arrangements, the fastest that fits first, and what more would give to that one, the most first."""

    arrangements: tuple[Arrangement, ...]
    gains: tuple[Gain, ...]

    @property
    def best(self) -> Arrangement:
        return self.arrangements[0]


def outlook(
    measured: MeasuredRun,
    layout: RunLayout,
    machine: Machine,
    cluster: Cluster,
    advance: Callable[[str], object] = lambda part: None,
) -> Outlook:
    """Simulates the arrangements of ``cluster.machines`` machines, and the best of them with a little more.

    Args:
        cluster: ``placement`` does not matter; without ``owners``, half as many as machines are assumed.

    Raises:
        PlanError: as :func:`.forecast_machines`; or no arrangement fits.

    Example:
        >>> from lightning_gnnload.pipeline.forecast.memory import BatchSize, DataSize
        >>> from lightning_gnnload.pipeline.forecast.work import BatchWork
        >>> run = MeasuredRun(
        ...     works={100: BatchWork(sample_ms=2.0, gather_ms=2.0, train_device_ms=10.0)},
        ...     sizes={100: BatchSize(num_nodes=50_000, num_edges=90_000, num_bytes=0, train_bytes=0)},
        ...     data=DataSize(10**6, 0, 0, 0, 512 * 10**6, row_bytes=512),
        ...     num_seeds=80_000,
        ...     mine=RunLayout(batch_size=100),
        ... )
        >>> found = outlook(run, run.mine, Machine(cores=8, memory_gib=64), Cluster(machines=4, link_gb_s=1.0))
        >>> found.best.placement, found.gains[0].name
        ('replicated', 'one more machine')
    """

    def forecast(changed: Cluster) -> ClusterForecast:
        return forecast_machines(measured, layout, machine, changed, [changed.machines])[-1]

    arrangements = []
    for placement in PLACEMENTS:
        if placement == "collective" and (cluster.machines == 1 or cluster.sampler_nodes):
            continue
        advance(placement)
        owners = cluster.owners or max(cluster.machines // 2, 1) * cluster.replicas
        arranged = replace(cluster, placement=placement, owners=owners)
        arrangements.append(Arrangement(forecast(arranged), _problem(measured, machine, arranged)))
    arrangements.sort(key=lambda arrangement: (bool(arrangement.problem), arrangement.forecast.epoch_s))
    best = arrangements[0]
    if best.problem:
        raise PlanError(f"no arrangement of {cluster.machines} machines fits: {best.problem}")
    gains = []
    for name, more in _with_more(best.forecast.cluster, measured):
        advance(name)
        gains.append(Gain(name, forecast(more).epoch_s))
    return Outlook(tuple(arrangements), tuple(sorted(gains, key=lambda gain: gain.epoch_s)))


def _with_more(cluster: Cluster, measured: MeasuredRun) -> Iterator[tuple[str, Cluster]]:
    """What a little more may be, by name."""
    yield "one more machine", replace(cluster, machines=cluster.machines + 1)
    yield "links twice as fast", replace(cluster, link_gb_s=2 * cluster.link_gb_s)
    if cluster.placement == "owners":
        yield "one more owner", replace(cluster, owners=cluster.owners + cluster.replicas)
    if cluster.sampler_nodes:
        yield "one more machine that samples", replace(cluster, sampler_nodes=cluster.sampler_nodes + 1)
    if cluster.remote and measured.data.feature_bytes:
        hot = min(cluster.hot + _GB / measured.data.feature_bytes, 1.0)
        yield "one more GB of hot rows on each machine", replace(cluster, hot=hot)


def _problem(measured: MeasuredRun, machine: Machine, cluster: Cluster) -> str:
    """Why the graph and its rows do not fit the memory of those who have them."""
    data = measured.data
    whole = data.graph_bytes + data.feature_bytes
    holders = {"replicated": 1, "collective": cluster.machines, "owners": cluster.parts}[cluster.placement]
    holder_bytes = whole / holders + cluster.hot * data.feature_bytes * (cluster.placement == "collective")
    room = machine.memory_bytes * _GRAPH_SHARE
    if holder_bytes <= room:
        return ""
    needed_gb, room_gb = holder_bytes / _GB, room / _GB
    return f"{needed_gb:.3g} GB of the graph and its rows on each that has them, where {room_gb:.3g} are free."
