"""METIS in a process of its own, so that it can be interrupted, and a machine that is short of memory loses it alone.

:mod:`.metis` starts it as a script in isolated mode, where Python's own library is all there is.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_METIS_OK = 1
_NUM_OPTIONS = 40  # METIS_NOPTIONS in metis.h


def main(job: dict[str, Any]) -> int:
    """Runs METIS once; returns 0, or METIS's negated status, which is positive, where it failed.

    ``job`` names the library's file, the width of its ``idx_t``, counts and options, and descriptors of memory of
    ``idx_t``: ``starts`` ``[N + 1]``, ``neighbors`` ``[M]``, ``weights`` ``[N, ncon]`` and, to be written, ``parts``
    ``[N]``.

    Source: METIS manual (5.1.0), section 5: METIS_PartGraphKway and METIS_PartGraphRecursive.
    """
    # METIS may run for hours: it is not to outlive the process that started it, however that ended.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != job["parent"]:  # it died before the line above, which then comes too late
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C as well, and ends this process
    metis = ctypes.CDLL(job["library"])
    if not hasattr(metis, "METIS_PartGraphKway"):
        print("this build of PyMetis keeps METIS's functions to itself: install another, PyPI's for example")
        return 1
    index = {4: ctypes.c_int32, 8: ctypes.c_int64}[job["index_bytes"]]
    mapped = [mmap.mmap(job[name], 0) for name in ("starts", "neighbors", "weights", "parts")]
    starts, neighbors, weights, parts = (index.from_buffer(memory) for memory in mapped)
    options = (index * _NUM_OPTIONS)()
    metis.METIS_SetDefaultOptions(options)
    for position, value in job["options"].items():
        options[int(position)] = value
    run = metis.METIS_PartGraphRecursive if job["recursive"] else metis.METIS_PartGraphKway
    status: int = run(
        *(ctypes.byref(index(job[name])) for name in ("num_nodes", "num_constraints")),
        *(ctypes.byref(array) for array in (starts, neighbors, weights)),
        None,  # what a node's data weigh in communication: all alike
        None,  # edges weigh alike
        ctypes.byref(index(job["num_parts"])),
        None,  # all parts have the same share of each constraint
        None,  # tolerances: as the options have them
        options,
        ctypes.byref(index()),
        ctypes.byref(parts),
    )
    return 0 if status == _METIS_OK else -status


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
