"""Recorder: a device that writes down what a batch launches, for :mod:`.plan` to launch again without Python."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..launch.arguments import PackedArguments
from ..launch.device import Argument, Device, Event, LoadedKernel, Mapped
from ..sampling.varying import FIELDS, Varying, most_of

# Of everything in scratch and slabs, in bytes: as torch's memory, which vectors of kernels rely on; kPieceAlignment of
# kernels/copy_pieces/pieces.h.
_ALIGNMENT = 256
# What looks at memory in another way, or clears a workspace's table, which a plan does as well.
_HARMLESS = {
    *("alias", "as_strided", "detach", "expand", "reshape", "select", "slice", "split", "squeeze", "unsqueeze"),
    *("view", "_unsafe_view", "_reshape_alias", "fill_"),
}


Role: TypeAlias = Literal["zeros", "input", "empty"]
"""Of memory that a batch allocates: zero at first, copied from the host for each batch, or neither."""


class RecordedLaunch(NamedTuple):
    """A launch, with its arguments as the driver takes them."""

    function: int
    blocks: int
    threads: int
    shared_bytes: int
    memory: bytes
    offsets: list[int]  # of each parameter
    patches: list[tuple[int, int, int]]  # offset, number among FIELDS, bytes
    pointers: list[tuple[int, int]]  # offset, address


class _Memory(NamedTuple):
    role: Role
    num_bytes: int
    tensor: torch.Tensor  # kept, so that no address comes twice


class Place(NamedTuple):
    """Where memory that a batch allocated lies in scratch."""

    offset: int
    num_bytes: int


@dataclass
class Recording:
    """What one batch has launched, and the memory that it has allocated."""

    launches: list[RecordedLaunch] = field(default_factory=list)
    reads: list[torch.Tensor] = field(default_factory=list)
    targets: list[tuple[int, Any]] = field(default_factory=list)  # what pointers lead to, and who has the memory
    refusal: str = ""  # why it cannot be launched again
    is_watched: bool = True  # whether torch's operations are the batch's own
    _memory: dict[int, _Memory] = field(default_factory=dict)  # by address
    _grown: dict[int, int] = field(default_factory=dict)  # the address to which memory has moved

    def refuse(self, why: str) -> None:
        self.refusal = self.refusal or why

    def note(self, role: Role, tensor: torch.Tensor) -> None:
        if tensor.numel():
            # Of an input, for as many elements as batches of this form can have.
            most = most_of(tensor.numel()) if role == "input" else tensor.numel()
            self._memory[tensor.data_ptr()] = _Memory(role, most * tensor.element_size(), tensor)

    def note_growth(self, tensor: torch.Tensor, grown: torch.Tensor) -> None:
        """Notes that memory has moved to where there is more. Both get one place, so no plan copies it."""
        self.note("empty", grown)
        if tensor.numel():
            if tensor.data_ptr() not in self._memory:
                self.refuse("memory grows that it has not allocated")
            self._grown[tensor.data_ptr()] = grown.data_ptr()

    def note_launch(self, kernel: LoadedKernel, grid: tuple[int, int, int], packed: PackedArguments) -> None:
        patches, pointers = [], []
        for value, leaf, offset in packed.leaves:
            if isinstance(value, Varying):
                patches.append((offset, FIELDS.index(value.field), leaf.size))
            elif leaf.is_pointer and (address := int.from_bytes(packed.memory[offset : offset + 8], "little")):
                pointers.append((offset, address))
                self.targets.append((address, value))
        self.launches.append(RecordedLaunch(kernel.handle, *grid, packed.memory, packed.offsets, patches, pointers))

    def lay_out(self) -> ScratchLayout:
        """Places everything in one block of memory: what is zero at first, then inputs, then the rest."""
        last = {at: self._last(at) for at in self._memory}
        place_of: dict[int, Place] = {}
        end, end_of_role = 0, {}
        for role in ("zeros", "input", "empty"):
            for at, memory in self._memory.items():
                # Memory that grows lies where the last of it does, from the beginning on.
                if memory.role == role and last[at] not in place_of:
                    most = max(part.num_bytes for begin, part in self._memory.items() if last[begin] == last[at])
                    place_of[last[at]] = Place(end, most)
                    end += rounded_up(most)
            end_of_role[role] = end
        inputs = [place_of[last[at]] for at, memory in self._memory.items() if memory.role == "input"]
        begins = sorted(self._memory)
        extents = [Place(place_of[last[at]].offset, self._memory[at].num_bytes) for at in begins]
        return ScratchLayout(end, end_of_role["zeros"], inputs, begins, extents)

    def _last(self, at: int) -> int:
        while at in self._grown:
            at = self._grown[at]
        return at


class ScratchLayout(NamedTuple):
    """The places in scratch of what a recorded batch has allocated."""

    num_bytes: int
    zero_bytes: int  # at the beginning
    inputs: list[Place]  # in order
    begins: list[int]  # addresses when it was recorded, ascending
    extents: list[Place]  # of each

    def find(self, address: int) -> int | None:
        """Returns the offset in scratch of an address; None for memory that was there before."""
        index = bisect_right(self.begins, address) - 1
        if index < 0 or address >= self.begins[index] + self.extents[index].num_bytes:
            return None
        return self.extents[index].offset + address - self.begins[index]


class Recorder:
    """A :class:`.Device` that passes everything on to another one, and writes it down within :meth:`recording`. For one
    thread at a time.

    Source: CUDA graphs record calls once to make them again; here with other numbers, and on any memory.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.torch_device = device.torch_device
        self.num_processors = device.num_processors
        self.driver = device.driver
        self._recording: Recording | None = None

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Records what is launched meanwhile."""
        recording = self._recording = Recording()
        try:
            with _Watch(recording):
                yield recording
        finally:
            self._recording = None

    @property
    def num_reads(self) -> int:
        return self.device.num_reads

    @num_reads.setter
    def num_reads(self, number: int) -> None:
        self.device.num_reads = number

    def kernel(self, op: str, kernel: str, types: Sequence[str] = ()) -> LoadedKernel:
        return self.device.kernel(op, kernel, types)

    def launch(
        self,
        op: str,
        kernel: str,
        types: Sequence[str] = (),
        *,
        blocks: int,
        threads: int,
        shared_bytes: int = 0,
        **arguments: Argument,
    ) -> None:
        if self._recording is not None:
            loaded = self.device.kernel(op, kernel, types)
            self._recording.note_launch(loaded, (blocks, threads, shared_bytes), loaded.arguments.packed(arguments))
        grid = {"blocks": blocks, "threads": threads, "shared_bytes": shared_bytes}
        self._call(self.device.launch, op, kernel, types, **grid, **arguments)

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return self._note("empty", self._call(self.device.empty, count, dtype))

    def zeros(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return self._note("zeros", self._call(self.device.zeros, count, dtype))

    def grow(self, tensor: torch.Tensor, count: int) -> torch.Tensor:
        grown = self._call(self.device.grow, tensor, count)
        if self._recording is not None:
            self._recording.note_growth(tensor, grown)
        return grown

    def put(self, array: np.ndarray, each_batch: bool = False) -> torch.Tensor:
        tensor = self._call(self.device.put, array, each_batch)
        # What is the same for each batch stays where it is; its tensor is kept among the arguments.
        return self._note("input", tensor) if each_batch else tensor

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        if self._recording is not None:
            self._recording.reads.append(tensor)
        return self._call(self.device.read, tensor)

    def map_host(self, array: np.ndarray) -> Mapped:
        return self.device.map_host(array)

    def side_stream(self, purpose: str = "draws") -> AbstractContextManager[None]:
        return self.device.side_stream(purpose)

    def stream(self) -> int:
        return self.device.stream()

    def current_stream(self) -> torch.Stream:
        return self.device.current_stream()

    def record(self) -> Event:
        return self.device.record()

    def synchronize(self) -> None:
        self.device.synchronize()

    def free_bytes(self) -> int:
        return self.device.free_bytes()

    def _note(self, role: Role, tensor: torch.Tensor) -> torch.Tensor:
        if self._recording is not None:
            self._recording.note(role, tensor)
        return tensor

    def _call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Calls the device, whose own use of torch is not watched."""
        recording = self._recording
        if recording is None:
            return function(*arguments, **named)
        recording.is_watched = False
        try:
            return function(*arguments, **named)
        finally:
            recording.is_watched = True


class _Watch(TorchDispatchMode):
    """Notes the first operation of torch that a batch does by itself, which no plan would do again."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if self._recording.is_watched and name not in _HARMLESS:
            self._recording.refuse(f"it uses torch.{name}")
        return func(*args, **(kwargs or {}))


def rounded_up(num_bytes: int) -> int:
    """Rounds up to a multiple of 256."""
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
