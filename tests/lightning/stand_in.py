"""A pytest plugin for Lightning's tests: FactoredStrategy stands in for DDPStrategy, and nothing tells but its class.

- Every strategy by the name of ``"ddp..."``, and ``DDPStrategy`` wherever Lightning and its tests import it from, is a
  :class:`StandIn`. Of ``devices=n``, n ranks train, as the test asked for; the sampler is one rank more.
- ``strategy="auto"`` on one CPU, where Lightning takes no DDP, is one whose only rank trains and samples.

With ``GNNLOAD_STAND_IN=ddp``, DDPStrategy itself is what ``"auto"`` takes on one CPU, and all else is as it was. What
fails there fails not by FactoredStrategy.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_gnnload import FactoredStrategy
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.strategy.launcher import SpawnLauncher
from tests import guards
from tests.lightning.left_out import reason_of

DDPStrategy = pl.strategies.DDPStrategy
STANDS_IN = os.environ.get("GNNLOAD_STAND_IN", "factored") == "factored"
_roles: set[str] = set()  # that stand-ins had in the test that runs: "alone" or "apart"


class StandIn(FactoredStrategy):
    """Takes what DDPStrategy takes, and trains on as many ranks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(DDPStrategy).bind(*args, **kwargs).arguments
        self._start_method = given.get("start_method", "popen")  # asked for below, by the constructor
        super().__init__(samplers=1, **given | given.pop("kwargs", {}))

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        return super().parallel_devices

    @parallel_devices.setter
    def parallel_devices(self, devices: list[torch.device] | None) -> None:
        # A script of one process is not started a second time, by DDP neither.
        is_alone = not devices or (len(devices) == 1 and self.start_method == "popen")
        self.trainers = None if is_alone else len(devices)
        FactoredStrategy.parallel_devices.fset(self, devices)
        if devices:
            _roles.add("alone" if is_alone else "apart")

    def _configure_launcher(self) -> None:
        super()._configure_launcher()
        if type(self._launcher) is SpawnLauncher:
            self._launcher.__class__ = StandInLauncher


StandIn.__name__ = DDPStrategy.__name__  # which pytest makes parameters' names of


class StandInLauncher(SpawnLauncher):
    """The first object that a spawned process loads. With it comes this module, before any test's."""


def _put_in_place() -> None:
    registry = pl.strategies.StrategyRegistry
    for name in [name for name, entry in registry.items() if STANDS_IN and entry["strategy"] is DDPStrategy]:
        registry[name]["strategy"] = StandIn
    for name, module in sys.modules.items():
        if STANDS_IN and name.startswith(pl.__name__) and vars(module).get("DDPStrategy") is DDPStrategy:
            module.DDPStrategy = StandIn  # type: ignore[attr-defined]

    connector = pl.trainer.connectors.accelerator_connector._AcceleratorConnector
    choose = connector._choose_strategy

    def choose_ddp(self: Any) -> Any:
        chosen = choose(self)
        is_one_cpu = isinstance(chosen, pl.strategies.SingleDeviceStrategy) and chosen.root_device.type == "cpu"
        return (StandIn if STANDS_IN else DDPStrategy)() if is_one_cpu else chosen

    connector._choose_strategy = choose_ddp


_put_in_place()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[pytest.CollectReport]:
    """A file that imports what is not installed is skipped, as are tests that say what they need."""
    report = yield
    if report.failed and (missing := _not_installed(report.call.excinfo.value)) is not None:
        report.outcome, report.longrepr = "skipped", (report.nodeid, 0, f"Skipped: {missing} is not installed")
    return report


def _not_installed(error: BaseException) -> str | None:
    """The package that was not found, if there is none of that name here."""
    while not isinstance(error, ModuleNotFoundError):
        if error.__cause__ is None:
            return None
        error = error.__cause__
    package = (error.name or "").partition(".")[0]
    return package if package and importlib.util.find_spec(package) is None else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    done = set(Path(os.environ["GNNLOAD_DONE"]).read_text().splitlines())
    items[:] = [item for item in items if item.nodeid not in done]
    for item in items:
        if STANDS_IN and (reason := reason_of(item.nodeid)) is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
            item.add_marker(pytest.mark.timeout(60))  # where to fail is to wait in vain


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that was stopped leaves its ranks behind."""
    before = guards.footprint()
    _roles.clear()
    result = yield
    guards.kill(guards.new_children(before))
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Lightning's tests wait for the thread by which it watches its ranks, and allow no other to be left."""
    for thread in threading.enumerate():
        if thread.name.startswith(guards.PREFIX):
            thread.join(timeout=60)  # they wait for other ranks' pytest, on a machine that others may load


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "call":
        item.user_properties.append(("roles", " ".join(sorted(_roles))))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line of JSON for each phase of each test, by the process that hears of all of them."""
    if report.outcome == "rerun":  # of pytest-rerunfailures: the test goes on
        return
    why = report.wasxfail if hasattr(report, "wasxfail") else _words(report)
    outcome = "left out" if hasattr(report, "wasxfail") else report.outcome
    # A worker that crashed names no phase that there is.
    ended = report.when not in ("setup", "call")
    _note(report.nodeid, outcome, why, ended, dict(report.user_properties).get("roles", ""))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file whose tests cannot be found has failed, too, and one that is skipped is counted."""
    if not report.passed:
        _note(report.nodeid, report.outcome, _words(report), ended=True)


def _words(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")


def _note(test: str, outcome: str, why: str, ended: bool, roles: str = "") -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    line = {"test": test, "outcome": outcome, "why": why, "ended": ended, "roles": roles}
    with Path(os.environ["GNNLOAD_REPORT"]).open("a") as file:
        print(json.dumps(line), file=file)
