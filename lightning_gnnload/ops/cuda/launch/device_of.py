"""device_of: where kernels run for tensors that a user has put on a device."""

from __future__ import annotations

from functools import cache

import torch

from ....errors import CudaUnavailableError
from .device import Device


def device_of(device: torch.device) -> Device | None:
    """Returns the :class:`.Device` of a CUDA device with an index; None of others, or where it cannot be driven, such
    as without CuPy."""
    return _opened(device.index) if device.type == "cuda" else None


@cache
def _opened(index: int) -> Device | None:
    from .open_device import open_device

    try:
        return open_device(torch.device("cuda", index))
    except CudaUnavailableError:
        return None  # whoever asks has another way
