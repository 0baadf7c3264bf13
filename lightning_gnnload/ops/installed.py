"""Finds the installed package's compiled kernels for a checkout that comes first on the path and has none itself.

They serve only if they were compiled from the checkout's sources, which both record by one digest
(kernels/CMakeLists.txt).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ..errors import KernelsMissingError

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]


def installed_kernels(error: ImportError) -> ModuleType:
    """Loads the kernels of an installed package, where importing those beside this file gave ``error``. Raises
    KernelsMissingError where there are none for this Python, or only of other sources."""
    for file in _compiled():
        stamp = file.parent / "_kernels.sources"
        if not (_ROOT / "kernels").is_dir() or not stamp.is_file() or stamp.read_text() != sources_digest(_ROOT):
            raise KernelsMissingError(
                f"Python imports lightning_gnnload from the source folder {_ROOT}, which holds no compiled kernels, "
                f"while those of the installed package in {file.parents[2]} were compiled from other sources. Install "
                f"this folder, pip install --editable {_ROOT}, or start Python in another one, and use the installed "
                f"package."
            ) from error
        spec = spec_from_file_location(f"{__package__}._kernels", file)
        assert spec is not None
        assert spec.loader is not None
        kernels = module_from_spec(spec)
        spec.loader.exec_module(kernels)
        # As the import system does, so that importing it by name gives this one.
        sys.modules[spec.name] = kernels
        sys.modules[str(__package__)].__dict__["_kernels"] = kernels
        return kernels
    is_checkout = (_ROOT / "pyproject.toml").is_file()
    again = f"pip install --editable {_ROOT}" if is_checkout else "pip install --force-reinstall --no-deps ."
    raise KernelsMissingError(
        f"The compiled CPU kernels (lightning_gnnload.ops._kernels) cannot be imported: {error}. Compile them, with a "
        f"C++17 compiler{'' if is_checkout else ', in the folder of the sources'}: {again}"
    ) from error


def sources_digest(root: Path) -> str:
    """Computes the digest of all kernel sources, by name and content, that kernels/CMakeLists.txt writes beside its
    result."""
    kernels = root / "kernels"
    names = [file.relative_to(kernels).as_posix() for pattern in ("*.cpp", "*.h") for file in kernels.rglob(pattern)]
    compiled = sorted(name for name in names if not name.startswith("fuzz/"))
    lines = [f"{name} {hashlib.sha256((kernels / name).read_bytes()).hexdigest()}\n" for name in compiled]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _compiled() -> Iterator[Path]:
    """Finds compiled kernels for this Python on the import path."""
    for folder in sys.path:
        folder_there = Path(folder).resolve() / "lightning_gnnload" / "ops"
        for suffix in EXTENSION_SUFFIXES:
            if folder_there != _HERE and (file := folder_there / f"_kernels{suffix}").is_file():
                yield file
