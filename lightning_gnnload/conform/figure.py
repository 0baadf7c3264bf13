"""The figure: how often each neighbour is drawn, library by library, beside how often it should be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lightning_gnnload.conform.checks import KEY
from lightning_gnnload.conform.draw import positions
from lightning_gnnload.conform.subjects import Subject
from lightning_gnnload.errors import ConformanceError

_SETTINGS = [(6, 3), (20, 15)]  # (degree, fanout): the one a bias is usually shown with, and a common fanout
_COLORS = ["#2a78d6", "#d1495b", "#1baf7a", "#eda100", "#4a3aa7", "#7a7a7a"]
_SIGMAS = 5


def can_be_drawn(subject: Subject) -> bool:
    """Returns whether it draws uniformly, each neighbour at most once."""
    return subject.draw is not None and subject.law == "uniform"


def draw_figure(subjects: Sequence[Subject], file: Path, num_trials: int) -> None:
    """Writes a PNG of the subjects that :func:`can_be_drawn`; bars are five sigma."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(_SETTINGS), figsize=(11, 4), layout="constrained")
    for axes, (degree, fanout) in zip(panels, _SETTINGS, strict=True):
        expected = fanout / degree
        bar = _SIGMAS * math.sqrt(expected * (1 - expected) / num_trials)
        axes.axhline(expected, color="#222222", linestyle="--", linewidth=1, label=f"expected: {fanout}/{degree}")
        for number, subject in enumerate(subjects):
            assert subject.draw is not None
            try:
                drawn = positions(subject.draw, np.ones(degree), fanout, num_trials, KEY)
            except ConformanceError:
                continue  # its rows tell why it has no points
            frequency = np.bincount(drawn.ravel(), minlength=degree) / len(drawn)
            places = np.arange(degree) + 0.12 * (number - (len(subjects) - 1) / 2)
            style = {"fmt": "o", "markersize": 4, "capsize": 2, "color": _COLORS[number % len(_COLORS)]}
            axes.errorbar(places, frequency, bar, label=subject.name.partition(":")[0], **style)
        axes.set_title(f"{fanout} of {degree} neighbours, {num_trials:,} nodes", fontsize=10)
        axes.set_xlabel("neighbour, by its place in the adjacency list", fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share of nodes that draw it", fontsize=9)
    panels[0].legend(fontsize=8, frameon=False)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)
