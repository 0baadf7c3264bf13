"""What ``gnnload plan`` says of more machines: which it is asked for, the table, and the figure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from lightning_gnnload.drawing import BLUE, GREEN, GREY, INK, ORANGE, PINK, SKY, SMALL, new_figure, save_figure, tidy
from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.cluster import PLACEMENTS, Cluster
from lightning_gnnload.pipeline.forecast.costs import ASSUMED, MessageCosts
from lightning_gnnload.pipeline.forecast.machine import GPUS, Machine
from lightning_gnnload.pipeline.forecast.outlook import WORTH, Outlook
from lightning_gnnload.pipeline.forecast.plan import Plan
from lightning_gnnload.pipeline.forecast.scaling import ClusterForecast
from lightning_gnnload.pipeline.forecast.work import RunLayout
from lightning_gnnload.plugin.planning.figure import LIMITS

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(Gb|Mb|GB|MB)(?:it)?(?:/s|ps)?")
_LINES = {
    "cores": (BLUE, "-"),
    "device": (ORANGE, "-"),
    "out": (SKY, "-"),
    "in": (SKY, "--"),
    "owners": (GREEN, "-"),
    "owners' links": (GREEN, "--"),
    "samplers": (PINK, "-"),
    "samplers' links": (PINK, "--"),
}
"""Of each of ``StepForecast.uses``: colour and dashes."""
_GB_S = {"Gb": 1 / 8, "Mb": 1 / 8000, "GB": 1.0, "MB": 1e-3}


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what describes several machines to the command's arguments."""
    group = parser.add_argument_group("several machines")
    group.add_argument("--machines", type=int, default=1, metavar="N", help="simulate 1 to N such machines")
    group.add_argument("--link", type=rate_gb_s, metavar="RATE", help="of each machine, each way: 100Gb, or 12GB/s")
    group.add_argument("--latency-us", type=float, default=30.0, help="of a message, one way; default 30")
    group.add_argument(
        "--placement", choices=PLACEMENTS, help="of the graph; default: owners if there are, else a copy each"
    )
    group.add_argument("--owners", type=int, default=0, metavar="N", help="machines beside them that have the graph")
    group.add_argument("--owner-cores", type=int, metavar="N", help="default: as many as the machine's")
    group.add_argument("--owner-link", type=rate_gb_s, metavar="RATE", help="of each owner; default: as --link")
    group.add_argument("--replicas", type=int, default=1, metavar="N", help="owners of each part; default 1")
    group.add_argument(
        "--sampler-nodes", type=int, default=0, metavar="N", help="machines that sample for those that train; default 0"
    )
    group.add_argument("--samplers-each", type=int, default=1, metavar="N", help="ranks of each of these; default 1")
    group.add_argument("--staleness", type=int, metavar="K", help="steps that gradients may be late; default: yours")
    group.add_argument("--costs", type=Path, metavar="FILE", help="what messages take of cores; default: measured here")
    group.add_argument("--cut", type=float, default=1.0, help="share left of what crosses random parts; default 1")
    group.add_argument(
        "--hot", type=float, default=0.0, help="share of rows that each machine has a copy of; default 0"
    )
    group.add_argument("--ahead", type=int, default=0, metavar="N", help="mini-batches asked for ahead; default 0")
    group.add_argument("--gpus", type=int, metavar="N", help="of each machine: as --machine has them, or else H100")
    group.add_argument("--step-ms", type=float, metavar="MS", help="a step of your batch_size on one of them")


def cluster_of(options: argparse.Namespace, machine: Machine, costs: MessageCosts = ASSUMED) -> Cluster:
    """The machines that arguments ask for, of which ``machine`` is one. Raises PlanError: there cannot be such."""
    return Cluster(
        machines=options.machines if options.machines != 1 else machine.machines,
        placement=options.placement or ("owners" if options.owners else "replicated"),
        link_gb_s=machine.network_gb_s if options.link is None else options.link,
        latency_ms=options.latency_us / 1e3,
        owners=options.owners,
        owner_cores=machine.cores if options.owner_cores is None else options.owner_cores,
        owner_link_gb_s=options.owner_link or 0.0,
        replicas=options.replicas,
        sampler_nodes=options.sampler_nodes,
        samplers=options.samplers_each,
        cut=options.cut,
        hot=options.hot,
        costs=costs,
        ahead=options.ahead,
    )


def with_gpus(options: argparse.Namespace, machine: Machine) -> Machine:
    """The machine with the devices, and the step on one of them, that arguments ask for. Raises PlanError: as above."""
    if options.gpus is not None:
        if not 1 <= options.gpus <= 64:
            raise PlanError(f"--gpus is {options.gpus}; 1 to 64 are needed.")
        machine = replace(
            machine, gpus=(machine.gpus[0] if machine.gpus else GPUS["H100"],) * options.gpus, is_here=False
        )
    if options.step_ms is None:
        return machine
    if not machine.gpus or machine.is_here or machine.stages is not None:
        raise PlanError("--step-ms is of a step on a described GPU: give --gpus, or --machine with gpus and no stages.")
    return replace(machine, step_ms=options.step_ms)


