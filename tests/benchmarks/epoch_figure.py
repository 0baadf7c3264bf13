"""The figure of whole epochs of training, model included, beside DGL's own example.

    python -m tests.benchmarks.epoch_figure docs/benchmarks.md docs/epochs.png

Draws the table of a page again, so that page and figure agree.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lightning_gnnload.drawing import BLUE, GREY, INK, PALE, SMALL, new_figure, save_figure, tidy

_HEADING = "## Training on a CPU"
_CORES = "2 cores"
_NOTE = (
    "GraphSAGE on the Debian graph, two cores, an idle machine. Part of DGL's time is torch's dropout; the pale bars "
    "have ours, and show what the loader and its kernels alone win."
)


def epochs(page: str) -> dict[str, dict[str, float]]:
    """Milliseconds an epoch by precision and contender, as the page's table has them."""
    section = page.partition(f"{_HEADING}\n")[2].partition("\n## ")[0]
    table = section[section.index("\n| ") + 1 :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    column = rows[0].index(_CORES)
    found: dict[str, dict[str, float]] = {}
    precision = ""
    for row in rows[2:]:
        name, _, said = row[0].partition(", ")
        precision = said or precision
        found.setdefault(precision, {})[name] = float(row[column].partition(" ")[0].replace(",", ""))
    return found


def draw(page: str, file: Path) -> None:
    """Writes a PNG: a panel a precision, a bar a contender."""
    times = epochs(page)
    times_longer = [times[precision]["DGL's example"] / times[precision]["ours"] for precision in times]
    title = f"An epoch of DGL's example takes {min(times_longer):.1f} to {max(times_longer):.1f} times as long as ours"
    figure = new_figure(title, 3.2, _NOTE)
    panels = figure.subplots(1, len(times), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (precision, by_name) in zip(panels, times.items(), strict=True):
        seconds = [value / 1000 for value in by_name.values()]
        bars = axes.barh(range(len(by_name)), seconds, color=[BLUE, GREY, PALE], height=0.6)
        axes.bar_label(bars, [f"{value:.2f} s" for value in seconds], padding=4, fontsize=SMALL, color=INK)
        names = {"the same with our dropout": "DGL's example,\nwith our dropout", "ours": "lightning_gnnload"}
        axes.set_yticks(range(len(by_name)), [names.get(name, name) for name in by_name])
        axes.set_ylim(len(by_name) - 0.5, -0.5)
        axes.set_xlabel("seconds an epoch")
        tidy(axes, precision, grid="x")
        axes.tick_params(axis="y", length=0)
    panels[0].set_xlim(0, 1.2 * max(value for by_name in times.values() for value in by_name.values()) / 1000)
    save_figure(figure, file)


if __name__ == "__main__":
    draw(Path(sys.argv[1]).read_text(encoding="utf-8"), Path(sys.argv[2]))
