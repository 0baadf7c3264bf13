"""Compiling kernels, with NVRTC itself where it is, and keeping them on disk."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lightning_gnnload.errors import CudaUnavailableError, KernelCompileError
from lightning_gnnload.ops.cuda.launch import cubins, sources
from lightning_gnnload.ops.cuda.launch.compile import (
    CompiledKernels,
    architecture,
    compile_kernels,
    compile_text,
    options,
)
from tests.runif import RunIf

needs_nvrtc = RunIf(extras="cuda")


@pytest.mark.parametrize(
    ("capability", "arch"), [((9, 0), "sm_90"), ((8, 6), "compute_80"), ((12, 0), "compute_100"), ((7, 5), "sm_75")]
)
def test_architecture(capability, arch):
    assert architecture(capability, (75, 80, 90, 100)) == arch


def test_an_architecture_that_the_compiler_has_forgotten():
    with pytest.raises(CudaUnavailableError, match=r"7\.0, but the installed NVRTC compiles for 7\.5"):
        architecture((7, 0), (75, 80))


@needs_nvrtc
def test_a_broken_source_says_where():
    text = '#include "common/cuda/kernel.h"\nnamespace lg {\n__global__ void f(int32_t* x) { *x = missing; }\n}\n'
    with pytest.raises(KernelCompileError, match=r'f_cuda\.cu\(3\): error: identifier "missing" is undefined'):
        compile_text(text, "f_cuda.cu", ["f"], options("sm_90"))


@needs_nvrtc
def test_products_are_rounded_before_they_are_added():
    """As on the CPU: a fused multiplication and addition rounds once, and gives other bits."""
    body = "__global__ void f(float* x, double* y) { x[0] = x[1] * x[2] + x[3]; y[0] = y[1] * y[2] + y[3]; }"
    text = f'#include "common/cuda/kernel.h"\nnamespace lg {{\n{body}\n}}\n'
    assert b"fma" not in compile_text(text, "f_cuda.cu", ["f"], options("compute_75")).image


@needs_nvrtc
@pytest.mark.parametrize(("arch", "begin"), [("sm_90", b"\x7fELF"), ("compute_75", b"//")])
def test_kernels_are_compiled_under_their_mangled_names(arch, begin):
    op = sources.ops()[0]
    compiled = compile_kernels(op, arch)
    assert compiled.image.startswith(begin)
    assert len(compiled.symbols) == sum(len(kernel.instantiations) for kernel in sources.kernels(op).values())
    assert all(symbol.encode() in compiled.image for symbol in compiled.symbols.values())


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """What :mod:`.cubins` compiles, into a cache of the test's own."""
    made: list[tuple[str, str]] = []

    def compile(op, arch):
        made.append((op, arch))
        return CompiledKernels(b"image\n" + arch.encode(), {"f": "_f"})

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cubins, "compile_kernels", compile)
    monkeypatch.setattr(cubins, "loaded_nvrtc", lambda: SimpleNamespace(getVersion=lambda: (13, 0)))
    return made


def test_a_kernel_is_compiled_once_a_machine(kept, tmp_path):
    op = sources.ops()[0]
    first = cubins.cached_kernels(op, "sm_90")
    assert cubins.cached_kernels(op, "sm_90") == first
    assert kept == [(op, "sm_90")]
    cubins.cached_kernels(op, "sm_80")
    assert len(kept) == 2
    folder = tmp_path / "lightning_gnnload_kernels"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o077 for path in folder.iterdir()] == [0, 0]


def test_another_source_or_compiler_is_compiled_again(kept, tmp_path, monkeypatch):
    op = sources.ops()[0]
    cubins.cached_kernels(op, "sm_90")
    monkeypatch.setattr(cubins, "loaded_nvrtc", lambda: SimpleNamespace(getVersion=lambda: (13, 1)))
    cubins.cached_kernels(op, "sm_90")
    monkeypatch.setattr(cubins, "fingerprint", lambda op: "another")
    cubins.cached_kernels(op, "sm_90")
    assert len(kept) == len(list((tmp_path / "lightning_gnnload_kernels").iterdir())) == 3


def test_a_spoilt_file_is_compiled_again(kept, tmp_path):
    op = sources.ops()[0]
    right = cubins.cached_kernels(op, "sm_90")
    (path,) = (tmp_path / "lightning_gnnload_kernels").iterdir()
    whole = path.read_bytes()
    for spoilt in (whole[:-1], whole.replace(b"image", b"imagf"), b"", b"[]\n", b"\xff\n"):
        path.write_bytes(spoilt)
        assert cubins.cached_kernels(op, "sm_90") == right
    assert len(kept) == 6


def test_a_folder_that_others_can_write_is_not_used(kept, tmp_path, caplog):
    folder = tmp_path / "lightning_gnnload_kernels"
    folder.mkdir()
    folder.chmod(0o777)
    cubins.cached_kernels(sources.ops()[0], "sm_90")
    assert not list(folder.iterdir())
    assert "chmod 700" in caplog.text
