"""``gnnload preaggregate``: what it adds to a folder and prints, and what it says of arguments that cannot work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_gnnload import Graph, GraphData, GraphDataModule, SeedTable, load_graph_data, save_graph_data
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.plugin.commands.fit import GraphCLI
from lightning_gnnload.plugin.commands.preaggregate import main
from lightning_gnnload.plugin.compat import pl
from tests.unit.toy import toy_data
from tests.unit.typed import NODES, typed_graph


def test_tables_come_to_the_folder_or_to_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, copy = str(tmp_path / "graph"), str(tmp_path / "copy")
    save_graph_data(toy_data(), folder)
    assert main([folder, "--hops", "2", "--name", "hop", "--self-loops"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "hop_1: mean of x, self-loops; float32 [300, 5], 5.9 KiB",
        "hop_2: mean of x, hop 2, self-loops; float32 [300, 5], 5.9 KiB",
        f"In {folder}. To train: gnnload fit --data.data {folder}, with a model that reads these tables.",
    ]
    config = {"data": {"data": folder, "sampler": {"class_path": "NeighborSampler", "init_args": {"fanouts": [3]}}}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    settings = ["--aggr", "sum", "--dtype", "bfloat16", "--memory", "1000000", "--out", copy]
    assert main(["--config", str(tmp_path / "run.yaml"), *settings]) == 0
    assert [*load_graph_data(folder).tables] == ["hop_1", "hop_2"]
    data = load_graph_data(copy)
    assert [*data.tables] == ["hop_1", "hop_2", "x_sum_1"]
    assert data.tables["x_sum_1"].dtype == torch.bfloat16


def test_what_cannot_be_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "graph")
    save_graph_data(toy_data(), folder)
    for arguments, told in (
        ([], "give DATA first"),
        (["Debian"], "give --out FOLDER, as the folder of Debian"),
        ([folder, "--hop", "2"], "unrecognized arguments: --hop; did you mean --hops?"),
        ([folder, "--hops", "0"], "a whole number of at least 1"),
        ([folder, "--aggr", "median"], "invalid choice: 'median'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert told in " ".join(capsys.readouterr().err.split())
    assert main([folder, "--table", "z"]) == 2
    assert capsys.readouterr().err == (
        "gnnload preaggregate: GraphDataError: there is no table 'z' of nodes; there are x.\n"
    )


def test_metapaths_have_tables_of_a_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "graph")
    save_graph_data(GraphData(typed_graph(), x={"paper": torch.ones(NODES["paper"], 3)}), folder)
    assert main([folder, "--hops", "2", "--node-type", "field", "--merge-relations"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, told in zip(
        lines,
        (
            "x_mean_1_paper__has__field.field: mean of x.paper, paper__has__field; float32 [7, 3], ",
            "x_mean_2_paper__cites__paper__has__field.field: mean of x.paper, hop 2, paper__cites__paper and ",
            f"In {folder}. ",
        ),
        strict=True,
    ):
        assert line.startswith(told)
    assert main([folder, "--node-type", "fields"]) == 2
    assert "'fields' is no node type of the graph; these are paper, author" in capsys.readouterr().err


def test_gnnload_fit_refuses_what_the_sampler_would_not_draw(tmp_path: Path) -> None:
    folder = str(tmp_path / "graph")
    graph = Graph.from_coo([0, 1, 2], [1, 2, 0], edge_weight=[1.0, 2.0, 3.0], edge_time=[1, 2, 9])
    rows = SeedTable([0, 1], y=[0, 1], time=[4, 5])
    save_graph_data(GraphData(graph, x=torch.ones(3, 2), train=rows, num_classes=2), folder)
    assert main([folder, "--as-of", "9", "--no-weighted"]) == 0

    def fit(**sampler: Any) -> None:
        config = {"model": {"class_path": "SAGE", "init_args": {"first_layer": "preaggregated"}}}
        config |= {"trainer": {"accelerator": "cpu", "devices": 1, "max_epochs": 1, "logger": False}}
        config["trainer"] |= {"enable_progress_bar": False, "default_root_dir": str(tmp_path)}
        chosen = {"class_path": "NeighborSampler", "init_args": {"fanouts": [2], **sampler}}
        config |= {"data": {"data": folder, "sampler": chosen, "num_threads": 0}}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
        arguments = ["--config", str(tmp_path / "run.yaml")]
        settings: dict[str, Any] = {"subclass_mode_model": True, "run": False, "save_config_callback": None}
        command = GraphCLI(pl.LightningModule, GraphDataModule, args=arguments, **settings)
        command.trainer.fit(command.model, datamodule=command.datamodule)

    with pytest.raises(GraphDataError, match="'x_mean_1' counts edges up to 9, but the seeds to train on are of 4"):
        fit()
    fit(before=None)
    assert main([folder, "--as-of", "3", "--no-weighted"]) == 0
    fit()
    with pytest.raises(GraphDataError, match="with window=1"):
        fit(window=1)
    assert main([folder, "--as-of", "3"]) == 0
    with pytest.raises(
        GraphDataError, match=r"'x_mean_1' \(mean of x, weighted, as of 3\) is weighted by edge weights"
    ):
        fit()
