"""Guards around every test: what it leaves behind fails it (tests/guards.py says what)."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import forkserver, guards, rings

# Tests share the cores. Before folders' own conftest.py are imported, of which some read it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("GNNLOAD_TEST_PATIENCE", "2")

# The same examples in each run, and none that fails because the machine has much else to do.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

_NO_TIME = "its file would have begun after --begin-within"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--begin-within", type=float, metavar="S", help="begin no file of tests later, and list what is left"
    )


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    guards.mark_run(worker)
    guards.hide_packages()
    forkserver.serve_spawn()
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # as Lightning does on import, which may come within a test
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else the first import of DGL writes a choice into the home folder
    # A shell ignores SIGINT for what it starts in the background, and Python then leaves it so.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return rings.is_left_out(collection_path, config.option.markexpr) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rings.mark(items)


def pytest_collection_finish() -> None:
    rings.libraries.update({"dgl", "torch_geometric"} & sys.modules.keys())
    # Thousands of tests, and torch, stay to the end. Else each collection of garbage, of which the guards ask for many,
    # would look through them: half a second.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    limit_s = item.config.getoption("--begin-within")
    if limit_s is not None and not rings.may_begin(_file_of(item.nodeid), limit_s):
        pytest.skip(_NO_TIME)
    # Torch's threads wait for each other by spinning: a model of some hundred nodes takes forty times the processor
    # seconds by two threads on busy cores. Ranks that tests start have one each, too.
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def _libraries(request: pytest.FixtureRequest) -> None:
    """PyG and DGL, which files of tests have below ``if TYPE_CHECKING:``: not of each worker that collects them."""
    rings.run_late_imports(request.module)


@pytest.fixture(scope="session", autouse=True)
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepared data sets go to a folder of this run: tests neither trust nor touch the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(_own_cache_folder: None) -> Iterator[None]:
    before = guards.footprint()
    yield
    guards.restore_loaders()
    if left := guards.leaks(before):
        guards.kill(guards.new_children(before))
        pytest.fail("the test passed its own checks but left something behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The last check, for processes whose parent ended first. In a parallel run, by its main process."""
    if "PYTEST_XDIST_WORKER" not in os.environ and (left := guards.orphans()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        guards.kill(left)
        for process in left:
            session.config.get_terminal_writer().line(f"\nERROR: process left behind: {process}", red=True)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or what the kernels made would count as leaked when Python ends


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in used)
    terminalreporter.write_line(f"{seconds:.0f} processor seconds, of all processes that have ended")
    skipped = terminalreporter.stats.get("skipped", [])
    if left := {_file_of(report.nodeid) for report in skipped if _NO_TIME in str(report.longrepr)}:
        terminalreporter.section("not run for want of time")
        terminalreporter.write_line("\n".join(sorted(left)))


def _file_of(node: str) -> str:
    return node.partition("::")[0]
