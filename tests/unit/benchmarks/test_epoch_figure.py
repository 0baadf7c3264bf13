"""The figure of epochs shows what its page says."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.epoch_figure import draw, epochs

PAGE = """## Training on a CPU

| idle | 1 core | 2 cores |
| --- | ---: | ---: |
| ours, float32 | 1 | 1,000 |
| DGL's example, float32 | 2 | 3,000 (3.00) |
| the same with our dropout | 3 | 2,000 (2.00) |

| another | 2 cores |
| --- | --- |
| x, float32 | 9 |
"""


def test_the_figure_reads_the_first_table_of_its_section(tmp_path: Path) -> None:
    # Rows of the next table, another column, or the ratio in brackets would be other numbers.
    assert epochs(PAGE) == {
        "float32": {"ours": 1000.0, "DGL's example": 3000.0, "the same with our dropout": 2000.0},
    }
    draw(PAGE + PAGE, tmp_path / "epochs.png")
    assert (tmp_path / "epochs.png").stat().st_size > 1000


def test_the_page_has_the_figures_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "benchmarks.md"
    assert set(epochs(page.read_text(encoding="utf-8"))) == {"float32", "bf16"}
