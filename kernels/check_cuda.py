"""Checks the CUDA kernels on a machine without a GPU: python -m kernels.check_cuda, in the repository's root.

Every instantiation is compiled for every architecture, with what Python has read of its parameters as assertions behind
it, and warnings are errors. Needs CuPy and NVRTC: pip install '.[cuda-check]'
"""

from __future__ import annotations

import multiprocessing
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from lightning_gnnload.errors import KernelCompileError
from lightning_gnnload.ops.cuda.launch import sources
from lightning_gnnload.ops.cuda.launch.compile import compile_kernels

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

_RESOURCES = re.compile(r"(\d+) bytes spill stores|Used (\d+) registers")


def main() -> int:
    begin, failures, ops = time.perf_counter(), [], sources.ops()
    jobs = [(op, arch) for op in ops for arch in ARCHITECTURES]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for (op, arch), (said, wrong) in zip(jobs, pool.map(compiled_well, *zip(*jobs, strict=True)), strict=True):
            print(f"{op} for {arch}: {said}")
            failures += wrong
    num_kernels = sum(len(kernel.instantiations) for op in ops for kernel in sources.kernels(op).values())
    print(*failures, sep="\n", file=sys.stderr, end="\n" if failures else "")
    print(
        f"{num_kernels} kernels for {len(ARCHITECTURES)} architectures in {time.perf_counter() - begin:.0f} s: "
        f"{len(failures)} errors"
    )
    return bool(failures)


def compiled_well(op: str, arch: str) -> tuple[str, list[str]]:
    """What the kernels take of a processor, and the compiler's errors and warnings."""
    try:
        log = compile_kernels(op, arch, ("--ptxas-options=-v",)).log
    except KernelCompileError as error:
        return "not compiled", [f"{op} for {arch}: {error}"]
    found = _RESOURCES.findall(log)
    spilt, registers = sum(int(spilt or 0) for spilt, _ in found), max(int(used or 0) for _, used in found)
    said = f"at most {registers} registers" + (f", {spilt} bytes spilt" if spilt else "")
    return said, [f"{op} for {arch} is compiled with warnings:\n{log}"] if "warning" in log else []


if __name__ == "__main__":
    sys.exit(main())
