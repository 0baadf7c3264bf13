"""Whether processes can share a device's memory (CUDA IPC): a second process reads what this one wrote."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda.launch.runtime import Runtime
from lightning_gnnload.ops.cuda.launch.shared_memory import ExportedMemory, MemoryHandle, OpenedMemory

_NUM_BYTES = 1 << 20
_READING_S, _CLOSING_S = 45.0, 5.0
_MOST_PEERS = 4  # each takes seconds to start

Reader = Callable[[int, int], Sequence[str]]
"""The command of a process that calls :func:`read_shared`, by its device and the descriptor that it is given."""


def shared_reads(runtime: Runtime, reader: Reader) -> dict[str, Any]:
    """Says for processes on the same device, and on others, whether they read this one's memory: "equal", or why not;
    and whether the memory could be freed afterwards. Raises CudaCallError where this one's cannot be shared."""
    bytes_there = np.random.default_rng(0).integers(0, 256, _NUM_BYTES, dtype=np.uint8)
    memory = ExportedMemory(runtime, _NUM_BYTES, "gnnload doctor")
    answers: dict[str, Any] = {}
    try:
        runtime.write(memory.address, bytes_there)
        peers = [number for number in range(runtime.num_devices()) if number != runtime.device]
        for number in [runtime.device, *peers[: _MOST_PEERS - 1]]:
            about = "the same device" if number == runtime.device else f"device {number}"
            answers[about] = _answer(reader(number, memory.fd), memory, _digest(bytes_there))
    finally:
        is_freed = memory.close(_CLOSING_S)
    return {"read by another process on": answers, "freed afterwards": is_freed}


def _answer(command: Sequence[str], memory: ExportedMemory, digest: str) -> str:
    try:
        result = subprocess.run(
            command,
            input=json.dumps(memory.memory_handle.values),
            capture_output=True,
            text=True,
            timeout=_READING_S,
            check=False,
            pass_fds=(memory.fd,),
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {_READING_S:.0f} s"
    if result.returncode:
        return f"status {result.returncode}: {result.stderr.strip()[-300:]}"
    answer = result.stdout.strip().rpartition("\n")[2]
    return "equal" if answer == digest else answer[:300]


def read_shared(runtime: Runtime, fd: int) -> int:
    """Opens the memory that stdin describes, and prints the digest of its bytes, or why it cannot."""
    try:
        memory = OpenedMemory(runtime, MemoryHandle.from_values(json.loads(sys.stdin.read(1 << 16))), fd)
        print(_digest(runtime.read(memory.address, memory.num_bytes)))
        memory.close()
    except GnnLoadError as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "))
    return 0


def _digest(array: np.ndarray) -> str:
    return hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()
