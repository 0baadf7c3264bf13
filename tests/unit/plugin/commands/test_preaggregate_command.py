"""``gnnload preaggregate``: what it adds to a folder and prints, and what it says of arguments that cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from lightning_gnnload import load_graph_data, save_graph_data
from lightning_gnnload.plugin.commands.preaggregate import main
from tests.unit.toy import toy_data


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
