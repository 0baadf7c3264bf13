"""What is read from the CUDA sources: parameters, structures, instantiations, and what a kernel is compiled from."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import lightning_gnnload
from lightning_gnnload.errors import GnnLoadError, KernelsMissingError
from lightning_gnnload.ops.cuda.launch import sources
from lightning_gnnload.ops.cuda.launch.signatures import KernelParameter, checks, parse

from . import host_build

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

HEADER = """
template <class Index>
struct Lists {
  const int64_t* begin;  // (of each)
  const Index* indices;
  const Index* hot;
  __device__ int64_t degree(int64_t node) const { return begin[node + 1] - begin[node]; }
};
struct Key {
  uint64_t seed;
  uint32_t epoch, step;
  uint32_t hop = 0;
  static constexpr uint32_t kTag = 7;
};
template <class Entry>
struct Request {
  int32_t count;
  Key key;
  Lists<Entry> lists;
  double* out;
};
struct Opaque {
  __device__ int hidden() const;
};
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
    kernels = parse("pick", SOURCE)
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


def test_structures_of_a_source():
    first, asked, out = parse("op", ASKED, HEADER)["f"].parameters_of(("float",))
    assert (first, out) == (KernelParameter("first", "int32_t"), KernelParameter("out", "float*"))
    assert asked.ctype == "Request<float>"
    assert [(m.name, m.ctype, m.size) for m in asked.members] == [
        ("count", "int32_t", 4),
        ("key", "Key", 24),
        ("lists", "Lists<float>", 24),
        ("out", "double*", 8),
    ]
    assert asked.offsets() == [0, 8, 32, 56]
    assert [(m.name, m.ctype) for m in asked.members[1].members] == [
        ("seed", "uint64_t"),
        ("epoch", "uint32_t"),
        ("step", "uint32_t"),
        ("hop", "uint32_t"),
    ]
    assert [m.ctype for m in asked.members[2].members] == ["const int64_t*", "const float*", "const float*"]


ASKED = "template <class T> __global__ void f(int32_t first, Request<T> asked, T* out) {}\nLG_INSTANTIATE(f<float>)"


@pytest.mark.parametrize(
    ("compiled", "read"),
    [
        ("", ""),
        ("int32_t count;", "int32_t count; int32_t more;"),  # it would lie in the padding
        ("int32_t count; Key key;", "Key key; int32_t count;"),
        ("uint32_t epoch, step;", "uint32_t step, epoch;"),
        ("uint64_t seed;", "int64_t seed;"),
        ("uint32_t hop = 0;", ""),
        ("const Index* hot;", ""),
        ("double* out;", "float* out;"),
        ("int32_t first", "int64_t first"),
        ("int32_t first", "uint32_t first"),
        ("T* out)", "const T* out)"),
    ],
)
def test_the_compiler_refuses_what_is_read_otherwise(compiled: str, read: str) -> None:
    text = " ".join(f"{re.sub('//.*', '', HEADER)}{ASKED.partition('LG_INSTANTIATE')[0]}".split())
    assert compiled in text
    known = parse("op", f"{text.replace(compiled, read, 1)}\nLG_INSTANTIATE(f<float>)")
    command = [host_build.COMPILER, *host_build.FLAGS, "-fsyntax-only", "-Wno-unused-parameter", "-xc++", "-"]
    both = f"namespace lg {{ {text} }}\n{checks(known)}"
    done = subprocess.run(command, input=both, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (compiled == read), done.stderr
    assert compiled == read or "static assertion failed" in done.stderr or "has no member" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__global__ void f(bool flag) {}\nLG_INSTANTIATE(f)", "'flag'.*'bool'"),
        ("__global__ void f(Adjacency graph) {}\nLG_INSTANTIATE(f)", "'graph'.*'Adjacency'"),
        ("__global__ void f(Lists graph) {}\nLG_INSTANTIATE(f)", "'graph'.*'Lists'"),
        ("__global__ void f(Opaque one) {}\nLG_INSTANTIATE(f)", "'one'.*'Opaque'.*begin a structure with its members"),
        ("struct G { bool flag; };\n__global__ void f(G g) {}\nLG_INSTANTIATE(f)", "'flag'.*'bool'"),
        ("template <class T> __global__ void f(T x) {}\nLG_INSTANTIATE(f<uint8_t>)", "'x'.*'uint8_t'"),
        ("__global__ void f(int32_t) {}\nLG_INSTANTIATE(f)", "no name or no type"),
        ("__global__ void f(int32_t a) {}", "needs lines LG_INSTANTIATE"),
        ("template <class T> __global__ void f(T* x) {}\nLG_INSTANTIATE(f)", "with 1 types"),
        ("LG_INSTANTIATE(g<int32_t>)", "defines no such kernel"),
        ("__global__ __noinline__ void f(int32_t a) {}\nLG_INSTANTIATE(f)", "defines no such kernel"),
    ],
)
def test_sources_that_break_the_rules(text, said):
    with pytest.raises(GnnLoadError, match=said):
        parse("op", text, HEADER)


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


OF_LAUNCHES = {"blocks", "threads", "shared_bytes", "as_batch"}


def test_launches_name_kernels_and_all_of_their_parameters() -> None:
    """Without running them. What ``**`` passes is not looked at; ``DeviceBatch.launch`` passes itself."""
    texts = set()
    for path in Path(lightning_gnnload.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Constant) and isinstance(call.value, str):
                texts.add(call.value)
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "launch":
                continue
            named = [argument.value for argument in call.args[:2] if isinstance(argument, ast.Constant)]
            if len(named) < 2:
                continue
            kernel = sources.kernel(*named)
            known, given = {p.name for p in kernel.parameters}, {keyword.arg for keyword in call.keywords} - OF_LAUNCHES
            assert given - {None} <= known, f"{path}:{call.lineno}"
            assert None in given or known - given <= {"batch"}, f"{path}:{call.lineno}"
    # Those whose launches are written once for several kernels, too.
    assert {kernel for op in sources.ops() for kernel in sources.kernels(op)} <= texts
