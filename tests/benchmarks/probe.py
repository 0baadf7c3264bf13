"""What build of a peer an interpreter has, as JSON: ``python -m tests.benchmarks.probe dgl.graphbolt dgl torch``.

Runs in any Python: it imports nothing of this package. The first argument is imported; of the others, the
versions and the tags of their wheels are told.
"""

from __future__ import annotations

import importlib
import json
import platform
import sys
import warnings
from importlib.metadata import PackageNotFoundError, distribution


def build(package: str) -> str:
    """Such as ``dgl 1.1.3 (cp311-cp311-manylinux1_x86_64)``."""
    try:
        found = distribution(package)
    except PackageNotFoundError:  # compiled where it lies, and installed by no wheel
        version = getattr(sys.modules.get(package.replace("-", "_")), "__version__", "of no version")
        return f"{package} {version} (built from source)"
    lines = (found.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")]
    return f"{package} {found.version}" + (f" ({tags[0]})" if tags else "")


def main(module: str, packages: list[str]) -> dict[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    except Exception as error:  # compiled peers fail in many ways; each is a reason
        return {"missing": f"{type(error).__name__}: {error}"}
    builds = ", ".join(build(package) for package in packages)
    return {"build": f"{builds}, Python {platform.python_version()}"}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:])))
