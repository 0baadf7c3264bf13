"""Page faults of steps that take memory, write it and free it, as large training steps do."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path

BLOCK_BYTES, NUM_BLOCKS = 40 << 20, 3  # as activations: glibc by itself keeps less than 32 MiB
PAGES = NUM_BLOCKS * BLOCK_BYTES // resource.getpagesize()


def faults_of_a_step() -> int:
    """The faults of the third such step: about :data:`PAGES` where freed memory goes back to the kernel, else none."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [libc.malloc(BLOCK_BYTES) for _ in range(NUM_BLOCKS)]
        for block in blocks:
            libc.memset(block, 1, BLOCK_BYTES)
        for block in blocks:
            libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_pages() -> int:
    """The pages of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1])
