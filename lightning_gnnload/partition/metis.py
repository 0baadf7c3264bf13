"""Metis: parts with few edges between them, by METIS, for graphs that fit memory several times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import MissingExtraError, PartitionError
from lightning_gnnload.host.memory import free_bytes
from lightning_gnnload.partition import metis_process
from lightning_gnnload.partition.partitioner import Advance, Partitioner, SeedIds

# What METIS takes for each neighbour of each node, and for each node, measured on random graphs: few of their edges
# contract, so that each coarser graph is nearly as large as the one before.
NEIGHBOR_BYTES, NODE_BYTES = 130, 100
_LOOK_S = 0.1  # METIS runs in another process, and Ctrl-C must be heard here
_EDGES_A_CHUNK = 1 << 22  # bounds scratch memory: graphs are larger than what is left


@dataclass(frozen=True)
class Metis(Partitioner):
    """Runs METIS's multilevel partitioning on the graph as undirected, without loops and repeated edges.

    Nodes and the seeds of each phase are balanced at once, as separate constraints. PyMetis does not pass constraints
    on, so METIS's functions are called in the library that PyMetis brings along, in another process, which Ctrl-C ends.
    METIS reports no progress.

    Args:
        recursive: by repeated bisection, instead of into all parts at once: cuts somewhat less, but what a bisection is
            out of balance adds up.
        contiguous: no part falls into pieces. The graph must be connected, and be cut into all parts at once. It goes
            before balance: where training nodes lie together, a part may have none.
        tolerance: how much heavier than the mean a part may be, of nodes and of each phase's seeds; a thousandth at
            least. METIS keeps it where it can.

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
        self, graph: Graph, seeds: SeedIds, num_parts: int, *, hops: int, seed: int, advance: Advance
    ) -> np.ndarray:
        library, dtype, options = _metis()
        read = partial(advance, "Reading both directions")
        read(0.0)
        _check_memory(graph, 2 * graph.indices.nbytes)  # the other direction, and the ends that it is sorted from
        with _memory() as starts, _memory() as neighbors, _memory() as weights, _memory() as parts:
            total = 0
            for counts, chunk in undirected_neighbors(graph, advance=read):
                _append(starts, np.cumsum(counts) - counts + total, dtype)
                _append(neighbors, chunk, dtype)
                total += len(chunk)
                # How many neighbours there are without repeats shows only as they are merged.
                _check_memory(graph, total * NEIGHBOR_BYTES + graph.num_nodes * NODE_BYTES)
            _append(starts, np.array([total]), dtype)
            _append(neighbors, np.zeros(1), dtype)  # so that there is memory to map where there are no edges
            constraints = _constraints(graph.num_nodes, seeds)
            _append(weights, constraints, dtype)
            os.ftruncate(parts, graph.num_nodes * dtype.itemsize)
            job = {
                "library": library,
                "index_bytes": dtype.itemsize,
                "starts": starts,
                "neighbors": neighbors,
                "weights": weights,
                "parts": parts,
                "num_nodes": graph.num_nodes,
                "num_constraints": constraints.shape[1],
                "num_parts": num_parts,
                "recursive": self.recursive,
                "options": {
                    options["SEED"]: seed % 2**31,  # PyMetis may be built with 32-bit integers
                    options["CONTIG"]: int(self.contiguous),
                    options["UFACTOR"]: round(1000 * self.tolerance),
                },
            }
            _run(job, lambda: advance("Partitioning by METIS", 0.0))
            return np.fromfile(f"/proc/self/fd/{parts}", dtype).astype(np.int32)


