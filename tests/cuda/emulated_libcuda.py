"""EmulatedLibcuda: a libcuda whose device is the host (emulated_libcuda.cpp), and what tests want of it."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload.ops.cuda.launch import sources
from lightning_gnnload.ops.cuda.launch.signatures import checks
from lightning_gnnload.ops.dispatch import kernels

from . import host_build

SOURCE = Path(__file__).with_name("emulated_libcuda.cpp")
STATUS = {"CUDA_ERROR_INVALID_VALUE": 1, "CUDA_ERROR_OUT_OF_MEMORY": 2, "CUDA_ERROR_ILLEGAL_ADDRESS": 700}


@dataclass(frozen=True)
class Held:
    """What has been made and not yet run, destroyed or freed."""

    operations: int
    events: int
    host_blocks: int


class EmulatedLibcuda:
    """CUDA's driver, as :class:`DeviceDriver` opens it by ``path``. There is one in a process; each new object of this
    class begins anew with it, but for events, host memory and modules.

    Args:
        deferred: operations wait until the host waits, and then run in an order of streams that ``seed`` draws;
            otherwise each runs at its call.
    """

    def __init__(self, deferred: bool = True, seed: int = 0) -> None:
        self.path, self._library = _opened()
        self._library.lg_emulated_reset(deferred, seed)

    def driver(self, device: int = 0) -> kernels.DeviceDriver:
        return kernels.DeviceDriver(self.path, device)

    def count(self, name: str) -> int:
        """Calls of an entry, such as ``"cuLaunchKernel"``, or launches of a kernel, without spaces."""
        return self._library.lg_emulated_count(name.encode())

    def forget_counts(self) -> None:
        self._library.lg_emulated_forget_counts()

    def spend(self, us: float) -> None:
        """Makes every call compute for so many microseconds."""
        self._library.lg_emulated_spend(us)

    def fail(self, call: int, name: str = "CUDA_ERROR_OUT_OF_MEMORY") -> None:
        """Makes the ``call``-th call from now on, from 1, do nothing and return an error; 0 for none."""
        self._library.lg_emulated_fail(call, STATUS[name])

    def own(self, memory: torch.Tensor | np.ndarray) -> None:
        """Makes the memory the device's. From the first such call on, copies and memsets of other memory are refused,
        at the call and when they run."""
        self._library.lg_emulated_own(*_range(memory))

    def disown(self, memory: torch.Tensor | np.ndarray) -> None:
        self._library.lg_emulated_disown(_range(memory)[0])

    def synchronize(self, stream: int) -> None:
        """Waits for a stream, in a thread that has the device's context meanwhile."""
        context = ctypes.c_void_p()
        for status in (
            self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            self._library.cuCtxSetCurrent(context),
            self._library.cuStreamSynchronize(ctypes.c_uint64(stream)),
            self._library.cuCtxSetCurrent(None),
        ):
            assert status == 0, status

    def held(self) -> Held:
        counts = (ctypes.c_int64 * 3)()
        begin = ctypes.addressof(counts)
        self._library.lg_emulated_held(begin, begin + 8, begin + 16)
        return Held(*counts)


def image(op: str) -> bytes:
    """The kernels of an operation, as the emulated driver loads them; names are the texts of LG_INSTANTIATE."""
    return image_of(sources.source_path(op), checks(sources.kernels(op)))


def image_of(source: Path, checks: str = "") -> bytes:
    # Loaded here first: host_build tells the emulator where its shared memory lies.
    return host_build.load(source, checks)._name.encode()


@functools.cache
def _opened() -> tuple[str, ctypes.CDLL]:
    with host_build.library(SOURCE, [*host_build.HOST_FLAGS, "-Wno-missing-field-initializers", "-pthread"]) as path:
        library = ctypes.CDLL(str(path))
    entries = {
        "reset": (ctypes.c_int, ctypes.c_uint64),
        "count": (ctypes.c_char_p,),
        "forget_counts": (),
        "spend": (ctypes.c_double,),
        "fail": (ctypes.c_int64, ctypes.c_int),
        "own": (ctypes.c_uint64, ctypes.c_uint64),
        "disown": (ctypes.c_uint64,),
        "held": (ctypes.c_void_p,) * 3,
    }
    for name, arguments in entries.items():
        entry = getattr(library, f"lg_emulated_{name}")
        entry.argtypes, entry.restype = arguments, None
    library.lg_emulated_count.restype = ctypes.c_int64
    return str(path), library


def _range(memory: torch.Tensor | np.ndarray) -> tuple[int, int]:
    begin = memory.data_ptr() if isinstance(memory, torch.Tensor) else memory.ctypes.data
    return begin, memory.nbytes
