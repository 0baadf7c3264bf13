"""``gnnload doctor``: what this machine offers, which CUDA devices can be used, and what would help.

``--gpu`` examines one of them whole, and writes a file.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightning_gnnload import ops
from lightning_gnnload.errors import CudaUnavailableError, GnnLoadError
from lightning_gnnload.host import malloc
from lightning_gnnload.host.huge_pages import SWITCH, can_move_to_huge_pages
from lightning_gnnload.host.memory import free_bytes, in_units
from lightning_gnnload.ops.cuda.launch.compile import loaded_nvrtc
from lightning_gnnload.ops.cuda.launch.open_device import open_device
from lightning_gnnload.plugin.commands.arguments import Parser, at_least, output_file
from lightning_gnnload.plugin.commands.versions import EXTRAS, version_of, versions
from lightning_gnnload.plugin.device_report.comparison import quick_comparisons
from lightning_gnnload.plugin.device_report.parts import ExaminedDevice
from lightning_gnnload.plugin.device_report.report import DeviceReport, say_on_stderr

_OUT = "gnnload-gpu.json"
_DESCRIPTION = "Says what this machine offers, which GPUs can be used, and what would help."
_EPILOG = """--gpu takes some minutes. Each part runs in a process of its own, with a time limit. The exit status is 0
if all ran to their end and the kernels' results are the CPU's, and 1 if not, or if there is no such GPU, for which no
file is written."""
_NVIDIA_DRIVER = Path("/dev/nvidiactl")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


class MachineCheck(NamedTuple):
    """One result of ``gnnload doctor``."""

    about: str  # a word or two
    found: str  # a line; a key of --json
    advice: str = ""  # what would be better, if anything


def machine_findings(huge_pages: Path = _HUGE_PAGES) -> Iterator[MachineCheck]:
    """Examines this process's machine, or container. ``huge_pages``: where the system says which memory it serves by 2
    MB pages."""
    yield MachineCheck("versions", ", ".join(versions()))
    yield _extras()
    num_cores, num_there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    out_of = "" if num_cores == num_there else f" of {num_there}"
    sets = ops.instruction_sets()
    yield MachineCheck("processor", f"{num_cores}{out_of} cores, {platform.machine()}; kernels use {sets[-1]}")
    yield MachineCheck("free memory", in_units(free_bytes()))
    yield _huge_pages("2 MB pages", huge_pages / "enabled", "features and graphs", ("never",))
    yield _moved_tensors()
    yield _huge_pages(
        "2 MB pages, shared",
        huge_pages / "shmem_enabled",
        "mini-batches and caches that ranks share",
        ("never", "deny"),
    )
    yield _locked_memory()
    yield _malloc()


def _extras() -> MachineCheck:
    """What is installed beside the core, and what is known not to work together."""
    here = [
        f"{extra} ({', '.join(f'{package} {version_of(package)}' for package in packages)})"
        for extra, packages in EXTRAS.items()
        if all(map(version_of, packages))
    ]
    missing = [extra for extra, packages in EXTRAS.items() if not all(map(version_of, packages))]
    says = ", ".join(here) or "none"
    if missing:
        says += f"; not installed: {', '.join(missing)} (pip install 'lightning-gnnload[NAME]', if you use it)"
    dgl = version_of("dgl")
    if dgl.startswith("2.") and _release(torch.__version__) > (2, 2, 1):
        return MachineCheck(
            "extras",
            says,
            f"dgl {dgl} imports with torch 2.2.1 at the latest, and this is torch {torch.__version__}.\n"
            "For DGL's format: pip install 'dgl==1.1.3' (Python 3.11 or older).",
        )
    return MachineCheck("extras", says)


def _release(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    return tuple(int(number) for number in re.findall(r"\d+", text.partition("+")[0])[:3])


def _huge_pages(about: str, file: Path, subject: str, off: tuple[str, ...]) -> MachineCheck:
    try:
        choices = file.read_text().split()
    except OSError:
        return MachineCheck(about, "unknown: the system does not say")
    chosen = next((choice[1:-1] for choice in choices if choice.startswith("[")), "unknown")
    if chosen not in off:
        return MachineCheck(about, chosen)
    return MachineCheck(
        about, chosen, f"{subject} are read faster on 2 MB pages: as root, echo advise > {file} (until the next start)."
    )


def _moved_tensors() -> MachineCheck:
    about = "2 MB pages, tensors"
    if os.environ.get(SWITCH) == "off":
        return MachineCheck(
            about, f"off: {SWITCH}=off", f"large tensors are read faster on 2 MB pages: unset {SWITCH}."
        )
    if can_move_to_huge_pages():
        return MachineCheck(about, f"large ones are moved when loading begins ({SWITCH}=off leaves them)")
    return MachineCheck(
        about,
        "not moved: the system cannot, as Linux before 6.1",
        "large tensors are read faster on 2 MB pages: start Python with GLIBC_TUNABLES=glibc.malloc.hugetlb=1.",
    )


def _locked_memory() -> MachineCheck:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return MachineCheck(
        "locked memory", "no limit" if limit == resource.RLIM_INFINITY else f"at most {in_units(limit)}"
    )


def _malloc() -> MachineCheck:
    allocator, setting = malloc.allocator(), malloc.setting_in_environment()
    if malloc.glibc_release() is None or setting:
        return MachineCheck("malloc", f"{allocator}{f', {setting}' if setting else ''}; left as it is")
    return MachineCheck(
        "malloc",
        f"{allocator}; gnnload fit and FactoredStrategy have it keep freed memory for the next step",
        "large mini-batches train faster on CPUs with freed memory kept.\n"
        f"Start scripts with other strategies by\n  {malloc.VARIABLES} python script.py",
    )


def cuda_findings() -> Iterator[MachineCheck]:
    """Examines each device that this process sees; the compiler alone where there is none."""
    yield MachineCheck("kernel compiler", *_compiler())
    num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(num_devices):
        yield _device(index, num_devices)
    if not num_devices:
        yield _without_device()


def _without_device() -> MachineCheck:
    """No GPU is the usual case, and no fault; one that torch cannot see is."""
    cuda = torch.version.cuda
    build = f"torch {torch.__version__} is built {f'for CUDA {cuda}' if cuda else 'without CUDA'}"
    if not _NVIDIA_DRIVER.exists():
        return MachineCheck("GPU", f"none; everything runs on the CPU ({build})")
    remedy = (
        "see that nvidia-smi lists it, that CUDA_VISIBLE_DEVICES does not hide it, and that the driver is new enough."
        if cuda
        else "install a build of torch with CUDA: see 'Start locally' on PyTorch's site."
    )
    return MachineCheck("GPU", f"NVIDIA's driver is here, but {build} and uses no GPU", f"for the GPU, {remedy}")


def _compiler() -> tuple[str, str]:
    try:
        import cupy

        return f"NVRTC {'.'.join(map(str, loaded_nvrtc().getVersion()))} of CuPy {cupy.__version__}", ""
    except (ImportError, CudaUnavailableError) as error:
        needs_one = torch.cuda.is_available()
        return ("none", str(error)) if needs_one else ("none; only GPUs need one", "")


def _device(index: int, num_devices: int) -> MachineCheck:
    about = f"cuda:{index}"
    name = torch.cuda.get_device_name(index)
    try:
        free, total = torch.cuda.mem_get_info(index)
        name += f", {in_units(free)} of {in_units(total)} free"
        candidates = [peer for peer in range(num_devices) if peer != index]
        peers = [f"cuda:{peer}" for peer in candidates if torch.cuda.can_device_access_peer(index, peer)]
        if candidates:
            name += f", reaches {', '.join(peers) or 'no other device'}"
        compared = list(quick_comparisons(open_device(torch.device("cuda", index))))
    except (GnnLoadError, RuntimeError) as error:  # torch's and CuPy's, of a device that others have or that is broken
        return MachineCheck(about, f"{name}; off: {error}")
    if bad := [comparison for comparison in compared if comparison.is_bad]:
        return MachineCheck(
            about,
            f"{name}; off: a test batch {bad[0].outcome}: {bad[0].subject}: {bad[0].why}",
            "That is an error of this package, its compiler or the device: please report it, with what gnnload doctor "
            "--gpu writes, and sample on the CPU.",
        )
    return MachineCheck(about, f"{name}; a test batch equals the CPU's")


def main(arguments: Sequence[str]) -> int:
    """Prints what this machine offers; returns the exit code."""
    parser = Parser("gnnload doctor", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--json", action="store_true", help="print findings as JSON, for reports of errors")
    parser.add_argument(
        "--gpu",
        type=at_least(0),
        nargs="?",
        const=0,
        metavar="NUMBER",
        help="examine this GPU whole, 0 if there is no number: compare all kernels with the CPU's, and measure",
    )
    parser.add_argument("--out", type=output_file, metavar="FILE", help=f"of --gpu: the file to write; default {_OUT}")
    options = parser.parse_args(arguments)
    if options.gpu is not None:
        if options.json:
            parser.error("--json is of the findings without --gpu, which writes JSON itself, to the file of --out")
        return _examine(options.gpu, options.out or Path(_OUT))
    if options.out is not None:
        parser.error("--out names the file of --gpu, which is missing")
    findings = [*machine_findings(), *cuda_findings()]
    if options.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        _show(findings)
    return 0


def _examine(index: int, file: Path) -> int:
    num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= num_devices:
        there = f"there are {num_devices} GPUs, numbered from 0" if num_devices else _without_device().found
        remedy = "" if num_devices else _without_device().advice
        print(f"gnnload doctor: GPU {index} cannot be examined: {there}. {remedy}".rstrip(), file=sys.stderr)
        return 1
    report = DeviceReport.make(ExaminedDevice(index), say_on_stderr, file)
    for line in report.lines():
        print(line)
    print(
        f"Written to {file}, without names of users and machines, paths and addresses. Look through it, and attach it "
        "to an issue 'Report of a GPU'."
    )
    return 0 if report.is_sound else 1


def _show(findings: Sequence[MachineCheck]) -> None:
    console, table = Console(), Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        table.add_row(finding.about, Text(finding.found))
    console.print(table, highlight=False)
    advised = [finding for finding in findings if finding.advice]
    console.print("\nWhat would help:" if advised else "\nNothing to do.")
    for finding in advised:  # with commands, which are copied whole
        advice = finding.advice.replace("\n", "\n    ")
        console.print(f"  {finding.about}: {advice}", markup=False, highlight=False, soft_wrap=True)
