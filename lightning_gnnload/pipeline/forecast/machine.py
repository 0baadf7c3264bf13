"""Machine: cores, memory, devices and links of the machines that a run is planned for, this one or a described one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload.errors import PlanError
from lightning_gnnload.host.memory import free_bytes, reserve_bytes
from lightning_gnnload.pipeline.forecast.work import BatchWork, check_number

_GIB = 1 << 30
_MOST = 1 << 20  # cores, devices, machines, GB/s


@dataclass(frozen=True)
class Gpu:
    """A device and its rates: rows gathered in its own memory, and edges drawn there after ``draw_ms`` of each
    mini-batch, whatever its size."""

    name: str
    memory_gib: float
    memory_gb_s: float
    rows_gb_s: float = 0.0
    edges_per_ms: float = 0.0
    draw_ms: float = 0.6

    def __post_init__(self) -> None:
        for name in ("memory_gib", "memory_gb_s", "rows_gb_s", "edges_per_ms", "draw_ms"):
            check_number(f"gpus: {name} of {self.name}", getattr(self, name), 1e9)
        # Both stand in proportion to what the memory delivers, as measured on the one device that was: an H200.
        if not self.rows_gb_s:
            object.__setattr__(self, "rows_gb_s", self.memory_gb_s * 806 / 4800)
        if not self.edges_per_ms:
            object.__setattr__(self, "edges_per_ms", self.memory_gb_s * 4.6e6 / 4800)


GPUS = {
    # Measured: 1.9 M rows of 512 B at 1,612 GB/s read and written; 3.6 M edges in 0.78 ms; 0.55 to 0.6 ms of the host.
    "H200": Gpu("H200", 139, 4800, 806, 4.6e6),
    # Of their makers' data sheets.
    "H100": Gpu("H100", 80, 3350),
    "A100": Gpu("A100", 80, 2039),
    "V100": Gpu("V100", 16, 900),
    "L4": Gpu("L4", 24, 300),
    "T4": Gpu("T4", 16, 300),
}


@dataclass(frozen=True)
class Machine:
    """One of ``machines`` equal machines.

    Attributes:
        memory_gib: that the run may take.
        rows_gb_s: rows read at random from the host's memory by a device, over PCIe.
        peer_gb_s: between devices; the host's PCIe where there is no NVLink.
        disk_gb_s: a disk's rate.
        network_gb_s: between machines.
        stages: of one mini-batch of ``stage_seeds`` seeds, where they were measured there.
        step_ms: a training step of so many seeds on a device, where that alone was measured there; 0: it was not.
    """

    cores: int
    memory_gib: float
    gpus: tuple[Gpu, ...] = ()
    rows_gb_s: float = 20.0
    peer_gb_s: float = 25.0
    disk_gb_s: float = 2.0
    machines: int = 1
    network_gb_s: float = 1.25
    stages: BatchWork | None = None
    stage_seeds: int = 1024
    step_ms: float = 0.0
    is_here: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("cores", "machines", "stage_seeds"):
            if type(getattr(self, name)) is not int or not 1 <= getattr(self, name) <= _MOST:
                raise PlanError(f"machine: {name} is {getattr(self, name)!r}; a whole number of at least 1 is needed.")
        for name in ("memory_gib", "rows_gb_s", "peer_gb_s", "disk_gb_s", "network_gb_s"):
            check_number(f"machine: {name}", getattr(self, name), _MOST, least=1e-6)
        check_number("machine: step_ms", self.step_ms, _MOST)

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * _GIB)

    @property
    def device_bytes(self) -> int:
        """What a run may take of its smallest device; 0 without devices."""
        if not self.gpus:
            return 0
        total = int(min(gpu.memory_gib for gpu in self.gpus) * _GIB)
        return total - reserve_bytes(total)

    def exchange_ms(self, num_bytes: int, trainers: int, meeting_ms: float | None = None) -> float:
        """The time in which ``trainers`` of each machine average so many bytes of gradients, in a ring: each sends and
        receives all of it twice, less its own part (Patarasuk and Yuan, JPDC 69, 2009). ``meeting_ms``: what processes
        without devices take beside it, where that was measured."""
        everyone = trainers * self.machines
        if everyone < 2:
            return 0.0
        # Without devices, gloo, over sockets: 10.2 ms a step where two trainers meet, 8.3 where they need not, with
        # Lightning's broadcast before each step (docs/benchmarks_strategy.md, bounded staleness, nobody late).
        gloo_ms = 1.9 if meeting_ms is None else meeting_ms
        rate_gb_s, latency_ms = (self.peer_gb_s, 0.05) if self.gpus else (1.0, gloo_ms)
        if self.machines > 1:
            rate_gb_s, latency_ms = min(rate_gb_s, self.network_gb_s), 2 * latency_ms
        return 2 * (everyone - 1) / everyone * num_bytes / rate_gb_s / 1e6 + latency_ms

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> Machine:
        """Reads what :meth:`to_json` returned. Raises PlanError: it is none of that."""
        try:
            values = dict(values)
            gpus = tuple(Gpu(**gpu) for gpu in values.pop("gpus"))
            stages = values.pop("stages")
            return cls(**values, gpus=gpus, stages=None if stages is None else BatchWork(**stages))
        except (TypeError, KeyError, ValueError) as error:
            raise PlanError(f"the plan's machine cannot be read: {error}.") from error


def this_machine() -> Machine:
    """Describes this machine: its cores, what is free of its memory, and its devices with their data sheets' rates."""
    gpus = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        name = torch.cuda.get_device_name(index)
        data_sheet = next((gpu for model, gpu in GPUS.items() if model in name), GPUS["T4"])
        total = torch.cuda.get_device_properties(index).total_memory
        gpus.append(replace(data_sheet, name=name, memory_gib=total / _GIB))
    cores = len(os.sched_getaffinity(0))
    return Machine(cores=cores, memory_gib=free_bytes() / _GIB, gpus=tuple(gpus), is_here=True)


