"""QuantizedFeatures: features of one byte a number, gathered and made floats on a device."""

from __future__ import annotations

import numpy as np
import torch

from lightning_gnnload.cache.device.features import DeviceFeatures
from lightning_gnnload.data.features import Reads
from lightning_gnnload.data.quantized import QuantizedFeatureStore


class QuantizedFeatures(DeviceFeatures):
    """``codes * scale + offset``, equal to what the store gives: the codes are cached, in the same room several times
    the rows.

    Args:
        store: quantised.
        codes: its codes, on a device.
    """

    def __init__(self, store: QuantizedFeatureStore, codes: DeviceFeatures) -> None:
        device = codes.device
        self.codes = codes
        self._scale, self._offset = device.put(store.scale.numpy()), device.put(store.offset.numpy())
        super().__init__(device, store.shape, store.dtype)

    def reads(self) -> Reads:
        return self.codes.reads()

    def check(self) -> None:
        self.codes.check()

    def close(self) -> None:
        self.codes.close()

    def _gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        # Two steps, as the CPU rounds the product before it adds.
        rows = self.codes.gather(ids).float().mul_(self._scale).add_(self._offset)
        out.view(self.dtype).copy_(rows)

    def _reads(self, taken: np.ndarray) -> Reads:
        return ()

    def __repr__(self) -> str:
        return f"QuantizedFeatures({self.codes!r}, dtype={self.dtype})"
