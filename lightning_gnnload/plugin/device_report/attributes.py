"""What a device is, as far as torch, CUDA and nvidia-smi say: for a file that anybody may see, so without names of the
machine, serial numbers, bus addresses or UUIDs."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable
from typing import Any

import torch

from lightning_gnnload import __version__

_SMI_S = 20.0
_SMI_FIELDS = (
    "driver_version",
    "compute_mode",
    "ecc.mode.current",
    "mig.mode.current",
    "persistence_mode",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "clocks.current.sm",
    "clocks.max.sm",
    "clocks.max.memory",
    "power.limit",
    "temperature.gpu",
    "utilization.gpu",
    "memory.used",
)
# cudaDeviceAttr, by number, as CuPy's bindings do not name all of them.
_CUDA_ATTRIBUTES = {
    "clock kHz": 13,
    "ECC": 32,
    "memory clock kHz": 36,
    "memory bus bits": 37,
    "L2 bytes": 38,
    "copy engines": 40,
    "unified addresses": 41,
    "pageable memory is read": 88,
    "shared bytes of a block": 97,
    "host memory is registered": 99,
    "pageable memory by the host's page tables": 100,
    "read-only host memory is registered": 113,
}


def device_attributes(index: int) -> dict[str, Any]:
    """Says what there is to know of device ``index`` and what drives it. A part that cannot be asked says why under
    "error"."""
    return {
        "package": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "torch": _asked(lambda: _of_torch(index)),
        "cupy": _asked(_of_cupy),
        "attributes": _asked(lambda: _of_cuda(index)),
        "peer access": _asked(_peer_access),
        "nvidia-smi": _asked(lambda: _of_smi(index)),
        "links": _asked(_links),
    }


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:  # of torch, CuPy, nvidia-smi: whatever is missing is part of the answer
        return {"error": f"{type(error).__name__}: {error}"}


def _of_torch(index: int) -> dict[str, Any]:
    build = {"version": torch.__version__, "CUDA": torch.version.cuda, "devices": torch.cuda.device_count()}
    if not build["devices"]:
        return build
    properties = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    return {
        **build,
        "name": properties.name,
        "compute capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory bytes": total,
        "free bytes": free,
        "compiled for": torch.cuda.get_arch_list(),
    }


def _of_cupy() -> dict[str, Any]:
    import cupy
    from cupy.cuda import runtime

    from lightning_gnnload.ops.cuda.launch.compile import loaded_nvrtc

    return {
        "version": cupy.__version__,
        "driver": runtime.driverGetVersion(),
        "runtime": runtime.runtimeGetVersion(),
        "NVRTC": ".".join(map(str, loaded_nvrtc().getVersion())),
    }


def _of_cuda(index: int) -> dict[str, Any]:
    from cupy.cuda import runtime

    return {
        name: _asked(lambda number=number: int(runtime.deviceGetAttribute(number, index)))  # type: ignore[misc]
        for name, number in _CUDA_ATTRIBUTES.items()
    }


def _peer_access() -> list[list[bool]]:
    """Tells for each device which others it reads, itself included."""
    devices = range(torch.cuda.device_count())
    return [[one == peer or torch.cuda.can_device_access_peer(one, peer) for peer in devices] for one in devices]


def _of_smi(index: int) -> dict[str, str]:
    try:
        return _queried(index, _SMI_FIELDS)
    except ValueError:  # one that this driver does not know refuses all
        answers = {field: _asked(lambda field=field: _queried(index, (field,))[field]) for field in _SMI_FIELDS}  # type: ignore[misc]
        return {field: answer for field, answer in answers.items() if isinstance(answer, str)}


def _queried(index: int, fields: tuple[str, ...]) -> dict[str, str]:
    lines = _smi(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", *_selected(index)).splitlines()
    # Of several, where they could not be told apart, nvidia-smi lists all.
    cells = [cell.strip() for cell in lines[min(index, len(lines) - 1)].split(",")]
    return dict(zip(fields, cells, strict=True))


def _selected(index: int) -> tuple[str, ...]:
    """Names torch's device to nvidia-smi, which numbers devices otherwise where CUDA_VISIBLE_DEVICES is set."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None) if torch.cuda.is_available() else None
    return () if uuid is None else ("-i", f"GPU-{uuid}")


def _links() -> list[list[str]]:
    """Returns the matrix of ``nvidia-smi topo -m`` between GPUs: NV18 are 18 links of NVLink, PIX to SYS ways over
    PCIe."""
    text = re.sub(r"\x1b\[\d*m", "", _smi("topo", "-m"))  # which underlines the head
    rows = [line.split()[1:] for line in text.splitlines() if re.match(r"GPU\d", line)]
    return [cells[: len(rows)] for cells in rows]


def _smi(*arguments: str) -> str:
    result = subprocess.run(
        ["nvidia-smi", *arguments],
        capture_output=True,
        text=True,
        timeout=_SMI_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode:
        raise ValueError((result.stdout + result.stderr).strip()[:300])
    return result.stdout
