"""The figure of a page of results: how many times less time ours takes than each peer's best setting.

    python -m tests.benchmarks.figure docs/benchmarks.md

Draws the page's tables again, so that page and figure agree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

from lightning_gnnload.drawing import BLUE, GREEN, INK, ORANGE, PINK, SMALL, apart, new_figure, save_figure, tidy
from tests.benchmarks.report import number

_TOPICS = ("Sampling", "Samplers", "Gather", "Loader", "By type", "By time", "Links", "Link loader", "PyG's loaders")
_MARKS = {"DGL": (BLUE, "o"), "GraphBolt": (ORANGE, "s"), "pyg-lib": (GREEN, "D"), "torch-sparse": (PINK, "^")}
_TORCH = (INK, "v")  # index_select: a call, not a library
_NAMES = {
    "pyg-lib": "PyG by pyg-lib",
    "torch-sparse": "PyG by torch-sparse",
    "index_select(out=slot)": "torch's index_select",
}
_HEADS = {
    "Sampling": "Sampling alone",
    "Samplers": "Other samplers",
    "Gather": "Gathering rows",
    "Loader": "Whole loaders",
}
_ROW_IN = 0.29
_SAME_WORK = 0.03
"""A sampler that finds this many more or fewer edges, as a share, does other work, and is not compared."""


@dataclass(frozen=True)
class Mark:
    """Ours beside one peer.

    Attributes:
        topic: of the comparison.
        setting: of the comparison.
        peer: whose best setting it is.
        ratio: how many times better ours is, at the setting that a goal of the page asks for, or at its best that does
            the same work.
    """

    topic: str
    setting: str
    peer: str
    ratio: float


def marks(text: str) -> Iterator[Mark]:
    """What the tables of a report say, in their order; see :func:`.report.markdown`."""
    topic = setting = ""
    asked = list(_asked(text))
    rows: list[dict[str, str]] = []
    header: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not header:
                header = cells
            elif not cells[1].startswith("---"):
                rows.append(dict(zip(header, cells, strict=True)))
            continue
        if topic in _TOPICS:
            for mark in _of_table(topic, setting, header, rows):
                goals = [figure for of, against, figure in asked if _is_of(mark, of, against)]
                yield replace(mark, ratio=max(goals)) if goals else mark
        header, rows = [], []
        if line.startswith("### "):
            topic = line.removeprefix("### ")
        elif line.endswith(":") and ";" in line:
            setting = line.partition(";")[0]


def _asked(text: str) -> Iterator[tuple[str, str, float]]:
    """(topic and setting, peer and its setting, figure) of each goal "at least" that was measured."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 9 and cells[2].startswith("at least") and cells[4]:
            yield cells[0], cells[1], _figure(cells[4])


def _is_of(mark: Mark, of: str, against: str) -> bool:
    return of == f"{mark.topic}: {mark.setting}" and against.startswith(mark.peer)


def _of_table(topic: str, setting: str, header: Sequence[str], rows: Sequence[dict[str, str]]) -> Iterator[Mark]:
    for column in header:
        if (found := re.fullmatch(r"times better than (.*?)('s best)?", column)) is None:
            continue
        peers = [row for row in rows if not row[""].startswith(("ours", "*"))]
        best = min(peers, key=lambda row: abs(_figure(row[column]) - 1))
        ours = [row for row in rows if row[""].startswith("ours") and _is_same_work(row, best)]
        if ours:
            yield Mark(topic, setting, found[1], max(_figure(row[column]) for row in ours))


def _is_same_work(ours: dict[str, str], peer: dict[str, str]) -> bool:
    mine, others = (_figure(row.get("edges", "")) for row in (ours, peer))
    return not (mine and others) or abs(mine / others - 1) <= _SAME_WORK


def _figure(cell: str) -> float:
    return float(cell.replace(",", "")) if cell else 0.0


def draw(text: str, file: Path) -> bool:
    """Writes a PNG of a report's tables; returns False, and writes none, where there is nothing to show."""
    shown = list(marks(text))
    if not shown:
        return False
    ratios = [mark.ratio for mark in shown]
    peers = list(dict.fromkeys(mark.peer for mark in shown))
    names = [_NAMES.get(peer, peer) for peer in peers]
    title = f"Ours is {min(ratios):.2g} to {max(ratios):.2g} times as fast as {_listed(names)}"
    labels, rows = _labels(shown)
    note = (
        "A mark is the time of a peer's best setting over that of ours for the same work, on the same cores. Right of "
        "the line at 1, ours is faster; the axis is logarithmic."
    )
    figure = new_figure(title, _ROW_IN * len(labels) + 1.5, note)
    axes = figure.subplots()
    heights = {}
    width = log(1.5 * max(ratios) / min(1, *ratios))
    for key, row in rows.items():
        beside = [mark for mark in shown if (mark.topic, mark.setting) == key]
        shifts = apart([log(mark.ratio) for mark in beside], nearest=0.025 * width)
        heights |= {mark: row + shift for mark, shift in zip(beside, shifts, strict=True)}
    for peer, name in zip(peers, names, strict=True):
        color, shape = _MARKS.get(peer, _TORCH)
        of_peer = [mark for mark in shown if mark.peer == peer]
        places = [heights[mark] for mark in of_peer]
        axes.plot([mark.ratio for mark in of_peer], places, shape, color=color, markersize=7, label=name)
    for mark in shown:
        key = mark.topic, mark.setting
        if sum((other.topic, other.setting) == key for other in shown) == 1:  # several figures would not find room
            beside = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "fontsize": SMALL}
            axes.annotate(number(mark.ratio), (mark.ratio, rows[key]), **beside)
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_xscale("log")
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100) if 0.9 * min(1, *ratios) <= tick <= 1.3 * max(ratios)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(0.9 * min(1, *ratios), 1.5 * max(ratios))
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_yticks(range(len(labels)), labels)
    tidy(axes, grid="x")
    axes.tick_params(axis="y", length=0)
    for place, tick in enumerate(axes.get_yticklabels()):
        tick.set_fontweight("normal" if place in rows.values() else "bold")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"times as fast as {'the peer' if len(peers) > 1 else names[0]}, at its best setting")
    if len(peers) > 1:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(peers), fontsize=SMALL, frameon=False)
    save_figure(figure, file)
    return True


def _labels(shown: Sequence[Mark]) -> tuple[list[str], dict[tuple[str, str], int]]:
    """The rows' labels, a head before each topic, and the row of each (topic, setting). What all settings of a topic
    begin with, such as the graph, is told in its head."""
    labels: list[str] = []
    rows = {}
    for topic in dict.fromkeys(mark.topic for mark in shown):
        settings = list(dict.fromkeys(mark.setting for mark in shown if mark.topic == topic))
        begin = f"{settings[0].partition(', ')[0]}, "
        if not all(setting.startswith(begin) for setting in settings):
            begin = ""
        labels.append(f"{_HEADS.get(topic, topic)}{begin and f': {begin[:-2]}'}")
        for setting in settings:
            rows[topic, setting] = len(labels)
            labels.append(setting.removeprefix(begin))
    return labels, rows


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


if __name__ == "__main__":
    page = Path(sys.argv[1])
    sys.exit(0 if draw(page.read_text(), page.with_suffix(".png")) else f"{page} has no table of a peer's figures.")
