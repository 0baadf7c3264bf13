"""``python -m tests.fuzz.broken_contract FAULT``: calls below the checks, with what the checks would refuse.

On sanitized kernels each must end the process (test_sanitizers.py); on others anything may happen.
"""

from __future__ import annotations

import sys

import numpy as np

from tests.sanitized import load_kernels

ROWS = 1000  # of four bytes: large enough to come from malloc, which a sanitizer watches, and not from NumPy's cache


def write_beyond() -> None:
    table, out = np.zeros(4, np.uint8), np.zeros(4 * ROWS, np.uint8)
    load_kernels().gather_rows(table, 1, np.zeros(ROWS + 1, np.int64), out)


def overflow() -> None:
    kernels = load_kernels()
    indptr, indices, seeds = np.array([-2, 2**63 - 1]), np.zeros(1, np.int64), np.zeros(1, np.int64)
    arena = np.zeros(8192 + 64, np.uint8)
    arena = arena[-arena.ctypes.data % 64 :]
    workspace = kernels.Workspace(1, False)
    inputs = kernels.SamplerInput(workspace, indptr, indices, seeds, 0, 0, 0, 0, None, arena)
    kernels.sample_neighbors(inputs, [1], False, False, False)


FAULTS = {"write-beyond": write_beyond, "overflow": overflow}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