def undirected_neighbors(
    graph: Graph, *, advance: Callable[[float], object] = lambda share: None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Merges in- and out-neighbours of each node into one ascending list, without the node and without repeats.

    Yields for some nodes in turn, from 0 on, how many neighbours each has, and these in a row, both int64. Takes 8
    bytes an edge (16 where ids are int64), 16 a node, and some MiB for a chunk, or 16 bytes a neighbour of a node with
    more.

    Example:
        >>> graph = Graph.from_coo(src=[1, 0, 2, 2], dst=[0, 1, 0, 2])
        >>> [(counts.tolist(), neighbors.tolist()) for counts, neighbors in undirected_neighbors(graph)]
        [([2, 1, 1], [1, 2, 0, 0])]
    """
    num_nodes = graph.num_nodes
    dst = np.repeat(np.arange(num_nodes, dtype=graph.indices.dtype), graph.in_degrees)
    out_indptr, out_indices, _ = ops.coo_to_csc(dst, graph.indices, num_nodes)
    del dst
    total = graph.indptr + out_indptr
    first = 0
    while first < num_nodes:
        last = max(int(np.searchsorted(total, total[first] + _EDGES_A_CHUNK, side="right")) - 1, first + 1)
        keys = np.concatenate(
            [
                _keys(indptr[first : last + 1], indices, num_nodes)
                for indptr, indices in ((graph.indptr, graph.indices), (out_indptr, out_indices))
            ]
        )
        keys.sort()  # np.unique hashes, which takes a hundred times as long
        keys = keys[np.flatnonzero(np.diff(keys, prepend=-1))]
        nodes, neighbors = np.divmod(keys, num_nodes)
        no_loop = nodes + first != neighbors
        yield np.bincount(nodes[no_loop], minlength=last - first), neighbors[no_loop]
        first = last
        advance(first / num_nodes)


def _keys(indptr: np.ndarray, indices: np.ndarray, num_nodes: int) -> np.ndarray:
    """Returns a number for each entry of some lists; sorted, they go by list, then by neighbour."""
    lists = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return lists * num_nodes + indices[indptr[0] : indptr[-1]]


def _check_memory(graph: Graph, needed_bytes: int) -> None:
    if needed_bytes > (free := free_bytes()):
        raise PartitionError(
            f"METIS may take more than {needed_bytes / 2**30:.1f} GiB for {graph!r}, but the machine has "
            f"{free / 2**30:.1f} GiB of free memory. Take method='bgl', which needs little, or a larger machine."
        )


def _constraints(num_nodes: int, seeds: SeedIds) -> np.ndarray:
    """Returns METIS's node weights, int64 ``[N, 1 + phases]``: a column of ones, then one for each phase with seeds."""
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
    indices = {name: int(getattr(library.options_indices, name)) for name in ("SEED", "CONTIG", "UFACTOR")}
    return str(library.__file__), pymetis.zero_copy_dtype(), indices


def _run(job: dict[str, Any], tick: Callable[[], None]) -> None:
    """Runs METIS to its end, or until ``tick``, which is called ten times a second, raises."""
    descriptors = [job[name] for name in ("starts", "neighbors", "weights", "parts")]
    command = [sys.executable, "-I", str(Path(metis_process.__file__)), json.dumps({**job, "parent": os.getpid()})]
    with subprocess.Popen(
        command, pass_fds=descriptors, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=_LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    tick()
        finally:
            process.kill()
    # METIS aborts where it gets no memory; the system kills the process where memory runs short later.
    if process.returncode in (-signal.SIGKILL, -signal.SIGABRT, 3):  # 3 is METIS_ERROR_MEMORY
        raise PartitionError(
            f"METIS had too little memory for {job['num_nodes']} nodes: method='bgl' reads the graph in turn."
        )
    if process.returncode != 0:
        why = " ".join(output.decode(errors="replace").split()) or f"status {process.returncode}"
        raise PartitionError(f"METIS gave up: {why}. Take other settings, or method='bgl'.")


@contextmanager
def _memory() -> Iterator[int]:
    """Makes anonymous memory that another process may map, and yields its descriptor."""
    descriptor = os.memfd_create("gnnload-metis", os.MFD_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _append(descriptor: int, values: np.ndarray, dtype: np.dtype[Any]) -> None:
    with open(descriptor, "ab", closefd=False) as file:
        file.write(np.ascontiguousarray(values, dtype).data)
