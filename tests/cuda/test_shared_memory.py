"""Device memory that processes share: what readers see, and when its owner may free it."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload.errors import CudaCallError, DeviceShareError
from lightning_gnnload.ops.cuda.launch.runtime import CupyRuntime, Runtime
from lightning_gnnload.ops.cuda.launch.shared_memory import ExportedMemory, MemoryHandle, OpenedMemory
from tests.cuda.fake_runtime import FakeRuntime
from tests.cuda.ranks import as_processes, wait_until

BYTES = np.random.default_rng(0).integers(0, 256, 1000, dtype=np.uint8)
PATIENCE_S = 20.0


class Pair:
    """An owner, rank 0, and a reader, rank 1, who talk over a socket."""

    def __init__(self, **reader) -> None:
        self.ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.reader = FakeRuntime(["gpu-1", "gpu-0"], **reader)

    def run(self, own, read) -> list:
        """What each returned. The reader gets a handle and its descriptor."""

        def work(index: int):
            self.ends[1 - index].close()
            talk = self.ends[index]
            if index == 0:
                runtime = FakeRuntime(["gpu-0", "gpu-1"])
                memory = ExportedMemory(runtime, len(BYTES), "rank 0's rows")
                runtime.write(memory.address, BYTES)
                socket.send_fds(talk, [repr(memory.memory_handle.values).encode()], [memory.fd])
                found = own(memory, talk)
                assert memory.is_freed == (runtime.num_held == 0)
                return found
            data, fds, _, _ = socket.recv_fds(talk, 4096, 1)
            return read(MemoryHandle.from_values(eval(data)), fds[0], talk)

        ends = as_processes(2, work)
        for end in self.ends:
            end.close()
        return ends

    def refusal(self, change=lambda memory_handle: memory_handle) -> str:
        """Why the reader cannot open the memory. It holds nothing afterwards."""

        def read(memory_handle: MemoryHandle, fd: int, talk: socket.socket) -> str:
            with pytest.raises(DeviceShareError) as caught:
                OpenedMemory(self.reader, change(memory_handle), fd)
            assert self.reader.num_held == 0
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(fd)
            return str(caught.value)

        owner, reader = self.run(lambda memory, talk: memory.close(PATIENCE_S), read)
        assert owner.value is True  # a reader that refused keeps nobody waiting
        return str(reader.value)


def test_a_reader_sees_the_owners_bytes_whatever_numbers_devices_have() -> None:
    pair = Pair()

    def read(memory_handle: MemoryHandle, fd: int, talk: socket.socket) -> list[int]:
        memory = OpenedMemory(pair.reader, memory_handle, fd)
        seen = pair.reader.read(memory.address, memory.num_bytes)
        memory.close()
        assert pair.reader.num_held == 0
        return seen.tolist()

    owner, reader = pair.run(lambda memory, talk: memory.close(PATIENCE_S), read)
    assert (owner.value, reader.value) == (True, BYTES.tolist())


def test_memory_is_freed_after_the_last_reader_closed_it() -> None:
    # Freed before, the reader dies of SIGBUS.
    pair = Pair()

    def own(memory: ExportedMemory, talk: socket.socket) -> list[bool]:
        talk.recv(1)
        return [memory.close(PATIENCE_S)]

    def read(memory_handle: MemoryHandle, fd: int, talk: socket.socket) -> bool:
        memory = OpenedMemory(pair.reader, memory_handle, fd)
        talk.send(b"opened")
        time.sleep(0.2)
        seen = pair.reader.read(memory.address, memory.num_bytes)
        memory.close()
        return bool(np.array_equal(seen, BYTES))

    owner, reader = pair.run(own, read)
    assert (owner.value, reader.status, reader.value) == ([True], 0, True)


def test_memory_that_is_read_for_too_long_is_left_alone() -> None:
    pair = Pair()

    def own(memory: ExportedMemory, talk: socket.socket) -> bool:
        talk.recv(1)
        freed = memory.close(0.01)
        talk.send(b"waited")
        talk.recv(1)  # the process lives until the reader has looked
        return freed

    def read(memory_handle: MemoryHandle, fd: int, talk: socket.socket) -> bool:
        memory = OpenedMemory(pair.reader, memory_handle, fd)
        talk.send(b"opened")
        talk.recv(1)
        seen = pair.reader.read(memory.address, memory.num_bytes)
        talk.send(b"looked")
        return bool(np.array_equal(seen, BYTES))

    owner, reader = pair.run(own, read)
    assert (owner.value, reader.status, reader.value) == (False, 0, True)


def test_a_killed_reader_keeps_nobody_waiting() -> None:
    pair = Pair()

    def own(memory: ExportedMemory, talk: socket.socket) -> bool:
        talk.recv(1)
        began = time.monotonic()
        return memory.close(PATIENCE_S) and time.monotonic() - began < PATIENCE_S / 2

    def read(memory_handle: MemoryHandle, fd: int, talk: socket.socket) -> None:
        memory = OpenedMemory(pair.reader, memory_handle, fd)
        talk.send(b"opened")
        assert memory
        os.kill(os.getpid(), signal.SIGKILL)

    owner, reader = pair.run(own, read)
    assert (owner.value, reader.status) == (True, -signal.SIGKILL)


def test_other_memory_is_found_out_before_it_is_used() -> None:
    assert "is not what it gave" in Pair(astray={"gpu-0"}).refusal()


@pytest.mark.parametrize(
    ("field", "value"), [("num_bytes", len(BYTES) - 1), ("nonce", "00" * 16), ("purpose", "rank 1's rows")]
)
def test_a_ticket_that_was_changed_is_found_out(field: str, value: object) -> None:
    assert "is not what it gave" in Pair().refusal(lambda memory_handle: replace(memory_handle, **{field: value}))


def test_a_size_beyond_the_memory_is_found_out() -> None:
    assert "cannot be read here" in Pair().refusal(lambda memory_handle: replace(memory_handle, num_bytes=1 << 40))


@pytest.mark.parametrize(
    ("fault", "cuda_name"),
    [
        ({"broken": {"gpu-0"}}, "cudaErrorMapBufferObjectFailed"),
        ({"apart": {frozenset(("gpu-0", "gpu-1"))}}, "cudaErrorPeerAccessUnsupported"),
    ],
)
def test_what_cannot_be_opened_says_whose_and_why(fault: dict, cuda_name: str) -> None:
    refusal = Pair(**fault).refusal()
    assert "rank 0's rows" in refusal
    assert cuda_name in refusal


def test_an_owner_that_is_gone_is_said() -> None:
    pair = Pair()

    def own(memory: ExportedMemory, talk: socket.socket) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def read(memory_handle: MemoryHandle, fd: int, talk: socket.socket) -> str:
        owner = int.from_bytes(bytes.fromhex(memory_handle.handle)[:8], "little")
        wait_until(lambda: not Path(f"/proc/{owner}").exists())
        with pytest.raises(DeviceShareError, match="cannot be opened") as caught:
            OpenedMemory(pair.reader, memory_handle, fd)
        return str(caught.value)

    owner, reader = pair.run(own, read)
    assert owner.status == -signal.SIGKILL
    assert "cudaErrorInvalidValue" in reader.value


def test_no_two_memories_have_one_canary() -> None:
    runtime = FakeRuntime()
    memories = [ExportedMemory(runtime, 10, "rows") for _ in range(2)]
    assert memories[0].memory_handle.nonce != memories[1].memory_handle.nonce
    assert not np.array_equal(memories[0].memory_handle.sentinel, memories[1].memory_handle.sentinel)
    # Nothing else lies in the block that a handle opens.
    assert runtime.free_bytes() == (1 << 30) - (4 << 20)
    for memory in memories:
        memory.close(0)
        memory.close(0)
    assert runtime.num_held == 0


def test_a_device_without_room_says_so() -> None:
    with pytest.raises(CudaCallError, match="out of memory") as caught:
        ExportedMemory(FakeRuntime(room_bytes=1000), 10, "rows")
    assert caught.value.name == "cudaErrorMemoryAllocation"


def test_a_device_that_failed_hides_no_other_error() -> None:
    class Failed(FakeRuntime):
        def free(self, address: int) -> None:
            super().free(address)
            raise CudaCallError("cudaErrorIllegalAddress", "an illegal memory access was encountered")

    fds = os.listdir("/proc/self/fd")
    assert ExportedMemory(Failed(), 10, "rows").close(0)
    assert len(os.listdir("/proc/self/fd")) == len(fds)


SOUND = {"handle": "00" * 64, "num_bytes": 8, "nonce": "00", "purpose": "rows"}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {**SOUND, "more": 1},
        {**SOUND, "handle": "00" * 63},
        {**SOUND, "handle": "zz" * 64},
        {**SOUND, "num_bytes": -1},
        {**SOUND, "num_bytes": True},
        {**SOUND, "num_bytes": 8.0},
    ],
)
def test_malformed_tickets_are_refused(values: dict) -> None:
    assert MemoryHandle.from_values(SOUND).values == SOUND
    with pytest.raises(DeviceShareError, match="malformed"):
        MemoryHandle.from_values(values)


def test_cupy_has_what_the_runtime_calls() -> None:
    cupy = pytest.importorskip("cupy", reason="needs cupy, which the extras cuda12 and cuda13 install")
    cuda = cupy.cuda.runtime
    for name, arguments in {
        "deviceCanAccessPeer": "int device, int peerDevice",
        "deviceGetPCIBusId": "int device",
        "deviceSynchronize": "",
        "free": "intptr_t ptr",
        "getDevice": "",
        "getDeviceCount": "",
        "getDeviceProperties": "int device",
        "ipcCloseMemHandle": "intptr_t devPtr",
        "ipcGetMemHandle": "intptr_t devPtr",
        "ipcOpenMemHandle": "bytes handle, unsigned int flags=cudaIpcMemLazyEnablePeerAccess",
        "malloc": "size_t size",
        "memGetInfo": "",
        "memcpy": "intptr_t dst, intptr_t src, size_t size, int kind",
        "memcpyAsync": "intptr_t dst, intptr_t src, size_t size, int kind, intptr_t stream",
        "setDevice": "int device",
        "streamSynchronize": "intptr_t stream",
    }.items():
        assert f"{name}({arguments})" in getattr(cuda, name).__doc__
    assert (cuda.memcpyHostToDevice, cuda.memcpyDeviceToHost, cuda.memcpyDefault) == (1, 2, 4)
    assert cuda.cudaIpcMemLazyEnablePeerAccess == 1


def test_both_runtimes_have_the_same_calls() -> None:
    calls = {name for name in vars(Runtime) if not name.startswith("_")}
    assert calls <= vars(CupyRuntime).keys()
    assert calls <= vars(FakeRuntime).keys()
