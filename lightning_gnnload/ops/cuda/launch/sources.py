"""The CUDA sources: their folder, what they include, and the kernels in them."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from ....errors import GnnLoadError, KernelsMissingError
from .signatures import KernelSource, parse

_INSTALLED = Path(__file__).parents[1] / "kernels"
_DEVELOPED = Path(__file__).parents[4] / "kernels"

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def folder() -> Path:
    """Finds the folder of the sources and headers: in the installed package, else in the repository. Raises
    KernelsMissingError."""
    for candidate in (_INSTALLED, _DEVELOPED):
        if (candidate / "common" / "cuda" / "kernel.h").is_file():
            return candidate
    raise KernelsMissingError(
        f"The CUDA sources are neither in {_INSTALLED} nor in {_DEVELOPED}, but kernels are compiled from them on "
        "first use. Install lightning-gnnload again."
    )


def ops() -> tuple[str, ...]:
    """Lists every operation that has CUDA kernels, sorted."""
    return tuple(sorted(path.parent.name for path in folder().glob("*/*_cuda.cu")))


def source_path(op: str) -> Path:
    """Finds the file of an operation's kernels. Raises GnnLoadError where it has none."""
    path = folder() / op / f"{op}_cuda.cu"
    if not path.is_file():
        raise GnnLoadError(f"Operation {op!r} has no CUDA kernels; these have: {', '.join(ops())}.")
    return path


@functools.cache
def included(op: str) -> tuple[Path, ...]:
    """Lists the operation's ``.cu`` and all headers of ours that it includes, directly or not, sorted."""
    root = folder()
    files: set[Path] = set()
    waiting = [source_path(op)]
    while waiting:
        path = waiting.pop()
        if path not in files:
            files.add(path)
            # The emulator's headers are for the host's compiler alone: NVRTC never reads them.
            waiting += [root / name for name in _INCLUDE.findall(_text(path)) if not name.startswith("emulate/")]
    return tuple(sorted(files))


@functools.cache
def fingerprint(op: str) -> str:
    """Hashes everything that the operation's kernels are compiled from, to 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in included(op):
        text = path.read_bytes()
        # Names and lengths, so that text which moves from one file to the next changes the hash.
        digest.update(f"{path.relative_to(folder())} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()[:16]


@functools.cache
def kernels(op: str) -> dict[str, KernelSource]:
    """Reads the operation's kernels, by name. Raises GnnLoadError where there is no such operation, or its source
    breaks the rules of ``common/cuda/kernel.h``."""
    return parse(op, _text(source_path(op)), "\n".join(map(_text, included(op))))


def kernel(op: str, name: str) -> KernelSource:
    """Finds one kernel by its name. Raises GnnLoadError where there is none."""
    sources = kernels(op)
    if name not in sources:
        raise GnnLoadError(f"{op}_cuda.cu has no kernel {name!r}; it has: {', '.join(sorted(sources))}.")
    return sources[name]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise KernelsMissingError(
            f"{path} cannot be read ({error.strerror}), but CUDA kernels are compiled from it. Install "
            "lightning-gnnload again."
        ) from error