def read_machine(file: Path) -> Machine:
    """Reads a description of a machine.

    Example:
        >>> import tempfile
        >>> text = "{cores: 16, memory_gib: 128, gpus: [{name: H200, count: 8}], links: {nvlink_gb_s: 450}}"
        >>> with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        ...     _ = file.write(text), file.flush()
        ...     machine = read_machine(Path(file.name))
        >>> len(machine.gpus), machine.peer_gb_s
        (8, 450)

    Raises:
        PlanError: the file cannot be read, or describes no machine.
    """
    import yaml

    try:
        text = yaml.safe_load(file.read_text())
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise PlanError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    try:
        return machine_of(text)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from None


def machine_of(description: Any) -> Machine:
    """Makes the machine of a description, as :func:`read_machine` reads it. Raises PlanError: it describes none."""
    values = _section(description, "the description", ("cores", "memory_gib", *_SECTIONS))
    if missing := [name for name in ("cores", "memory_gib") if name not in values]:
        raise PlanError(f"{' and '.join(missing)} missing. {_EXAMPLE}")
    links = _section(values.get("links", {}), "links", ("rows_gb_s", "pcie_gb_s", "nvlink_gb_s"))
    settings: dict[str, Any] = {name: values[name] for name in ("cores", "memory_gib", "machines") if name in values}
    if "rows_gb_s" in links:
        settings["rows_gb_s"] = links["rows_gb_s"]
    if (peer := links.get("nvlink_gb_s", links.get("pcie_gb_s"))) is not None:
        settings["peer_gb_s"] = peer
    for section, key, name in (("disk", "read_gb_s", "disk_gb_s"), ("network", "gb_s", "network_gb_s")):
        if key in (rates := _section(values.get(section, {}), section, (key,))):
            settings[name] = rates[key]
    gpus = values.get("gpus", [])
    if not isinstance(gpus, list):
        raise PlanError(f"gpus is {gpus!r:.100}; a list is needed. {_EXAMPLE}")
    settings["gpus"] = tuple(gpu for entry in gpus for gpu in _gpus(entry))
    if "stages" in values:
        stages = _section(values["stages"], "stages", ("seeds", *(field.name for field in fields(BatchWork))))
        settings["stage_seeds"] = stages.pop("seeds", 1024)
        settings["stages"] = BatchWork(**stages)
    return Machine(**settings)


_SECTIONS = ("gpus", "links", "disk", "machines", "network", "stages")
_EXAMPLE = "A machine is described as {cores: 16, memory_gib: 128, gpus: [{name: H200, count: 8}]}."


def _gpus(entry: Any) -> list[Gpu]:
    """The devices that one entry of the list stands for: of a known name, or with figures of one's own."""
    names = ("name", "count", *(field.name for field in fields(Gpu)))
    values = _section({"name": entry} if isinstance(entry, str) else entry, "gpus", names)
    name, count = values.pop("name", None), values.pop("count", 1)
    if type(count) is not int or not 1 <= count <= 1024:
        raise PlanError(f"gpus: count is {count!r}; a whole number from 1 to 1024 is needed.")
    if name in GPUS:
        return [replace(GPUS[name], **values)] * count
    if missing := [key for key in ("memory_gib", "memory_gb_s") if key not in values]:
        raise PlanError(
            f"gpus: {name!r} is not known, only {', '.join(GPUS)}: give its {' and '.join(missing)}, from its maker's "
            f"data sheet."
        )
    return [Gpu(str(name), **values)] * count


def _section(values: Any, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """A part of a description, as a dict. Raises PlanError: it is none, or has other keys."""
    if not isinstance(values, Mapping):
        raise PlanError(f"{name} is {values!r:.100}; settings by their names are needed. {_EXAMPLE}")
    if wrong := [str(key) for key in values if key not in keys]:
        raise PlanError(f"{name}: {', '.join(wrong)} not known; there are {', '.join(dict.fromkeys(keys))}.")
    return dict(values)
