"""The package's names are loaded when they are used: what each layer brings into a process, and what it does not."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec

import pytest

import lightning_gnnload

MOST_FOR_PYG = 94
HEAVY = ("numpy", "torch", "pytorch_lightning", "lightning", "torchmetrics", "matplotlib", "rich", "yaml")
# Prints, for each module that it is asked to import, which of HEAVY the process has then: "folder/but" are all modules
# of a folder but one.
IMPORT = f"""
import importlib, pkgutil, sys
for asked in sys.argv[1:]:
    name, is_folder, but = asked.partition("/")
    module = importlib.import_module(name)
    for each in pkgutil.walk_packages(module.__path__, name + ".") if is_folder else ():
        if each.name != f"{{name}}.{{but}}":
            importlib.import_module(each.name)
    print(asked, *(name for name in {HEAVY} if name in sys.modules))
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_layers_load_what_they_use_alone() -> None:
    # From the lowest layer up, in one process: the first that has too much is the one that brought it.
    layers = [
        "lightning_gnnload",
        "lightning_gnnload.errors",
        "lightning_gnnload.ops",
        "lightning_gnnload.ops/",
        "lightning_gnnload.data/",
        "lightning_gnnload.sample/",
        "lightning_gnnload.adapters/",
        "lightning_gnnload.cache/metrics",  # a Metric is torchmetrics'
        "lightning_gnnload.partition/report",  # what commands print comes as tables of rich
        "lightning_gnnload.conform/",
        "lightning_gnnload.pipeline/",
    ]
    loaded = ["", "", ""] + [" numpy torch"] * 8
    assert run(IMPORT, *layers).splitlines() == [name + heavy for name, heavy in zip(layers, loaded, strict=True)]


PYG = """
import sys
import torch_geometric.loader
before = {*sys.modules}
from lightning_gnnload.pyg import LinkNeighborLoader, NeighborLoader
print(*({*sys.modules} - before))
"""


@pytest.mark.matrix
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


def test_without_pyg_its_loaders_say_what_to_install() -> None:
    code = """
import sys
sys.modules["torch_geometric"] = None
from lightning_gnnload.errors import MissingExtraError
try:
    from lightning_gnnload.pyg import NeighborLoader
except MissingExtraError as error:
    print(error)
"""
    assert run(code).endswith("pip install 'lightning-gnnload[pyg]'")


def test_every_name_is_there_and_no_other() -> None:
    for name in lightning_gnnload.__all__:
        assert getattr(lightning_gnnload, name).__name__ == name
    assert {*lightning_gnnload.__all__, "errors", "__version__"} <= {*dir(lightning_gnnload)}
    with pytest.raises(AttributeError, match=r"module 'lightning_gnnload' has no attribute 'GraphLoader'"):
        lightning_gnnload.GraphLoader  # noqa: B018


LIBRARIES = {"": "torch", ".pyg": "torch_geometric", ".models": "torch", ".dgl": "dgl", ".ray": "ray"}
PACKAGES = [package for package in LIBRARIES if find_spec(f"lightning_gnnload{package}")]


@pytest.mark.parametrize("package", PACKAGES)
def test_dir_shows_what_is_public_and_nothing_that_serves_its_making(package: str) -> None:
    pytest.importorskip(LIBRARIES[package])
    # Used names have been imported with all that they bring; what a package itself imports would be listed, too.
    code = f"""
from types import ModuleType
import lightning_gnnload{package} as package
names = getattr(package, "__all__", [])
for name in names:
    getattr(package, name)
shown = [name for name in dir(package) if not name.startswith("__")]
print([name for name in shown if name not in names and not isinstance(getattr(package, name), ModuleType)])
print([name for name in names if name not in shown])
print([name for name in shown if isinstance(getattr(package, name), ModuleType)])
"""
    others, hidden, modules = run(code).splitlines()
    assert (others, hidden) == ("[]", "[]")
    if package == "":
        assert {*ast.literal_eval(modules)} - {"dgl"} == {"conform", "errors", "models", "pyg"}
    assert "importlib" not in modules


def test_modules_of_the_package_are_its_attributes() -> None:
    code = "import lightning_gnnload as g; print(*(part.__name__ for part in (g.errors, g.conform, g.ops)))"
    assert run(code) == "lightning_gnnload.errors lightning_gnnload.conform lightning_gnnload.ops"


@pytest.mark.matrix
def test_configurations_may_name_every_class_and_strategy_beside_the_data_module() -> None:
    # Parsers know a class without its module by its being imported, and Lightning a strategy by its being registered.
    code = """
from lightning_gnnload import GraphDataModule
from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.datasets.base import Dataset
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.sample.base import Sampler
def names(kind):
    return {kind.__name__}.union(*map(names, kind.__subclasses__()))
print(*names(CachePolicy), *names(Dataset), *names(Sampler), *names(pl.Callback), *names(pl.strategies.Strategy))
print(*pl.strategies.StrategyRegistry)
"""
    named = {*run(code).split()}
    assert named >= {"LaborSampler", "PreSample", "Synthetic", "CacheMonitor", "PredictionWriter", "FactoredStrategy"}
    assert named >= {"factored", "factoredstrategy", "factored_spawn", "factored_fork", "factored_notebook"}
