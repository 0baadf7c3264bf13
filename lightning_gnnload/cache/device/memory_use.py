"""Measures how much of a device's memory training leaves to a cache, once its first steps have shown.

It is measured since no count of parameters tells what libraries, activations and fragments take.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

import torch

from lightning_gnnload.cache.budget import Allowance
from lightning_gnnload.errors import CacheShareError, DeviceMemoryError
from lightning_gnnload.host.memory import in_units, reserve_bytes
from lightning_gnnload.ops.cuda.launch.device import Device

MAX_SHRINKS = 3
_SHRINK_PERCENT = 80  # in integers, so that all ranks try the same sizes
T = TypeVar("T")


@dataclass(frozen=True)
class MemoryUse:
    """The memory of a device or of the machine, and the asking process's part of it, in bytes."""

    device: str  # its UUID, as ranks number devices differently; "memory" for the machine's
    total: int
    free: int  # that no process has taken
    reserved: int  # by torch in this process, used or not; of the machine's memory, by the process
    peak: int  # most ever reserved, not used: other allocations cannot have the fragments

    def fields(self) -> dict[str, Any]:
        """The fields that other ranks receive."""
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> MemoryUse:
        """Makes one of :meth:`fields`. Raises CacheShareError where another rank sent anything else."""
        numbers = [fields.get(name) for name in ("total", "free", "reserved", "peak")]
        device = fields.get("device")
        if not isinstance(device, str) or not all(type(number) is int and number >= 0 for number in numbers):
            raise CacheShareError(
                f"a rank says {fields!r} of its device's memory, where a UUID and four numbers of bytes are due. Run "
                f"one release of the package in all ranks."
            )
        return cls(device, *numbers)  # type: ignore[arg-type]


class DeviceMemory(Protocol):
    """The memory of a device, as one process sees it."""

    def use(self) -> MemoryUse:
        """Measures the use of memory at this moment."""


class TorchMemory:
    """The memory of a CUDA device with an index, as torch reports it."""

    def __init__(self, device: torch.device, uuid: str) -> None:
        self._device, self._uuid = device, uuid

    def use(self) -> MemoryUse:
        torch.cuda.synchronize(self._device)  # steps that were launched but did not run yet have not peaked
        free, total = torch.cuda.mem_get_info(self._device)
        reserved, peak = torch.cuda.memory_reserved(self._device), torch.cuda.max_memory_reserved(self._device)
        return MemoryUse(self._uuid, total, free, reserved, peak)


def memory_of(device: Device) -> DeviceMemory:
    """Returns what measures a device's memory."""
    from lightning_gnnload.ops.cuda.launch.runtime import CupyRuntime

    index = device.torch_device.index
    return TorchMemory(device.torch_device, CupyRuntime(index).identity(index))


def allowance(uses: Sequence[MemoryUse]) -> Allowance:
    """Computes what a cache may take of each device, alike, after the steps of all ranks have peaked.

    A device has left: what is free, and what torch holds, less each process's peak, and less a reserve. The device with
    least left decides, as ranks that share a cache fill shards of one size. ``uses`` are those of all these ranks.

    Source: GNNLab (EuroSys'22), section 6, whose cache takes what training leaves; PaGraph (SoCC'20), 4, looks at
    the first mini-batch, as here at some.

    Example:
        >>> gib = 1 << 30
        >>> print(allowance([MemoryUse("GPU-1", total=80 * gib, free=60 * gib, reserved=10 * gib, peak=14 * gib)]))
        52.0 GiB: 60.0 GiB free, 10.0 GiB held, 14.0 GiB at the peak, 4.0 GiB in reserve
    """
    by_device: dict[str, list[MemoryUse]] = defaultdict(list)
    for use in uses:
        by_device[use.device].append(use)
    limits: list[tuple[int, str]] = []
    for there in by_device.values():
        # The least, since the ranks of a device looked at different moments.
        free, reserve = min(use.free for use in there), reserve_bytes(there[0].total)
        reserved, peak = sum(use.reserved for use in there), sum(use.peak for use in there)
        reason = f"{in_units(free)} free, {in_units(reserved)} held, {in_units(peak)} at the peak"
        reason += f", {in_units(reserve)} in reserve"
        limits.append((max(free + reserved - peak - reserve, 0), reason))
    num_bytes, reason = min(limits)
    return Allowance(num_bytes, len(by_device), reason)


def shrinking(
    open_in: Callable[[int], T],
    num_bytes: int,
    *,
    close: Callable[[T], None] = lambda _: None,
    all_have: Callable[[bool], bool] = lambda succeeded: succeeded,
) -> T:
    """Opens a cache in so many bytes; where they are refused, in a fifth less, three times at most.

    Free memory may be in pieces, so that not all of it can be had at once. ``open_in`` raises DeviceMemoryError, or
    CacheShareError where another rank could not. ``all_have`` tells all ranks whether this one succeeded, and returns
    whether all did; ``close`` gives back what this rank opened in vain. Raises DeviceMemoryError when the last try
    fails.
    """
    tried = [num_bytes * _SHRINK_PERCENT**shrinks // 100**shrinks for shrinks in range(MAX_SHRINKS + 1)]
    refusal: Exception | None = None
    for size in tried:
        try:
            opened = open_in(size)
        except (DeviceMemoryError, CacheShareError) as error:
            refusal = error
            all_have(False)  # collective: the others wait for this rank's answer
            continue
        if all_have(True):
            return opened
        close(opened)
    sizes = ", ".join(map(in_units, tried))
    reason = f": {refusal}" if refusal is not None else " by the device of another rank"
    raise DeviceMemoryError(
        f"the cache was refused {sizes}{reason}. Give FeatureCache(capacity_bytes=...) or ratio less, or device='cpu'."
    ) from refusal
