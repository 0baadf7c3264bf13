"""The figure: how often each neighbour is drawn, library by library, beside how often it should be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from lightning_gnnload.conform.checks import KEY
from lightning_gnnload.conform.draw import positions
from lightning_gnnload.drawing import COLORS, INK, SMALL, new_figure, save_figure, tidy
from lightning_gnnload.errors import ConformanceError
from tests.laws.subjects import Subject

_SETTINGS = [(6, 3), (20, 15)]  # (degree, fanout): the one a bias is usually shown with, and a common fanout
_MARKERS = "osD^vP"
_SIGMAS = 5


def can_be_drawn(subject: Subject) -> bool:
    """Returns whether it draws uniformly, each neighbour at most once."""
    return subject.draw is not None and subject.law == "uniform"


def draw_figure(subjects: Sequence[Subject], file: Path, num_trials: int) -> None:
    """Writes a PNG of the subjects that :func:`can_be_drawn`; bars are five sigma."""
    drawn = {setting: _frequencies(subjects, *setting, num_trials) for setting in _SETTINGS}
    uneven = [
        name
        for name in dict.fromkeys(name for of_setting in drawn.values() for name in of_setting)
        if any(
            np.abs(of_setting[name] - fanout / degree).max() > _bar(degree, fanout, num_trials)
            for (degree, fanout), of_setting in drawn.items()
            if name in of_setting
        )
    ]
    title = f"{' and '.join(uneven)} drew some neighbours more often than others"
    if not uneven:
        title = "Every neighbour is drawn as often as any other"
    note = (
        f"Of {num_trials:,} nodes that draw once each. Bars are five sigma: where draws are even, they meet the line."
    )
    figure = new_figure(title, 4.6, note)
    panels = figure.subplots(1, len(_SETTINGS))
    for axes, ((degree, fanout), of_setting) in zip(panels, drawn.items(), strict=True):
        axes.axhline(fanout / degree, color=INK, linestyle="--", linewidth=1)
        for number, (name, frequency) in enumerate(of_setting.items()):
            places = np.arange(degree) + 0.16 * (number - (len(of_setting) - 1) / 2)
            style = {"fmt": _MARKERS[number % len(_MARKERS)], "markersize": 4.5, "color": COLORS[number % len(COLORS)]}
            axes.errorbar(places, frequency, _bar(degree, fanout, num_trials), label=name, **style)
        axes.set_xlabel("neighbour, by its place in the list")
        axes.xaxis.get_major_locator().set_params(integer=True)
        tidy(axes, f"{fanout} of {degree} neighbours drawn")
    panels[0].set_ylabel("share of nodes that draw it")
    panels[0].legend(loc="upper left", bbox_to_anchor=(0, -0.16), fontsize=SMALL, frameon=False)
    save_figure(figure, file)


def _frequencies(subjects: Sequence[Subject], degree: int, fanout: int, num_trials: int) -> dict[str, np.ndarray]:
    """How often each neighbour is drawn, ``[degree]``, by the name of who draws."""
    found = {}
    for subject in subjects:
        assert subject.draw is not None
        with suppress(ConformanceError):  # its rows tell why it has no points
            drawn = positions(subject.draw, np.ones(degree), fanout, num_trials, KEY)
            found[subject.name.partition(":")[0]] = np.bincount(drawn.ravel(), minlength=degree) / len(drawn)
    return found


def _bar(degree: int, fanout: int, num_trials: int) -> float:
    expected = fanout / degree
    return _SIGMAS * math.sqrt(expected * (1 - expected) / num_trials)
