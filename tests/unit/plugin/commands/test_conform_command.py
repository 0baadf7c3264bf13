"""``gnnload conform``: exit statuses, and what is said of a user's own sampler."""

from __future__ import annotations

import sys

import pytest

from lightning_gnnload import NeighborSampler, WeightedNeighborSampler
from lightning_gnnload.plugin.commands import cli, conform
from tests.unit.conform import samplers

OWN = "tests.unit.conform.samplers"
TIMED = ["--sampler", "lightning_gnnload.NeighborSampler", "--fanouts", "2", "--args", '{"window": 5}']
PROMISE = '{"max_in_degree": [4, 3], "alone": true}'


def test_a_sampler_of_ones_own(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "mine.py").write_text(
        "from lightning_gnnload import NeighborSampler\n"
        "class Mine(NeighborSampler):\n"
        "    def __init__(self, fanouts, twice=False):\n"
        "        super().__init__(fanouts, replace=twice)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["gnnload", "conform", "--sampler", "mine.Mine", "--fanouts", "4", "3"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert "Mine" in capsys.readouterr().out
    # With replacement, edges may repeat: the promise has to say so.
    own = ["--quick", "--sampler", "mine.Mine", "--fanouts", "4", "3", "--args", '{"twice": true}']
    assert conform.main(own) == 1
    assert conform.main([*own, "--promise", '{"distinct_edges": false}', "--law", "uniform, replaced"]) == 0
    del sys.modules["mine"]


def test_a_broken_contract_fails(capsys) -> None:
    own = ["--sampler", f"{OWN}.IgnoresStep", "--fanouts", "4", "3", "--promise", PROMISE]
    assert conform.main(["--quick", *own]) == 1
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "FAILS" in shown
    assert "key matters" in shown


def test_wrong_draws_fail(capsys) -> None:
    assert conform.main(["--quick", "--sampler", f"{OWN}.ShortFloyd", "--fanouts", "4", "--law", "uniform"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "inclusion: FAILS" in shown
    assert "But degree " in shown


def test_a_sampler_is_tried_on_the_graphs_that_it_takes() -> None:
    def kinds(sampler) -> list[str]:
        return list(conform.graphs_for(sampler))

    assert kinds(NeighborSampler([4, 3])) == ["", ", by type", ", by time"]
    # A window has no meaning without times, and what ignores times is not held against them.
    assert kinds(NeighborSampler([4, 3], window=5)) == [", by time"]
    assert kinds(NeighborSampler([4, 3], before=None)) == ["", ", by type"]
    assert kinds(samplers.FloydSampler([4, 3])) == [""]
    # Its base class heeds times, which it refuses.
    assert kinds(WeightedNeighborSampler([4, 3])) == ["", ", by type"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--sampler", "nowhere.Sampler"], "no such class"),
        ([*TIMED, "--law", "uniform"], "without types and times"),
        (["--sampler", "Sampler"], "no such class"),
        (["--sampler", f"{OWN}.NoSuch"], "no such class"),
        (["--sampler", "pathlib.Path"], "no subclass of lightning_gnnload.Sampler"),
        (["--sampler", f"{OWN}.FloydSampler", "--args", '{"size": 1}'], "do not fit"),
        (["--sampler", f"{OWN}.FloydSampler", "--fanouts", "2", "--promise", '{"pure": 1}'], "do not fit"),
    ],
)
def test_what_cannot_be_examined(arguments: list[str], told: str, capsys) -> None:
    assert conform.main(arguments) == 2
    assert told in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--args=[1]", "no JSON"),
        ("--args={", "no JSON"),
        ("--quick", "the following arguments are required: --sampler"),
    ],
)
def test_options_that_are_refused_at_once(option: str, told: str, capsys) -> None:
    with pytest.raises(SystemExit):
        conform.main([option])
    assert told in capsys.readouterr().err
