"""Figures of a device, and those that an H200 had, beside which they stand."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Figure(NamedTuple):
    """A figure that was measured."""

    name: str
    value: float
    unit: str
    about: str = ""  # sizes, where they are not those of the H200's


class Reference(NamedTuple):
    """A figure of the H200, and which ceiling bounds it, by which it is scaled for another device."""

    value: float
    unit: str
    bound_by: Literal["memory", "bus", "reads", "minima", "host", ""]  # "": a ceiling itself, which is not judged
    more_is_better: bool
    about: str = ""


COPY, BUS, BUS_BACK = "copy on the device", "copy to the device", "copy to the host"
READS, MINIMA = "random reads of 4 bytes", "atomic minima of 4 bytes"
LARGE, MIDDLE, LITTLE = "from 6.4 GB", "from 0.44 GB", "from 30 MB"
TABLES = {LARGE: 6_400_000_000, MIDDLE: 440_000_000, LITTLE: 30_000_000}
LAUNCH, TORCH_OP, EVENT, READ_BACK = "launch of a kernel", "call of a torch operation", "event", "word read back"
BATCHES = ((1024, (10, 25)), (1024, (15, 10, 5)), (8000, (10, 25)), (8000, (15, 10, 5)))
ROWS, TORCH_ROWS = "rows from the device", "rows from the device, by torch.index_select"
ROWS_ON_BUS, SORTED_ON_BUS = "rows over the bus, in random order", "rows over the bus, in order"
HITS = (100, 99, 90, 50, 0)
CEILINGS = {"memory": COPY, "bus": BUS, "reads": f"{READS}, {LARGE}", "minima": f"{MINIMA}, {MIDDLE}"}


def batch_name(num_seeds: int, fanouts: tuple[int, ...]) -> str:
    """Returns the name of a mini-batch's figure."""
    return f"mini-batch of {num_seeds:,} seeds, {list(fanouts)}"


def kernels_name(num_seeds: int, fanouts: tuple[int, ...]) -> str:
    """Returns the name of the figure of its kernels alone."""
    return f"{batch_name(num_seeds, fanouts)}, kernels alone"


def cached_name(hits: int) -> str:
    """Returns the name of the figure of rows from a cache."""
    return f"rows from a cache, {hits} % of them there"


H200_ABOUT = (
    "One H200, 16 cores of the host, PCIe 5, driver 580, torch 2.11 for CUDA 13, CuPy 14.2, Python 3.12; a version "
    "that launched each kernel from Python and read rows over the bus in the order of the mini-batch."
)
_EIGHTH = "a version that gave misses an eighth of the processors had 440"

H200: dict[str, Reference] = {
    COPY: Reference(2079, "GB/s", "", True, "read, and as much written"),
    BUS: Reference(55, "GB/s", "", True, "page-locked memory, PCIe 5 x16"),
    f"{READS}, {LARGE}": Reference(40, "10^9/s", "", True),
    f"{READS}, {MIDDLE}": Reference(45, "10^9/s", "reads", True),
    f"{READS}, {LITTLE}": Reference(134, "10^9/s", "reads", True),
    f"{MINIMA}, {LARGE}": Reference(15.6, "10^9/s", "minima", True),
    f"{MINIMA}, {MIDDLE}": Reference(17, "10^9/s", "", True),
    f"{MINIMA}, {LITTLE}": Reference(90, "10^9/s", "minima", True),
    batch_name(1024, (10, 25)): Reference(0.59, "ms", "host", False, "WholeGraph 26.10: 0.52"),
    kernels_name(1024, (10, 25)): Reference(0.076, "ms", "reads", False),
    batch_name(1024, (15, 10, 5)): Reference(0.78, "ms", "host", False, "WholeGraph 26.10: 1.13"),
    kernels_name(1024, (15, 10, 5)): Reference(0.17, "ms", "reads", False),
    batch_name(8000, (10, 25)): Reference(0.65, "ms", "host", False, "WholeGraph 26.10: 0.70"),
    kernels_name(8000, (10, 25)): Reference(0.19, "ms", "reads", False),
    batch_name(8000, (15, 10, 5)): Reference(1.32, "ms", "host", False, "WholeGraph 26.10: 3.87"),
    kernels_name(8000, (15, 10, 5)): Reference(0.78, "ms", "minima", False),
    ROWS: Reference(1612, "GB/s", "memory", True, "a kernel that does nothing else: 1,745; WholeGraph 26.10: 1,382"),
    TORCH_ROWS: Reference(834, "GB/s", "memory", True),
    ROWS_ON_BUS: Reference(20, "GB/s", "bus", True, "19 to 21, whatever the memory and the blocks"),
    SORTED_ON_BUS: Reference(48.5, "GB/s", "bus", True),
    cached_name(100): Reference(1390, "GB/s", "memory", True, f"132 blocks for misses; {_EIGHTH}"),
    cached_name(99): Reference(1280, "GB/s", "memory", True, "132 blocks for misses, in random order"),
    cached_name(90): Reference(215, "GB/s", "bus", True, "misses in random order"),
    cached_name(50): Reference(51, "GB/s", "bus", True, "misses in random order"),
    cached_name(0): Reference(27, "GB/s", "bus", True, "misses in random order"),
}
"""What the H200 had: rows are 1.9 M of 512 bytes, of 8 M; mini-batches of a random graph of papers100M's size."""
