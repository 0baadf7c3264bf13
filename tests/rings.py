"""Rings of tests, by how often they run.

========== ==================================================================== =========================
ring       holds                                                                runs
========== ==================================================================== =========================
``law``    each promise once: whatever no other ring names                      ``make test``, CI
``matrix`` the same under other launchers, versions, formats, and emulated CUDA ``make test-all``, CI in part
``hunt``   looks for what nobody has thought of: fuzzing, campaigns             ``make test-hunt``
========== ==================================================================== =========================

A test belongs to the ring of its mark, as in ``@pytest.mark.matrix``. Where no test of a file is law, the file is in
:data:`FILES` instead, and a run of law does not even import it.
"""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RINGS = ("law", "matrix", "hunt")
# By path below tests/: a folder stands for all files in it, but for those that have a line of their own.
FILES = {
    "cuda": "matrix",
    "cuda/test_aggregate.py": "law",
    "cuda/test_bus_order.py": "law",
    "cuda/test_cuda_device.py": "law",
    "cuda/test_device_batches.py": "law",
    "cuda/test_device_driver.py": "law",
    "cuda/test_device_features.py": "law",
    "cuda/test_dynamic_cache.py": "law",
    "cuda/test_emulated_libcuda.py": "law",
    "cuda/test_gather.py": "law",
    "cuda/test_host_memory.py": "law",
    "cuda/test_neighbors.py": "law",
    "cuda/test_packing.py": "law",
    "cuda/test_partitioned_cache.py": "law",
    "cuda/test_placement.py": "law",
    "cuda/test_reused_memory.py": "law",
    "cuda/test_scan.py": "law",
    "cuda/test_typed.py": "law",
    "cuda/test_walks.py": "law",
    "cuda/test_weighted.py": "law",
    "faults/test_agent.py": "matrix",
    "faults/test_campaign.py": "hunt",
    "faults/test_hangs.py": "matrix",
    "faults/test_nodes.py": "matrix",
    "faults/test_remote_samplers.py": "matrix",
    "gpu": "matrix",
    "integration/test_elastic_training.py": "matrix",
    "integration/test_layers.py": "matrix",
    "integration/test_lightning_package.py": "matrix",
    "integration/test_narrow_terminal.py": "matrix",
    "integration/test_notebook.py": "matrix",
    "integration/test_pyg_modules.py": "matrix",
    "integration/test_ray.py": "matrix",
    "integration/test_ray_tables.py": "matrix",
    "integration/test_slurm.py": "matrix",
    "newcomers": "matrix",
    "unit/benchmarks": "matrix",
    "unit/test_forkserver.py": "matrix",
    "unit/test_guards.py": "matrix",
    "unit/test_lightning.py": "hunt",
    "unit/test_packaging.py": "matrix",
    "unit/test_pyg_suite.py": "hunt",
    "unit/test_relbench_examples.py": "hunt",
}

libraries: set[str] = set()
"""Which of PyG and DGL were imported when all tests had been collected: neither, as each takes a second."""
_running: set[str] = set()
_start = time.monotonic()


def mostly_matrix(cases: Iterable[Any], *law: Any) -> list[Any]:
    """Cases of a parametrized test, of which these are law."""
    cases = list(cases)
    assert not (unknown := [case for case in law if case not in cases]), unknown

    def in_matrix(case: Any) -> Any:
        return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.matrix)

    return [case if case in law else in_matrix(case) for case in cases]


def of_file(file: Path) -> str:
    """The ring that a file names for all its tests."""
    path = file.relative_to(Path(__file__).parent).as_posix()
    while path not in FILES and "/" in path:
        path = path.rpartition("/")[0]
    return FILES.get(path, "law")


def mark(items: Iterable[pytest.Item]) -> None:
    """Marks tests that have no mark of a ring with that of their file.

    Raises:
        UsageError: a test has a mark, and its file is in the table too: a run of law would not find it.
    """
    for item in items:
        ring = of_file(item.path)
        own = [name for name in RINGS if item.get_closest_marker(name)]
        if len(own) > 1 or (own and ring != "law"):
            raise pytest.UsageError(
                f"{item.nodeid} is marked {own}, and tests/rings.py has its file in {ring}: keep one"
            )
        if not own:
            item.add_marker(ring)


def is_left_out(file: Path, expression: str) -> bool:
    """Whether an expression of ``-m`` that names rings alone, as ``law or matrix`` does, selects no test of a file."""
    rings, ring = expression.split(" or "), of_file(file)
    return file.is_file() and ring != "law" and ring not in rings and set(rings) <= set(RINGS)


def run_late_imports(module: ModuleType) -> None:
    """Runs what a file, and the files of tests that it imports from, have below ``if TYPE_CHECKING:``, each once."""
    modules = [module]
    while modules:
        names = vars(modules.pop())
        if names.get("TYPE_CHECKING") is not False:  # it has none, or has run them
            continue
        names["TYPE_CHECKING"] = True
        for node in ast.parse(Path(names["__file__"]).read_text()).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                exec(compile(ast.Module(node.body, []), names["__file__"], "exec"), names)
        others = {getattr(value, "__module__", None) for value in names.values()}
        modules += [sys.modules[other] for other in others & sys.modules.keys() if str(other).startswith("tests.")]


def may_begin(file: str, limit_s: float) -> bool:
    """Whether tests of a file may run: it began to within so many seconds of this process, or does so now."""
    if time.monotonic() - _start <= limit_s:
        _running.add(file)
    return file in _running