def rate_gb_s(text: str) -> float:
    """Reads a link's rate: bits where the letter is small, as links are sold.

    Example:
        >>> rate_gb_s("100Gb"), rate_gb_s("12 GB/s")
        (12.5, 12.0)
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: a rate such as 100Gb, 500Mb or 12GB/s is needed")
    return float(match[1]) * _GB_S[match[2]]


def counts_up_to(machines: int) -> list[int]:
    """All numbers of machines up to eight, then powers of two, and the last."""
    counts = [count for count in range(1, machines + 1) if count <= 8 or count & (count - 1) == 0]
    return sorted({*counts, machines})


def machines_table(forecasts: Sequence[ClusterForecast], layout: RunLayout) -> Table:
    """A row for each number of machines: how many times faster, how busy each thing is, and how long trainers wait."""
    names = list(dict.fromkeys(name for forecast in forecasts for name in forecast.step.uses))
    table = Table(title=f"Simulated, each machine: {layout}", box=None, padding=(0, 1, 0, 0))
    for column in ("n", "ms/step", "s/epoch", "faster", *names, "waits", "limited by"):
        table.add_column(column, justify="left" if column == "limited by" else "right")
    for forecast in forecasts:
        step = forecast.step
        table.add_row(
            str(forecast.machines),
            f"{step.step_ms:.1f}",
            f"{forecast.epoch_s:.3g}",
            f"{forecast.speedup:.2f}x",
            *(f"{step.uses[name]:.0%}" if name in step.uses else "" for name in names),
            f"{step.wait_share:.0%}",
            step.limit,
        )
    return table


def machines_headline(forecasts: Sequence[ClusterForecast]) -> str:
    """The result in a sentence."""
    last = forecasts[-1]
    return (
        f"{last.machines} machines: {last.epoch_s:.3g} s an epoch, {last.speedup:.2g} times as fast as one with the "
        f"whole graph; limited by {LIMITS[last.step.limit][1]}"
    )


_ARRANGED = {
    "replicated": "a copy of the graph on each machine",
    "collective": "a part on each machine, whose ranks sample together",
    "owners": "owners beside the machines that train",
}


def answer(outlook: Outlook) -> list[str]:
    """What to do, in lines: which arrangement, what limits it, and what more would give."""
    best, lines = outlook.best, list[str]()
    forecast, (least_s, most_s) = best.forecast, best.band_s
    lines.append(
        f"Take {_ARRANGED[best.placement]}: {forecast.epoch_s:.3g} s an epoch on {forecast.machines} machines, between "
        f"{least_s:.3g} and {most_s:.3g} as far as the simulation was off before. It is limited by "
        f"{LIMITS[forecast.step.limit][1]}."
    )
    for arrangement in outlook.arrangements[1:]:
        owners = f" ({arrangement.forecast.cluster.owners})" if arrangement.placement == "owners" else ""
        epoch = f"{arrangement.forecast.epoch_s:.3g} s an epoch."
        result = f"does not fit: {arrangement.problem}" if arrangement.problem else epoch
        lines.append(f"{_sentence(_ARRANGED[arrangement.placement])}{owners}: {result}")
    for gain in outlook.gains:
        saved = 1 - gain.epoch_s / max(forecast.epoch_s, 1e-12)
        result = f"{gain.epoch_s:.3g} s, {saved:.0%} less" if saved > WORTH else "hardly anything"
        lines.append(f"{_sentence(gain.name)} would give: {result}.")
    return lines


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def draw_machines(forecasts: Sequence[ClusterForecast], plan: Plan, file: Path) -> None:
    """Writes a PNG: how many times as fast, and how busy each thing is, by the number of machines."""
    cluster = forecasts[-1].cluster
    note = (
        f"Simulated: {cluster.placement}"
        + (f", {cluster.owners} owners of {cluster.owner_cores} cores" if cluster.placement == "owners" else "")
        + f"; links of {cluster.link_gb_s:.3g} GB/s each way, {cluster.latency_ms * 1e3:.3g} us; each machine has "
        f"{plan.machine.cores} cores{f' and {len(plan.machine.gpus)} GPUs' if plan.machine.gpus else ''}. "
        "A step has so many times one machine's seeds."
    )
    figure = new_figure(machines_headline(forecasts), 4.2, note)
    speedups, busy = figure.subplots(1, 2)
    counts = [forecast.machines for forecast in forecasts]
    speedups.plot(counts, counts, color=GREY, linewidth=0.8, linestyle=":")
    speedups.annotate("as many times", (counts[-1], counts[-1]), ha="right", va="bottom", fontsize=SMALL, color=GREY)
    speedups.plot(counts, [forecast.speedup for forecast in forecasts], color=INK, linewidth=1)
    for limit in dict.fromkeys(forecast.step.limit for forecast in forecasts):
        chosen = [forecast for forecast in forecasts if forecast.step.limit == limit]
        color, name = LIMITS[limit]
        speedups.scatter(
            [forecast.machines for forecast in chosen],
            [forecast.speedup for forecast in chosen],
            color=color,
            s=36,
            zorder=3,
            label=name,
        )
    speedups.legend(title="limited by", fontsize=SMALL, title_fontsize=SMALL, frameon=False, loc="upper left")
    names = list(dict.fromkeys(name for forecast in forecasts for name in forecast.step.uses))
    for name in names:
        color, style = _LINES[name]
        having = [forecast for forecast in forecasts if name in forecast.step.uses]
        busy.plot(
            [forecast.machines for forecast in having],
            [100 * forecast.step.uses[name] for forecast in having],
            color=color,
            linestyle=style,
            marker="o",
            markersize=3,
            label=name,
        )
    busy.legend(fontsize=SMALL, frameon=False)
    for axes, title in ((speedups, "times as fast as one machine"), (busy, "busy, % of the time")):
        axes.set_xlabel("machines that train")
        axes.set_xticks(counts)
        axes.set_ylim(0, None)
        tidy(axes, title)
    busy.set_ylim(0, 105)
    save_figure(figure, file)
