"""``python -m tests.laws``: exit statuses, reports, and peers."""

from __future__ import annotations

import csv
import json
from functools import partial

import pytest

from lightning_gnnload.conform.checks import counts, ends
from lightning_gnnload.conform.draw import sampler_draw
from lightning_gnnload.conform.suites import Check
from tests.laws import __main__ as laws
from tests.laws import peers
from tests.laws.subjects import Subject
from tests.unit.conform import samplers


@pytest.mark.matrix
def test_our_samplers_pass_and_reports_are_written(tmp_path, capsys) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("csv", "json")}
    options = [text for kind, file in files.items() for text in (f"--{kind}", str(file))]
    assert laws.main(["--quick", *options]) == 0
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


def fewer_counts(quick: bool) -> list[Check]:
    return [Check("counts", partial(counts, fanouts=[2]))]


def only_ends(quick: bool) -> list[Check]:
    return [Check("ends", partial(ends, settings=[(2, 1)], num_trials=1000))]


def test_wrong_draws_fail(monkeypatch, capsys) -> None:
    subject = Subject("Ours: uniform", draw=sampler_draw(samplers.DropsLast), suite_of=fewer_counts)
    monkeypatch.setattr(laws, "own_subjects", lambda: [subject])
    assert laws.main(["--quick"]) == 1
    assert "FAILS" in capsys.readouterr().out


def test_a_users_sampler_is_held_against_its_law_among_types_and_times(tmp_path, capsys) -> None:
    own = ["--sampler", "lightning_gnnload.WeightedNeighborSampler", "--fanouts", "4", "--law", "weighted"]
    file = tmp_path / "rows.json"
    assert laws.main(["--quick", *own, "--json", str(file)]) == 0
    subjects = {row["subject"] for row in json.loads(file.read_text())["rows"]}
    assert subjects == {f"WeightedNeighborSampler{kind}: weighted" for kind in ("", ", by type")}


def test_a_figure_needs_uniform_draws(capsys) -> None:
    own = ["--sampler", "tests.unit.conform.samplers.FloydSampler", "--fanouts", "2"]
    assert laws.main([*own, "--figure", "f.png"]) == 2
    assert "--law uniform" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--csv=no/such.csv", "no folder no"),
        ("--csv=/", "is a folder; a file is needed"),
    ],
)
def test_options_that_are_refused_at_once(option: str, told: str, capsys) -> None:
    with pytest.raises(SystemExit):
        laws.main([option])
    assert told in capsys.readouterr().err


def test_a_peers_failure_is_reported_and_counts_for_nothing(monkeypatch, capsys, tmp_path) -> None:
    def peer(name: str, known: str) -> Subject:
        draw = sampler_draw(samplers.ShortFloyd)
        return Subject(f"{name}: uniform", draw=draw, law="uniform", suite_of=only_ends, peer=True, known=known)

    found = [peer("Theirs", ""), peer("Others", "it forgets the last neighbour")]
    monkeypatch.setattr(laws, "own_subjects", list)
    monkeypatch.setattr(laws, "peers", lambda: (found, ["third: not installed"]))
    figure = tmp_path / "figure.png"
    assert laws.main(["--quick", "--peers", "--figure", str(figure)]) == 0
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
