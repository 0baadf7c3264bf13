"""The wheel: built, installed elsewhere and used without this repository."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lightning_gnnload.ops.cuda.launch import sources

ROOT = Path(__file__).parents[2]
BUILD_TOOLS = ("scikit_build_core", "nanobind", "pip")
pytestmark = [
    pytest.mark.timeout(600),  # compiles all kernels
    *(
        pytest.mark.skipif(importlib.util.find_spec(tool) is None, reason=f"builds a wheel, which needs {tool}")
        for tool in BUILD_TOOLS
    ),
]

# Runs in a bare process. The finder of an editable install would lead back to the repository.
USE_INSTALLED = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
target = sys.argv[1]
sys.path.insert(0, target)
import numpy as np
import lightning_gnnload
from lightning_gnnload import Graph, NeighborSampler
from lightning_gnnload.ops import _kernels
assert lightning_gnnload.__file__.startswith(target), lightning_gnnload.__file__
assert _kernels.__file__.startswith(target), _kernels.__file__
from lightning_gnnload.ops.cuda.launch import sources
assert str(sources.folder()).startswith(target), sources.folder()
assert all(sources.kernels(op) and sources.fingerprint(op) for op in sources.ops())
batch = NeighborSampler([2, 2]).sample(Graph.from_coo([1, 2, 3], [0, 0, 1]), np.array([0]), seed=0)
print(sorted(np.asarray(batch.nodes).tolist()))
"""

# As in a checkout: the source folder comes before the installed package, and holds no compiled kernels.
USE_SOURCES = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path[:0] = sys.argv[1:]
try:
    from lightning_gnnload import NeighborSampler, ops
    from lightning_gnnload.ops import _kernels
    print(ops.__file__, _kernels.__file__, ops.instruction_sets())
except ImportError as error:
    print(error)
"""


def run(*command: str, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Into the build folder of the checkout, where the kernels are compiled already if it is what is installed.
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    run(sys.executable, "-m", "pip", "wheel", str(ROOT), *options, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_what_users_need_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"lightning_gnnload/py.typed", "lightning_gnnload/__init__.pyi"} <= {*names}
    assert "lightning_gnnload/datasets/debian_bookworm.npz" in names
    assert any(name.startswith("lightning_gnnload/ops/_kernels.") and name.endswith(".so") for name in names)
    assert "lightning_gnnload/ops/_kernels.pyi" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lightning_gnnload"}


def test_wheel_holds_what_its_cuda_kernels_are_compiled_from(wheel: Path) -> None:
    folder = "lightning_gnnload/ops/cuda/kernels/"
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name.removeprefix(folder) for name in archive.namelist() if name.startswith(folder)}
    needed = {str(path.relative_to(sources.folder())) for op in sources.ops() for path in sources.included(op)}
    assert shipped == needed


def test_wheel_works_outside_the_repository(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target), str(wheel), cwd=tmp_path)
    assert run(sys.executable, "-c", USE_INSTALLED, str(target), cwd=tmp_path).strip() == "[0, 1, 2, 3]"

    # In the checkout that it was built of, its kernels serve.
    used = run(sys.executable, "-c", USE_SOURCES, str(ROOT), str(target), cwd=tmp_path)
    assert used.startswith(f"{ROOT}/lightning_gnnload/ops/__init__.py {target}/lightning_gnnload/ops/_kernels.")
    assert "'baseline'" in used

    # In one of other sources, they would not do what these say.
    other = tmp_path / "checkout"
    (other / "kernels").mkdir(parents=True)
    (other / "kernels" / "new.cpp").write_text("// another kernel\n")
    shutil.copytree(ROOT / "lightning_gnnload", other / "lightning_gnnload", ignore=shutil.ignore_patterns("*.so"))
    said = run(sys.executable, "-c", USE_SOURCES, str(other), str(target), cwd=tmp_path)
    assert f"from the source folder {other}, which holds no compiled kernels" in said
    assert f"those of the installed package in {target} were compiled from other sources" in said
    assert f"pip install --editable {other}" in said


def test_a_wheel_is_named_by_the_python_that_it_serves(wheel: Path) -> None:
    python, abi = wheel.stem.split("-")[2:4]
    here = f"cp3{sys.version_info.minor}"
    assert (python, abi) == (("cp312", "abi3") if sys.version_info >= (3, 12) else (here, here))
