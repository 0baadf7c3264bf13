"""How figures look, all of them: readable at 800 pixels, in colours that colour-blind people tell apart.

A figure says one thing, in its title: a sentence. Lines have their names beside their ends, where they are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
INK, GREY, PALE = "#222222", "#767676", "#c8ccd1"
COLORS = (BLUE, ORANGE, GREEN, PINK, YELLOW, SKY)
"""For things of one kind. Source: Okabe and Ito, Color Universal Design (2008)."""
SMALL = 9.0  # points: the least that is read at 800 pixels
_WIDTH_IN, _DPI = 8.0, 130
_TITLE_CHARACTERS, _NOTE_CHARACTERS = 76, 108  # of a line of the figure's width


def new_figure(title: str, height_in: float, note: str = "") -> Figure:
    """Returns an empty figure with a canvas of its own, so that a user's pyplot state and backend stay as they are.

    Args:
        title: what the figure says, in a sentence.
        height_in: inches; 6.9 at most are seen at once on a screen.
        note: below it, what was measured, and how to read it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, height_in), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(fill(title, _TITLE_CHARACTERS), x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    if note:
        figure.supxlabel(fill(note, _NOTE_CHARACTERS), x=0.01, ha="left", fontsize=SMALL, color=GREY)
    return figure


def tidy(axes: Any, title: str = "", grid: str = "y") -> None:
    """Leaves out what says nothing, and sets all letters.

    Args:
        axes: of :func:`new_figure`.
        title: of one of several panels.
        grid: ``"x"``, ``"y"`` or ``"both"``.
    """
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color=PALE, alpha=0.5, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL)
    axes.xaxis.label.set_size(10)
    axes.yaxis.label.set_size(10)
    if title:
        axes.set_title(title, loc="left", fontsize=10)


def name_lines(axes: Any, names: Sequence[tuple[float, str, str]]) -> None:
    """Writes names beside the right ends of lines, moved apart where these are close.

    Args:
        axes: whose limits are final.
        names: (y of a line's end, name, color).
    """
    axes.figure.draw_without_rendering()  # only now the axes have their height
    room = 1.35 * SMALL * axes.figure.dpi / 72
    ends = sorted((axes.transData.transform((axes.get_xlim()[1], y))[1], y, name, color) for y, name, color in names)
    heaps: list[list[float]] = []  # of ends whose names touch: each heap is centred at their mean
    for end, *_ in ends:
        heaps.append([end])
        while len(heaps) > 1 and _edge(heaps[-1], -1, room) < _edge(heaps[-2], 1, room):
            heaps[-2:] = [heaps[-2] + heaps[-1]]
    places = [_edge(heap, -1, room) + room * (number + 0.5) for heap in heaps for number in range(len(heap))]
    to_fraction = axes.transAxes.inverted()
    for place, (_, y, name, color) in zip(places, ends, strict=True):
        axes.annotate(
            name,
            (1.0, y),
            xycoords=("axes fraction", "data"),
            xytext=(1.04, to_fraction.transform((0, place))[1]),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.7, "relpos": (0, 0.5), "shrinkB": 0},
            color=color,
            fontsize=SMALL,
            va="center",
        )


def save(figure: Figure, file: Path) -> None:
    """Writes the figure; the ending of the name says in which format."""
    figure.savefig(file)


def _edge(heap: Sequence[float], side: int, room: float) -> float:
    """Returns where a heap of names ends, below (-1) or above (1)."""
    return sum(heap) / len(heap) + side * room * len(heap) / 2
