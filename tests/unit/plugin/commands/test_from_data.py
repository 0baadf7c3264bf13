"""Arguments of a model that are left out come from the data; those that are given stay."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_gnnload import GraphData, GraphDataModule, save_graph_data
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.plugin.commands.fit import GraphCLI
from lightning_gnnload.plugin.compat import pl
from tests.unit.toy import toy_data, toy_graph
from tests.unit.typed import NODES, typed_graph


class Sized(pl.LightningModule):
    """Requires two sizes; one more has a default."""

    def __init__(self, in_features: int, num_classes: int, hidden: int = 4, out_channels: int | None = None) -> None:
        super().__init__()
        self.save_hyperparameters()


class Derived(Sized):
    def __init__(self, depth: int = 1, **others: Any) -> None:
        super().__init__(**others)


class Typed(pl.LightningModule):
    def __init__(self, in_channels: dict[str, int], edge_types: list[tuple[str, str, str]]) -> None:
        super().__init__()
        self.save_hyperparameters()


class Plain(pl.LightningModule):
    pass


def cli(monkeypatch: pytest.MonkeyPatch, folder: Path, model: type, *arguments: str) -> GraphCLI:
    monkeypatch.setattr(sys, "argv", ["gnnload"])
    data = {"data": str(folder), "sampler": {"class_path": "NeighborSampler", "init_args": {"fanouts": [2]}}}
    config = folder.parent / "run.yaml"
    config.write_text(yaml.safe_dump({"data": data, "trainer": {"logger": False}, "seed_everything": 0}))
    given = ["--config", str(config), "--model", f"{model.__module__}.{model.__name__}", *arguments]
    return GraphCLI(pl.LightningModule, GraphDataModule, subclass_mode_model=True, run=False, args=given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_graph_data(toy_data(), tmp_path / "graph")
    return tmp_path / "graph"


@pytest.mark.parametrize("model", [Sized, Derived])
def test_what_is_left_out_comes_from_the_data_and_is_said(
    folder: Path, model: type, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = cli(monkeypatch, folder, model)
    wanted = {"in_features": 5, "num_classes": 7, "hidden": 4, "out_channels": None}
    assert {name: made.model.hparams[name] for name in wanted} == wanted  # what has a default is left alone
    assert "model.in_features = 5, from the data" in caplog.text
    saved = yaml.safe_load(made.parser.dump(made.config, skip_none=False))["model"]["init_args"]
    assert {name: saved[name] for name in wanted} == wanted  # so that the saved configuration does not need the data


def test_what_is_given_stays_and_asks_no_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = cli(monkeypatch, folder, Sized, "--model.num_classes", "9")
    assert (made.model.hparams["in_features"], made.model.hparams["num_classes"]) == (5, 9)
    assert "num_classes = " not in caplog.text
    saved = yaml.safe_load(made.parser.dump(made.config, skip_none=False))["model"]["init_args"]
    assert saved["num_classes"] == 9
    monkeypatch.setattr(GraphDataModule, "known_data", lambda self: pytest.fail("the data were loaded"))
    cli(monkeypatch, folder, Sized, "--model.num_classes", "9", "--model.in_features", "3")
    cli(monkeypatch, folder, Plain)


def test_of_a_graph_with_types_widths_are_by_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = {name: torch.ones(size, 2) for name, size in NODES.items()}
    save_graph_data(GraphData(typed_graph(), x=x), tmp_path / "graph")
    made = cli(monkeypatch, tmp_path / "graph", Typed)
    assert made.model.hparams["in_channels"] == dict.fromkeys(NODES, 2)
    assert next(map(tuple, made.model.hparams["edge_types"])) == ("author", "writes", "paper")


def test_what_the_data_do_not_tell_is_to_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_graph_data(GraphData(toy_graph(), toy_data().x), tmp_path / "unlabelled")
    with pytest.raises(LoaderConfigError, match=r"needs num_classes.*cannot be counted.*Give --model\.num_classes"):
        cli(monkeypatch, tmp_path / "unlabelled", Sized)
    save_graph_data(GraphData(toy_graph()), tmp_path / "bare")
    with pytest.raises(LoaderConfigError, match=r"needs in_features.*no features x"):
        cli(monkeypatch, tmp_path / "bare", Sized)
