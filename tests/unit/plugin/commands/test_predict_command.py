"""``gnnload predict`` over a graph folder: a file by the user's own ids, and nothing that is found out too late."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from lightning_gnnload import GraphData, GraphFolder, PredictionWriter, SeedTable, UserIds, save_graph_data
from lightning_gnnload.data.task import Task
from lightning_gnnload.plugin.commands import fit
from lightning_gnnload.plugin.compat import pl
from tests.unit.toy import toy_data, toy_graph

ROWS = [7, 3, 250]


class Guesses(pl.LightningModule):
    """Predicts the number of the node, modulo the number of classes."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    def predict_step(self, batch, batch_idx):
        return torch.nn.functional.one_hot(batch.seeds % self.num_classes, self.num_classes).float()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a folder with two tasks, in a folder of its own, which is the current one."""
    tables = {"train": SeedTable([1, 2], y=[0, 1]), "test": SeedTable(ROWS, y=[0, 1, 0])}
    tasks = {
        "churn": Task(tables, num_classes=2, class_names=("stays", "leaves")),
        "size": Task({"train": SeedTable([4, 5, 6], y=[0, 1, 2])}, num_classes=3),
    }
    ids = UserIds.of([f"u{node}" for node in range(300)], column="user_id")
    save_graph_data(GraphData(toy_graph(), toy_data().x, user_ids=ids, tasks=tasks), tmp_path / "graph")
    sampler = {"class_path": "NeighborSampler", "init_args": {"fanouts": [2]}}
    settings = {
        "trainer": {"accelerator": "cpu", "logger": False, "enable_progress_bar": False},
        "model": {"class_path": f"{__name__}.Guesses"},
        "data": {"data": "graph", "task": "churn", "sampler": sampler},
        "untrained": True,
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run.yaml"


def predict(config: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gnnload", "predict", "--config", str(config), *arguments])
    return fit.main(sys.argv[2:])


def test_all_nodes_or_the_rows_of_a_split_are_written_by_the_users_ids(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as parquet

    kept = []
    epoch_end = PredictionWriter.on_predict_epoch_end
    monkeypatch.setattr(
        PredictionWriter,
        "on_predict_epoch_end",
        lambda self, trainer, model: kept.append(trainer.predict_loop._predictions) or epoch_end(self, trainer, model),
    )
    assert predict(config, monkeypatch) == 0  # to predictions.npz
    with np.load("predictions.npz", allow_pickle=False) as found:
        assert list(found) == ["user_id", "prediction", "class"]
        assert found["user_id"].tolist() == [f"u{node}" for node in range(300)]
        assert found["class"].tolist() == [("stays", "leaves")[node % 2] for node in range(300)]
    assert predict(config, monkeypatch, "--data.predict", "test", "--out", "new/test.parquet") == 0
    assert parquet.read_table("new/test.parquet").to_pydict() == {
        "row": [0, 1, 2],
        "user_id": [f"u{node}" for node in ROWS],
        "p_stays": [float(node % 2 == 0) for node in ROWS],
        "p_leaves": [float(node % 2) for node in ROWS],
        "class": [("stays", "leaves")[node % 2] for node in ROWS],
    }
    assert [sum(map(len, each)) for each in kept] == [0, 0]  # nothing is held in memory besides


def test_as_of_is_an_option_and_a_setting(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["--as-of", "2026-07-01"], ["--as_of=2026-07-01"], ["--data.as_of", "2026-07-01"]):
        with pytest.raises(
            SystemExit, match="as of '2026-07-01': the graph has no times, so that it is the same at any"
        ):
            predict(config, monkeypatch, *arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--out", "found.tsv"], r"OutputError: found\.tsv ends in \.tsv.*\.parquet, \.csv, \.csv\.gz, \.npz or \.npy"),
        (["--untrained", "false"], "predict would use an untrained model"),
        (["--ckpt_path", "none.ckpt"], r"--ckpt_path none\.ckpt: there is no such file"),
        (["--data.task", "chrun"], "there is no task 'chrun'; the tasks are churn, size"),
    ],
)
def test_mistakes_are_told_before_the_work(
    config: Path, arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guesses, "predict_step", lambda self, batch, batch_idx: pytest.fail("a batch was predicted"))
    with pytest.raises(SystemExit, match=told):
        predict(config, monkeypatch, *arguments)


def test_a_folder_is_read_once_where_the_model_needs_no_sizes(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    load = GraphFolder.load
    monkeypatch.setattr(GraphFolder, "load", lambda self: loaded.append(self) or load(self))
    assert predict(config, monkeypatch, "--model.num_classes", "2") == 0
    assert len(loaded) == 1


def test_a_fit_that_resumes_from_no_file_is_told_in_a_line(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = yaml.safe_load(config.read_text())
    del settings["untrained"]
    config.write_text(yaml.safe_dump(settings))
    monkeypatch.setattr(sys, "argv", ["gnnload", "fit", "--config", str(config), "--ckpt_path", "none.ckpt"])
    with pytest.raises(SystemExit, match=r"--ckpt_path none\.ckpt: there is no such file"):
        fit.main(sys.argv[1:])


@pytest.mark.parametrize("path", ["best", "last", "hpc", "registry:model", "s3://bucket/last.ckpt"])
def test_checkpoints_that_lightning_looks_for_are_left_to_it(path: str, tmp_path: Path) -> None:
    fit.check_checkpoint("test", {"ckpt_path": path, "untrained": False}, str(tmp_path))  # raises of others
