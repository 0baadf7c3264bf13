"""Trains as a user of the ``lightning`` package does. Arguments: how, num_devices, strategy, cases of loops.py."""

from __future__ import annotations

import sys
from pathlib import Path

import lightning.pytorch as pl  # before lightning_gnnload, which follows it

from lightning_gnnload import FactoredStrategy, GraphDataModule, LoaderMonitor
from tests.integration.scripts.loops import CASES, run

if __name__ == "__main__":
    how, devices, strategy = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    assert issubclass(FactoredStrategy, pl.strategies.Strategy)
    assert issubclass(GraphDataModule, pl.LightningDataModule)
    for name in sys.argv[4:]:
        case = CASES[name]
        case.callbacks = lambda: [LoaderMonitor()]
        run(case, Path.cwd() / name, devices, FactoredStrategy(start_method=how) if how == "spawn" else strategy)
    assert "pytorch_lightning" not in sys.modules, "a user of one package pays for two"
