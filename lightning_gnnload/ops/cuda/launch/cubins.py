"""Keeps compiled kernels on disk, so that a machine compiles each only once.

The folder is its owner's alone: whoever could write there could run code on the device.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
import tempfile
from pathlib import Path

from .compile import CompiledKernels, compile_kernels, loaded_nvrtc, options
from .sources import fingerprint

_log = logging.getLogger(__name__)


def cached_kernels(op: str, arch: str) -> CompiledKernels:
    """Compiles kernels as :func:`compile_kernels` does, or takes them from the user's cache folder.

    That is ``lightning_gnnload_kernels`` in ``$XDG_CACHE_HOME`` or ``~/.cache``; where it cannot be used, kernels are
    compiled for this process alone. Raises KernelCompileError with the compiler's log.
    """
    folder = _own_folder()
    if folder is None:
        return compile_kernels(op, arch)
    path = folder / f"{op}-{arch}-{_key(op, arch)}"
    cached = _read(path)
    if cached is None:
        cached = compile_kernels(op, arch)
        with contextlib.suppress(OSError):  # a full disk must not keep anybody from training
            _write(path, cached)
    return cached


def _key(op: str, arch: str) -> str:
    """Hashes all that the machine code depends on, without the path of the sources."""
    facts = (loaded_nvrtc().getVersion(), fingerprint(op), [o for o in options(arch) if "include-path" not in o])
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


def _own_folder() -> Path | None:
    root = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(root) if os.path.isabs(root) else Path.home() / ".cache"
        folder = base / "lightning_gnnload_kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not stat(): a link would be judged by the folder that it leads to, and may be led elsewhere later.
        status = folder.lstat()
    except (OSError, RuntimeError) as error:
        _log.info("Kernels are compiled anew in every process: there is no cache folder (%s).", error)
        return None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        _log.warning(
            "Kernels are compiled anew in every process: %s has mode %s and owner %d, but has to be yours alone. "
            "Remove it, or: chmod 700 %s",
            folder,
            stat.filemode(status.st_mode),
            status.st_uid,
            folder,
        )
        return None
    return folder


def _read(path: Path) -> CompiledKernels | None:
    """Reads a file; None if it is missing, cut off or damaged."""
    try:
        head, _, image = path.read_bytes().partition(b"\n")
        about = json.loads(head)
        if about["sha256"] == hashlib.sha256(image).hexdigest():
            return CompiledKernels(image, {str(name): str(symbol) for name, symbol in about["symbols"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _write(path: Path, compiled: CompiledKernels) -> None:
    """Writes a file and renames it into place: a reader finds all of it or nothing, and of several writers one wins."""
    about = {"sha256": hashlib.sha256(compiled.image).hexdigest(), "symbols": compiled.symbols}
    # In the same folder, as os.replace() is atomic within one file system only.
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with open(handle, "wb") as file:
            file.write(json.dumps(about).encode() + b"\n" + compiled.image)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
