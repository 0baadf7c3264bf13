"""``python -m tests.sanitized MODULE ...``: runs a module on kernels that were built with sanitizers.

``$GNNLOAD_SANITIZED`` is the folder they were built in; kernels/sanitize.sh sets it, with what else they need. They
stand in for the installed ones in this process only.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

VARIABLE = "GNNLOAD_SANITIZED"
KERNELS = "lightning_gnnload.ops._kernels"


def load_kernels() -> ModuleType:
    """The sanitized module; the package, which is slow to import, is not needed for it."""
    (file,) = Path(os.environ[VARIABLE]).glob("_kernels*.so")
    spec = importlib.util.spec_from_file_location(KERNELS, file)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    return kernels


if __name__ == "__main__":
    sys.modules[KERNELS] = load_kernels()  # before the package is imported for the first time
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
