"""The command line: exit statuses, reports, and a user's own sampler."""

from __future__ import annotations

import csv
import json
import sys
from functools import partial

import pytest

from lightning_gnnload.conform import peers
from lightning_gnnload.conform.checks import counts, ends
from lightning_gnnload.conform.draw import sampler_draw
from lightning_gnnload.conform.subjects import Subject
from lightning_gnnload.conform.suites import Check
from lightning_gnnload.plugin.commands import cli, conform
from tests.unit.conform import samplers

OWN = "tests.unit.conform.samplers"
PROMISE = '{"max_in_degree": [4, 3], "alone": true}'


@pytest.mark.matrix
def test_our_samplers_pass_and_reports_are_written(tmp_path, capsys) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("csv", "json")}
    options = [text for kind, file in files.items() for text in (f"--{kind}", str(file))]
    assert conform.main(["--quick", *options]) == 0
    told = capsys.readouterr().out
    assert "NeighborSampler: uniform, replaced" in told
    assert "FAILS" not in told
    report = json.loads(files["json"].read_text())
    assert report["family_error"] == 1e-6
    rows = report["rows"]
    assert {row["check"] for row in rows} >= {"contract", "counts", "inclusion", "subsets", "pairs", "first and last"}
    assert all(row["passed"] and not row["peer"] for row in rows)
    with files["csv"].open() as file:
        assert [row["check"] for row in csv.DictReader(file)] == [row["check"] for row in rows]


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


def fewer_counts(quick: bool) -> list[Check]:
    return [Check("counts", partial(counts, fanouts=[2]))]


def only_ends(quick: bool) -> list[Check]:
    return [Check("ends", partial(ends, settings=[(2, 1)], num_trials=1000))]


def test_wrong_draws_fail(monkeypatch, capsys) -> None:
    subject = Subject("Ours: uniform", draw=sampler_draw(samplers.DropsLast), suite_of=fewer_counts)
    monkeypatch.setattr(conform, "own_subjects", lambda: [subject])
    assert conform.main(["--quick"]) == 1
    assert "FAILS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--sampler", "nowhere.Sampler"], "no such class"),
        (["--sampler", f"{OWN}.FloydSampler", "--fanouts", "2", "--figure", "f.png"], "--law uniform"),
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
        ("--csv=no/such.csv", "no folder no"),
        ("--csv=/", "is a folder; a file is needed"),
    ],
)
def test_options_that_are_refused_at_once(option: str, told: str, capsys) -> None:
    with pytest.raises(SystemExit):
        conform.main([option])
    assert told in capsys.readouterr().err


def test_a_peers_failure_is_reported_and_counts_for_nothing(monkeypatch, capsys, tmp_path) -> None:
    def peer(name: str, known: str) -> Subject:
        draw = sampler_draw(samplers.ShortFloyd)
        return Subject(f"{name}: uniform", draw=draw, law="uniform", suite_of=only_ends, peer=True, known=known)

    found = [peer("Theirs", ""), peer("Others", "it forgets the last neighbour")]
    monkeypatch.setattr(conform, "own_subjects", list)
    monkeypatch.setattr(conform, "peers", lambda: (found, ["third: not installed"]))
    figure = tmp_path / "figure.png"
    assert conform.main(["--quick", "--peers", "--figure", str(figure)]) == 0
    told = capsys.readouterr().out
    assert "fails (known)" in told
    assert "known: Others: uniform: it forgets the last neighbour." in told
    assert "not examined: third: not installed" in told
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_peers_that_are_not_installed_are_told(monkeypatch) -> None:
    def missing(name: str):
        raise ImportError(f"no {name} here")

    monkeypatch.setattr(peers.importlib, "import_module", missing)
    found, reasons = peers.peers()
    assert found == []
    assert reasons == ["dgl: no dgl here", "torch_geometric: no torch_geometric here"]
