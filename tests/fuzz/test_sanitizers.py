"""The sanitizers are there: faults on purpose are found, by the fuzz driver and by Python on sanitized kernels.

A build that has quietly lost one, in the kernels or in the driver, lets a fault pass and fails here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_gnnload.ops import dispatch
from tests.fuzz.broken_contract import FAULTS
from tests.sanitized import VARIABLE

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason="needs sanitized kernels: make sanitize")
BUILD = Path(os.environ.get(VARIABLE, ""))
PLANTED = {
    "endless_case": "a case does not end",
    "kernel_marks_a_node_beyond_its_table": r"heap-buffer-overflow.*\n(.*\n)*.*node_table\.h",
    "kernel_overflows": "signed integer overflow",
    "kernel_reads_beyond": r"AddressSanitizer.*\n(.*\n)*.*gather_rows",
    "kernel_writes_beyond": r"AddressSanitizer.*\n(.*\n)*.*gather_rows",
    "memory_leaked": "LeakSanitizer: detected memory leaks",
    "memory_used_after_free": "heap-use-after-free",
    "unannounced_exception": "vector::_M_range_check",
    "unwatched_write_beyond": r"byte 32 of an array of 24 was written to",
    "vector_read_beyond": r"Assertion '__n < this->size\(\)' failed",
    "wrong_result": "0 is not 1",
}


def driver(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The native fuzz driver, without what Python on sanitized kernels needs."""
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS")}
    return subprocess.run([BUILD / "fuzz" / "fuzz", *arguments], env=clean, capture_output=True, text=True)


def test_these_kernels_are_the_sanitized_ones() -> None:
    assert Path(dispatch.kernels.__file__).parent == BUILD


def test_every_planted_fault_is_tested() -> None:
    assert driver("--list-planted").stdout.split() == sorted(PLANTED)


@pytest.mark.parametrize("fault", PLANTED)
def test_the_driver_finds_and_names_a_fault(fault: str) -> None:
    done = driver("--target", fault, "--seed", "7", "--cases", "3", "--limit", "1")
    assert done.returncode != 0
    assert re.search(PLANTED[fault], done.stderr)
    if fault != "memory_leaked":  # which is seen when all is over
        assert f"--target {fault} --seed 7 --case 0" in done.stderr


def test_a_case_is_made_again_from_its_number() -> None:
    for name in driver("--list").stdout.split():
        done = driver("--target", name, "--seed", "3", "--case", "1234")
        assert (done.returncode, done.stderr) == (0, "")
        assert "1 cases" in done.stdout


@pytest.mark.parametrize("arguments", [["--case"], ["--cases", "x"], ["--target", "none"], ["--unknown", "1"]])
def test_arguments_of_the_driver_that_make_no_sense(arguments: list[str]) -> None:
    done = driver(*arguments)
    assert done.returncode == 2
    assert re.search(r"--case|: x|none|--unknown", done.stderr)


@pytest.mark.parametrize("fault", FAULTS)
def test_python_on_sanitized_kernels_ends_at_a_fault(fault: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz.broken_contract", fault]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert {"write-beyond": "AddressSanitizer", "overflow": "signed integer overflow"}[fault] in done.stderr
