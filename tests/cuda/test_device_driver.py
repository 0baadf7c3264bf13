"""DeviceDriver, the native binding of CUDA's driver, over the emulated libcuda; and its declarations against CUDA's."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
import threading
from pathlib import Path

import pytest
import torch

from lightning_gnnload.errors import CudaCallError, CudaUnavailableError, ForkError
from lightning_gnnload.ops.dispatch import kernels
from tests.forked import in_child

from .emulated_libcuda import EmulatedLibcuda, image_of

KERNELS = Path(__file__).parents[2] / "kernels"
RAMPS = Path(__file__).parent / "kernels" / "ramps.cu"
COMPILER = os.environ.get("CXX", "g++")
NAME = "write_ramp<int64_t>"  # (out, {first, count, by}, scale, more)
OFFSETS = struct.pack("<4I", 0, 8, 32, 40)
STREAM = 3


def packed(out: torch.Tensor, first: int = 0) -> bytes:
    return struct.pack("<QqixxxxqdQ", out.data_ptr(), first, len(out), 1, 1.0, 0)


def test_a_launch_gets_what_was_packed() -> None:
    libcuda = EmulatedLibcuda(deferred=False)
    driver = libcuda.driver()
    function = driver.function(driver.load(image_of(RAMPS)), NAME)
    out = torch.zeros(5, dtype=torch.int64)
    driver.launch(function, 2, 64, 0, STREAM, packed(out, -(2**40)), OFFSETS)
    assert out.tolist() == list(range(-(2**40), 5 - 2**40))


def test_a_thread_keeps_its_own_context() -> None:
    libcuda = EmulatedLibcuda(deferred=False)
    library = ctypes.CDLL(libcuda.path)
    drivers = [libcuda.driver(device) for device in range(2)]
    functions = [driver.function(driver.load(image_of(RAMPS)), NAME) for driver in drivers]
    primary = [ctypes.c_void_p(), ctypes.c_void_p()]
    for device in range(2):
        library.cuDevicePrimaryCtxRetain(ctypes.byref(primary[device]), device)
    out, seen = torch.zeros(1, dtype=torch.int64), []

    def work() -> None:
        for context in (ctypes.c_void_p(), *primary):
            library.cuCtxSetCurrent(context)
            for driver, function in zip(drivers, functions, strict=True):
                libcuda.forget_counts()
                driver.launch(function, 1, 32, 0, STREAM, packed(out), OFFSETS)
                after = ctypes.c_void_p()
                library.cuCtxGetCurrent(ctypes.byref(after))
                seen.append((after.value == context.value, libcuda.count("cuCtxSetCurrent")))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    # Entered and left, but where it is current already.
    assert seen == [(True, 2), (True, 2), (True, 0), (True, 2), (True, 2), (True, 0)]


def test_what_a_kernel_may_share_only_grows() -> None:
    libcuda = EmulatedLibcuda(deferred=False)
    driver = libcuda.driver()
    turn = driver.function(driver.load(image_of(RAMPS)), "turn")
    words = torch.arange(8000).to(torch.uint64)
    memory, offsets = struct.pack("<Qi", words.data_ptr(), 8000), struct.pack("<2I", 0, 8)
    for shared_bytes, calls in ((64000, 1), (64000, 1), (66000, 2), (64000, 2)):
        driver.launch(turn, 1, 32, shared_bytes, STREAM, memory, offsets)
        assert libcuda.count("cuFuncSetAttribute") == calls
    assert words.tolist() == list(range(8000))


def test_errors_carry_cudas_name() -> None:
    libcuda = EmulatedLibcuda(deferred=False)
    driver = libcuda.driver()
    module = driver.load(image_of(RAMPS))
    function, out = driver.function(module, NAME), torch.zeros(1, dtype=torch.int64)
    with pytest.raises(
        CudaCallError, match=r"find a kernel on device 0: CUDA_ERROR_NOT_FOUND \(500, no LG_INST"
    ) as got:
        driver.function(module, "write_ramp<float>")
    assert got.value.name == "CUDA_ERROR_NOT_FOUND"
    with pytest.raises(CudaCallError, match="load a module on device 0: CUDA_ERROR_INVALID_IMAGE"):
        driver.load(b"/nowhere.so\0ignored")
    libcuda.fail(3, "CUDA_ERROR_ILLEGAL_ADDRESS")  # after two by which the context is entered
    with pytest.raises(CudaCallError, match=r"start a kernel.*CUDA_ERROR_ILLEGAL_ADDRESS"):
        driver.launch(function, 1, 32, 0, STREAM, packed(out), OFFSETS)
    with pytest.raises(CudaCallError, match="find the device on device 2: CUDA_ERROR_INVALID_DEVICE"):
        libcuda.driver(2)


@pytest.mark.parametrize("call", range(1, 5))
def test_a_driver_that_fails_while_it_is_opened(call: int) -> None:
    libcuda = EmulatedLibcuda()
    libcuda.fail(call, "CUDA_ERROR_OUT_OF_MEMORY")
    if call < 4:  # cuInit, cuDeviceGet, cuDevicePrimaryCtxRetain
        with pytest.raises(CudaCallError, match="OUT_OF_MEMORY"):
            libcuda.driver()
    libcuda.driver()


def test_a_library_that_is_missing_or_lacks_entries(tmp_path: Path) -> None:
    with pytest.raises(CudaUnavailableError, match=r"libnowhere.so: .*Install NVIDIA's driver"):
        kernels.DeviceDriver("libnowhere.so", 0)
    old = tmp_path / "libcuda.so.1"
    old_entries = "\n".join(
        f"int {symbol}() {{ return 0; }}" for _, symbol, _ in entries() if symbol != "cuMemcpyHtoDAsync_v2"
    )
    subprocess.run(
        [COMPILER, "-xc", "-shared", "-fPIC", "-o", str(old), "-"], input=old_entries, text=True, check=True, timeout=60
    )
    with pytest.raises(CudaUnavailableError, match=r"lacks cuMemcpyHtoDAsync_v2\. Install"):
        kernels.DeviceDriver(str(old), 0)


def test_a_child_of_the_process_is_refused_by_name() -> None:
    libcuda = EmulatedLibcuda(deferred=False)
    driver = libcuda.driver()
    module = driver.load(image_of(RAMPS))
    function, out = driver.function(module, NAME), torch.zeros(1, dtype=torch.int64)

    def work() -> None:
        for use in (
            lambda: driver.launch(function, 1, 32, 0, STREAM, packed(out), OFFSETS),
            lambda: driver.function(module, NAME),
            lambda: driver.load(image_of(RAMPS)),
        ):
            with pytest.raises(ForkError, match=f"process {os.getppid()} opened device 0.*'spawn'"):
                use()
        os.write(1, b"refused")

    assert in_child(work) == (0, "refused")
    driver.launch(function, 1, 32, 0, STREAM, packed(out, 5), OFFSETS)
    assert out.tolist() == [5]


def test_launches_leave_the_interpreter_to_others() -> None:
    """A launch that waits must not stop the other threads."""
    libcuda = EmulatedLibcuda(deferred=False)
    driver = libcuda.driver()
    function, out = driver.function(driver.load(image_of(RAMPS)), NAME), torch.zeros(1, dtype=torch.int64)
    counted, ended = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not ended.is_set():
            counted += 1

    counter = threading.Thread(target=count)
    counter.start()
    libcuda.spend(20_000)
    during = []
    for _ in range(5):
        before = counted
        driver.launch(function, 1, 32, 0, STREAM, packed(out), OFFSETS)
        during.append(counted - before)
    ended.set()
    counter.join(60)
    # Some 400,000 in the 60 ms of its three calls, on a processor of its own; with the GIL held, a switch's worth.
    assert min(during) > 1000


def entries() -> list[tuple[str, str, str]]:
    """Member, name in libcuda and parameters of each entry of driver.h."""
    listed = (KERNELS / "device" / "driver.h").read_text().partition("#define LG_DRIVER_ENTRIES(ENTRY)")[2]
    listed = listed.partition("class Driver;")[0].replace("\\\n", " ")
    return re.findall(r"ENTRY\((\w+), (\w+),\s*\(([^()]*)\)\)", listed)


def test_declarations_are_those_of_a_real_header(tmp_path: Path) -> None:
    """Types by their size and kind, names with the versions that a program compiled today gets, and constants."""
    folder = next((path for path in header_folders() if (path / "cuda.h").exists()), None)
    if folder is None:
        pytest.skip("needs CUDA's headers: those beside nvcc, or in CUDA_HOME")
    assert len(entries()) == 24
    lines = [CHECKS]
    for member, symbol, _ in entries():
        lines.append(f"static_assert(alike(&{symbol}, decltype(Driver::{member})()), {quoted(symbol)});")
        current = symbol.removesuffix("_v2")
        lines.append(f"static_assert(std::string_view(TEXT({current})) == {quoted(symbol)});")
    source = tmp_path / "declarations.cpp"
    source.write_text("\n".join(lines))
    command = [COMPILER, "-std=c++17", "-fsyntax-only", f"-I{KERNELS}", "-isystem", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    # The checks can fail: a parameter of another size, and a name without its version.
    for right, wrong in (("&cuMemsetD8Async", "&cuMemsetD16Async"), ("cuEventDestroy_v2", "cuEventDestroy_v3")):
        text = "\n".join(lines)
        assert right in text
        source.write_text(text.replace(right, wrong))
        assert subprocess.run(command, capture_output=True, timeout=120, check=False).returncode


CHECKS = """
#include <cuda.h>
#include <string_view>
#include <type_traits>
#include "device/driver.h"
using namespace lg::device;
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

template <class A, class B>
constexpr bool alike_values =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
    (std::is_pointer_v<A> || std::is_enum_v<A> || std::is_unsigned_v<A> == std::is_unsigned_v<B>);

template <class A, class B, class... As, class... Bs>
constexpr bool alike(A (*)(As...), B (*)(Bs...)) {
  if constexpr (sizeof...(As) != sizeof...(Bs)) {
    return false;
  } else {
    return alike_values<A, B> && (alike_values<As, Bs> && ...);
  }
}

static_assert(kSuccess == CUDA_SUCCESS && kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kBlockingEvent == CU_EVENT_BLOCKING_SYNC && kUntimedEvent == CU_EVENT_DISABLE_TIMING);
static_assert(kPortableMemory == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kMaxSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(std::is_same_v<Address, CUdeviceptr>);
"""


def header_folders() -> list[Path]:
    found = [Path(os.environ["CUDA_HOME"]) / "include"] if "CUDA_HOME" in os.environ else []
    nvcc = shutil.which("nvcc")
    found += [Path(nvcc).resolve().parents[1] / "include"] if nvcc else []
    return [*found, *sorted(Path("/usr/local").glob("cuda*/include"))]


def quoted(text: str) -> str:
    return f'"{text}"'
