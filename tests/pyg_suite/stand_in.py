"""A pytest plugin for PyG's tests and RelBench's: our loaders, samplers and data modules stand in for PyG's.

- Wherever tests import them from, the names of ``EXCHANGED`` are our classes. PyG's own that sample raise an error.
- Neither pyg-lib nor torch-sparse is there: :mod:`tests.pyg_suite.without`. Tests that ask for them are told, while
  they are imported, that they are; what they compare with (``SparseTensor``) is :mod:`tests.pyg_suite.sparse_tensor`.
- Cora, which would be downloaded, is a random graph of its size. Without a GPU, tests that train on one train on the
  CPU.

With ``GNNLOAD_STAND_IN=pyg`` PyG's own classes run instead, by pyg-lib and torch-sparse if they are installed.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest
import pytorch_lightning as pl
import torch
import torch_geometric
import torch_geometric.data.lightning
import torch_geometric.datasets
import torch_geometric.testing
from torch_geometric.data import Data
from torch_geometric.sampler import HGTSampler, NeighborSampler
from torch_geometric.utils import to_undirected

from tests.pyg_suite import sparse_tensor
from tests.pyg_suite.left_out import reason_of
from tests.pyg_suite.without import STANDS_IN

# PyG's name -> ours, and the modules that tests import it from.
EXCHANGED = {
    "NeighborLoader": ("NeighborLoader", ["torch_geometric.loader"]),
    "LinkNeighborLoader": ("LinkNeighborLoader", ["torch_geometric.loader"]),
    "HGTLoader": ("HGTLoader", ["torch_geometric.loader"]),
    "ShaDowKHopSampler": ("ShaDowKHopSampler", ["torch_geometric.loader"]),
    **{
        name: (name, ["torch_geometric.loader"])
        for name in (
            *("ClusterData", "ClusterLoader", "RandomNodeLoader", "ZipLoader"),
            *("GraphSAINTNodeSampler", "GraphSAINTEdgeSampler", "GraphSAINTRandomWalkSampler"),
        )
    },
    "NeighborSampler": ("GnnloadSampler", ["torch_geometric.sampler", "torch_geometric.sampler.neighbor_sampler"]),
    "LightningNodeData": ("LightningNodeData", ["torch_geometric.data", "torch_geometric.data.lightning"]),
    "LightningLinkData": ("LightningLinkData", ["torch_geometric.data", "torch_geometric.data.lightning"]),
}
_GUARDS = ("WITH_PYG_LIB", "WITH_TORCH_SPARSE", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")
_used: set[str] = set()  # names of our classes that the test that runs made


def _record(kind: type) -> None:
    """Has the class note that the test made one of it."""
    make = kind.__init__  # type: ignore[misc]

    @functools.wraps(make)
    def make_and_note(self: Any, *args: Any, **kwargs: Any) -> None:
        _used.add(type(self).__name__)
        make(self, *args, **kwargs)

    kind.__init__ = make_and_note  # type: ignore[misc]


def _refused(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(f"{type(self).__name__}, PyG's own, was to sample in the place of ours")


def _put_in_place() -> None:
    """Ours for PyG's, in the modules that tests import from. PyG's own modules keep the bases of our classes."""
    own = torch_geometric.loader.ShaDowKHopSampler
    ours = {
        name: getattr(import_module("lightning_gnnload.pyg"), name) for name, _ in EXCHANGED.values()
    }  # before any is exchanged
    for theirs, (name, modules) in EXCHANGED.items():
        for module in modules:
            setattr(import_module(module), theirs, ours[name])
    for kind in ours.values():
        _record(kind)
    NeighborSampler._sample = _refused
    HGTSampler.sample_from_nodes = _refused
    own.__collate__ = _refused
    sparse_tensor.put_in_place()
    torch_geometric.testing.withMETIS = lambda test: test  # PyMetis, which PyG does not look for


def _pass_guards(are_passed: bool) -> None:
    """Whether tests that are imported now find pyg-lib and torch-sparse."""
    for name in _GUARDS:
        setattr(torch_geometric.typing, name, are_passed)
    decorators = torch_geometric.testing.decorators
    decorators.WITH_PYG_LIB = decorators.WITH_TORCH_SPARSE = are_passed


def _claim_packages() -> None:
    decorators = torch_geometric.testing.decorators
    has_package = decorators.has_package
    claimed = {"pyg_lib", "torch_sparse"}
    decorators.has_package = lambda package: package in claimed or has_package(package)


class _Cora(list):  # type: ignore[type-arg]
    """A random graph of the size of Cora's, and its splits, as a data set of PyG's."""

    num_features, num_classes = 1433, 7

    def __init__(self, root: str, name: str) -> None:
        draw = torch.Generator().manual_seed(0)
        num_nodes, num_edges = 2708, 10556
        ids = torch.randperm(num_nodes * (num_nodes - 1) // 2, generator=draw)[: num_edges // 2]
        below = torch.tril_indices(num_nodes, num_nodes, -1)[:, ids]
        split = torch.arange(num_nodes)
        super().__init__(
            [
                Data(
                    x=(torch.rand(num_nodes, self.num_features, generator=draw) < 0.01).float(),
                    edge_index=to_undirected(below),
                    y=torch.randint(self.num_classes, (num_nodes,), generator=draw),
                    train_mask=split < 140,
                    val_mask=(split >= 140) & (split < 640),
                    test_mask=split >= 1708,
                )
            ]
        )


def _train_on_cpus() -> None:
    """Strategies and trainers for one GPU and for several are for one CPU."""

    class SingleDeviceStrategy(pl.strategies.SingleDeviceStrategy):
        def __init__(self, device: str) -> None:
            super().__init__("cpu")

    class DDPStrategy(pl.strategies.DDPStrategy):
        def __init__(self, accelerator: str) -> None:
            super().__init__()

    class Trainer(pl.Trainer):
        def __init__(self, devices: int, **kwargs: Any) -> None:
            super().__init__(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, **kwargs)

    pl.strategies.SingleDeviceStrategy, pl.strategies.DDPStrategy = SingleDeviceStrategy, DDPStrategy
    pl.Trainer = Trainer
    torch_geometric.testing.onlyCUDA = lambda test: test


if STANDS_IN:
    _put_in_place()
    _claim_packages()
torch_geometric.datasets.Planetoid = _Cora
os.environ["FULL_TEST"] = "1"
if not torch.cuda.is_available():
    _train_on_cpus()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Only while tests are imported: afterwards PyG must not look for what is not there."""
    if STANDS_IN:
        _pass_guards(True)
    try:
        return (yield)
    finally:
        if STANDS_IN:
            _pass_guards(False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if STANDS_IN and (reason := reason_of(item.nodeid)) is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Each test draws the same, in whatever order and company."""
    torch.manual_seed(0)
    _used.clear()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "call":
        item.user_properties.append(("used", " ".join(sorted(_used))))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line of JSON for each phase of each test."""
    if hasattr(report, "wasxfail"):
        outcome, why = "left out", report.wasxfail
    else:
        outcome = report.outcome
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
    _note(report.nodeid, outcome, why, dict(report.user_properties).get("used", ""))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file whose tests cannot be found has failed, too."""
    if report.failed:
        _note(report.nodeid, report.outcome, str(report.longrepr), "")


def _note(test: str, outcome: str, why: str, used: str) -> None:
    line = {"test": test, "outcome": outcome, "why": why, "used": used}
    with Path(os.environ["GNNLOAD_REPORT"]).open("a") as file:
        print(json.dumps(line), file=file)
