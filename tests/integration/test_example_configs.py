"""The configurations that go on top of another one, as their first lines tell."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lightning_gnnload.plugin.commands.fit import GraphCLI
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module.datamodule import GraphDataModule

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "examples/configs"


def composed(name: str, monkeypatch: pytest.MonkeyPatch) -> GraphCLI:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    monkeypatch.setattr(sys, "argv", ["gnnload"])
    for setting in [setting for setting in os.environ if setting.startswith("PL_")]:
        monkeypatch.delenv(setting)
    configs = ["--config", str(CONFIGS / "debian_sage.yaml"), "--config", str(CONFIGS / name)]
    arguments = [*configs, "--trainer.logger=false"]
    return GraphCLI(pl.LightningModule, GraphDataModule, subclass_mode_model=True, run=False, args=arguments)


def test_parts_are_for_trainers_that_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    cli = composed("partitioned.yaml", monkeypatch)
    assert type(cli.trainer.strategy) is pl.strategies.DDPStrategy
    assert cli.trainer.num_devices == 2
    assert cli.config["data"]["partition"] == Path("runs/debian_parts")


def test_owners_take_the_place_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    cli = composed("owned.yaml", monkeypatch)
    assert cli.datamodule.owners.graph == cli.datamodule.owners.features == ("127.0.0.1:7500",)
    assert cli.config["data"]["data"] == "runs/debian_owned"


def test_a_cache_leaves_the_rest_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cli = composed("cached.yaml", monkeypatch)
    assert type(cli.trainer.strategy).__name__ == "FactoredStrategy"
    assert cli.config["data"]["cache"].ratio == 0.1
