"""Dropout on a device: the CPU's masks and roundings, bit for bit."""

from __future__ import annotations

import pytest
import torch

from lightning_gnnload.ops.cuda import dropout as on_device
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.dropout import DropoutKey, drop, drop_by_bits, num_bit_bytes, scale_of, threshold_of
from tests.ops.test_dropout import DTYPES, PLACE, bits_of, numbers


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("relu", [False, True])
def test_equal_to_the_cpu(device: Device, dtype: torch.dtype, relu: bool) -> None:
    key, threshold = DropoutKey.of(**PLACE), threshold_of(0.3)
    for count in (0, 1, 127, 5000):  # the last one, in more than one block
        x, grad = numbers(count, dtype), numbers(count, dtype).flip(0)
        wanted, wanted_grad = torch.empty_like(x), torch.empty_like(x)
        drop_by_bits(grad, wanted_grad, threshold, drop(x, wanted, threshold, key, relu, with_bits=True))

        on, out = x.to(device.torch_device), device.empty(count, dtype)
        bits = device.empty(num_bit_bytes(x), torch.uint8)
        on_device.drop(device, on, out, threshold, scale_of(threshold), key, relu, bits)
        assert torch.equal(bits_of(out.cpu()), bits_of(wanted))
        out_grad = device.empty(count, dtype)
        on_device.drop_by_bits(device, grad.to(device.torch_device), out_grad, scale_of(threshold), bits)
        assert torch.equal(bits_of(out_grad.cpu()), bits_of(wanted_grad))
        on_device.drop(device, on, on, threshold, scale_of(threshold), key, relu, None)  # in place, and no bits
        assert torch.equal(bits_of(on.cpu()), bits_of(wanted))
