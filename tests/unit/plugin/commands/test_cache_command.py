"""``gnnload cache``: what it writes, and what it says of arguments that cannot work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from lightning_gnnload import GraphData, save_graph_data
from lightning_gnnload.plugin.commands import cache as cache_command
from lightning_gnnload.plugin.commands.fit import GraphCLI
from tests.unit.data.orders.test_proximity import ring
from tests.unit.toy import toy_data

SAMPLER = ["--data.sampler", "NeighborSampler", "--data.sampler.fanouts", "[3, 2]", "--data.batch_size", "20"]
CONFIG = """
trainer: {max_epochs: 3, strategy: no_such_strategy}
model: {class_path: no.such.Model}
data:
  data:
    class_path: Synthetic
    init_args: {kind: chung-lu, num_nodes: 500, num_edges: 3000, num_features: 4, train_fraction: 0.2, root: ROOT}
  sampler: {class_path: NeighborSampler, init_args: {fanouts: [3, 2]}}
  batch_size: 20
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    assert GraphCLI  # importing the command line makes class names short
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.replace("ROOT", str(tmp_path / "root")))
    return file


def test_a_configuration_of_fit_gives_table_figure_and_advice(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    status = cache_command.main(
        ["--config", str(config), "--ratios", "0.5", "0.1", "--out", str(out), "--trainers", "2"]
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert status == 0
    assert "presample" in printed
    assert "Recommended: " in printed
    written = json.loads((out / "cache.json").read_text())
    assert written["ratios"] == [0.1, 0.5]
    assert written["table"] == {"name": "x", "rows": 500, "row_bytes": 16}
    curves = {(curve["name"], curve["order"]): curve for curve in written["curves"]}
    # What 'proximity' would take is a shuffle here: a second table of the same figures would mislead.
    (near,) = {order for _, order in curves} - {"shuffle"}
    assert re.fullmatch(r"\d+ sequences?, where 'proximity' shuffles", near)
    assert "neighbours have too little in common. Seeds are shuffled." in printed
    assert curves["clock", near]["hit_rates"] != curves["clock", "shuffle"]["hit_rates"]
    assert curves["optimum", "shuffle"]["hit_rates"][1] > 0.5
    assert set(written["reused"]) == {"shuffle", near}
    last = written["reused"]["shuffle"]["saved"]["the last mini-batch's rows"]
    assert 0 < last < 1
    assert f"shuffle: the last mini-batch had {last:.0%} of the missed rows; as much memory saves most as a " in printed
    assert (out / "cache.png").read_bytes().startswith(b"\x89PNG")


def test_the_folder_of_a_graph_is_enough(tmp_path: Path) -> None:
    save_graph_data(toy_data(), tmp_path / "graph")
    folder = str(tmp_path / "graph")
    for arguments, fanouts in (([], [10, 10]), (["--data.sampler.fanouts", "[3]"], [3])):
        _, module = cache_command._parse([folder, *arguments])
        assert module.known_data().num_nodes == 300
        assert module.sampler.fanouts == fanouts
    out = str(tmp_path / "out")
    assert cache_command.main([folder, "--epochs", "2", "--one-order", "--ratios", "0.5", "--out", out]) == 0


def test_an_order_that_is_taken_or_cannot_be_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for y, said, orders in (
        (
            torch.zeros(1000, dtype=torch.long),
            "order='proximity': with 1 sequence, a cache of",
            {"shuffle", "proximity"},
        ),
        (None, "it chooses by integer labels [N] of nodes, which are not there", {"shuffle"}),
    ):
        save_graph_data(GraphData(ring(1000), torch.zeros(1000, 2), y, range(1000), [], []), tmp_path / f"{y is None}")
        out, shorter = tmp_path / "out", ["--epochs", "2", "--ratios", "0.1", "0.2", "--data.batch_size", "64"]
        assert cache_command.main([str(tmp_path / f"{y is None}"), *shorter, "--out", str(out)]) == 0
        assert said in " ".join(capsys.readouterr().out.split())
        assert {curve["order"] for curve in json.loads((out / "cache.json").read_text())["curves"]} == orders


def test_arguments_go_over_the_configuration(config: Path, tmp_path: Path) -> None:
    arguments = ["--config", str(config), "--data.batch_size", "50", "--data.sampler.init_args.fanouts", "[1]"]
    _, module = cache_command._parse(arguments)
    assert module.batch_size == 50
    assert module.sampler.fanouts == [1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give DATA, or --config FILE"),
        (["--config", "none.yaml"], "none.yaml"),
        (["--ratios", "1.5"], "a share above 0 and at most 1"),
        (["--ratios", "many"], "a share above 0 and at most 1"),
        (["--out", f"{__file__}/out"], "is no folder"),
        (["--out", __file__], "is no folder"),
        (["--epochs", "1", *SAMPLER], "argument --epochs: '1': a whole number of at least 2"),
        (["--trainer.devices", "2", *SAMPLER], "unknown: --trainer.devices"),
        (["NoSuchDataset", *SAMPLER], "DATA NoSuchDataset: there is no such data set or folder"),
        (["--data.data", "Debian", *SAMPLER, "--data.batches", "3"], "data.batches"),
    ],
)
def test_bad_arguments_are_told_in_a_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cache_command.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_features_that_are_not_there(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cache_command.main(["--config", str(config), "--table", "papers"]) == 2
    assert "no features 'papers'" in capsys.readouterr().out
    assert cache_command.main(["--config", str(config), "--data.data.init_args.num_features", "0"]) == 2


def test_a_mistake_in_a_description_is_told_as_in_graph_yaml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert GraphCLI
    nodes, edges = {"a": {"from": "a.csv", "idd": "x"}}, {"e": {"from": "e.csv", "src": "a.s", "dst": "a.t"}}
    given = {"class_path": "Tables", "init_args": {"folder": "graph", "nodes": nodes, "edges": edges}}
    (tmp_path / "run.yaml").write_text(json.dumps({"data": {"data": given}}))
    with pytest.raises(SystemExit) as ended:
        cache_command.main(["--config", str(tmp_path / "run.yaml")])
    assert ended.value.code == 2
    assert "run.yaml:1: nodes.a: there is no key 'idd'; did you mean 'id'?" in capsys.readouterr().err
