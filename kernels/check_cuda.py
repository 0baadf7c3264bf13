"""Checks the CUDA kernels on a machine without a GPU: python -m kernels.check_cuda, in the repository's root.

Every instantiation is compiled for every architecture, warnings are errors, the compiled parameters are compared with
what Python passes, and so is every launch in the package. Needs CuPy and NVRTC: pip install '.[cuda-check]'
"""

from __future__ import annotations

import multiprocessing
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from lightning_gnnload.errors import KernelCompileError
from lightning_gnnload.ops.cuda import sources
from lightning_gnnload.ops.cuda.compile import Compiled, compile_kernels

from .check_launches import num_launches, wrong_launches

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
PACKAGE = Path(__file__).parents[1] / "lightning_gnnload"

_PTX_TYPES = {"int32_t": "u32", "uint32_t": "u32", "int64_t": "u64", "uint64_t": "u64", "float": "f32", "double": "f64"}
_RESOURCES = re.compile(r"(\d+) bytes spill stores|Used (\d+) registers")


def main() -> int:
    begin, failures = time.perf_counter(), wrong_launches(PACKAGE)
    ops = sources.ops()
    for op in ops:
        failures += wrong_parameters(op)
    jobs = [(op, arch) for op in ops for arch in ARCHITECTURES]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for (op, arch), (said, wrong) in zip(jobs, pool.map(compiled_well, *zip(*jobs, strict=True)), strict=True):
            print(f"{op} for {arch}: {said}")
            failures += wrong
    num_kernels = sum(len(kernel.instantiations) for op in ops for kernel in sources.kernels(op).values())
    print(*failures, sep="\n", file=sys.stderr, end="\n" if failures else "")
    print(
        f"{num_kernels} kernels for {len(ARCHITECTURES)} architectures and {num_launches(PACKAGE)} launches in "
        f"{time.perf_counter() - begin:.0f} s: {len(failures)} errors"
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


def wrong_parameters(op: str) -> list[str]:
    """Where the compiled parameters are others than those that were read from the source."""
    try:
        compiled = compile_kernels(op, "compute_90")
    except KernelCompileError:
        return []  # told for each architecture
    wrong = []
    for kernel in sources.kernels(op).values():
        for types in kernel.instantiations:
            parameters = kernel.parameters_of(types)
            expected = ["u64" if parameter.is_pointer else _PTX_TYPES[parameter.ctype] for parameter in parameters]
            found = ptx_parameters(compiled, kernel.expression(types))
            if found != expected:
                wrong.append(f"{op}/{kernel.expression(types)} takes {found}, but {expected} would be passed.")
    return wrong


def ptx_parameters(compiled: Compiled, expression: str) -> list[str]:
    """Types of a kernel's parameters, as PTX has them: s32 is u32 there, and a pointer u64."""
    entry = re.search(rf"\.entry {re.escape(compiled.symbols[expression])}\s*\((.*?)\)", compiled.image.decode(), re.S)
    return re.findall(r"\.param \.(?:align \d+ \.)?(\w+)", entry[1]) if entry else []


if __name__ == "__main__":
    sys.exit(main())
