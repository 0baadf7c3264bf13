"""malloc: whether memory that a training step has freed stays with the process, for the next step."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

OPT_OUT = "GNNLOAD_KEEP_MEMORY"
"""The environment variable that, set to ``0``, leaves malloc as it is."""
VARIABLES = "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967296"
"""What does the same for a process that is yet to start, by any release of glibc."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # <malloc.h>
_LARGEST_KEPT = 1 << 30  # a larger block is a table rather than an activation, and is not needed again
_SETTINGS = re.compile(r"MALLOC_(TRIM_THRESHOLD|MMAP_THRESHOLD|MMAP_MAX|TOP_PAD)_")
_TUNABLES = re.compile(r"glibc\.malloc\.(trim_threshold|mmap_threshold|mmap_max|top_pad)=")


class _Symbol(ctypes.Structure):
    """``Dl_info``: where a function comes from."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


@contextmanager
def freed_memory_kept() -> Iterator[bool]:
    """Has malloc keep the memory that this process frees, rather than give it back to the kernel, which would clear and
    map it anew for the next step: a third of a large training step on a CPU. Blocks above 1 GiB still go back at once.

    Yields whether it does. Nothing is touched where malloc is not glibc's (jemalloc, tcmalloc or mimalloc, linked or by
    ``LD_PRELOAD``; musl), where the environment sets these thresholds, or ``GNNLOAD_KEEP_MEMORY=0``. Resident memory
    stays at its peak. Afterwards, what is free goes back once; the thresholds stay, as glibc cannot go back to its own.

    Source: mallopt(3), and ``do_set_mmap_threshold`` in glibc's malloc/malloc.c.
    """
    if glibc_release() is None or setting_in_environment():
        yield False
        return
    libc = ctypes.CDLL(None)
    # The first of these calls ends glibc's own adaptation of both thresholds: one of them alone makes it worse.
    if not libc.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT):
        libc.mallopt(_MMAP_MAX, 0)  # older releases refuse a threshold above 32 MiB: no block has a mapping of its own
    libc.mallopt(_TRIM_THRESHOLD, -1)  # the largest there is
    try:
        yield True
    finally:
        libc.malloc_trim(0)


def setting_in_environment() -> str:
    """The variable by which the user decides on this; empty if there is none."""
    if (value := os.environ.get(OPT_OUT, "")) not in ("", "1"):  # "0", "no", "off": whatever it says, it is no yes
        return f"{OPT_OUT}={value}"
    if _TUNABLES.search(tunables := os.environ.get("GLIBC_TUNABLES", "")):
        return f"GLIBC_TUNABLES={tunables}"
    return next((f"{name}={value}" for name, value in os.environ.items() if _SETTINGS.fullmatch(name)), "")


def glibc_release() -> str | None:
    """The release of glibc, if this process's malloc is glibc's."""
    libc = ctypes.CDLL(None)
    version = getattr(libc, "gnu_get_libc_version", None)
    base = _origin("malloc").base
    if version is None or base is None or base != _origin("gnu_get_libc_version").base:
        return None
    version.restype = ctypes.c_char_p
    return version().decode()


def allocator() -> str:
    """What this process's malloc is, for people: ``"glibc 2.36"``, or the file that it comes from."""
    release = glibc_release()
    return f"glibc {release}" if release else os.path.basename((_origin("malloc").file or b"unknown").decode())


def _origin(function: str) -> _Symbol:
    """The library of a function; an empty one where the system does not say."""
    libc, symbol = ctypes.CDLL(None), _Symbol()
    if hasattr(libc, "dladdr"):
        libc.dladdr(ctypes.cast(getattr(libc, function), ctypes.c_void_p), ctypes.byref(symbol))
    return symbol
