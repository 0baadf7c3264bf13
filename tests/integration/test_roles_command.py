"""Roles by the command line and by configuration files, whose values are plain."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload import FactoredStrategy
from lightning_gnnload.plugin.commands.fit import GraphCLI
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module.datamodule import GraphDataModule

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "examples/configs/debian_sage.yaml"


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    monkeypatch.setattr(sys, "argv", ["gnnload"])
    for name in [name for name in os.environ if name.startswith("PL_")]:
        monkeypatch.delenv(name)


def strategy(*arguments: str) -> FactoredStrategy:
    cli = GraphCLI(
        pl.LightningModule,
        GraphDataModule,
        subclass_mode_model=True,
        run=False,
        args=["--config", str(CONFIG), "--trainer.logger=false", *arguments],
    )
    found = cli.trainer.strategy
    assert isinstance(found, FactoredStrategy)
    return found


def by_command(**options: Any) -> list[str]:
    return ["--trainer.strategy=FactoredStrategy"] + [
        f"--trainer.strategy.{name}={value}" for name, value in options.items()
    ]


def test_auto_on_the_command_line() -> None:
    found = strategy(*by_command(samplers="auto", queue_depth="auto", queue_memory_bytes=1 << 20, pin_cores="true"))
    assert (found.samplers, found.queue_memory_bytes, found.pin_cores) == ("auto", 1 << 20, True)
    assert found.is_undecided


def test_numbers_on_the_command_line() -> None:
    found = strategy("--trainer.devices=1", *by_command(trainers=2, samplers=1))
    assert (found.roles.num_trainers, found.roles.num_samplers) == (2, 1)
    assert not found.is_undecided


def test_a_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(
        "trainer:\n  devices: 4\n  strategy:\n    class_path: FactoredStrategy\n"
        "    init_args: {samplers: auto, queue_depth: 6, pin_cores: true}\n"
    )
    found = strategy("--config", str(file))
    assert (found.samplers, found.queue_depth, found.pin_cores, found.roles.num_devices) == ("auto", 6, True, 4)
