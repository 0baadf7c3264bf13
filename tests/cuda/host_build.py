"""Kernels of a ``.cu`` file, compiled for the host with the emulator (kernels/emulate/), once for each content."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lightning_gnnload.errors import KernelCompileError

REPOSITORY = Path(__file__).parents[2]
KERNELS = REPOSITORY / "kernels"
BUILD = REPOSITORY / "build" / "emulated"
COMPILER = os.environ.get("CXX", "g++")
# Fibers share their thread's memory, and the host's compiler may not fuse what a device rounds twice.
HOST_FLAGS = [
    *("-std=c++17", "-O1", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique"),
    *("-fno-strict-aliasing", "-ffp-contract=off", "-D_FORTIFY_SOURCE=0", "-Wall", "-Wextra", "-Werror"),
    f"-I{KERNELS}",
]
if "GNNLOAD_SANITIZED" in os.environ:  # tests/sanitized.py
    # Not the stacks: a sanitizer knows those of threads, not of fibers.
    HOST_FLAGS += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "--param=asan-stack=0"]
    BUILD = BUILD.with_name("emulated-sanitized")  # tests without a sanitizer may run beside these
FLAGS = [*HOST_FLAGS, "-DLG_EMULATE", "-include", "common/cuda/kernel.h"]  # headers come in any order

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


@functools.cache
def load(source: Path, checks: str = "") -> ctypes.CDLL:
    """The file's kernels, behind ``lg_emulate_launch`` (kernels/emulate/launch.h).

    Args:
        checks: compiled behind them.

    Raises:
        KernelCompileError: the host's compiler refuses them.
    """
    with library(source, FLAGS, checks) as path:
        loaded = ctypes.CDLL(str(path))
        variables = _shared_variables(path, loaded)
    loaded.lg_emulate_launch.argtypes = [
        ctypes.c_char_p,
        *[ctypes.c_uint] * 3,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_char_p,
        ctypes.c_int,
    ]
    loaded.lg_emulate_shared.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    for address, num_bytes in variables:
        loaded.lg_emulate_shared(address, num_bytes)
    return loaded


@contextmanager
def library(source: Path, flags: Sequence[str], checks: str = "") -> Iterator[Path]:
    """A C++ file as a library, compiled once for each content; to be opened before another process finds it
    outdated."""
    digest = hashlib.sha256(" ".join([COMPILER, *flags, checks]).encode())
    for path in sorted(_included(source)):
        digest.update(path.read_bytes())
    BUILD.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = BUILD / f"{source.stem}-{digest.hexdigest()[:16]}.so"
    with open(BUILD / f"{source.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes of the run need the same file
        if not target.exists():
            for outdated in BUILD.glob(f"{source.stem}-*.so"):
                outdated.unlink()
            _compile(source, flags, checks, target)
        yield target


def _shared_variables(path: Path, loaded: ctypes.CDLL) -> list[tuple[int, int]]:
    """Address and size of each: they are the kernels' only static variables that can be written."""
    symbols = subprocess.run(["nm", "-S", str(path)], capture_output=True, text=True, check=True).stdout
    launch = re.search(r"^(\w+) \w+ . lg_emulate_launch$", symbols, re.MULTILINE)
    assert launch is not None
    base = ctypes.cast(loaded.lg_emulate_launch, ctypes.c_void_p).value - int(launch[1], 16)
    found = re.findall(r"^(\w+) (\w+) [bBdD] _ZZ\w*2lg\w+$", symbols, re.MULTILINE)
    return [(base + int(at, 16), int(size, 16)) for at, size in found]


def _compile(source: Path, flags: Sequence[str], checks: str, target: Path) -> None:
    unfinished = target.with_suffix(".part")
    command = [COMPILER, *flags, "-xc++", "-", "-o", str(unfinished), "-ldl"]
    text = f'#include "{source}"\n{checks}'
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelCompileError(
            f"{source.name} does not compile for the host. {' '.join(command)} says:\n{done.stderr}"
        )
    unfinished.rename(target)


def _included(source: Path) -> set[Path]:
    """The file and every header of ours that it includes, directly or not."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            for name in _INCLUDE.findall(path.read_text()):
                beside = path.parent / name
                waiting.append(beside if beside.exists() else KERNELS / name)
    return found
