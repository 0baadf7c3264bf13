"""What a machine offers to loading: versions, processor, memory. Each finding says in a line what is there, and what to
do where that holds loading back."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from lightning_gnnload import ops
from lightning_gnnload.data.memory import free_bytes, in_units

_PACKAGES = ("lightning-gnnload", "torch", "numpy", "pytorch-lightning", "lightning", "dgl", "torch-geometric", "ogb")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


class Finding(NamedTuple):
    """One of them.

    Attributes:
        about: a word or two.
        found: a line.
        advice: what would be better, if anything.
    """

    about: str
    found: str
    advice: str = ""


def machine_findings(huge_pages: Path = _HUGE_PAGES) -> Iterator[Finding]:
    """Of this process's machine, or container.

    Args:
        huge_pages: where the system says which memory it serves by 2 MB pages.
    """
    installed = [f"{name} {found}" for name in _PACKAGES if (found := _version(name))]
    yield Finding("versions", ", ".join([f"Python {platform.python_version()}", *installed]))
    num_cores, num_there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    of_those = "" if num_cores == num_there else f" of {num_there}"
    sets = ops.instruction_sets()
    yield Finding("processor", f"{num_cores}{of_those} cores, {platform.machine()}; kernels use {sets[-1]}")
    yield Finding("free memory", in_units(free_bytes()))
    yield _huge_pages("2 MB pages", huge_pages / "enabled", "features and graphs", ("never",))
    yield _huge_pages(
        "2 MB pages, shared",
        huge_pages / "shmem_enabled",
        "mini-batches and caches that ranks share",
        ("never", "deny"),
    )
    yield _locked_memory()


def _version(package: str) -> str:
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


def _huge_pages(about: str, file: Path, what: str, off: tuple[str, ...]) -> Finding:
    try:
        choices = file.read_text().split()
    except OSError:
        return Finding(about, "unknown: the system does not say")
    chosen = next((choice[1:-1] for choice in choices if choice.startswith("[")), "unknown")
    if chosen not in off:
        return Finding(about, chosen)
    return Finding(
        about, chosen, f"{what} are read faster on 2 MB pages: as root, echo advise > {file} (until the next start)."
    )


def _locked_memory() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Finding("locked memory", "no limit" if limit == resource.RLIM_INFINITY else f"at most {in_units(limit)}")
