"""CUDA's runtime as CuPy binds it, faked: it keeps what it is told."""

from __future__ import annotations

import threading

from lightning_gnnload.ops.cuda.launch.host_memory import CHUNK_BYTES


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
