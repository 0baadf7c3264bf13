"""compute-sanitizer finds nothing in the kernels, and finds what was planted, so that a tool that is dumb fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .planted import SOURCES

ROOT = Path(__file__).parents[2]
FOUND = 86  # exit status where the tool found something
KERNELS = ("scan", "neighbors", "weighted", "walks", "layers", "gather", "dynamic_cache", "aggregate")

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        shutil.which("compute-sanitizer") is None, reason="needs compute-sanitizer, which the CUDA toolkit brings"
    ),
]


def run(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), sys.executable, *arguments]
    # torch's and CuPy's pools would hide who writes behind a tensor.
    alone = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "CUDA_LAUNCH_BLOCKING": "1"}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | alone,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=1700,
    )


@pytest.mark.parametrize("tool", SOURCES)
def test_what_was_planted_is_found(tool: str) -> None:
    done = run(tool, "-m", "tests.gpu.planted", tool)
    assert done.returncode == FOUND, done.stdout[-4000:] + done.stderr[-4000:]
    assert "planted" in done.stdout  # and where it is


@pytest.mark.parametrize("tool", SOURCES)
def test_the_kernels_are_clean(tool: str) -> None:
    """The tests of tests/cuda on the device, small as they are, under the tool."""
    files = [f"tests/cuda/test_{name}.py" for name in KERNELS]
    plugins = ("-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "1600")
    done = run(tool, "-m", "pytest", *plugins, "-q", "-k", "not emulated", *files)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "0 hazards displayed" in done.stdout
    assert " passed" in done.stdout
