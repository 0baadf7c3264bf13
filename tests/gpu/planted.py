"""Kernels that are wrong, one for each tool of compute-sanitizer: ``python -m tests.gpu.planted memcheck``."""

from __future__ import annotations

import sys

SOURCES = {
    # Writes behind its memory.
    "memcheck": "out[(1 << 20) + threadIdx.x] = 1;",
    # Reads what another thread writes, with no barrier between.
    "racecheck": "__shared__ int all[64]; all[threadIdx.x] = 1; out[threadIdx.x] = all[63 - threadIdx.x];",
    # Meets in a mask that half of the lanes are not in.
    "synccheck": "__syncwarp(0xffff0000u); out[threadIdx.x] = 1;",
    # Reads what nobody has written.
    "initcheck": "out[threadIdx.x] += 1;",
}


def main(tool: str) -> None:
    import cupy

    kernel = cupy.RawKernel(f'extern "C" __global__ void planted(int* out) {{ {SOURCES[tool]} }}', "planted")
    out = cupy.empty(64, cupy.int32)
    kernel((1,), (64,), (out,))
    cupy.cuda.runtime.deviceSynchronize()


if __name__ == "__main__":
    main(sys.argv[1])
