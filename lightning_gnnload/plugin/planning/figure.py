"""The figure of ``gnnload plan``: epoch times by layout, coloured by what limits each."""

from __future__ import annotations

from pathlib import Path

from lightning_gnnload.drawing import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PINK,
    SKY,
    SMALL,
    YELLOW,
    new_figure,
    save_figure,
    tidy,
)
from lightning_gnnload.pipeline.forecast.plan import Plan
from lightning_gnnload.pipeline.forecast.search import EpochForecast

LIMITS = {
    "training": (BLUE, "the model's step"),
    "device": (BLUE, "the model's step on its device"),
    "sampling": (ORANGE, "sampling"),
    "gathering": (GREEN, "gathering rows"),
    "conversion": (PINK, "conversion"),
    "cores": (YELLOW, "the cores, which are all busy"),
    "disk": (GREY, "the disk"),
    "link": (SKY, "rows over the link"),
    "python": (INK, "Python, a process at a time"),
    "exchange": (PINK, "exchange of gradients"),
    "network": (SKY, "the network's links, which are full"),
    "owners": (GREEN, "the owners' cores, which are all busy"),
    "answers": (GREY, "waiting for answers, one after the other"),
}
"""By what limits a step: its colour, and its name for people."""
SWITCHING = "Samplers that train (switching) give late gradients, and are recommended to those alone who have them."
_MOST = 14


def one_a_kind(plan: Plan) -> list[EpochForecast]:
    """The fastest of each way to divide ranks, and the configuration's own; fastest first."""
    fastest: dict[tuple[object, ...], EpochForecast] = {}
    for forecast in plan.forecasts:
        layout = forecast.layout
        fastest.setdefault((layout.way, layout.trainers, layout.samplers, layout.switching, layout.cache), forecast)
    chosen = [*fastest.values()][:_MOST]
    for needed in (plan.recommended, plan.mine):
        if needed not in chosen:
            chosen.append(needed)
    return sorted(chosen, key=lambda forecast: (bool(forecast.problem), forecast.epoch_s))


def draw_plan(plan: Plan, file: Path) -> None:
    """Writes a PNG."""
    forecasts = one_a_kind(plan)
    figure = new_figure(headline(plan), 1.6 + 0.32 * len(forecasts), _note(plan))
    axes = figure.subplots()
    labels, used = [], dict[str, str]()
    longest = max(forecast.epoch_s for forecast in forecasts)
    for number, forecast in enumerate(forecasts):
        color, limit = LIMITS[forecast.step.limit]
        used.setdefault(limit, color)
        fits = not forecast.problem
        axes.barh(number, forecast.epoch_s, 0.7, color=color if fits else "none", edgecolor=color, linewidth=1)
        text = f"{forecast.epoch_s:.3g} s" + ("" if fits else ": does not fit")
        axes.text(forecast.epoch_s + 0.01 * longest, number, text, va="center", fontsize=SMALL, color=INK)
        labels.append(f"{forecast.layout}{_mark(plan, forecast)}")
    axes.set_yticks(range(len(forecasts)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("seconds an epoch")
    axes.set_xlim(0, 1.15 * longest)
    tidy(axes, grid="x")
    handles = [axes.barh(0, 0, color=color, label=f"limited by {limit}") for limit, color in used.items()]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=SMALL, frameon=False)
    save_figure(figure, file)


def headline(plan: Plan) -> str:
    """The result in a sentence."""
    best, mine = plan.recommended, plan.mine
    limit = LIMITS[best.step.limit][1]
    if best.layout == mine.layout:
        return f"Your settings are as fast as any: {best.epoch_s:.3g} s an epoch, limited by {limit}"
    return (
        f"{best.layout}: {best.epoch_s:.3g} s an epoch, {mine.epoch_s / max(best.epoch_s, 1e-9):.3g} times as fast as "
        f"your settings; limited by {limit}"
    )


def _mark(plan: Plan, forecast: EpochForecast) -> str:
    marks = []
    if forecast == plan.recommended:
        marks.append("recommended")
    if forecast == plan.mine:
        marks.append("yours")
    return f" ({', '.join(marks)})" if marks else ""


def _note(plan: Plan) -> str:
    machine = plan.machine
    gpus = f", {len(machine.gpus)} x {machine.gpus[0].name}" if machine.gpus else ""
    where = "this machine" if machine.is_here else "a described machine"
    return (
        f"Predicted for {where} of {machine.cores} cores{gpus}; {plan.measured.num_seeds:,} seeds an epoch, "
        f"{plan.measured.global_batch:,} a step in all. Bars: the fastest of each way to divide the ranks. {SWITCHING}"
    )
