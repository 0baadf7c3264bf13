"""Launches through CuPy's own binding of the driver, which is given a libcuda that prints what reaches it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runif import RunIf

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CC", "gcc")
pytestmark = [
    RunIf(extras="cuda"),
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason="compiles a library, which needs a C compiler"),
]

LAUNCH = """
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from cupy.cuda import driver

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda import sources
from lightning_gnnload.ops.cuda.compile import CompiledKernels
from lightning_gnnload.ops.cuda.cupy_device import CudaDevice
from lightning_gnnload.ops.cuda.signatures import parse
from tests.cuda.fakes import FakeRuntime

torch.cuda.get_device_properties = lambda device: SimpleNamespace(multi_processor_count=1, major=9, minor=0)
torch.cuda.current_stream = lambda device: SimpleNamespace(cuda_stream=4242)
torch.cuda.device = lambda device: nullcontext()
kernel = parse(
    "pick",
    "struct Draws { int32_t fanout; uint64_t seed; };\\n"
    "__global__ void pick(const int32_t* ids, Draws draws, float scale) {}\\nLG_INSTANTIATE(pick)",
)
sources.kernel = lambda op, name: kernel[name]
device = CudaDevice(
    torch.device("cpu"), driver, FakeRuntime(), (90,), lambda op, arch: CompiledKernels(b"cubin", {"pick": "_Zpick"})
)
arguments = dict(draws=SimpleNamespace(fanout=-3, seed=2**64 - 1), scale=0.25)
device.launch("pick", "pick", blocks=2**31 - 1, threads=64, shared_bytes=60000, ids=2**63 + 5, **arguments)
try:
    device.launch("pick", "pick", blocks=9, threads=1024, ids=None, **arguments)
except GnnLoadError as error:
    print(error)
"""


def test_what_reaches_the_driver(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    command = [
        COMPILER,
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        "-o",
        library,
        Path(__file__).parent / "fake_libcuda.c",
    ]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH],
        cwd=ROOT,
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())  # C's output and Python's have buffers of their own
    assert lines[0].startswith("attribute 0x77 8 60000")
    assert f"launch 0x77 {2**31 - 1},1,1 64,1,1 60000 4242 {2**63 + 5} -3 {2**64 - 1} 0.25 " in lines
    assert f"launch 0x77 9,1,1 1024,1,1 0 4242 0 -3 {2**64 - 1} 0.25 " in lines
    assert "9 blocks of 1024 threads and 0 bytes of shared memory (CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout
