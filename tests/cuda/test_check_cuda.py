"""`make cuda` finds what is wrong with kernels and launches, before any device sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

import lightning_gnnload
from kernels import check_cuda
from kernels.check_launches import num_launches, wrong_launches
from lightning_gnnload.ops.cuda import sources
from tests.runif import RunIf

KERNEL = """
#include "common/cuda/kernel.h"
namespace lg {
template <class Index, int kLanes>
__global__ void pick(const Index* indices, Index* out, uint32_t fanout, double scale) { out[0] = indices[fanout]; }
}
LG_INSTANTIATE(pick<int32_t, 8>)
LG_INSTANTIATE(pick<int64_t, 8>)
"""

GOOD = """
class Graph:
    @property
    def arguments(self):
        return {"indices": self.indices, "names": self.names}

def settings():
    return {"fanout": 3}

def run(self, graph, hop):
    rest = {"scale": 0.5} | settings()
    without = {name: array for name, array in graph.arguments.items() if name != "names"}
    device.launch("pick", "pick", ("int32_t", "8"), blocks=1, threads=32, indices=1, out=2, fanout=3, scale=0.5)
    self.device.launch("pick", "pick", (graph.index_type, "8"), blocks=1, threads=32, out=2, **without, **rest)
    self.device.launch("pick", "pick", hop.types, blocks=1, threads=32, out=2, **hop.unknown)
    self.launcher.launch(1, 2)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one module, beside kernels of its own."""
    kernels = tmp_path / "kernels"
    (kernels / "pick").mkdir(parents=True)
    (kernels / "common").symlink_to(sources.folder() / "common")
    (kernels / "pick" / "pick_cuda.cu").write_text(KERNEL)
    monkeypatch.setattr(sources, "_INSTALLED", kernels)
    caches = (sources.included, sources.fingerprint, sources.kernels)
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


def found(package: Path, code: str) -> str:
    (package / "module.py").write_text(code)
    return "\n".join(wrong_launches(package))


def test_right_launches(package):
    assert not found(package, GOOD)
    assert num_launches(package) == 3


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (", scale=0.5)", ")", "module.py:13: pick/pick is launched without ['scale']"),
        ("out=2, fanout=3", "output=2, fanout=3", "no parameters ['output']"),
        ('"pick", "pick", ("int32_t"', '"pick", "pcik", ("int32_t"', "no kernel 'pcik'"),
        ('"pick", "pick", ("int32_t"', '"pack", "pick", ("int32_t"', "'pack' has no CUDA kernels"),
        ('"pick", "pick", ("int32_t"', 'op, "pick", ("int32_t"', "literal names"),
        ('("int32_t", "8")', '("int32_t", "16")', "not instantiated for ('int32_t', '16')"),
        ('(graph.index_type, "8")', "(graph.index_type,)", "not instantiated for (graph.index_type,)"),
        (', ("int32_t", "8"),', ",", "not instantiated for ()"),
        ("**without", "**graph.arguments", "no parameters ['names']"),
        ("out=2, **without", "**without", "module.py:14: pick/pick is launched without ['out']"),
        ('return {"fanout": 3}', "return {}", "launched without ['fanout']"),
        ("out=2, **without", "out=2, scale=1.0, **without", "['scale'] twice"),
        ("out=2, **hop.unknown", "outs=2, **hop.unknown", "no parameters ['outs']"),
    ],
)
def test_wrong_launches(package, right, wrong, said):
    assert right in GOOD
    assert said in found(package, GOOD.replace(right, wrong, 1))


def test_launches_of_this_package():
    folder = Path(lightning_gnnload.__file__).parent
    assert not wrong_launches(folder)
    assert num_launches(folder)


needs_nvrtc = RunIf(extras="cuda")


@needs_nvrtc
def test_a_kernel_that_compiles_well(package):
    said, wrong = check_cuda.compiled_well("pick", "sm_90")
    assert not wrong
    assert said.startswith("at most ")
    assert not check_cuda.wrong_parameters("pick")


@needs_nvrtc
@pytest.mark.parametrize(
    ("changed", "said"),
    [("out[0] = indices[fanout]; int unused;", "never referenced"), ("out[0] = indeces[fanout];", "indeces")],
)
def test_warnings_and_errors_of_the_compiler_are_found(package, changed, said):
    path = package / "kernels" / "pick" / "pick_cuda.cu"
    path.write_text(KERNEL.replace("out[0] = indices[fanout];", changed))
    _, (wrong,) = check_cuda.compiled_well("pick", "sm_90")
    assert said in wrong


@needs_nvrtc
def test_parameters_that_are_compiled_otherwise_than_read(package, monkeypatch):
    text = KERNEL.replace("uint32_t fanout", "int64_t fanout")
    monkeypatch.setattr(sources, "kernels", lambda op: sources.parse(op, text))
    first, _ = check_cuda.wrong_parameters("pick")
    assert "pick<int32_t, 8> takes ['u64', 'u64', 'u32', 'f64'], but ['u64', 'u64', 'u64', 'f64']" in first
