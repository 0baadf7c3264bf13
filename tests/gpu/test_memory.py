"""What a real device gives of the memory that budgets count on."""

from __future__ import annotations

import torch

from lightning_gnnload.cache.device.memory_use import TorchMemory, allowance
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.plugin.commands.doctor import cuda_findings
from tests.runif import RunIf

MIB = 1 << 20


@RunIf(alone=True)
def test_the_peak_is_what_torch_held_and_what_is_free_can_be_had(device: Device) -> None:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device.torch_device)
    memory = TorchMemory(device.torch_device, "GPU")
    before = memory.use()
    block = device.empty(256 * MIB, torch.uint8)
    during = memory.use()
    del block
    torch.cuda.empty_cache()
    after = memory.use()
    assert during.reserved >= before.reserved + 256 * MIB
    assert during.free <= before.free - 256 * MIB
    assert after.reserved < during.reserved
    assert after.peak >= during.reserved
    assert before.total == after.total == torch.cuda.get_device_properties(device.torch_device).total_memory
    allowed = allowance([after]).num_bytes
    assert 0 < allowed < after.free
    device.empty(allowed, torch.uint8)
    torch.cuda.empty_cache()


def test_every_device_samples_as_the_cpu_does() -> None:
    compiler, *devices = cuda_findings()
    assert compiler.found.startswith("NVRTC")
    assert len(devices) == torch.cuda.device_count()
    assert all(each.found.endswith("a test batch equals the CPU's") for each in devices), devices
