"""Which CUDA devices can sample and gather here, shown by doing it; or the reason why not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.memory import in_units
from lightning_gnnload.errors import CudaUnavailableError, GnnLoadError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.cuda.compile import loaded_nvrtc
from lightning_gnnload.ops.cuda.device import Device
from lightning_gnnload.ops.cuda.neighbors import sample_neighbors
from lightning_gnnload.ops.cuda.opening import open_device
from lightning_gnnload.ops.cuda.workspace import DeviceWorkspace
from lightning_gnnload.plugin.commands.machine import Finding
from lightning_gnnload.sample.neighbor import NeighborSampler
from lightning_gnnload.sample.placement import place

_NODES, _SEEDS, _FANOUTS = 1000, np.arange(0, 1000, 10), [5, 3]


def cuda_findings() -> Iterator[Finding]:
    """Of each device that this process sees; of the compiler alone where there is none."""
    yield Finding("kernel compiler", *_compiler())
    num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(num_devices):
        yield _device(index, num_devices)
    if not num_devices:
        try:
            open_device(torch.device("cuda"))
        except CudaUnavailableError as error:
            yield Finding("CUDA", f"off: {error}")


def _compiler() -> tuple[str, str]:
    try:
        import cupy

        return f"NVRTC {'.'.join(map(str, loaded_nvrtc().getVersion()))} of CuPy {cupy.__version__}", ""
    except (ImportError, CudaUnavailableError) as error:
        return "none", str(error) if torch.cuda.is_available() else ""


def _device(index: int, num_devices: int) -> Finding:
    about = f"cuda:{index}"
    found = torch.cuda.get_device_name(index)
    try:
        free, total = torch.cuda.mem_get_info(index)
        found += f", {in_units(free)} of {in_units(total)} free"
        others = [peer for peer in range(num_devices) if peer != index]
        peers = [f"cuda:{peer}" for peer in others if torch.cuda.can_device_access_peer(index, peer)]
        if others:
            found += f", reaches {', '.join(peers) or 'no other device'}"
        same = samples_alike(open_device(torch.device("cuda", index)))
    except (GnnLoadError, RuntimeError) as error:  # torch's and CuPy's, of a device that others have or that is broken
        return Finding(about, f"{found}; off: {error}")
    if not same:
        return Finding(
            about,
            f"{found}; off: a test batch differs from the CPU's",
            "That is an error of this package, its compiler or the device: please report it, and sample on the CPU.",
        )
    return Finding(about, f"{found}; a test batch equals the CPU's")


def samples_alike(device: Device) -> bool:
    """Whether a small mini-batch that the device samples is the CPU's.

    Raises:
        GnnLoadError: its kernels cannot be compiled, or run.
    """
    src, dst = np.random.default_rng(0).integers(0, _NODES, (2, 8 * _NODES))
    graph = Graph.from_coo(src, dst, num_nodes=_NODES)
    sample = sample_neighbors(
        DeviceWorkspace(device, _NODES), place(graph, device), _SEEDS, _FANOUTS, DrawKey(seed=1, epoch=2, step=3)
    )
    wanted = NeighborSampler(_FANOUTS).sample(graph, _SEEDS, seed=1, epoch=2, step=3)
    found = [sample.nodes, *(tensor for hop in sample.hops for tensor in (hop.indptr, hop.indices))]
    expected = [
        wanted.nodes,
        *(tensor for block in reversed(wanted.blocks) for tensor in (block.indptr, block.indices)),
    ]
    return all(np.array_equal(device.read(ours), theirs.numpy()) for ours, theirs in zip(found, expected, strict=True))
