"""The common look of figures: readable at 800 pixels, in colours that colour-blind people tell apart.

A figure's title is a sentence that says what it shows. Few lines have their names beside them instead of a legend.
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
"""Of lines in one panel. Source: Okabe and Ito, Color Universal Design (2008)."""
SMALL = 9.0  # points: smaller letters cannot be read at 800 pixels
_WIDTH_IN, _DPI = 8.0, 130
_TITLE_CHARACTERS, _NOTE_CHARACTERS = 76, 108  # of a line of the figure's width


def new_figure(title: str, height_in: float, note: str = "") -> Figure:
    """Returns an empty figure whose title is a sentence; the note below says what was measured."""
    # More than 6.9 inches of height are not seen at once on a screen.
    # A canvas of its own leaves a user's pyplot state and backend as they are.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, height_in), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(fill(title, _TITLE_CHARACTERS), x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    if note:
        figure.supxlabel(fill(note, _NOTE_CHARACTERS), x=0.01, ha="left", fontsize=SMALL, color=GREY)
    return figure


def tidy(axes: Any, title: str = "", grid: str = "y") -> None:
    """Removes spines, and sets fonts and a grid of ``"x"``, ``"y"`` or ``"both"``; ``title`` is that of a panel."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color=PALE, alpha=0.5, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL)
    axes.xaxis.label.set_size(10)
    axes.yaxis.label.set_size(10)
    if title:
        axes.set_title(title, loc="left", fontsize=10)


def name_lines(axes: Any, names: Sequence[tuple[float, str, str]]) -> None:
    """Writes the (y of a line's right end, name, color) of lines beside them, moved apart where they would overlap."""
    # Lays the figure out: before, the axes have no height. Their limits must be final by now.
    axes.figure.draw_without_rendering()
    room = 1.35 * SMALL * axes.figure.dpi / 72
    labels = sorted((axes.transData.transform((axes.get_xlim()[1], y))[1], y, name, color) for y, name, color in names)
    # Names that touch join a heap, which is centred at the mean of its lines, and may then touch the heap below.
    heaps: list[list[float]] = []
    for y_end, *_ in labels:
        heaps.append([y_end])
        while len(heaps) > 1 and _edge(heaps[-1], -1, room) < _edge(heaps[-2], 1, room):
            heaps[-2:] = [heaps[-2] + heaps[-1]]
    heights = [_edge(heap, -1, room) + room * (number + 0.5) for heap in heaps for number in range(len(heap))]
    to_fraction = axes.transAxes.inverted()
    for height, (_, y, name, color) in zip(heights, labels, strict=True):
        axes.annotate(
            name,
            (1.0, y),
            xycoords=("axes fraction", "data"),
            xytext=(1.04, to_fraction.transform((0, height))[1]),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.7, "relpos": (0, 0.5), "shrinkB": 0},
            color=color,
            fontsize=SMALL,
            va="center",
        )


def apart(values: Sequence[float], nearest: float) -> list[float]:
    """Returns how far to move each of a row's marks up or down, in rows, so that those nearer than ``nearest`` to one
    another do not overlap.

    Example:
        >>> apart([1.0, 5.0, 1.1], nearest=0.5)
        [-0.175, 0.0, 0.175]
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    shifts = [0.0] * len(values)
    heap: list[int] = []
    for mark, after in zip(order, [*order[1:], None], strict=True):
        heap.append(mark)
        if after is None or values[after] - values[mark] >= nearest:
            for number, member in enumerate(heap):
                shifts[member] = (number - (len(heap) - 1) / 2) * min(0.4, 0.7 / len(heap))
            heap = []
    return shifts


def save_figure(figure: Figure, file: Path) -> None:
    """Writes a figure to a file, in the format of its suffix."""
    figure.savefig(file)


def _edge(heap: Sequence[float], side: int, room: float) -> float:
    """Returns the lower (-1) or upper (1) edge of a heap of names."""
    return sum(heap) / len(heap) + side * room * len(heap) / 2
