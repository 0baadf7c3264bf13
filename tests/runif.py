"""RunIf: skip a test where it cannot run, and say why."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence

import pytest

# Extra of pyproject.toml -> the module it brings.
EXTRA_MODULES = {
    "dgl": "dgl",
    "pyg": "torch_geometric",
    "ogb": "ogb",
    "cuda": "cupy",
    "partition": "pymetis",
    "relbench": "pyarrow",
    "tables": "duckdb",
    "flight": "pyarrow",
    "faiss": "faiss",
    "ray": "ray",
}


def RunIf(  # noqa: N802  reads as a mark, like pytest's own
    *,
    extras: str | Sequence[str] = (),
    cuda: int = 0,
    min_python: tuple[int, int] | None = None,
    min_lightning: tuple[int, ...] | None = None,
    root: bool = False,
    alone: bool = False,
) -> pytest.MarkDecorator:
    """A mark that runs the test only where all of these hold, and otherwise names those that do not.

    Args:
        extras: names from :data:`EXTRA_MODULES`. Installed but broken counts: such a test fails.
        cuda: GPUs needed.
        min_python: oldest Python version.
        min_lightning: oldest release of Lightning.
        root: whether it runs as root, which alone may become another user.
        alone: whether no other tests run beside it, as it measures what all processes take together.

    Example: ``@RunIf(extras="dgl")``, ``pytestmark = RunIf(cuda=2, extras=["cuda"])``.
    """
    reasons = []
    for extra in [extras] if isinstance(extras, str) else extras:
        module = EXTRA_MODULES[extra]
        if importlib.util.find_spec(module) is None:
            reasons.append(f"needs {module}, which the extra {extra!r} installs")
    if cuda:
        import torch

        found = torch.cuda.device_count()
        if found < cuda:
            reasons.append(f"needs {cuda} GPU(s), found {found}")
    if min_python is not None and sys.version_info < min_python:
        reasons.append(f"needs Python {'.'.join(map(str, min_python))} or newer")
    if min_lightning is not None:
        found = importlib.metadata.version("pytorch-lightning")
        if tuple(map(int, found.split(".")[:3])) < min_lightning:
            reasons.append(f"needs Lightning {'.'.join(map(str, min_lightning))} or newer, found {found}")
    if root and os.getuid() != 0:
        reasons.append("needs root, to become another user")
    if alone and "PYTEST_XDIST_WORKER" in os.environ:
        reasons.append("measures a memory that other workers' tests take from, too: run it by -n 0")
    return pytest.mark.skipif(bool(reasons), reason="; ".join(reasons) or "all requirements are met")
