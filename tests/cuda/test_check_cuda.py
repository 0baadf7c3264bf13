"""`make cuda` finds what is wrong with kernels, before any device sees them."""

from __future__ import annotations

import pytest

from kernels import check_cuda
from lightning_gnnload.ops.cuda.launch import compile as compiling
from lightning_gnnload.ops.cuda.launch import sources
from lightning_gnnload.ops.cuda.launch.signatures import checks, parse
from tests.runif import RunIf

KERNEL = """
#include "common/cuda/kernel.h"
namespace lg {
struct Scale { uint32_t fanout; double scale; };
template <class Index, int kLanes>
__global__ void pick(const Index* indices, Index* out, Scale by) { out[0] = indices[by.fanout]; }
}
LG_INSTANTIATE(pick<int32_t, 8>)
LG_INSTANTIATE(pick<int64_t, 8>)
"""
pytestmark = RunIf(extras="cuda")


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


def test_a_kernel_that_compiles_well(package):
    said, wrong = check_cuda.compiled_well("pick", "sm_90")
    assert not wrong
    assert said.startswith("at most ")


@pytest.mark.parametrize(
    ("changed", "said"),
    [("out[0] = indices[by.fanout]; int unused;", "never referenced"), ("out[0] = indeces[by.fanout];", "indeces")],
)
def test_warnings_and_errors_of_the_compiler_are_found(package, changed, said):
    path = package / "kernels" / "pick" / "pick_cuda.cu"
    path.write_text(KERNEL.replace("out[0] = indices[by.fanout];", changed))
    _, (wrong,) = check_cuda.compiled_well("pick", "sm_90")
    assert said in wrong


@pytest.mark.parametrize(
    ("compiled", "read"),
    [
        ("Scale by", "uint64_t by"),
        ("Index* out", "const Index* out"),
        ("uint32_t fanout; ", ""),
        ("uint32_t fanout", "int32_t fanout"),
        ("fanout; double", "fanout, more; double"),
    ],
)
def test_parameters_that_are_compiled_otherwise_than_read(package, monkeypatch, compiled, read):
    known = parse("pick", KERNEL.replace(compiled, read, 1))
    monkeypatch.setattr(compiling, "checks", lambda found: checks(known))
    _, (wrong,) = check_cuda.compiled_well("pick", "sm_90")
    assert "static assertion failed" in wrong or 'no member "more"' in wrong
