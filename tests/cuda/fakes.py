"""CUDA's driver and runtime as CuPy binds them, faked: they keep what they are told."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import ClassVar

from lightning_gnnload.ops.cuda.host_memory import CHUNK_BYTES


class FakeDriver:
    """Keeps what is launched, with the parameters read back as the driver would read them."""

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    types: ClassVar = {"pick32": "PPiQfqS", "pick64": "PPiQfqS", "clear": "P"}

    def __init__(self) -> None:
        self.loaded: list[bytes] = []
        self.functions: list[str] = []
        self.attributes: list[tuple[int, int, int]] = []
        self.launches: list[SimpleNamespace] = []
        self.error: Exception | None = None

    def moduleLoadData(self, image):  # noqa: N802
        self.loaded.append(image)
        return 70

    def moduleGetFunction(self, module, symbol):  # noqa: N802
        assert module == 70
        self.functions.append(symbol)
        return len(self.functions)

    def funcSetAttribute(self, function, attribute, value):  # noqa: N802
        self.attributes.append((function, attribute, value))

    def launchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, params, extra):  # noqa: N802
        if self.error:
            raise self.error
        symbol = self.functions[function - 1]
        code = {"P": ctypes.c_uint64, "i": ctypes.c_int32, "Q": ctypes.c_uint64, "f": ctypes.c_float}
        code |= {"q": ctypes.c_int64, "S": ctypes.c_char * 32}
        addresses = (ctypes.c_void_p * len(self.types[symbol])).from_address(params)
        read = [_value(code[t].from_address(a)) for t, a in zip(self.types[symbol], addresses, strict=True)]
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
        self.launches.append(
            SimpleNamespace(symbol=symbol, blocks=gx, threads=bx, shared=shared, stream=stream, read=read)
        )


def _value(read):
    return bytes(read) if isinstance(read, ctypes.Array) else read.value


class FakeRuntime:
    """Registers pages as CUDA does: none twice, and refuses beyond a limit."""

    cudaDevAttrPageableMemoryAccessUsesHostPageTables = 100  # noqa: N815
    cudaDevAttrHostRegisterReadOnlySupported = 113  # noqa: N815

    def __init__(self, limit_bytes: int = 1 << 60) -> None:
        self.limit_bytes, self.registered, self.flags = limit_bytes, {}, {}
        self.contexts: list[int] = []

    def deviceGetAttribute(self, attribute, device):  # noqa: N802
        return int(attribute == self.cudaDevAttrHostRegisterReadOnlySupported)

    def setDevice(self, device):  # noqa: N802
        self.contexts.append(threading.get_ident())

    def free(self, pointer):
        assert pointer == 0

    def hostRegister(self, begin, num_bytes, flags):  # noqa: N802
        assert begin % 4096 == num_bytes % 4096 == 0
        assert 0 < num_bytes <= CHUNK_BYTES
        if any(begin < b + n and b < begin + num_bytes for b, n in self.registered.items()):
            raise RuntimeError("cudaErrorHostMemoryAlreadyRegistered")
        if sum(self.registered.values()) + num_bytes > self.limit_bytes:
            raise RuntimeError("cudaErrorMemoryAllocation")
        self.registered[begin], self.flags[begin] = num_bytes, flags

    def hostUnregister(self, begin):  # noqa: N802
        del self.registered[begin]

    def memcpy(self, host: int, num_bytes: int) -> None:
        """Refuses a copy to or from memory of the host, as CUDA does, that lies on registered pages in part."""
        for begin, size in self.registered.items():
            first, last = max(begin, host), min(begin + size, host + num_bytes)
            if first < last and last - first < num_bytes:
                raise RuntimeError("cudaErrorInvalidValue: invalid argument")
