"""The package's names are loaded when they are used: what each layer brings into a process, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lightning_gnnload

MOST_FOR_PYG = 105
HEAVY = ("numpy", "torch", "pytorch_lightning", "lightning", "torchmetrics", "matplotlib", "rich", "yaml")
# Prints which of HEAVY a process has after it imported these modules: a folder's are all its modules.
IMPORT = f"""
import importlib, pkgutil, sys
for name in sys.argv[1].split():
    module = importlib.import_module(name)
    if sys.argv[2:]:
        for each in pkgutil.walk_packages(module.__path__, name + "."):
            if each.name not in sys.argv[2:]:
                importlib.import_module(each.name)
print(*(name for name in {HEAVY} if name in sys.modules))
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "loads"),
    [("lightning_gnnload", ""), ("lightning_gnnload.errors", ""), ("lightning_gnnload.ops", "numpy")],
)
def test_a_door_opens_onto_its_own_layer_alone(name: str, loads: str) -> None:
    assert run(IMPORT, name) == loads


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "but"),
    [
        ("ops", ""),
        ("data", ""),
        ("sample", ""),
        ("adapters", ""),
        ("cache", "metrics"),  # a Metric is torchmetrics'
        ("partition", "report"),  # what commands print comes as tables of rich
        ("conform", ""),
        ("pipeline", ""),
    ],
)
def test_no_module_below_the_plugin_loads_lightning_or_what_draws_and_prints(layer: str, but: str) -> None:
    name = f"lightning_gnnload.{layer}"
    assert run(IMPORT, name, f"{name}.{but}") == "numpy torch"


PYG = """
import sys
import torch_geometric.loader
before = {*sys.modules}
from lightning_gnnload.pyg import LinkNeighborLoader, NeighborLoader
print(*({*sys.modules} - before))
"""


@pytest.mark.slow
def test_loaders_of_pyg_bring_nothing_but_what_samples_and_gathers() -> None:
    pytest.importorskip("torch_geometric")
    loaded = run(PYG).split()
    parts = {name.partition(".")[2] for name in loaded if name.startswith("lightning_gnnload.")}
    # Another library that PyG itself did not load would be the user's to wait for.
    assert {name.partition(".")[0] for name in loaded} == {"lightning_gnnload"}
    for unneeded in ("plugin", "conform", "partition", "cache", "ops.cuda", "adapters.dgl", "adapters.formats"):
        assert not [part for part in parts if part == unneeded or part.startswith(f"{unneeded}.")], unneeded
    assert not [part for part in parts if part.startswith("pipeline.device_batches")]
    assert len(parts) <= MOST_FOR_PYG  # each takes about a millisecond


def test_every_name_is_there_and_no_other() -> None:
    for name in lightning_gnnload.__all__:
        assert getattr(lightning_gnnload, name).__name__ == name
    assert {*lightning_gnnload.__all__, "errors", "__version__"} <= {*dir(lightning_gnnload)}
    with pytest.raises(AttributeError, match=r"module 'lightning_gnnload' has no attribute 'GraphLoader'"):
        lightning_gnnload.GraphLoader  # noqa: B018


def test_modules_of_the_package_are_its_attributes() -> None:
    assert run("import lightning_gnnload as g; print(g.errors.SeedError.__name__, g.conform.Promise.__name__)") == (
        "SeedError Promise"
    )


@pytest.mark.slow
def test_configurations_may_name_every_class_and_strategy_beside_the_data_module() -> None:
    # Parsers know a class without its module by its being imported, and Lightning a strategy by its being registered.
    code = """
from lightning_gnnload import GraphDataModule
from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.data.datasets.base import Dataset
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.sample.base import Sampler
def names(kind):
    return {kind.__name__}.union(*map(names, kind.__subclasses__()))
print(*names(CachePolicy), *names(Dataset), *names(Sampler), *names(pl.Callback), *names(pl.strategies.Strategy))
print(*pl.strategies.StrategyRegistry)
"""
    named = {*run(code).split()}
    assert named >= {"LaborSampler", "PreSample", "Synthetic", "CacheMonitor", "PredictionWriter", "FactoredStrategy"}
    assert named >= {"factored", "factored_spawn", "factored_fork", "factored_notebook"}
