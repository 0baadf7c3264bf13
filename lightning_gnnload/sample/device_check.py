"""Before mini-batches of a device are used, one of them is compared with the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import CudaUnavailableError, DeviceMemoryError, GnnLoadError, KernelCompileError
from lightning_gnnload.sample.on_device import OnDevice
from lightning_gnnload.sample.on_device_parts import OnDeviceParts
from lightning_gnnload.sample.workload import Workload

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device
    from lightning_gnnload.ops.cuda.sample import DeviceSample

NUM_SEEDS = 64


def check_device(draws: OnDevice | OnDeviceParts, workload: Workload, request: BatchRequest) -> None:
    """Draws a small mini-batch on the device and on the host, which costs some milliseconds. As equality is the
    contract, any difference is a fault: of a driver, a compiler, a card, or of ours.

    Args:
        draws: on the device.
        workload: what it will draw.
        request: a mini-batch of it, whose first 64 seeds are taken.

    Raises:
        CudaUnavailableError: they differ, and where; or the device's raises an error.
        KernelCompileError, DeviceMemoryError: likewise.
    """
    key = workload.key_of(request)
    try:
        seeds = workload.seeds_of(request)[:NUM_SEEDS]
        arena, layout = draws.sampler.sample_here(workload.graph, seeds, key)
    except GnnLoadError:
        return  # whoever makes that mini-batch says so, and how
    expected = MiniBatch.view(arena, layout, len(seeds))
    try:
        sample = draws.sample(seeds, key)
        differing = [name for name, *both in _pairs(sample, expected) if not _are_equal(draws.device, *both)]
    except (CudaUnavailableError, KernelCompileError, DeviceMemoryError):
        raise
    except Exception as error:  # what drivers and torch raise has many classes
        raise CudaUnavailableError(
            f"{draws.device.torch_device} cannot draw what the CPU draws ({type(error).__name__}: {error}). "
            f"sampling_device='cpu' goes on without the device."
        ) from error
    if differing:
        raise CudaUnavailableError(
            f"{draws.device.torch_device} drew another mini-batch than the CPU: {differing[0]} differs for seeds "
            f"{seeds[:3].tolist()}... of {draws.sampler!r} under {key}. Please report this with the device's name "
            f"and the versions that 'gnnload doctor' prints; sampling_device='cpu' goes on without the device."
        )


def _are_equal(device: Device, mine: torch.Tensor | None, hosts: torch.Tensor | None) -> bool:
    if mine is None or hosts is None:
        return mine is hosts
    return np.array_equal(device.read(mine), hosts.numpy())


def _pairs(sample: DeviceSample, expected: MiniBatch) -> Iterator[tuple[str, torch.Tensor | None, torch.Tensor | None]]:
    yield "nodes", sample.nodes, expected.nodes
    for number, (hop, block) in enumerate(zip(sample.hops, reversed(expected.blocks), strict=True)):
        for name, mine, hosts in (
            ("indptr", hop.indptr, block.indptr),
            ("indices", hop.indices, block.indices),
            ("edge_ids", hop.edge_ids, block.edge_ids),
            ("edge_weights", hop.edge_weights, block.edge_weight),
        ):
            yield f"{name} of hop {number}", mine, hosts
