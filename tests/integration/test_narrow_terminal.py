"""What commands print fits 80 columns, in a pipe as on a terminal; only lines with paths and commands may be longer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from lightning_gnnload import GraphData, save_graph_data
from lightning_gnnload.partition.quality import CacheRates, Quality
from lightning_gnnload.partition.report import parts_table
from lightning_gnnload.plugin.commands import cli
from tests.unit.toy import toy_graph

_ELLIPSIS = "…"  # by which rich cuts what finds no room
HELP = [
    "",
    "conform",
    "cache",
    "order",
    "pack",
    "plan",
    "preaggregate",
    "partition",
    "verify",
    "doctor",
]  # fit's and its kin's are Lightning's


Run = Callable[..., list[str]]


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a pipe, with COLUMNS=80, and returns its lines."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", list(sys.path))

    def lines_of(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["gnnload", *arguments])
        ended = None
        try:
            cli.main()
        except SystemExit as end:
            ended = end.code
        told = capsys.readouterr()
        assert not ended, told.err
        return told.out.splitlines()

    return lines_of


def check_width(lines: list[str]) -> None:
    assert lines
    for line in lines:
        assert len(line) <= 80 or "/" in line, f"{len(line)} characters: {line}"
        assert _ELLIPSIS not in line, f"cut: {line}"
        assert not line.startswith(("│  ", "│ │")), f"a cell that was folded: {line}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("narrow")
    graph = toy_graph(num_nodes=400, num_edges=4000)
    x = np.random.default_rng(0).random((400, 8), np.float32)
    save_graph_data(GraphData(graph, x, np.arange(400) % 3, np.arange(200), np.arange(200, 300)), made / "data")
    return made


def test_help_fits(run: Run) -> None:
    for command in HELP:
        check_width(run(*command.split(), "--help"))


def test_machines_are_described_in_the_width(run: Run) -> None:
    check_width(run("doctor"))


def test_folders_are_verified_in_the_width(run: Run) -> None:
    check_width(run("verify", "data"))


def test_caches_are_compared_in_the_width(run: Run) -> None:
    settings = ["--data.sampler", "NeighborSampler", "--data.sampler.fanouts", "[5, 5]", "--data.batch_size", "20"]
    data = ["--data.data", "data"]
    check_width(run("cache", *data, *settings))


def test_parts_are_reported_in_the_width(run: Run) -> None:
    phases = ["--phases", "train", "val"]
    check_width(run("partition", "data", "--parts", "3", "--out", "parts", *phases))


def test_samplers_are_examined_in_the_width(run: Run) -> None:
    own = ["--sampler", "lightning_gnnload.NeighborSampler", "--fanouts", "4", "3", "--law", "uniform"]
    check_width(run("conform", "--quick", *own))


def test_parts_of_a_large_graph_fit() -> None:
    """Of the size of papers100M, in all phases."""
    nodes, seeds = [111_059_956] * 8, {phase: [999_999] * 8 for phase in ("train", "val", "test")}
    quality = Quality(
        num_nodes=111_059_956,
        num_edges=1_615_685_872,
        own_nodes=nodes,
        held_nodes=nodes,
        held_edges=[1_615_685_872] * 8,
        mirrors=nodes,
        seeds=seeds,
        cross_edges=1_000_000_000,
        caches=CacheRates(0.1, "presample", [0.5] * 8, 0.3),
    )
    console = Console(width=80, file=StringIO())
    console.print(parts_table(quality, "8 parts by self-reliant, hops=2, of a graph as large as there are"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    check_width(shown.splitlines())
    assert "111.1 M" in shown
    assert "1.616 G" in shown
