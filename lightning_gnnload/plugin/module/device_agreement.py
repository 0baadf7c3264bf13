"""Whether all ranks of a machine have the devices that they are to use together, and what says that one has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lightning_gnnload.cache.sharers import Meeting
from lightning_gnnload.errors import CudaCallError, CudaUnavailableError, DeviceMemoryError, KernelCompileError

UNAVAILABLE = (CudaUnavailableError, KernelCompileError, DeviceMemoryError, CudaCallError)
"""What keeps a rank from its device, and sends it to the host with ``"auto"``."""
_MAX_TEXT = 4000
T = TypeVar("T")


def agreed(open_it: Callable[[], T], meeting: Meeting | None) -> T:
    """What this rank opens, if all who meet can.

    Raises:
        CudaUnavailableError, KernelCompileError, DeviceMemoryError, CudaCallError: this rank cannot, or another one.
    """
    refusal: Exception | None = None
    try:
        opened = open_it()
    except UNAVAILABLE as error:
        refusal = error
    if meeting is not None:
        told = meeting.exchange({"refusal": None if refusal is None else str(refusal)[:_MAX_TEXT]})
        for rank, given in enumerate(told):
            if refusal is None and (text := given.fields.get("refusal")) is not None:
                refusal = CudaUnavailableError(f"rank {rank} of this machine cannot use its device: {text}")
    if refusal is not None:
        raise refusal
    return opened
