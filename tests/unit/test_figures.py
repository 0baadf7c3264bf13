"""Every figure that the package draws: no text is cut, and none lies over another, whatever the figures say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from lightning_gnnload import NeighborSampler
from lightning_gnnload.cache.figure import draw_curves
from lightning_gnnload.cache.rules import RULES
from lightning_gnnload.cache.simulate import HitRateCurve
from lightning_gnnload.conform.draw import sampler_draw
from lightning_gnnload.data.orders.figure import OrderTrial, draw_orders
from lightning_gnnload.data.orders.reads import CacheReads
from lightning_gnnload.drawing import name_lines, new_figure, save_figure, tidy
from lightning_gnnload.partition.figure import draw_quality
from lightning_gnnload.pipeline.stats import LoaderStats
from lightning_gnnload.plugin.monitor.report import TimeReport, draw_report
from lightning_gnnload.plugin.monitor.trace import Span, draw_timeline
from tests.laws.figure import draw_figure
from tests.laws.subjects import Subject

RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
GRAPH = "Graph(num_nodes=63436, num_edges=684648, edge_type), NeighborSampler([15, 10], expand='all')"


def curves(file: Path) -> None:
    """All rules, and nearly equal: the ends of their lines lie together."""
    found = [
        HitRateCurve(name, order, [ratio + 0.001 * place for ratio in RATIOS], [1e6 * (1 - ratio) for ratio in RATIOS])
        for order in ("shuffle", "proximity")
        for place, name in enumerate((*RULES, "optimum"))
        if order == "shuffle" or (name in RULES and RULES[name].admit is not None)
    ]
    draw_curves(found, RATIOS, 512, GRAPH, file)


def quality(file: Path, num_parts: int = 16) -> None:
    parts = np.arange(1, num_parts + 1)
    found = SimpleNamespace(
        num_nodes=10_000,
        num_parts=num_parts,
        node_share=0.8,
        held_nodes=(100 * parts).tolist(),
        held_edges=(9000 * parts).tolist(),
        mirrors=(50 * parts).tolist(),
        seeds={phase: (7 * parts).tolist() for phase in ("train", "val", "test")},
        cross_share=0.152,
        random_cross_share=0.75,
        sampled=SimpleNamespace(cross_share=0.14, foreign_share=0.08),
        caches=SimpleNamespace(by_part=[0.5] * num_parts, shared=0.27, ratio=0.1),
    )
    draw_quality(found, f"{num_parts} parts by self-reliant, hops=2\n{GRAPH}", file)  # type: ignore[arg-type]


def report(file: Path) -> None:
    loader = LoaderStats(num_batches=12345, sample_ms=123456, gather_ms=234567, convert_ms=345678, wait_ms=45678)
    draw_report(TimeReport(loader, train_ms=1234567, wall_ms=2345678), file)


def timeline(file: Path) -> None:
    """Of twelve short steps late in a run: numbers have five digits."""
    spans = []
    for number in range(12):
        begin, name = 0.04 * number, 10_000 + number
        spans += [
            Span("wait", 0, "loop", begin, begin + 0.001, name),
            Span("train", 0, "loop", begin + 0.001, begin + 0.04, name),
            Span("sample", 1, f"thread {number % 2}", begin, begin + 0.001, name + 3),
            Span("gather", 1, f"thread {number % 2}", begin + 0.001, begin + 0.003, name + 3),
        ]
    draw_timeline(spans, 1, file)


def inclusion(file: Path) -> None:
    names = ("NeighborSampler", "DGL 1.1.3", "PyG 2.8.1, torch-sparse 0.6.18")
    draw_figure([Subject(name, draw=sampler_draw(NeighborSampler), law="uniform") for name in names], file, 1000)


def orders(file: Path) -> None:
    """Of a cache whose hits hardly differ, and labels that end where a shuffle's lie."""
    shuffled = OrderTrial(None, CacheReads(100, 10_000, 9000), 0.08)
    numbers = (*(2**power for power in range(10)), 300)
    tried = [
        OrderTrial(number, CacheReads(100, 9000, 4000 + 10 * number), 0.08 + 0.5 / number**0.7)
        for number in sorted(numbers)
    ]
    draw_orders(shuffled, tried, 300, GRAPH, file)


DRAWN = (curves, quality, report, timeline, inclusion, orders)


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: figures.append(figure))
    return figures


@pytest.mark.parametrize("drawing", DRAWN, ids=lambda drawing: drawing.__name__)
def test_no_text_is_cut_or_lies_over_another(drawing: Callable[[Path], Any], saved: list[Figure], tmp_path: Path):
    drawing(tmp_path / "figure.png")
    [figure] = saved
    assert figure.get_size_inches()[0] == 8
    assert figure.get_size_inches()[1] <= 6.9  # 900 pixels
    check_texts(figure)


def check_texts(figure: Figure) -> None:
    figure.draw_without_rendering()
    unseen = {label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in _outside(axis)}
    texts = [
        text for text in figure.findobj(Text) if text not in unseen and text.get_visible() and text.get_text().strip()
    ]
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = {text: Text.get_window_extent(text, renderer) for text in texts}  # without an annotation's arrow
    page = figure.bbox.padded(1)
    for text, box in boxes.items():
        assert page.containsx(box.x0), f"cut on the left: {text.get_text()!r}"
        assert page.containsx(box.x1), f"cut on the right: {text.get_text()!r}"
        assert page.containsy(box.y0), f"cut below: {text.get_text()!r}"
        assert page.containsy(box.y1), f"cut above: {text.get_text()!r}"
        assert text.get_fontsize() >= 8
    for one, other in combinations(texts, 2):
        overlap = boxes[one].padded(-1.5).overlaps(boxes[other].padded(-1.5))
        assert not overlap, f"{one.get_text()!r} lies over {other.get_text()!r}"


def _outside(axis: Any) -> list[Text]:
    """The labels of ticks beyond the axis's ends, which are not drawn."""
    low, high = axis.get_view_interval()
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [tick.label1 for tick in ticks if not min(low, high) <= tick.get_loc() <= max(low, high)]


def test_names_of_lines_that_end_together_are_moved_apart():
    figure = new_figure("One sentence", 3, "A note")
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    tidy(axes)
    name_lines(axes, [(0.5, "one", "k"), (0.5, "two", "k"), (0.51, "three", "k"), (0.9, "four", "k")])
    check_texts(figure)
    heights = {text.get_text(): text.xyann[1] for text in axes.texts}
    assert sorted(heights, key=heights.__getitem__) == ["one", "two", "three", "four"]
    assert heights["four"] == pytest.approx(0.9, abs=0.02)  # which has room where its line ends


def test_a_figure_leaves_pyplot_alone(tmp_path: Path):
    from matplotlib import pyplot

    before = pyplot.get_fignums(), pyplot.get_backend()
    save_figure(new_figure("One sentence", 2), tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")
    assert (pyplot.get_fignums(), pyplot.get_backend()) == before
