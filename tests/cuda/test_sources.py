"""What is read from the CUDA sources: parameters, instantiations, and what a kernel is compiled from."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gnnload.errors import GnnLoadError, KernelsMissingError
from lightning_gnnload.ops.cuda import sources

SOURCE = """
#include "common/cuda/kernel.h"
// __global__ void commented(int a) {}
namespace lg {
__device__ int helper(int a) { return a; }

template <class Index, int kLanes = 32>
__global__ void __launch_bounds__(256) pick(const int64_t* __restrict__ indptr, const Index *indices,
                                            Index* __restrict__ const out,  // of them
                                            uint64_t seed, const int32_t fanout, const float* const* tables) {
  helper(fanout);
}

__global__ void clear(uint32_t* words,
                      int64_t count) { /* { */ }
}  // namespace lg
LG_INSTANTIATE(pick<int32_t, 8>)
LG_INSTANTIATE(pick<int64_t,32>)
LG_INSTANTIATE(clear)
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder of sources that stands in for the package's own."""
    for name, text in {
        "common/cuda/kernel.h": '#ifdef LG_EMULATE\n#include "emulate/cuda.h"\n#endif\n#include "common/draw.h"\n',
        "common/draw.h": "#include <cstdint>\n",
        "common/other.h": "",
        "pick/pick_cuda.cu": SOURCE,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sources, "_INSTALLED", tmp_path)
    caches = (sources.included, sources.fingerprint, sources.kernels)
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


def test_kernels_of_a_source():
    kernels = sources.parse("pick", SOURCE)
    assert set(kernels) == {"pick", "clear"}
    pick = kernels["pick"]
    assert pick.type_names == ("Index", "kLanes")
    assert pick.instantiations == (("int32_t", "8"), ("int64_t", "32"))
    assert [(p.name, p.ctype) for p in pick.parameters] == [
        ("indptr", "const int64_t*"),
        ("indices", "const Index*"),
        ("out", "Index*"),
        ("seed", "uint64_t"),
        ("fanout", "int32_t"),
        ("tables", "const float* const*"),
    ]
    of_int64 = pick.parameters_of(("int64_t", "32"))
    assert [p.ctype for p in of_int64[1:3]] == ["const int64_t*", "int64_t*"]
    assert [p.pointee for p in of_int64 if p.is_pointer] == ["int64_t", "int64_t", "int64_t", "const float*"]
    assert [p.is_read_only for p in of_int64] == [True, True, False, False, False, True]
    assert pick.expression(("int32_t", "8")) == "pick<int32_t, 8>"
    assert kernels["clear"].instantiations == ((),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__global__ void f(bool flag) {}\nLG_INSTANTIATE(f)", "'flag'.*'bool'"),
        ("__global__ void f(Adjacency graph) {}\nLG_INSTANTIATE(f)", "'graph'.*'Adjacency'"),
        ("template <class T> __global__ void f(T x) {}\nLG_INSTANTIATE(f<uint8_t>)", "'x'.*'uint8_t'"),
        ("__global__ void f(int32_t blocks) {}\nLG_INSTANTIATE(f)", "'blocks'.*Rename it"),
        ("__global__ void f(int32_t) {}\nLG_INSTANTIATE(f)", "no name or no type"),
        ("__global__ void f(int32_t a) {}", "needs lines LG_INSTANTIATE"),
        ("template <class T> __global__ void f(T* x) {}\nLG_INSTANTIATE(f)", "with 1 types"),
        ("LG_INSTANTIATE(g<int32_t>)", "defines no such kernel"),
        ("__global__ void f(int32_t a) {}\nLG_INSTANTIATE(f)\nLG_INSTANTIATE(f)", "twice"),
        ("__global__ __noinline__ void f(int32_t a) {}", "1 times, but 0 kernels"),
    ],
)
def test_sources_that_break_the_rules(text, said):
    with pytest.raises(GnnLoadError, match=said):
        sources.parse("op", text)


def test_wrong_names(tree):
    assert sources.ops() == ("pick",)
    assert sources.kernel("pick", "clear").op == "pick"
    with pytest.raises(GnnLoadError, match="no kernel 'pcik'; it has: clear, pick"):
        sources.kernel("pick", "pcik")
    with pytest.raises(GnnLoadError, match="'pack' has no CUDA kernels; these have: pick"):
        sources.kernel("pack", "pick")
    with pytest.raises(GnnLoadError, match=r"pick<int32_t, 32> is not instantiated; there are: pick<int32_t, 8>"):
        sources.kernel("pick", "pick").parameters_of(("int32_t", "32"))


def test_fingerprint_is_of_all_that_is_included(tree: Path):
    assert [str(path.relative_to(tree)) for path in sources.included("pick")] == [
        "common/cuda/kernel.h",
        "common/draw.h",
        "pick/pick_cuda.cu",
    ]
    seen = set()
    for changed in (None, "common/other.h", "common/draw.h", "pick/pick_cuda.cu"):
        if changed:
            (tree / changed).write_text((tree / changed).read_text() + "// another\n")
        sources.fingerprint.cache_clear()
        seen.add(sources.fingerprint("pick"))
    assert len(seen) == 3


def test_a_missing_header_is_named(tree: Path):
    (tree / "common/draw.h").unlink()
    with pytest.raises(KernelsMissingError, match=r"common/draw\.h cannot be read"):
        sources.included("pick")


def test_every_source_of_this_package_is_understood():
    for op in sources.ops():
        assert sources.kernels(op)
        assert sources.source_path(op) in sources.included(op)
