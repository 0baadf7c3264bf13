"""The arithmetic of comparisons: which way a ratio goes, and whose best counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.benchmarks.errors import BenchmarkError, Unavailable
from tests.benchmarks.goals import Goal, State
from tests.benchmarks.measure import Comparison, Contender, Role, check_same_work, take_turns


def measured(name: str, role: Role, *values: float, family: str = "", **notes: float) -> Contender:
    kept = {column: [value] for column, value in notes.items()}
    return Contender(name, role, lambda turn: {}, family=family, values=list(values), notes=kept)


def of_two_peers(*, more_is_better: bool = False) -> Comparison:
    contenders = [
        measured("ours", Role.OURS, 10, 9, 50),
        measured("ours, tuned", Role.OURS, 8),
        measured("A", Role.PEER, 100, family="A"),
        measured("A, tuned", Role.PEER, 60, family="A"),
        measured("B", Role.PEER, 40, family="B"),
        measured("ceiling", Role.CEILING, 5),
    ]
    return Comparison("Sampling", "G", "ms", contenders, more_is_better)


def test_ratio_is_to_each_familys_best_setting():
    compared = of_two_peers()
    ours = compared.contenders[0]
    assert compared.families == ["A", "B"]
    assert compared.ratio(ours, "A") == 60 / 10  # the median, against the tuned peer
    assert compared.ratio(ours, "B") == 40 / 10


def test_ratio_turns_round_where_more_is_better():
    compared = of_two_peers(more_is_better=True)
    assert compared.best_peer("A").name == "A"
    assert compared.ratio(compared.contenders[0], "A") == 10 / 100


def test_spread_leaves_out_a_tenth_on_either_side():
    assert measured("", Role.OURS, *range(101)).spread == (10, 90)
    assert measured("", Role.OURS, 3.0).spread == (3, 3)


@pytest.mark.parametrize(
    ("goal", "figure", "state"),
    [
        (Goal(["ours"], "A", at_least=6, aim=7), 6, State.MET),
        (Goal(["ours"], "A", at_least=6.01), 6, State.NOT_MET),
        (Goal(["ours", "ours, tuned"], "A", at_least=6, aim=7.5), 7.5, State.AIM_MET),  # our best counts, too
        (Goal(["ours"], "ceiling", at_most=2), 2, State.MET),
        (Goal(["ours"], "ceiling", at_most=1.6, aim=1.2), 2, State.NOT_MET),
        (Goal(["ours, tuned"], "ceiling", at_most=2, aim=1.6), 1.6, State.AIM_MET),
    ],
)
def test_goal_is_judged_in_its_direction(goal, figure, state):
    verdict = goal.judge(of_two_peers())
    assert (verdict.figure, verdict.state) == (figure, state)


@pytest.mark.parametrize("goal", [Goal(["ours"], "C", at_least=1), Goal(["theirs"], "A", at_least=1)])
def test_goal_without_both_sides_is_not_met_in_silence(goal):
    verdict = goal.judge(of_two_peers())
    assert (verdict.figure, verdict.state) == (None, State.NOT_MEASURED)


def contender(name: str, take_turn: Callable[[int], dict]) -> Contender:
    return Contender(name, Role.OURS, take_turn)


def raising(error: Exception) -> Callable[[int], dict]:
    def take_turn(turn: int) -> dict:
        raise error

    return take_turn


def test_turns_are_interleaved_and_the_first_is_not_counted():
    order: list[tuple[str, int]] = []

    def turns_of(name: str) -> Callable[[int], dict]:
        def take_turn(turn: int) -> dict:
            order.append((name, turn))
            return {"values": [turn, turn], "edges": 7}

        return take_turn

    both = [contender(name, turns_of(name)) for name in "ab"]
    take_turns(Comparison("T", "s", "ms", both), 2, lambda text: None)
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert both[0].values == [1, 1, 2, 2]
    assert both[0].note("edges") == 7


def test_one_that_cannot_go_on_leaves_the_others_their_figures():
    trace = "worker failed:\nTraceback ...\nlib.base.SomeError: no CSR\nStack trace:\n  [bt] (8) lib.so"
    three = [
        contender("fine", lambda turn: {"values": [turn]}),
        contender("absent", raising(Unavailable("no compiler"))),
        contender("broken", raising(BenchmarkError(trace))),
    ]
    compared = take_turns(Comparison("T", "s", "ms", three), 2, lambda text: None)
    assert [one.name for one in compared.measured] == ["fine"]
    assert [one.missing for one in three] == [None, "no compiler", "failed: lib.base.SomeError: no CSR"]
    assert [one.failure for one in three] == [None, None, trace]


def test_different_work_is_an_error_and_what_is_missing_is_no_work():
    same = [measured("a", Role.OURS, 1, edges=100), measured("b", Role.PEER, 1, edges=102)]
    gone = Contender("gone", Role.PEER, lambda turn: {}, missing="no such library")
    check_same_work([*same, gone], "edges")
    with pytest.raises(BenchmarkError, match="did not do the same work"):
        check_same_work([*same, measured("c", Role.PEER, 1, edges=104)], "edges")
