"""What the report says: nothing asked for may go unmentioned."""

from __future__ import annotations

import pytest

from tests.benchmarks import report
from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.figure import Mark, draw, marks
from tests.benchmarks.goals import Goal
from tests.benchmarks.measure import Comparison, Contender, Role


@pytest.fixture
def compared() -> Comparison:
    contenders = [
        Contender("ours", Role.OURS, lambda turn: {}, values=[2.0], notes={"edges": [1234.0], "processor ms": [2.0]}),
        Contender("ours, slow", Role.OURS, lambda turn: {}, values=[20.0]),
        Contender("DGL", Role.PEER, lambda turn: {}, family="DGL", values=[10.0], notes={"processor ms": [8.0]}),
        Contender("B", Role.PEER, lambda turn: {}, family="B", missing="not installed"),
        Contender("replay", Role.CEILING, lambda turn: {}, values=[1.0]),
    ]
    wanted = [Goal(["ours"], "DGL", at_least=6, aim=9), Goal(["ours"], "B", at_least=1)]
    return Comparison("Sampling", "G1", "ms a batch", contenders, goals=wanted)


def test_goals_and_gaps_are_told(compared):
    text = report.markdown([compared], "command", ["machine"], None)
    assert "| Sampling: G1 | DGL | at least 6 | 9 | 5.00 | 4.00 | **not met** | ours: 2.00 | DGL: 10.0 |" in text
    assert "| Sampling: G1 | B | at least 1 |  |  |  | not measured |  |  |" in text
    assert "G1; ms a batch, of 1 figures each:" in text
    assert "| ours | 2.00 | 2.00 to 2.00 | 5.00 | 1,234 | 2.00 |" in text
    assert "- B: not installed" in text


def test_figures_are_counted_where_contenders_have_unlike_numbers(compared):
    compared.contenders[1].values.append(21.0)
    text = report.markdown([compared], "command", ["machine"], None)
    assert "| ours | 2.00 | 2.00 to 2.00 | 1 | 5.00 | 1,234 | 2.00 |" in text
    assert "| ours, slow | 20.5 | 20.1 to 20.9 | 2 |" in text


def test_a_peers_slower_settings_are_a_line(compared):
    names = {"DGL": [10.0], "DGL, 1 worker": [9.0], "DGL, 2 workers": [11.0]}
    peers = [Contender(name, Role.PEER, lambda turn: {}, family="DGL", values=values) for name, values in names.items()]
    compared.contenders[2:3] = peers
    text = report.markdown([compared], "command", ["machine"], None)
    assert "Other settings: DGL, 2 workers 11.0." in text
    assert all(f"| {name} |" in text for name in ("DGL", "DGL, 1 worker"))
    assert "| DGL, 2 workers |" not in text


def shown(compared: Comparison) -> list[Mark]:
    return list(marks(report.markdown([compared], "command", ["machine"], None)))


def test_figure_shows_what_a_goal_asks_for(compared):
    assert shown(compared) == [Mark("Sampling", "G1", "DGL", 5)]
    compared.goals = [Goal(["ours, slow"], "DGL", at_least=4), Goal(["ours"], "replay", at_most=4)]
    assert shown(compared) == [Mark("Sampling", "G1", "DGL", 0.5)]


def test_figure_shows_the_best_that_does_the_same_work(compared):
    compared.goals = []
    compared.contenders[2].notes["edges"] = [1240.0]
    assert shown(compared) == [Mark("Sampling", "G1", "DGL", 5)]
    compared.contenders[0].notes["edges"] = [600.0]  # fast, since it draws half of the edges
    assert shown(compared) == [Mark("Sampling", "G1", "DGL", 0.5)]


def test_nothing_to_show_draws_nothing(compared, tmp_path):
    compared.topic = "Memory"
    assert not draw(report.markdown([compared], "command", ["machine"], None), tmp_path / "figure.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.01234, "0.012"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_numbers_have_three_digits(value, shown):
    assert report.number(value) == shown


def test_results_go_between_the_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    assert report.around_results(page) == (f"before\n{report.BEGIN}", f"{report.END}\nafter\n")
    page.write_text("no marks")
    with pytest.raises(BenchmarkError, match="must exist and have a line"):
        report.around_results(page)
