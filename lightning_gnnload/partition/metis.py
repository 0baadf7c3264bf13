"""Metis: parts with few edges between them, by METIS, for graphs that fit memory several times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.memory import free_bytes
from lightning_gnnload.errors import MissingExtraError, PartitionError
from lightning_gnnload.partition import metis_process
from lightning_gnnload.partition.partitioner import Partitioner
from lightning_gnnload.partition.undirected import undirected_neighbors

NEIGHBOR_BYTES = 130
"""What METIS takes for each neighbour of each node, measured on graphs whose edges contract little: random ones."""
NODE_BYTES = 100
"""Likewise for each node."""
_LOOK_S = 0.1  # METIS runs in another process, and Ctrl-C must be heard here


@dataclass(frozen=True)
class Metis(Partitioner):
    """Runs METIS's multilevel partitioning on the graph as undirected, without loops and repeated edges.

    Nodes and the seeds of each phase are balanced at once, as constraints of their own, which PyMetis itself does not
    pass on; so METIS's functions are called in the library that PyMetis brings along, in a process of their own.
    METIS says nothing of its progress; Ctrl-C ends it.

    Args:
        recursive: by repeated bisection, instead of into all parts at once: cuts somewhat less, but what a bisection is
            out of balance adds up.
        contiguous: no part falls into pieces. The graph must be connected, and be cut into all parts at once. It goes
            before balance: where training nodes lie together, a part may have none.
        tolerance: how much heavier than the mean a part may be, of nodes and of each phase's seeds; a thousandth at
            least. METIS keeps it where it can.

    Raises:
        PartitionError: settings that exclude each other.

    Source: Karypis and Kumar, "Multilevel algorithms for multi-constraint graph partitioning" (SC'98).
    """

    name: ClassVar[str] = "metis"

    recursive: bool = False
    contiguous: bool = False
    tolerance: float = 0.03

    def __post_init__(self) -> None:
        if self.recursive and self.contiguous:
            raise PartitionError("Metis: contiguous parts are not made recursively; give one of the two.")
        if not 0.001 <= self.tolerance < 1:
            raise PartitionError(f"Metis: tolerance is {self.tolerance}; it must lie in [0.001, 1).")

    def assign(
        self,
        graph: Graph,
        seeds: Mapping[str, np.ndarray],
        num_parts: int,
        *,
        hops: int,
        seed: int,
        advance: Callable[[str, float], None],
    ) -> np.ndarray:
        library, index, options = _metis()
        done = partial(advance, "Reading both directions")
        done(0.0)
        _check_memory(graph, 2 * graph.indices.nbytes)  # the other direction, and the ends that it is sorted from
        with _memory() as starts, _memory() as neighbors, _memory() as weights, _memory() as parts:
            total = 0
            for counts, chunk in undirected_neighbors(
                graph, advance=lambda share: advance("Reading both directions", share)
            ):
                _append(starts, np.cumsum(counts) - counts + total, index)
                _append(neighbors, chunk, index)
                total += len(chunk)
                # How many neighbours there are without repeats shows only as they are merged.
                _check_memory(graph, total * NEIGHBOR_BYTES + graph.num_nodes * NODE_BYTES)
            _append(starts, np.array([total]), index)
            _append(neighbors, np.zeros(1), index)  # so that there is memory to map where there are no edges
            constraints = _constraints(graph.num_nodes, seeds)
            _append(weights, constraints, index)
            os.ftruncate(parts, graph.num_nodes * index.itemsize)
            job = {
                "library": library,
                "index_bytes": index.itemsize,
                "starts": starts,
                "neighbors": neighbors,
                "weights": weights,
                "parts": parts,
                "num_nodes": graph.num_nodes,
                "num_constraints": constraints.shape[1],
                "num_parts": num_parts,
                "recursive": self.recursive,
                "options": {
                    options["SEED"]: seed % 2**31,  # PyMetis may be built with integers of 32 bits
                    options["CONTIG"]: int(self.contiguous),
                    options["UFACTOR"]: round(1000 * self.tolerance),
                },
            }
            _run(job, lambda: advance("Partitioning by METIS", 0.0))
            return np.fromfile(f"/proc/self/fd/{parts}", index).astype(np.int32)


def _check_memory(graph: Graph, needed_bytes: int) -> None:
    if needed_bytes > (free := free_bytes()):
        raise PartitionError(
            f"METIS may take more than {needed_bytes / 2**30:.1f} GiB for {graph!r}, but the machine has "
            f"{free / 2**30:.1f} GiB of free memory. Take method='bgl', which needs little, or a larger machine."
        )


def _constraints(num_nodes: int, seeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns METIS's node weights, int64 ``[N, 1 + phases]``: a column of nodes, then one a phase with seeds."""
    phases = [ids for ids in seeds.values() if len(ids)]
    weights = np.zeros((num_nodes, 1 + len(phases)), np.int64)
    weights[:, 0] = 1
    for column, ids in enumerate(phases, 1):
        weights[ids, column] = 1
    return weights


def _metis() -> tuple[str, np.dtype[Any], dict[str, int]]:
    """Returns the file that exports METIS's functions, the dtype of its integers, and its options' indices."""
    try:
        import pymetis
    except ImportError as error:
        raise MissingExtraError("pymetis", "partition", "Partitioning by METIS", error) from error
    library = import_module("pymetis._internal")
    places = {name: int(getattr(library.options_indices, name)) for name in ("SEED", "CONTIG", "UFACTOR")}
    return str(library.__file__), pymetis.zero_copy_dtype(), places


def _run(job: dict[str, Any], tick: Callable[[], None]) -> None:
    """Runs METIS to its end, or until ``tick``, which is called several times a second, raises."""
    descriptors = [job[name] for name in ("starts", "neighbors", "weights", "parts")]
    command = [sys.executable, "-I", str(Path(metis_process.__file__)), json.dumps({**job, "parent": os.getpid()})]
    with subprocess.Popen(
        command, pass_fds=descriptors, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            while True:
                try:
                    said, _ = process.communicate(timeout=_LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    tick()
        finally:
            process.kill()
    if process.returncode in (-signal.SIGKILL, -signal.SIGABRT, 3):  # 3 is METIS_ERROR_MEMORY
        raise PartitionError(
            f"METIS had too little memory for {job['num_nodes']} nodes: method='bgl' reads the graph in turn."
        )
    if process.returncode != 0:
        why = " ".join(said.decode(errors="replace").split()) or f"status {process.returncode}"
        raise PartitionError(f"METIS gave up: {why}. Take other settings, or method='bgl'.")


@contextmanager
def _memory() -> Iterator[int]:
    """Makes anonymous memory that another process may map, and gives its descriptor."""
    descriptor = os.memfd_create("gnnload-metis", os.MFD_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _append(descriptor: int, values: np.ndarray, dtype: np.dtype[Any]) -> None:
    with open(descriptor, "ab", closefd=False) as file:
        file.write(np.ascontiguousarray(values, dtype).data)
