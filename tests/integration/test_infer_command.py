"""``gnnload infer``: weights of a checkpoint, rows of all nodes in a file by the user's ids."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from lightning_gnnload import Graph, GraphData, infer, save_graph_data
from lightning_gnnload.plugin.commands import cli
from tests.plain_sage import GraphSAGE

ROOT = Path(__file__).parents[2]
NODES = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a graph, a configuration and a checkpoint, in which commands run."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(rng.integers(NODES, size=300), rng.integers(NODES, size=300), NODES)
    data = GraphData(
        graph,
        x=torch.randn(NODES, 8),
        y=torch.arange(NODES) % 3,
        train=np.arange(20),
        user_ids=[f"user {number}" for number in range(NODES)],
    )
    save_graph_data(data, tmp_path / "graph")
    model = {"in_features": 8, "num_classes": 3, "hidden": 16}
    config = {
        "trainer": {"accelerator": "cpu", "devices": 1, "logger": False, "default_root_dir": str(tmp_path)},
        "model": {"class_path": "tests.plain_sage.GraphSAGE", "init_args": model},
        "data": {
            "data": str(tmp_path / "graph"),
            "sampler": {"class_path": "NeighborSampler", "init_args": {"fanouts": [3, 3]}},
        },
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    torch.save({"state_dict": GraphSAGE(**model).state_dict()}, tmp_path / "model.ckpt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    for name in [name for name in os.environ if name.startswith("PL_")]:
        monkeypatch.delenv(name)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The exit status, or what was said instead."""
    monkeypatch.setattr(sys, "argv", ["gnnload", "infer", "--config", "run.yaml", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_rows_of_a_trained_model_by_the_users_ids(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    given = ["--ckpt_path", "model.ckpt", "--method", "forward", "--layers", "convs.0,convs.1"]
    assert run(monkeypatch, *given, "--out", "rows.parquet") == 0
    table = parquet.read_table(folder / "rows.parquet")
    from lightning_gnnload import load_graph_data

    model = GraphSAGE(8, 3, hidden=16)
    model.load_state_dict(torch.load(folder / "model.ckpt", weights_only=True)["state_dict"])
    wanted = infer(model, load_graph_data(folder / "graph"), method="forward", progress=False)
    assert table.column(0).to_pylist() == [f"user {number}" for number in range(NODES)]
    np.testing.assert_allclose(np.array(table.column("prediction").to_pylist()), wanted.numpy(), rtol=1e-5)
    assert run(monkeypatch, *given, "--out", "rows.npy", "--nodes", "train", "--dtype", "float16") == 0
    np.testing.assert_allclose(np.load(folder / "rows.npy"), wanted[:20].numpy(), rtol=2e-2, atol=2e-2)


def test_no_checkpoint_and_a_wrong_one_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--untrained true" in str(run(monkeypatch, "--out", "rows.npy"))
    torch.save({"state_dict": {"other": torch.ones(1)}}, folder / "other.ckpt")
    said = str(run(monkeypatch, "--out", "rows.npy", "--ckpt_path", "other.ckpt"))
    assert "other.ckpt has no weights for GraphSAGE" in said
    assert "\n" not in said
    assert not list(folder.glob("rows*"))
    assert run(monkeypatch, "--out", "rows.npy", "--untrained", "true") == 0
