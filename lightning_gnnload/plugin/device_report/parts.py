"""The parts of a report, each of which runs in a process of its own: one that crashes, hangs or breaks the context of
the device leaves the others alone."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.open_device import open_device
from lightning_gnnload.ops.cuda.launch.runtime import CupyRuntime, Runtime
from lightning_gnnload.plugin.device_report import probes
from lightning_gnnload.plugin.device_report.attributes import device_attributes
from lightning_gnnload.plugin.device_report.comparison import comparisons
from lightning_gnnload.plugin.device_report.probes import ProbeSize
from lightning_gnnload.plugin.device_report.sharing import read_shared, shared_reads

RESULT_BYTES = 1 << 20
"""What a part may say, at most."""
_READER = "read shared memory"  # what the second process of "sharing" runs, which is no part


class ExaminedDevice(NamedTuple):
    """The device that parts examine, by its number in this process, and how it is opened."""

    number: int = 0
    size: ProbeSize = ProbeSize()
    open_device: Callable[[], Device] | None = None
    open_runtime: Callable[[], Runtime] | None = None
    command: Sequence[str] = (sys.executable, "-m", "lightning_gnnload.plugin.device_report")
    """Starts a process that calls :func:`main` with a part, a device and more."""
    patience: float = 1.0
    """A factor of all time limits, for machines that are slow."""

    def device(self) -> Device:
        """Opens the device. Raises CudaUnavailableError."""
        return open_device(torch.device("cuda", self.number)) if self.open_device is None else self.open_device()

    def runtime(self) -> Runtime:
        """Opens the runtime of the device."""
        return CupyRuntime(self.number) if self.open_runtime is None else self.open_runtime()


class ReportPart(NamedTuple):
    """A part of a report."""

    about: str  # while it runs
    limit_s: float
    run: Callable[[ExaminedDevice], Any]


def _figures(probe: Callable[[Device, ProbeSize], Any]) -> Callable[[ExaminedDevice], list[dict[str, Any]]]:
    return lambda examined: [figure._asdict() for figure in probe(examined.device(), examined.size)]


def _sharing(examined: ExaminedDevice) -> dict[str, Any]:
    return shared_reads(examined.runtime(), lambda device, fd: [*examined.command, _READER, str(device), str(fd)])


PARTS = {
    "attributes": ReportPart("What the device is", 60, lambda examined: device_attributes(examined.number)),
    "comparisons": ReportPart(
        "Comparing all kernels with the CPU's, compiled now if need be",
        240,
        lambda examined: [comparison._asdict() for comparison in comparisons(examined.device())],
    ),
    "sharing": ReportPart("Sharing its memory between two processes", 120, _sharing),
    "ceilings": ReportPart("Copies, random reads and atomics", 60, _figures(probes.ceilings)),
    "host costs": ReportPart("Calls of the host", 60, _figures(probes.host_costs)),
    "sampling": ReportPart("Mini-batches", 120, _figures(probes.batches)),
    "rows": ReportPart("Rows, from the device and over the bus", 120, _figures(probes.rows)),
}
"""By name, in the order in which they run: what is worth most comes first."""


def main(arguments: Sequence[str], examined: ExaminedDevice | None = None) -> int:
    """Runs a part, named by ``arguments`` with the device's number, and writes its result to stdout as JSON."""
    name, number, *more = arguments
    examined = (examined or ExaminedDevice())._replace(number=int(number))
    if name == _READER:
        return read_shared(examined.runtime(), int(more[-1]))
    # Libraries print what they like: it goes to stderr, which is read for what a crash says.
    with os.fdopen(os.dup(1), "w") as stdout:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            try:
                result: dict[str, Any] = {"result": PARTS[name].run(examined)}
            except Exception as error:  # what drivers and torch raise has many classes
                result = {"error": f"{type(error).__name__}: {error}"}
        stdout.write(json.dumps(result)[:RESULT_BYTES])
    return 0
