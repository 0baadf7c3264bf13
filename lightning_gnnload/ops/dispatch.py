"""The only importer of native code: the compiled CPU kernels, and what all checked functions above them share.

Arrays are C-contiguous NumPy arrays, memory maps included; no function here copies an input. Every kernel is a
single-threaded pure function that releases the GIL: one thread makes one batch. The folder tests/oracle has what each
must equal, element by element.

Shapes: N graph nodes, E edges, S seeds, L hops, B requested ids, F feature width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Literal

import numpy as np

from ..errors import GnnLoadError, SamplerConfigError, SeedError
from .checks import as_integer, check_apart, check_array, check_choice, check_csc_form
from .installed import installed_kernels

try:
    from . import _kernels as kernels
except ImportError as error:
    kernels = installed_kernels(error)

ALL_NEIGHBORS = -1
MAX_FANOUT: int = kernels.MAX_FANOUT
MAX_HOPS: int = kernels.MAX_HOPS
MAX_HOP_DRAWS: int = kernels.MAX_HOP_DRAWS
# A draw's counter has 48 bits for its node (kernels/common/draw.h); offsets in bytes stay within int64 as well.
MAX_NODES = 1 << 48
INSTRUCTION_SETS = ("baseline", "avx2", "avx512")  # in the order of kernels/common/isa.h

# Up to 1 GiB of stamps a thread; beyond it a table as large as the batch costs no more time.
MAX_STAMP_NODES = 1 << 28


@dataclass(frozen=True)
class DrawKey:
    """The key of a batch's random draws: seed, epoch and step, of 64, 32 and 32 unsigned bits, and the number of its
    first hop, so that one hop can be sampled by itself. Raises SamplerConfigError where one does not fit."""

    seed: int
    epoch: int
    step: int
    hop: int = 0

    def __post_init__(self) -> None:
        for name, bits in (("seed", 64), ("epoch", 32), ("step", 32), ("hop", 16)):
            value = getattr(self, name)
            # Compared first, as nearly every key is made of plain integers already, one for each batch.
            if type(value) is not int:
                value = as_integer(f"DrawKey: {name}", value)
                # Through the frozen class: native code takes plain integers alone.
                object.__setattr__(self, name, value)
            if not 0 <= value < 1 << bits:
                raise SamplerConfigError(f"DrawKey: {name} is {value}, but must lie in [0, 2**{bits}).")


@dataclass(frozen=True)
class HopLayout:
    """The byte offsets of one hop's arrays in an arena, -1 where there is none.

    ``indptr`` is int32 ``[num_dst + 1]``, ``indices`` int32 ``[num_edges]`` (local ids), ``edge_ids`` int64,
    ``edge_weights`` float32 and ``edge_types`` int32 ``[num_edges]``. ``num_dst`` and ``num_src`` count the nodes known
    before and after the hop.
    """

    num_dst: int
    num_src: int
    num_edges: int
    indptr_offset: int
    indices_offset: int
    edge_ids_offset: int = -1
    edge_weights_offset: int = -1
    edge_types_offset: int = -1


@dataclass(frozen=True)
class SampleLayout:
    """The layout of a mini-batch in an arena: ``nodes`` int64 ``[num_nodes]`` at 0, the hops at its end.

    Bytes ``[free_begin, free_end)`` between them are unused, both multiples of 64. Where nodes belong to queries, the
    query of each is int32 ``[num_nodes]`` at ``queries_offset``, otherwise -1.
    """

    num_nodes: int
    hops: tuple[HopLayout, ...]
    free_begin: int
    free_end: int
    queries_offset: int = -1

    @classmethod
    def of(cls, written: tuple[int, Sequence[tuple[int, ...]], int, int, int]) -> SampleLayout:
        """Wraps the layout that a kernel returned."""
        num_nodes, hops, free_begin, free_end, queries_offset = written
        return cls(num_nodes, tuple(starmap(HopLayout, hops)), free_begin, free_end, queries_offset)

    def compact(self) -> SampleLayout:
        """Returns the layout of the same arrays without the free bytes between them."""
        return self.with_gap(0)

    def with_gap(self, num_bytes: int) -> SampleLayout:
        """Returns the layout of the same arrays with so many free bytes between them, a multiple of 64."""
        shift = self.free_begin + num_bytes - self.free_end

        # Offsets of -1 stay, as there is no such array.
        def moved(hop: HopLayout) -> HopLayout:
            offsets = {name: value for name, value in vars(hop).items() if name.endswith("_offset")}
            return replace(hop, **{name: offset + shift for name, offset in offsets.items() if offset >= 0})

        return replace(self, hops=tuple(map(moved, self.hops)), free_end=self.free_begin + num_bytes)


class ArenaTooSmall(Exception):  # noqa: N818  a signal between kernel and slot pool, not an error
    """Raised by a sampling op whose arena is too small; sampling again into a larger one gives the same batch.

    ``needed_bytes`` is what the part that failed needs; later parts may need more.
    """

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(needed_bytes)
        self.needed_bytes = needed_bytes


class Workspace:
    """The scratch memory of one sampling thread: a table that deduplicates up to ``num_nodes`` node ids.

    One call at a time may use it; a second one from another thread is refused. It is clean after each call, failed ones
    included. The table ``"stamp"`` takes 4 bytes for each node of the graph, ``"hash"`` 32 to 64 bytes for each node of
    the largest batch so far; ``"auto"`` takes stamps up to 2**28 nodes.
    """

    def __init__(self, num_nodes: int, table: Literal["auto", "stamp", "hash"] = "auto") -> None:
        num_nodes = as_integer("Workspace: num_nodes", num_nodes)
        if not 0 <= num_nodes < MAX_NODES:
            raise SamplerConfigError(f"Workspace: num_nodes is {num_nodes}, but must lie in [0, 2**48).")
        check_choice("Workspace: table", table, ("auto", "stamp", "hash"))
        if table == "auto":
            table = "stamp" if num_nodes <= MAX_STAMP_NODES else "hash"
        self.num_nodes, self.table = num_nodes, table
        self.native = kernels.Workspace(num_nodes, table == "hash")


def check_hops(name: str, num_hops: int, key: DrawKey, most: int = MAX_HOPS) -> None:
    """Raises SamplerConfigError where there are more hops than draws have numbers for."""
    if key.hop + num_hops > most:
        since = f" after hop {key.hop}" if key.hop else ""
        raise SamplerConfigError(f"{name} has {num_hops} hops{since}, but at most {most - key.hop} are possible.")


def gather_rows(table: np.ndarray, ids: np.ndarray, out: np.ndarray, positions: np.ndarray | None = None) -> None:
    """Copies ``out[i] = table[ids[i]]``, or ``out[positions[i]] = table[ids[i]]``, into the caller's memory.

    ``table`` is ``[N, F]`` or ``[N]``, ``ids`` int64 ``[B]``, ``out`` of the table's dtype, ``[B, F]`` or with
    ``positions``, int64 ``[B]``, of any length R; its other rows stay. Raises SeedError for an id or position out of
    range, with ``out`` unchanged, and GnnLoadError for shapes or dtypes that do not fit each other.
    """
    # aligned=False: rows are copied as bytes, so they may begin anywhere.
    check_array("table", table, None, None, GnnLoadError, aligned=False)
    check_array("ids", ids, (np.int64,), 1, SeedError)
    check_array("out", out, (table.dtype,), table.ndim, GnnLoadError, writable=True, aligned=False)
    # Copying the bytes of Python objects would not count their references.
    if table.ndim not in (1, 2) or table.dtype.hasobject:
        raise GnnLoadError(
            f"table has dtype {table.dtype} and shape {table.shape}, but must hold plain numbers, as [N] or [N, F]."
        )
    num_out = ids.shape[0] if positions is None else out.shape[0]
    if out.shape != (num_out, *table.shape[1:]):
        raise GnnLoadError(
            f"out has shape {out.shape}, but {ids.shape[0]} ids of a table of shape {table.shape} "
            f"need {(num_out, *table.shape[1:])}."
        )
    check_apart("out", out, ("table", table), ("ids", ids), ("positions", positions))
    if positions is not None:
        check_positions(positions, ids, out)
    read, written = table.reshape(-1).view(np.uint8), out.reshape(-1).view(np.uint8)
    kernels.gather_rows(read, table.shape[0], ids, written, positions, num_out)


def check_positions(positions: np.ndarray | None, ids: np.ndarray, out: np.ndarray) -> None:
    """Checks that ``out`` has one row for each id; the kernels check the ids. Raises SeedError or SamplerConfigError
    for positions of another dtype or length, or in the memory of ``out``."""
    if positions is None:
        if len(out) != len(ids):
            raise GnnLoadError(f"out has {len(out)} rows, but ids has {len(ids)}: one each is needed.")
        return
    check_array("positions", positions, (np.int64,), 1, SeedError)
    if len(positions) != len(ids):
        raise SeedError(f"positions has {len(positions)} entries, but ids has {len(ids)}: one each is needed.")
    check_apart("out", out, ("positions", positions))


def check_csc(indptr: np.ndarray, indices: np.ndarray) -> None:
    """Raises GraphFormatError unless two arrays are a graph, which every other kernel trusts: ``indptr`` int64 ``[N +
    1]`` ascends from 0 to E, ``indices`` int32 or int64 ``[E]`` are in ``[0, N)``, and in-degrees are below 2**32. The
    message names the first bad position and its value."""
    # Without the end of indptr: the kernel checks it, and names the first bad position.
    check_csc_form(indptr, indices, check_end=False)
    kernels.check_csc(indptr, indices)


def random_keys(seed: int, epoch: int, ids: np.ndarray) -> np.ndarray:
    """Returns ordering keys, uint64 ``[B]``, of ``ids`` int64 ``[B]``: ``ids[np.argsort(keys)]`` is a shuffle. An id's
    key does not depend on the other ids."""
    # Step 0 always: the order of an epoch is decided before any step.
    key = DrawKey(seed, epoch, step=0)
    check_array("ids", ids, (np.int64,), 1, SeedError)
    keys = np.empty(ids.shape[0], np.uint64)
    kernels.random_keys(key.seed, key.epoch, ids, keys)
    return keys


def instruction_sets() -> tuple[str, ...]:
    """Lists this machine's instruction sets that the kernels have code for; they use the last. ``"baseline"`` is
    portable."""
    return INSTRUCTION_SETS[: kernels.best_isa() + 1]


def use_instruction_set(name: str) -> None:
    """Makes all kernels of this process use one instruction set: for tests and benchmarks, since results are equal.
    Raises SamplerConfigError where this machine lacks it."""
    if name not in instruction_sets():
        raise SamplerConfigError(f"instruction set {name!r} is not one that this machine has: {instruction_sets()}.")
    kernels.set_isa(INSTRUCTION_SETS.index(name))


def bytes_view(array: np.ndarray) -> np.ndarray:
    """Views an array of any dtype as bytes."""
    return array.reshape(-1).view(np.uint8)
